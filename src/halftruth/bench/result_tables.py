"""Results as a table like the papers': methods as rows, data sets and label settings as columns."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pandas as pd

from halftruth.bench.papers import Number, find_published
from halftruth.bench.results import Record
from halftruth.data import DataError

# Reference rows: not ranked, and not part of rank correlations.
REFERENCES = ("complete",)
# What makes a column of a table; one row of a summary is one method in it.
COLUMN = ["setup", "data", "labels", "metric"]
_OF_METHOD = [
    "method", "mean", "std", "label_std", "seeds", "samples", "rank", "published", "spread",
    "difference", "source", "papers",
]  # fmt: skip
# Settings that stand above a table, and their names there.
_SHOWN = {
    "backbone": "backbone", "image_size": "image size", "epochs": "epochs",
    "head_epochs": "epochs of the head", "batch_size": "batch size",
}  # fmt: skip
_CUTS = {
    "fit": "the score with the best F1 per class on validation rows",
    "offset": "(1 + the lowest validation score) / 2",
}


def split_setups(records: Iterable[Record]) -> list[list[Record]]:
    """The records of each set-up: settings of the grid, rows, and source of every data set."""
    found: dict[tuple[str, int], list[Record]] = {}
    sources: dict[tuple[str, str], list[str]] = {}
    for record in records:
        given = [record.get("setup", {}), record["source"].get("limit")]
        shared, about = json.dumps(given, sort_keys=True), {**record["source"], "published": ""}
        several = sources.setdefault((shared, record["data"]), [])
        if (source := json.dumps(about, sort_keys=True)) not in several:
            several.append(source)
        found.setdefault((shared, several.index(source)), []).append(record)
    return list(found.values())


def describe_setup(records: Iterable[Record]) -> list[str]:
    """The lines above a table: data, settings, cut, chosen learning rates, samples and seeds."""
    records = list(records)
    runs = [record for record in records if not record["trial"]]
    lines = []
    for data in dict.fromkeys(run["data"] for run in runs):
        mine = [run for run in runs if run["data"] == data]
        rows: list[int] = next((run["rows"] for run in mine if "rows" in run), [])
        parts = " / ".join(f"{n:,}" for n in rows)
        texts = [f"{parts} rows (training / validation / test)"] * bool(rows)
        texts += [
            f"{name} {_join(run['training'].get(key, frozen(run).get(key)) for run in mine)}"
            for key, name in _SHOWN.items()
            if any(key in run["training"] or key in frozen(run) for run in mine)
        ]
        if texts:
            lines.append(f"{data}: {', '.join(texts)}" + " (frozen)" * any(map(frozen, mine)))
    cuts = {run["method"]: _describe_cut(run["threshold"]) for run in runs}
    lines.append(f"Cut of predictions: {_by_method(cuts)}")
    for key in ("lr", "head_lr"):
        rates: dict[str, set[float]] = {}
        for run in (run for run in runs if key in run["training"]):
            rates.setdefault(run["method"], set()).add(run["training"][key])
        if rates:
            # Columns of a table may have chosen different ones.
            named = {name: " / ".join(f"{r:g}" for r in sorted(v)) for name, v in rates.items()}
            lines.append(f"{key}: {_by_method(named)}")
    counts = Counter((r["data"], r["column"], r["method"]) for r in records if r["trial"])
    if counts:
        most = f"{max(counts.values())} trials per method, on validation rows"
        lines.append(f"Settings chosen by at most {most}")
    samples = _join(run.get("label_seed") for run in runs)
    lines.append(f"Label samples: {samples}; training seeds: {_join(r['seed'] for r in runs)}")
    return lines


def frozen(run: Record) -> dict[str, Any]:
    return run["source"].get("frozen") or {}


def _describe_cut(threshold: float | str) -> str:
    if isinstance(threshold, str):
        return _CUTS[threshold]
    return f"score {threshold:g} (the sigmoid, not calibrated)"


def _by_method(values: Mapping[str, str]) -> str:
    """The value of most methods, and those of the others."""
    (common, _), *_ = Counter(values.values()).most_common(1)
    others = [f"{name} {value}" for name, value in values.items() if value != common]
    return common + (f"; {', '.join(others)}" if others else "")


def _join(values: Iterable[object]) -> str:
    return ", ".join(map(str, sorted({one for one in values if one is not None}, key=str)))


def summarise(
    records: Iterable[Record],
    metrics: Iterable[str] = ("mAP",),
    part: str = "test",
    source: str = "",
) -> pd.DataFrame:
    """Mean and spread in percent, rank and published number, one row per method and column.

    Runs of different set-ups are in different columns. `std`: over training seeds, within a label
    sample; `label_std`: of the means of label samples. `source`: how the source of the preferred
    published numbers begins.
    """
    found: list[dict[str, Any]] = []
    for setup, mine in enumerate(split_setups(records)):
        found += _summarise(mine, list(metrics), part, source, setup)
    return pd.DataFrame(found, columns=[*COLUMN, *_OF_METHOD])


def _summarise(
    records: list[Record], metrics: list[str], part: str, source: str, setup: int
) -> list[dict[str, object]]:
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
            place = {"setup": setup, "data": data, "labels": labels, "metric": metric}
            rows = [place | _measure(chosen[name], part, metric, labels, source) for name in chosen]
            found += _ranked([row for row in rows if row["seeds"]])
    return found


def one_setting(runs: list[Record]) -> list[Record]:
    """The runs with the settings that have most runs and, among those, are best on validation."""
    groups: dict[str, dict[tuple[Any, int], Record]] = {}
    for run in runs:
        key = repr((run["training"], run["options"], run["source"], run["threshold"]))
        groups.setdefault(key, {})[run.get("label_seed"), run["seed"]] = run
    chosen = max(
        groups.values(),
        key=lambda group: (len(group), sum(r["val"]["mAP"] for r in group.values()) / len(group)),
        default={},
    )
    return list(chosen.values())


def _measure(
    runs: list[Record], part: str, metric: str, labels: str, source: str
) -> dict[str, object]:
    """One row of a summary, without its rank."""
    values = pd.DataFrame(
        [
            (run.get("label_seed"), 100 * run[part][metric])
            for run in runs
            if run[part].get(metric) is not None
        ],
        columns=["sample", "value"],
    )
    by_sample, run = values.groupby("sample", dropna=False)["value"], runs[0]
    data = run["source"].get("published", run["data"])
    papers = find_published((data, labels, run["method"], metric), source)
    of, mean = next(iter(papers.values()), Number(float("nan"), "")), values["value"].mean()
    return {
        "method": run["method"], "mean": mean, "std": by_sample.var().mean() ** 0.5,
        "label_std": by_sample.mean().std(), "seeds": len(values), "samples": len(by_sample),
        "published": of.value, "spread": of.spread, "difference": mean - of.value,
        "source": of.source, "papers": {paper: one.value for paper, one in papers.items()},
    }  # fmt: skip


def _ranked(rows: list[dict[str, Any]]) -> list[dict[str, object]]:
    """The rows of a column in the order of their ranks, references first."""
    order = sorted(rows, key=lambda row: (row["method"] not in REFERENCES, -row["mean"]))
    first = sum(row["method"] in REFERENCES for row in rows)
    return [{**row, "rank": max(at - first + 1, 0)} for at, row in enumerate(order)]


def compare_orders(column: pd.DataFrame) -> dict[str, tuple[float, pd.DataFrame]]:
    """By paper: Spearman's rank correlation, and the places of its methods here and there."""
    found = {}
    methods = column[column["rank"] > 0].set_index("method")
    for paper in dict.fromkeys(paper for papers in methods["papers"] for paper in papers):
        there = methods["papers"].map(lambda papers, paper=paper: papers.get(paper))
        both = pd.DataFrame({"here": methods["mean"], "there": there}).dropna().astype(float)
        if len(both) >= 3:
            correlation = both.rank().corr().to_numpy()[0, 1].item()
            found[paper] = correlation, both.rank(ascending=False).astype(int)
    return found


