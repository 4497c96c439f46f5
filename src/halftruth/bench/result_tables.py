"""Results as a table in the papers' shape: methods down, data sets and label settings across."""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from halftruth.bench.papers import Number, published
from halftruth.bench.ranking import spearman
from halftruth.bench.results import Record
from halftruth.bench.table_text import WRITERS

# Rows that are no contestants: neither bold nor counted in a rank correlation.
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
    """A data set under a label setting, measured by one metric: a value a method."""

    data: str
    labels: str
    metric: str
    values: dict[str, Value]

    def correlation(self) -> tuple[float, int] | None:
        """Spearman's rank correlation with the published numbers, and over how many methods."""
        pairs = [
            (value.mean, value.published.value)
            for method, value in self.values.items()
            if value.published is not None and method not in REFERENCES
        ]
        return (spearman(pairs), len(pairs)) if len(pairs) > 2 else None


def columns(
    records: Iterable[Record], metrics: Iterable[str] = ("mAP",), part: str = "test"
) -> list[Column]:
    """The columns of a table, best and second best of each marked."""
    records = list(records)
    runs = [record for record in records if not record["trial"] and record.get(part)]
    # A row that stands in every column makes none of its own, unless there is no other.
    contest = [run for run in runs if run["method"] not in REFERENCES] or runs
    measured = {(run["data"], run["column"]) for run in contest}
    # In the grid's order, which is that of its trials.
    places = dict.fromkeys((record["data"], record["column"]) for record in records)
    found = []
    for data, labels in (place for place in places if place in measured):
        here = [
            run
            for run in runs
            # With all labels there is nothing to hide: one run stands in every column.
            if run["data"] == data and (run["column"] == labels or run["method"] in REFERENCES)
        ]
        for metric in metrics:
            values = {
                method: _value(one_setting([run for run in here if run["method"] == method]),
                               part, metric, labels)
                for method in dict.fromkeys(run["method"] for run in here)
            }  # fmt: skip
            values = {method: value for method, value in values.items() if value is not None}
            found.append(Column(data, labels, metric, _ranked(values)))  # type: ignore[arg-type]
    return found


def one_setting(runs: list[Record]) -> list[Record]:
    """The runs of one setting, where a file holds several: of those with most seeds, the best on
    validation."""
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


def _value(runs: list[Record], part: str, metric: str, labels: str) -> Value | None:
    numbers = [100 * run[part][metric] for run in runs if run[part].get(metric) is not None]
    if not numbers:
        return None
    std = statistics.stdev(numbers) if len(numbers) > 1 else math.nan
    run = runs[0]
    data = run["source"].get("published", run["data"])
    number = published().get((data, labels, run["method"], metric))
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
) -> str:
    """The results as Markdown, CSV or LaTeX: mean ± std over seeds in percent, best bold, second
    underlined, the published number and the difference beside ours.
    """
    found = columns(records, metrics, part)
    if not found:
        return "no finished runs yet\n"
    if style not in WRITERS:
        raise ValueError(f"expected a style in {', '.join(WRITERS)}, got {style!r}")
    return WRITERS[style](found)
