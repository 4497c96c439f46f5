"""How well each class is found, against how often it is labelled."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator, SymmetricalLogLocator

from halftruth.plots.probability_figures import PARTS
from halftruth.plots.run_records import NotRecorded, Record
from halftruth.plots.style import (
    Drawing,
    legend_name,
    line_look,
    name_points,
    panels,
    shared_legend,
    styled,
)


@styled
def draw_classes(runs: Sequence[Record]) -> Drawing:
    """AP of every class against how often it is labelled, on test rows, else on validation."""
    tables = []
    for run in runs:
        if run.classes is None:
            raise NotRecorded(f"{run.folder}: has no classes.csv: it is not finished, or too old")
        part = "test" if "test_AP" in run.classes else "val"
        table = run.classes[["class", "train_present", f"{part}_AP"]]
        tables.append(
            table.set_axis(["class", "labelled", "AP"], axis=1).assign(run=run.name, part=part)
        )
    numbers = pd.concat(tables, ignore_index=True)
    figure, grid = panels(1, 1, width=6.2, height=4.2)
    axes = grid[0, 0]
    for number, run in enumerate(runs):
        mine = numbers[numbers["run"] == run.name]
        marker = "os^Dvp*"[number % 7]
        axes.scatter(
            mine["labelled"], 100 * mine["AP"], s=22, marker=marker, alpha=0.8, linewidths=0,
            color=line_look(number)["color"], label=legend_name(run.name),
        )  # fmt: skip
    _count_scale(axes, least=int(numbers["labelled"].min()))
    axes.set_xlabel("labelled positives in the training rows")
    axes.set_ylabel(f"AP, %, {PARTS[str(numbers['part'].iloc[0])]}")
    axes.margins(x=0.12, y=0.08)
    shared_legend(figure, grid)
    # The worst, the best and the most frequent are named first, while there is room.
    first = numbers[numbers["run"] == runs[0].name].dropna(subset=["AP"])
    by_ap = first.sort_values("AP", kind="stable")
    by_count = first.sort_values("labelled", ascending=False, kind="stable")
    order = pd.concat([by_ap.head(5), by_ap.tail(3), by_count.head(3), by_ap]).drop_duplicates()
    points = order.head(40)[["labelled", "AP", "class"]].itertuples(index=False)
    name_points(axes, [(x, 100 * y, str(name)) for x, y, name in points])
    return Drawing("classes", figure, numbers)


def _count_scale(axes: Axes, least: int) -> None:
    """1, 2, 5, 10, ... and 0 where a class is never labelled."""
    steps = (1.0, 2.0, 5.0)
    if least:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=steps))
    else:
        axes.set_xscale("symlog", linthresh=1)
        axes.xaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=1, subs=steps))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.xaxis.set_minor_locator(NullLocator())