def table(
    records: Iterable[Record],
    *,
    metrics: Iterable[str] = ("mAP",),
    style: str = "markdown",
    part: str = "test",
    source: str = "",
    names: Mapping[str, str] | None = None,
    order: Iterable[str] = (),
) -> str:
    """Results as Markdown or LaTeX, one table per set-up, with the set-up above it.

    Cells are the mean and the spread in percent, the best bold, the second underlined, next to the
    published number and the difference. names: how a paper calls methods and metrics. order: the
    methods of a paper in its order; otherwise the best is first.
    """
    records, metrics, order = list(records), list(metrics), list(order)
    if style not in WRITERS:
        raise DataError(f"style: expected one of {', '.join(WRITERS)}, got {style!r}")
    if part not in ("val", "test"):
        raise DataError(f"part: expected val or test, got {part!r}")
    known = sorted({name for record in records for name in record.get(part) or ()})
    wrong = [metric for metric in metrics if known and metric not in known]
    if wrong:
        raise DataError(f"metric: expected one of {', '.join(known)}, got {wrong[0]!r}")
    found = summarise(records, metrics, part, source)
    if not len(found):
        return "no finished runs yet\n"
    if order:
        found = found.sort_values("method", key=lambda c: c.map(order.index), kind="stable")
    named = found.replace({"method": dict(names or {}), "metric": dict(names or {})})
    texts = {k: describe_setup(several) for k, several in enumerate(split_setups(records))}
    several = [(texts[k], named[named["setup"] == k]) for k in sorted(set(named["setup"]))]
    return "\n".join(WRITERS[style](mine, lines) for lines, mine in several)


