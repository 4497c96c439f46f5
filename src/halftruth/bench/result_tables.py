"""Results as a table like the papers': methods as rows, data sets and label settings as columns."""

from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd

from halftruth.bench.papers import Number, find_published
from halftruth.bench.results import Record
from halftruth.data import DataError

# Reference rows: not ranked, and not part of rank correlations.
REFERENCES = ("complete",)
# What makes a column of a table; one row of a summary is one method in it.
COLUMN = ["data", "labels", "metric"]
_OF_METHOD = [
    "method", "mean", "std", "seeds", "rank", "published", "spread", "difference", "source",
]  # fmt: skip


def summarise(
    records: Iterable[Record],
    metrics: Iterable[str] = ("mAP",),
    part: str = "test",
    source: str = "",
) -> pd.DataFrame:
    """Mean and standard deviation over seeds in percent, rank and published number, one row per
    method and column. The name of a data set says if only some of its rows were used.

    `source`: how the source of the preferred published numbers begins.
    """
    records = [{**record, "data": data_name(record)} for record in records]
    runs = [record for record in records if not record["trial"] and record.get(part)]
    # A reference row appears in every column; alone it makes a column only if there is no other.
    contest = [run for run in runs if run["method"] not in REFERENCES] or runs
    measured = {(run["data"], run["column"]) for run in contest}
    found: list[dict[str, Any]] = []
    # In the order of the grid, which is that of its trials.
    for data, labels in dict.fromkeys((record["data"], record["column"]) for record in records):
        if (data, labels) not in measured:
            continue
        # Complete labels do not depend on the label setting: one run for every column.
        shared = (labels, *REFERENCES)
        here = [r for r in runs if r["data"] == data and {r["column"], r["method"]} & {*shared}]
        methods = dict.fromkeys(run["method"] for run in here)
        chosen = {name: one_setting([r for r in here if r["method"] == name]) for name in methods}
        for metric in metrics:
            place = {"data": data, "labels": labels, "metric": metric}
            rows = [place | _measure(chosen[name], part, metric, labels, source) for name in chosen]
            found += _ranked([row for row in rows if row["seeds"]])
    return pd.DataFrame(found, columns=[*COLUMN, *_OF_METHOD])


def data_name(record: Record) -> str:
    """The data set of a run; runs on a part of its rows are not compared with others."""
    limit = record["source"].get("limit")
    return record["data"] if limit is None else f"{record['data']} ({limit} rows per part)"


def one_setting(runs: list[Record]) -> list[Record]:
    """The runs with the settings that have most seeds and, among those, are best on validation."""
    groups: dict[str, dict[int, Record]] = {}
    for run in runs:
        key = repr((run["training"], run["options"], run["source"], run["threshold"]))
        groups.setdefault(key, {})[run["seed"]] = run
    chosen = max(
        groups.values(),
        key=lambda group: (len(group), sum(r["val"]["mAP"] for r in group.values()) / len(group)),
        default={},
    )
    return list(chosen.values())


def _measure(
    runs: list[Record], part: str, metric: str, labels: str, source: str
) -> dict[str, Any]:
    """One row of a summary, without its rank."""
    values = [100 * run[part][metric] for run in runs if run[part].get(metric) is not None]
    numbers, run = pd.Series(values, dtype=float), runs[0]
    data = run["source"].get("published", run["data"])
    number = find_published((data, labels, run["method"], metric), source)
    of = Number(float("nan"), "") if number is None else number
    return {
        "method": run["method"], "mean": numbers.mean(), "std": numbers.std(), "seeds": len(values),
        "published": of.value, "spread": of.spread, "difference": numbers.mean() - of.value,
        "source": of.source,
    }  # fmt: skip


def _ranked(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of a column in the order of their ranks, references first."""
    order = sorted(rows, key=lambda row: (row["method"] not in REFERENCES, -row["mean"]))
    first = sum(row["method"] in REFERENCES for row in rows)
    return [{**row, "rank": max(at - first + 1, 0)} for at, row in enumerate(order)]


def correlation(column: pd.DataFrame) -> tuple[float, int] | None:
    """Spearman's rank correlation with the published numbers, and the number of methods."""
    both = column.loc[~column["method"].isin(REFERENCES), ["mean", "published"]].dropna()
    return None if len(both) < 3 else (both.rank().corr().to_numpy()[0, 1].item(), len(both))


def table(
    records: Iterable[Record],
    *,
    metrics: Iterable[str] = ("mAP",),
    style: str = "markdown",
    part: str = "test",
    source: str = "",
) -> str:
    """Results as Markdown, CSV or LaTeX: mean ± std over seeds in percent, the best bold, the
    second underlined, next to the published number and the difference.
    """
    records, metrics = list(records), list(metrics)
    if style not in WRITERS:
        raise DataError(f"style: expected one of {', '.join(WRITERS)}, got {style!r}")
    if part not in ("val", "test"):
        raise DataError(f"part: expected val or test, got {part!r}")
    known = sorted({name for record in records for name in record.get(part) or ()})
    wrong = [metric for metric in metrics if known and metric not in known]
    if wrong:
        raise DataError(f"metric: expected one of {', '.join(known)}, got {wrong[0]!r}")
    found = summarise(records, metrics, part, source)
    return WRITERS[style](found) if len(found) else "no finished runs yet\n"


Marks = dict[int, tuple[str, str]]


def markdown(found: pd.DataFrame) -> str:
    """A GitHub table."""
    head, rows, notes = _layout(found, "±", {1: ("**", "**"), 2: ("<u>", "</u>")})
    return "\n".join([as_markdown([head, *rows]), "", *notes]) + "\n"


def as_markdown(rows: list[list[str]]) -> str:
    """Rows as a GitHub table; the first is the head."""
    head, *others = rows
    lines = [head, ["---"] * len(head), *others]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines)


