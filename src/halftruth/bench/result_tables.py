"""Results as a table like the papers': methods as rows, data sets and label settings as columns."""

import csv
import io
import math
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pandas as pd

from halftruth.bench.papers import Number, find_published
from halftruth.bench.results import Record

# Reference rows: not ranked, and not part of rank correlations.
REFERENCES = ("complete",)


@dataclass(frozen=True)
class Value:
    """A metric over seeds, in percent."""

    mean: float
    std: float
    seeds: int
    rank: int = 0
    published: Number | None = None

    @property
    def difference(self) -> float | None:
        return None if self.published is None else self.mean - self.published.value


@dataclass(frozen=True)
class Column:
    """A data set under a label setting, for one metric: one value per method."""

    data: str
    labels: str
    metric: str
    values: dict[str, Value]

    def correlation(self) -> tuple[float, int] | None:
        """Spearman's rank correlation with the published numbers, and the number of methods."""
        pairs = [
            (value.mean, value.published.value)
            for method, value in self.values.items()
            if value.published is not None and method not in REFERENCES
        ]
        if len(pairs) < 3:
            return None
        ours, theirs = (pd.Series(values).rank() for values in zip(*pairs, strict=True))
        return float(ours.corr(theirs)), len(pairs)


def columns(
    records: Iterable[Record],
    metrics: Iterable[str] = ("mAP",),
    part: str = "test",
    source: str = "",
) -> list[Column]:
    """The columns of a table, with the rank of each method.

    `source`: how the source of the preferred published numbers begins.
    """
    records = list(records)
    runs = [record for record in records if not record["trial"] and record.get(part)]
    # A reference row appears in every column; alone it makes a column only if there is no other.
    contest = [run for run in runs if run["method"] not in REFERENCES] or runs
    measured = {(run["data"], run["column"]) for run in contest}
    # In the order of the grid, which is that of its trials.
    places = dict.fromkeys((record["data"], record["column"]) for record in records)
    found = []
    for data, labels in (place for place in places if place in measured):
        here = [
            run
            for run in runs
            # Complete labels do not depend on the label setting: one run for every column.
            if run["data"] == data and (run["column"] == labels or run["method"] in REFERENCES)
        ]
        for metric in metrics:
            values = {
                method: _value(one_setting([run for run in here if run["method"] == method]),
                               part, metric, labels, source)
                for method in dict.fromkeys(run["method"] for run in here)
            }  # fmt: skip
            values = {method: value for method, value in values.items() if value is not None}
            found.append(Column(data, labels, metric, _ranked(values)))  # type: ignore[arg-type]
    return found


def one_setting(runs: list[Record]) -> list[Record]:
    """The runs with the settings that have most seeds and, among those, are best on validation."""
    groups: dict[str, dict[int, Record]] = {}
    for run in runs:
        key = repr((run["training"], run["options"], run["source"], run["threshold"]))
        groups.setdefault(key, {})[run["seed"]] = run
    chosen = max(
        groups.values(),
        key=lambda group: (len(group), statistics.fmean(r["val"]["mAP"] for r in group.values())),
        default={},
    )
    return list(chosen.values())


def _value(
    runs: list[Record], part: str, metric: str, labels: str, source: str = ""
) -> Value | None:
    numbers = [100 * run[part][metric] for run in runs if run[part].get(metric) is not None]
    if not numbers:
        return None
    std = statistics.stdev(numbers) if len(numbers) > 1 else math.nan
    run = runs[0]
    data = run["source"].get("published", run["data"])
    number = find_published((data, labels, run["method"], metric), source)
    return Value(statistics.fmean(numbers), std, len(numbers), published=number)


def _ranked(values: dict[str, Value]) -> dict[str, Value]:
    order = sorted(
        (method for method in values if method not in REFERENCES),
        key=lambda method: -values[method].mean,
    )
    place = {method: number for number, method in enumerate(order, start=1)}
    ranked = {
        method: Value(v.mean, v.std, v.seeds, place.get(method, 0), v.published)
        for method, v in values.items()
    }
    return dict(sorted(ranked.items(), key=lambda item: item[1].rank))


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
        raise ValueError(f"style: expected one of {', '.join(WRITERS)}, got {style!r}")
    if part not in ("val", "test"):
        raise ValueError(f"part: expected val or test, got {part!r}")
    found = columns(records, metrics, part, source)
    if not found:
        return "no finished runs yet\n"
    known = sorted({name for record in records for name in record.get(part) or ()})
    for metric in metrics:
        if metric not in known:
            raise ValueError(f"metric: expected one of {', '.join(known)}, got {metric!r}")
    return WRITERS[style](found)