Marks = dict[int, tuple[str, str]]


def markdown(found: pd.DataFrame, setup: list[str]) -> str:
    """A GitHub table."""
    head, rows, notes = _layout(found, "±", {1: ("**", "**"), 2: ("<u>", "</u>")})
    lines = [*(f"- {line}" for line in setup), "", as_markdown([head, *rows]), "", *notes]
    return "\n".join(lines) + "\n"


def as_markdown(rows: list[list[str]]) -> str:
    """Rows as a GitHub table; the first is the head."""
    head, *others = rows
    lines = [head, ["---"] * len(head), *others]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines)


def latex(found: pd.DataFrame, setup: list[str]) -> str:
    """A tabular environment, for booktabs."""
    marks = {1: (r"\textbf{", "}"), 2: (r"\underline{", "}")}
    head, rows, notes = _layout(found, r"$\pm$", marks)
    lines = [" & ".join(_escaped(cell) for cell in row) + r" \\" for row in [head, *rows]]
    columns = "r" * (len(head) - 1)
    return "\n".join([
        *(f"% {note}" for note in [*setup, *notes]),
        rf"\begin{{tabular}}{{l{columns}}}",
        r"\toprule",
        lines[0],
        r"\midrule",
        *lines[1:],
        r"\bottomrule",
        r"\end{tabular}",
        "",
    ])  # fmt: skip


WRITERS: dict[str, Callable[[pd.DataFrame, Any], str]] = {
    "markdown": markdown,
    "latex": latex,
}


def _layout(
    found: pd.DataFrame, plus_minus: str, marks: Marks
) -> tuple[list[str], list[list[str]], list[str]]:
    """The head, the rows and the notes of a table."""
    head, notes, several = ["method"], list[str](), found["metric"].nunique() > 1
    code = "`" if plus_minus == "±" else ""
    rows = {method: [f"{code}{method}{code}"] for method in found["method"]}
    for (_, data, labels, metric), column in found.groupby(COLUMN, sort=False):
        title = f"{data}, {labels}" + (f", {metric}" if several else "")
        compared = bool(column["published"].notna().any())
        head += [title, "published", "difference"] if compared else [title]
        notes += _notes(column, title) if compared else []
        values = column.set_index("method").to_dict("index")
        for method, row in rows.items():
            cells = _cells(values[method], plus_minus, marks) if method in values else ["–"] * 3
            row += cells if compared else cells[:1]
    seeds = " or ".join(map(str, sorted(found["seeds"].unique())))
    spread = "standard deviation over training seeds"
    if found["samples"].max() > 1:
        spread = "standard deviation of the means of label samples / over training seeds"
        if found["samples"].equals(found["seeds"]):
            spread = "standard deviation over label samples, each with its training seed"
    notes.append(
        f"{'Metrics' if several else found['metric'].iloc[0]} in percent, mean {plus_minus} "
        f"{spread}, {seeds} runs; best bold, second underlined."
    )
    return head, list(rows.values()), notes


def _notes(column: pd.DataFrame, title: str) -> list[str]:
    sources = column.loc[column["published"].notna(), "source"].unique()
    notes = [f"{title}: published numbers from {'; '.join(sources)}."]
    for paper, (correlation, places) in compare_orders(column).items():
        far = places[(places["here"] - places["there"]).abs() > len(places) / 3]
        text = ", ".join(f"{row.Index} ({row.here}, {row.there})" for row in far.itertuples())
        text = f"; places here and there that differ most: {text}" if text else ""
        notes.append(
            f"{title}: rank correlation (Spearman) with {paper} {correlation:.2f} over "
            f"{len(places)} methods{text}."
        )
    return notes


def _cells(value: dict[Any, Any], plus_minus: str, marks: Marks) -> list[str]:
    """The cells of a method in a column: measured, published, difference."""
    before, after = marks.get(value["rank"], ("", ""))
    kinds = ("label_std", "std") if value["samples"] > 1 else ("std",)
    spreads = [f"{value[kind]:.2f}" for kind in kinds if pd.notna(value[kind])]
    ours = f" {plus_minus} {' / '.join(spreads)}" if spreads else ""
    theirs = "" if pd.isna(value["spread"]) else f" {plus_minus} {value['spread']:.2f}"
    measured = f"{before}{value['mean']:.2f}{after}{ours}"
    if pd.isna(value["published"]):
        return [measured, "–", "–"]
    return [measured, f"{value['published']:.2f}{theirs}", f"{value['difference']:+.2f}"]


def _escaped(text: str) -> str:
    return text.replace("_", r"\_").replace("–", "--")