def latex(found: pd.DataFrame) -> str:
    """A tabular environment, for booktabs."""
    marks = {1: (r"\textbf{", "}"), 2: (r"\underline{", "}")}
    head, rows, notes = _layout(found, r"$\pm$", marks)
    lines = [" & ".join(_escaped(cell) for cell in row) + r" \\" for row in [head, *rows]]
    columns = "r" * (len(head) - 1)
    return "\n".join([
        *(f"% {note}" for note in notes),
        rf"\begin{{tabular}}{{l{columns}}}",
        r"\toprule",
        lines[0],
        r"\midrule",
        *lines[1:],
        r"\bottomrule",
        r"\end{tabular}",
        "",
    ])  # fmt: skip


def comma_separated(found: pd.DataFrame) -> str:
    """One line per method and column, one field per number."""
    numbers = ("mean", "std", "difference")
    texts: dict[str, Any] = {name: found[name].map("{:.4f}".format, "ignore") for name in numbers}
    texts["rank"] = found["rank"].map(lambda rank: rank or None).astype("Int64")
    order = ["method", *COLUMN, *(name for name in _OF_METHOD[1:] if name != "spread")]
    return found.assign(**texts)[order].to_csv(index=False, lineterminator="\n")


WRITERS: dict[str, Callable[[pd.DataFrame], str]] = {
    "markdown": markdown,
    "csv": comma_separated,
    "latex": latex,
}


def _layout(
    found: pd.DataFrame, plus_minus: str, marks: Marks
) -> tuple[list[str], list[list[str]], list[str]]:
    """The head, the rows and the notes of a table."""
    head, notes, several = ["method"], list[str](), found["metric"].nunique() > 1
    code = "`" if plus_minus == "±" else ""
    rows = {method: [f"{code}{method}{code}"] for method in found["method"]}
    for (data, labels, metric), column in found.groupby(COLUMN, sort=False):
        title = f"{data}, {labels}" + (f", {metric}" if several else "")
        compared = bool(column["published"].notna().any())
        head += [title, "published", "difference"] if compared else [title]
        notes += _notes(column, title) if compared else []
        values = column.set_index("method").to_dict("index")
        for method, row in rows.items():
            cells = _cells(values[method], plus_minus, marks) if method in values else ["–"] * 3
            row += cells if compared else cells[:1]
    seeds = " or ".join(map(str, sorted(found["seeds"].unique())))
    notes.append(
        f"{'Metrics' if several else found['metric'].iloc[0]} in percent, mean {plus_minus} "
        f"standard deviation over {seeds} seeds; best bold, second underlined."
    )
    return head, list(rows.values()), notes


def _notes(column: pd.DataFrame, title: str) -> list[str]:
    sources = column.loc[column["published"].notna(), "source"].unique()
    notes = [f"{title}: published numbers from {'; '.join(sources)}."]
    if compared := correlation(column):
        notes.append(
            f"{title}: rank correlation (Spearman) with the published column {compared[0]:.2f} "
            f"over {compared[1]} methods."
        )
    return notes


def _cells(value: dict[Any, Any], plus_minus: str, marks: Marks) -> list[str]:
    """The cells of a method in a column: measured, published, difference."""
    before, after = marks.get(value["rank"], ("", ""))
    ours, theirs = (
        "" if pd.isna(value[name]) else f" {plus_minus} {value[name]:.2f}"
        for name in ("std", "spread")
    )
    measured = f"{before}{value['mean']:.2f}{after}{ours}"
    if pd.isna(value["published"]):
        return [measured, "–", "–"]
    return [measured, f"{value['published']:.2f}{theirs}", f"{value['difference']:+.2f}"]


def _escaped(text: str) -> str:
    return text.replace("_", r"\_").replace("–", "--")