Marks = dict[int, tuple[str, str]]


def markdown(columns: list[Column]) -> str:
    """A GitHub table."""
    head, rows, notes = _layout(columns, "±", {1: ("**", "**"), 2: ("<u>", "</u>")})
    lines = ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]]
    return "\n".join([*lines, "", *notes]) + "\n"


def latex(columns: list[Column]) -> str:
    """A tabular environment, for booktabs."""
    marks = {1: (r"\textbf{", "}"), 2: (r"\underline{", "}")}
    head, rows, notes = _layout(columns, r"$\pm$", marks)
    body = [" & ".join(_escaped(cell) for cell in row) + r" \\" for row in rows]
    return "\n".join([
        *(f"% {note}" for note in notes),
        r"\begin{tabular}{l" + "r" * (len(head) - 1) + "}",
        r"\toprule",
        " & ".join(map(_escaped, head)) + r" \\",
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        "",
    ])  # fmt: skip


def comma_separated(columns: list[Column]) -> str:
    """One line per method and column, one field per number."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([
        "method", "data", "labels", "metric", "mean", "std", "seeds", "rank", "published",
        "difference", "source",
    ])  # fmt: skip
    for column in columns:
        for method, value in column.values.items():
            of = value.published
            writer.writerow([
                method, column.data, column.labels, column.metric, f"{value.mean:.4f}",
                "" if math.isnan(value.std) else f"{value.std:.4f}", value.seeds,
                value.rank or "", "" if of is None else of.value,
                "" if value.difference is None else f"{value.difference:.4f}",
                "" if of is None else of.source,
            ])  # fmt: skip
    return file.getvalue()


WRITERS: dict[str, Callable[[list[Column]], str]] = {
    "markdown": markdown,
    "csv": comma_separated,
    "latex": latex,
}


def _layout(
    columns: list[Column], plus_minus: str, marks: Marks
) -> tuple[list[str], list[list[str]], list[str]]:
    head, notes = ["method"], []
    several = len({column.metric for column in columns}) > 1
    for column in columns:
        title = f"{column.data}, {column.labels}" + (f", {column.metric}" if several else "")
        head.append(title)
        if _has_published(column):
            head += ["published", "difference"]
            notes += _notes(column, title)
    methods = dict.fromkeys(method for column in columns for method in column.values)
    rows = []
    for method in methods:
        row = [f"`{method}`" if plus_minus == "±" else method]
        for column in columns:
            value = column.values.get(method)
            row.append("–" if value is None else _cell(value, plus_minus, marks))
            if _has_published(column):
                row += _published_cells(value, plus_minus)
        rows.append(row)
    seeds = sorted({value.seeds for column in columns for value in column.values.values()})
    notes.append(
        f"{columns[0].metric if not several else 'Metrics'} in percent, mean {plus_minus} standard "
        f"deviation over {' or '.join(map(str, seeds))} seeds; best bold, second underlined."
    )
    return head, rows, notes


def _has_published(column: Column) -> bool:
    return any(value.published is not None for value in column.values.values())


def _notes(column: Column, title: str) -> list[str]:
    sources = dict.fromkeys(
        value.published.source for value in column.values.values() if value.published is not None
    )
    notes = [f"{title}: published numbers from {'; '.join(sources)}."]
    if found := column.correlation():
        notes.append(
            f"{title}: rank correlation (Spearman) with the published column {found[0]:.2f} over "
            f"{found[1]} methods."
        )
    return notes


def _cell(value: Value, plus_minus: str, marks: Marks) -> str:
    before, after = marks.get(value.rank, ("", ""))
    spread = "" if math.isnan(value.std) else f" {plus_minus} {value.std:.2f}"
    return f"{before}{value.mean:.2f}{after}{spread}"


def _published_cells(value: Value | None, plus_minus: str) -> list[str]:
    if value is None or value.published is None or value.difference is None:
        return ["–", "–"]
    number = value.published
    spread = "" if number.spread is None else f" {plus_minus} {number.spread:.2f}"
    return [f"{number.value:.2f}{spread}", f"{value.difference:+.2f}"]


def _escaped(text: str) -> str:
    return text.replace("_", r"\_").replace("–", "--")
