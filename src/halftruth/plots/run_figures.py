"""All figures of one run, or of several runs together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd
from matplotlib.ticker import NullLocator, SymmetricalLogLocator

from halftruth.data import DataError
from halftruth.plots.epoch_figures import (
    draw_ambiguity,
    draw_corrected,
    draw_curves,
    draw_labelled_loss,
    draw_predictive_values,
    draw_separation,
)
from halftruth.plots.probability_figures import (
    draw_class_distributions,
    draw_distributions,
    draw_false_negatives,
)
from halftruth.plots.run_records import ROWS_OF, NotRecorded, Record, read_runs
from halftruth.plots.style import (
    Drawing,
    legend_name,
    line_look,
    name_points,
    panels,
    shared_legend,
    styled,
)
from halftruth.train.scored_rows import PARTS


@styled
def draw_classes(runs: Sequence[Record]) -> Drawing:
    """Draw AP per class over its labelled positives: on test, out-of-sample or validation rows."""
    tables = []
    for run in runs:
        if run.classes is None:
            raise NotRecorded(f"{run.folder} has no classes.csv: the run is not finished")
        part = next(part for part in reversed(PARTS) if f"{part}_AP" in run.classes)
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
    # Ticks at 1, 2, 5, 10, ..., and at 0 if a class has no label.
    low, high = numbers["labelled"].min(), numbers["labelled"].max()
    steps = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0) if low > 0 and high < 10 * low else (1.0, 2.0, 5.0)
    axes.set_xscale("symlog", linthresh=1)
    axes.xaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=1, subs=steps))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("labelled positives in the training rows")
    axes.set_ylabel(f"AP, %, {ROWS_OF[str(numbers['part'].iloc[0])]}")
    axes.margins(x=0.12, y=0.08)
    shared_legend(figure, grid)
    # The worst, the best and the most frequent classes get their names first.
    first = numbers[numbers["run"] == runs[0].name].dropna(subset=["AP"])
    by_ap = first.sort_values("AP", kind="stable")
    by_count = first.sort_values("labelled", ascending=False, kind="stable")
    order = pd.concat([by_ap.head(5), by_ap.tail(3), by_count.head(3), by_ap]).drop_duplicates()
    points = order.head(40)[["labelled", "AP", "class"]].itertuples(index=False)
    name_points(axes, [(x, 100 * y, str(name)) for x, y, name in points])
    return Drawing("classes", figure, numbers)


FIGURES: dict[str, Callable[..., Drawing]] = {
    "curves": draw_curves,
    "distributions": draw_distributions,
    "class-distributions": draw_class_distributions,
    "separation": draw_separation,
    "ambiguity": draw_ambiguity,
    "corrected": draw_corrected,
    "predictive-values": draw_predictive_values,
    "false-negatives": draw_false_negatives,
    "labelled-loss": draw_labelled_loss,
    "classes": draw_classes,
}


def draw_runs(
    folders: Sequence[str | Path] | Sequence[Record],
    figures: Iterable[str] = (),
    classes: Sequence[str] = (),
) -> tuple[list[Drawing], list[str]]:
    """Draw figures of the runs in these folders; also return why others were left out.

    `figures` are names in FIGURES, all by default; a figure that is asked for by name and cannot
    be drawn is an error; a mapping has their options. `classes` are the classes of
    "class-distributions".
    """
    asked, options = list(figures), dict(figures) if isinstance(figures, Mapping) else {}
    options.setdefault("class-distributions", {"classes": classes})
    if unknown := [name for name in asked if name not in FIGURES]:
        raise DataError(
            f"there is no figure {', '.join(unknown)}; the figures are: {', '.join(FIGURES)}"
        )
    drawn: list[Drawing] = []
    left_out: list[str] = []
    read = [one for one in folders if isinstance(one, Record)]
    runs = read or read_runs([one for one in folders if not isinstance(one, Record)])
    for name in asked or FIGURES:
        try:
            drawn.append(FIGURES[name](runs, **options.get(name, {})))
        except NotRecorded as reason:
            if asked:
                raise NotRecorded(f"{name}: {reason}") from reason
            left_out.append(f"{name}: {reason}")
    return drawn, left_out
