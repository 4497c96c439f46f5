"""How probabilities lie, by the kind of label: early and late, over all classes and in some."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from halftruth import losses
from halftruth.data import DataError
from halftruth.losses import Wrapper
from halftruth.losses.gr import GR
from halftruth.plots.run_records import NotRecorded, Record
from halftruth.plots.style import (
    GROUP_COLOURS,
    Drawing,
    panels,
    shared_legend,
    shortened,
    styled,
)
from halftruth.train.probability_records import GROUPS

_NAMES = {
    "labelled": "labelled positives",
    "hidden": "hidden positives",
    "negative": "true negatives",
    "absent": "labelled absent",
    "unknown": "unknown",
}
_DRAWN_BINS = 25
PARTS = {"train": "training rows", "val": "validation rows", "test": "test rows"}


def early_and_late(run: Record) -> list[int]:
    """The first and the last epoch that was recorded, from 0; one where there is no more."""
    kept = [place for place, line in enumerate(run.histograms) if line]
    return sorted({kept[0], kept[-1]})


@styled
def draw_distributions(runs: Sequence[Record]) -> Drawing:
    """Probabilities by the kind of label (003 Figs. 2, 5; 001 Fig. 9; 002 Figs. 3b, c).

    A row of panels a run: after the first epoch, and after the last. Each group adds up to 100 %.
    """
    tables = []
    for run in runs:
        part = run.part_with("labelled")
        for epoch in early_and_late(run):
            for group in run.groups(part):
                counts = run.counts(part, group)[epoch]
                tables.append(
                    _histogram(counts, run=run.name, part=part, epoch=epoch + 1, group=group)
                )
    numbers = pd.concat(tables, ignore_index=True)
    figure, grid = panels(len(runs), numbers.groupby("run")["epoch"].nunique().max(), height=2.4)
    for line, run in enumerate(runs):
        mine = numbers[numbers["run"] == run.name]
        for axes, (when, table) in zip(grid[line], mine.groupby("epoch"), strict=False):
            _shares(axes, table)
            axes.set_title(f"{shortened(run.name, 28)}, epoch {when}")
        grid[line, 0].set_ylabel("share of the group, %")
    for axes in grid[-1]:
        axes.set_xlabel(f"probability, {PARTS[str(numbers['part'].iloc[0])]}")
    shared_legend(figure, grid)
    return Drawing("distributions", figure, numbers)


@styled
def draw_class_distributions(runs: Sequence[Record], classes: Sequence[str] = ()) -> Drawing:
    """The same for single classes, at the best epoch: validation or test rows (001 Fig. 11).

    Without `classes`, the one that is labelled most often, the rarest, and one between.
    """
    tables = []
    for run in runs:
        part, counts = _of_classes(run)
        assert run.classes is not None
        for name in classes or _typical(run.classes):
            row = np.flatnonzero(run.classes["class"] == name)
            if not len(row):
                raise DataError(f"{run.folder}: there is no class {name!r}")
            for place, group in enumerate(GROUPS):
                bins = counts[row[0], place]
                if bins.any():
                    tables.append(
                        _histogram(bins, run=run.name, part=part, **{"class": name}, group=group)
                    )
    numbers = pd.concat(tables, ignore_index=True)
    names = list(dict.fromkeys(numbers["class"]))
    figure, grid = panels(len(runs), len(names), width=2.6, height=2.4)
    for line, run in enumerate(runs):
        for axes, name in zip(grid[line], names, strict=True):
            _shares(axes, numbers[(numbers["run"] == run.name) & (numbers["class"] == name)])
            axes.set_title(shortened(f"{run.name}: {name}", 28))
        grid[line, 0].set_ylabel("share of the group, %")
    for axes in grid[-1]:
        axes.set_xlabel("probability")
    shared_legend(figure, grid)
    return Drawing("class-distributions", figure, numbers)


def _of_classes(run: Record) -> tuple[str, np.ndarray]:
    """A part and its counts: test rows, unless only the validation rows have labels."""
    found = {part: run.class_counts(part) for part in ("test", "val")}
    kept = {part: counts for part, counts in found.items() if counts is not None}
    if not kept or run.classes is None:
        raise NotRecorded(
            f"{run.folder}: has no class_histograms.npz: it is not finished, or too old"
        )
    part = next((part for part, counts in kept.items() if counts[:, 0].any()), next(iter(kept)))
    return part, kept[part]


def _typical(classes: pd.DataFrame, count: int = 3) -> list[str]:
    order = classes.sort_values("train_present", ascending=False, kind="stable")["class"]
    ranks = np.unique(np.linspace(0, len(order) - 1, min(count, len(order))).round().astype(int))
    return [str(order.iloc[rank]) for rank in ranks]


@styled
def draw_false_negatives(runs: Sequence[Record]) -> Drawing:
    """Share of unknown labels that are there, by confidence, and k(p) (002 Fig. 5).

    The curve is (1 - a) p / (1 - a p), with a the share of positives that are labelled: what a
    perfectly calibrated model would show. For `gr`, its own k(p) of that epoch as well.
    """
    tables = []
    for run in runs:
        part = run.part_with("labelled", "hidden", "negative")
        labelled, hidden, negative = (
            run.counts(part, group) for group in ("labelled", "hidden", "negative")
        )
        for epoch in early_and_late(run):
            share = labelled[epoch].sum() / (labelled[epoch].sum() + hidden[epoch].sum())
            table = _histogram(hidden[epoch], run=run.name, part=part, epoch=epoch + 1)
            table = table.rename(columns={"count": "hidden"}).drop(columns="share")
            table["negative"] = negative[epoch]
            with np.errstate(invalid="ignore"):
                table["share"] = table["hidden"] / (table["hidden"] + table["negative"])
            table["expected"] = (1 - share) * table["p"] / (1 - share * table["p"])
            table["k"] = _k(run, epoch, table["p"].to_numpy())
            tables.append(table)
    numbers = pd.concat(tables, ignore_index=True)
    figure, grid = panels(len(runs), numbers.groupby("run")["epoch"].nunique().max(), height=2.5)
    for line, run in enumerate(runs):
        mine = numbers[numbers["run"] == run.name]
        for axes, (when, table) in zip(grid[line], mine.groupby("epoch"), strict=False):
            many = table["hidden"] + table["negative"] >= 10
            for some, alpha in ((table[many], 1.0), (table[~many], 0.3)):
                axes.scatter(
                    some["p"], 100 * some["share"], s=9, color=GROUP_COLOURS["hidden"], alpha=alpha,
                    label="hidden / (hidden + negative)" + (", few" if alpha < 1 else ""),
                    linewidths=0,
                )  # fmt: skip
            axes.plot(table["p"], 100 * table["expected"], color="#0072B2", label="if calibrated")
            if table["k"].notna().any():
                axes.plot(table["p"], 100 * table["k"], "--", color="#009E73", label="k(p) of gr")
            axes.set_title(f"{shortened(run.name, 28)}, epoch {when}")
            axes.set_xlim(0, 1)
            axes.set_ylim(-3, 103)
        grid[line, 0].set_ylabel("really there, %")
    for axes in grid[-1]:
        axes.set_xlabel(f"probability, {PARTS[str(numbers['part'].iloc[0])]}")
    shared_legend(figure, grid)
    return Drawing("false-negatives", figure, numbers)


def _k(run: Record, epoch: int, p: np.ndarray) -> np.ndarray:
    loss = losses.create(run.method, **run.config.get("options", {}))
    while isinstance(loss, Wrapper):
        loss = loss.base
    if not isinstance(loss, GR):
        return np.full(len(p), np.nan)
    at = run.epochs.iloc[epoch]
    planned = run.config["head_epochs" if at["stage"] == "head" else "epochs"]
    loss.start_epoch(int(at["epoch"]), int(planned))
    believed: np.ndarray = 1 / (1 + np.exp(-(loss.w * p + loss.b)))
    return believed


def _histogram(counts: np.ndarray, **columns: object) -> pd.DataFrame:
    """A row a bin: its middle, the count, and the share of all."""
    middle = (np.arange(len(counts)) + 0.5) / len(counts)
    share = counts / max(counts.sum(), 1)
    return pd.DataFrame({**columns, "p": middle, "count": counts, "share": share})


def _shares(axes: Axes, table: pd.DataFrame) -> None:
    """Outlines of the groups over bins wide enough to be read, on a scale that shows few, too."""
    for number, group in enumerate(GROUPS):
        bins = table.loc[table["group"] == group, "share"].to_numpy()
        if not len(bins):
            continue
        drawn = bins.reshape(min(_DRAWN_BINS, len(bins)), -1).sum(axis=1)
        dash = ("-", "--", "-.", ":", "-")[number]
        axes.stairs(
            100 * drawn, np.linspace(0, 1, len(drawn) + 1), baseline=0.05, linewidth=1.5,
            color=GROUP_COLOURS[group], label=_NAMES[group], linestyle=dash,
        )  # fmt: skip
        axes.stairs(
            100 * drawn, np.linspace(0, 1, len(drawn) + 1), baseline=0.05, fill=True, alpha=0.12,
            color=GROUP_COLOURS[group],
        )  # fmt: skip
    axes.set_yscale("log")
    axes.set_ylim(0.05, 130)
    axes.set_yticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlim(0, 1)
