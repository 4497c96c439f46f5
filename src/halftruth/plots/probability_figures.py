"""Figures of probabilities by kind of label: first and last epoch, all classes or some."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from halftruth.data import DataError
from halftruth.plots.run_records import ROWS_OF, NotRecorded, Record
from halftruth.plots.style import (
    GROUP_COLOURS,
    Drawing,
    panels,
    shared_legend,
    shorten,
    styled,
    wrapped_panels,
)
from halftruth.train.records import GROUPS
from halftruth.train.scored_rows import PARTS

_NAMES = {
    "labelled": "labelled positives",
    "hidden": "hidden positives",
    "negative": "true negatives",
    "absent": "labelled absent",
    "unknown": "unknown",
}
_DRAWN_BINS = 25
# Runs with one panel each in a line.
_SIDE = 4
_SHARE = "share of the group, %"


@styled
def draw_distributions(
    runs: Sequence[Record],
    part: str | None = None,
    epochs: Sequence[str] = ("first", "last"),
    groups: Sequence[str] = (),
) -> Drawing:
    """Draw probabilities by kind of label (003 Figs. 2, 5; 001 Fig. 9; 002 Figs. 3b, c).

    One row of panels per run: after the first and after the last epoch, or other `epochs` (best).
    `part`: train or val rows; `groups`: kinds of labels. Each group adds up to 100 %.
    """
    tables = []
    for run in runs:
        rows = part or run.part_with("labelled")
        for place in dict.fromkeys(run.place(epoch) for epoch in epochs):
            for group in run.groups(rows):
                if not groups or group in groups:
                    about = {"run": run.name, "part": rows, "epoch": run.number(place)}
                    counts = run.counts(rows, group)[place]
                    tables.append(_histogram(counts, **about, group=group))
    return _draw_panels("distributions", runs, tables, _draw_groups, _SHARE)


@styled
def draw_class_distributions(
    runs: Sequence[Record],
    classes: Sequence[str] = (),
    train: Sequence[np.ndarray] = (),
) -> Drawing:
    """Draw probabilities of single classes at the best epoch (001 Fig. 11).

    Rows are test rows or else validation rows. Without `classes`: the most frequent class, the
    rarest, and one in between. `train`: counts of the training rows of each run, whose labels
    that are not shown are drawn, too.
    """
    tables = []
    for number, run in enumerate(runs):
        parts = [_class_counts(run)]
        assert run.classes is not None
        if len(train):
            parts.insert(0, ("train", train[number] * (np.array(GROUPS) != "labelled")[:, None]))
        for name in classes or _typical_classes(run.classes):
            row = np.flatnonzero(run.classes["class"] == name)
            if not len(row):
                raise DataError(f"{run.folder}: there is no class {name!r}")
            title = _with_gain(name, runs[0], run, parts[-1][0])
            for part, counts in parts:
                for place, group in enumerate(GROUPS):
                    bins = counts[row[0], place]
                    if bins.any():
                        about = {"run": run.name, "part": part, "class": title}
                        tables.append(_histogram(bins, **about, group=group))
    return _draw_panels("class-distributions", runs, tables, _draw_groups, _SHARE, "class")


def _with_gain(name: str, first: Record, run: Record, part: str) -> str:
    """A class with the gain of its AP over the first run, in points."""
    key = f"{part}_AP"
    if run is first or run.classes is None or first.classes is None or key not in run.classes:
        return name
    tables = first.classes, run.classes
    before, after = (float(one.set_index("class")[key][name]) for one in tables)
    return f"{name} (AP {100 * (after - before):+.1f})"


def _class_counts(run: Record) -> tuple[str, np.ndarray]:
    """The part and its counts: test rows, if they have labels."""
    found = {part: run.class_counts(part) for part in reversed(PARTS)}
    kept = {part: counts for part, counts in found.items() if counts is not None}
    if not kept or run.classes is None:
        raise NotRecorded(f"{run.folder} has no class_histograms.npz: the run is not finished")
    part = next((part for part, counts in kept.items() if counts[:, 0].any()), next(iter(kept)))
    return part, kept[part]


def _typical_classes(classes: pd.DataFrame, count: int = 3) -> list[str]:
    order = classes.sort_values("train_present", ascending=False, kind="stable")["class"]
    ranks = np.unique(np.linspace(0, len(order) - 1, min(count, len(order))).round().astype(int))
    return [str(order.iloc[rank]) for rank in ranks]


@styled
def draw_false_negatives(runs: Sequence[Record], part: str | None = None) -> Drawing:
    """Draw the share of unknown labels that are present, by probability (002 Fig. 5).

    The curve is (1 - a) p / (1 - a p), where a is the share of positives that are labelled: a
    perfectly calibrated model. For `gr` also its own k(p) of that epoch.
    """
    tables = []
    for run in runs:
        rows = part or run.part_with("labelled", "hidden", "negative")
        labelled, hidden, negative = (
            run.counts(rows, group) for group in ("labelled", "hidden", "negative")
        )
        for at in dict.fromkeys(run.place(epoch) for epoch in ("first", "last")):
            share = labelled[at].sum() / (labelled[at].sum() + hidden[at].sum())
            table = _histogram(hidden[at], run=run.name, part=rows, epoch=run.number(at))
            table = table.rename(columns={"count": "hidden"}).drop(columns="share")
            table["negative"] = negative[at]
            with np.errstate(invalid="ignore"):
                table["share"] = table["hidden"] / (table["hidden"] + table["negative"])
            table["expected"] = (1 - share) * table["p"] / (1 - share * table["p"])
            table["k"] = _k(run, at, table["p"].to_numpy())
            tables.append(table)
    return _draw_panels("false-negatives", runs, tables, _draw_shares, "present, %")


def _draw_panels(
    name: str,
    runs: Sequence[Record],
    tables: list[pd.DataFrame],
    draw: Callable[[Axes, pd.DataFrame], None],
    text: str,
    column: str = "epoch",
) -> Drawing:
    """Draw one row of panels per run and one panel per epoch, or per class.

    Runs with one panel each stand side by side.
    """
    numbers = pd.concat(tables, ignore_index=True)
    columns = numbers.groupby("run")[column].nunique().max()
    if columns > 1:
        figure, grid = panels(len(runs), columns, height=2.5)
        places = grid
    else:
        figure, grid, used = wrapped_panels(len(runs), _SIDE, width=2.7, height=2.5)
        places = np.array(used)[:, None]
    rows = ", ".join(ROWS_OF[str(part)] for part in numbers["part"].unique())
    for line, run in enumerate(runs):
        mine = numbers[numbers["run"] == run.name].groupby(column, sort=False)
        for axes, (key, table) in zip(places[line], mine, strict=False):
            draw(axes, table)
            title = str(key)
            if column == "epoch":
                title = f"epoch {title}" if key else "before training"
            axes.set_title(shorten(f"{shorten(run.name)}, {title}", 36))
    for axes in grid[:, 0]:
        axes.set_ylabel(text)
    for axes in grid[-1]:
        axes.set_xlabel("probability" + (f", {rows}" if "," not in rows else ""))
    shared_legend(figure, grid)
    return Drawing(name, figure, numbers)


def _draw_shares(axes: Axes, table: pd.DataFrame) -> None:
    """Draw the measured share per bin, that of a calibrated model, and k(p)."""
    many = table["hidden"] + table["negative"] >= 10
    for some, alpha in ((table[many], 1.0), (table[~many], 0.3)):
        axes.scatter(
            some["p"], 100 * some["share"], s=9, color=GROUP_COLOURS["hidden"], alpha=alpha,
            label="measured" + (", fewer than 10 labels" if alpha < 1 else ""), linewidths=0,
        )  # fmt: skip
    axes.plot(table["p"], 100 * table["expected"], color="#0072B2", label="calibrated model")
    if table["k"].notna().any():
        axes.plot(table["p"], 100 * table["k"], "--", color="#009E73", label="k(p) of gr")
    axes.set_xlim(0, 1)
    axes.set_ylim(-3, 103)


def _k(run: Record, epoch: int, p: np.ndarray) -> np.ndarray:
    loss = run.create_loss()
    at = run.epochs.iloc[epoch]
    planned = run.config["head_epochs" if at["stage"] == "head" else "epochs"]
    loss.start_epoch(int(at["epoch"]) - 1, int(planned))
    believed = loss.presence_of_unknown(torch.tensor(p))
    return np.full(len(p), np.nan) if believed is None else believed.numpy()


def _histogram(counts: np.ndarray, **columns: object) -> pd.DataFrame:
    """One row per bin: its middle, the count, and the share of all."""
    middle = (np.arange(len(counts)) + 0.5) / len(counts)
    share = counts / max(counts.sum(), 1)
    return pd.DataFrame({**columns, "p": middle, "count": counts, "share": share})


def _draw_groups(axes: Axes, table: pd.DataFrame) -> None:
    """Draw outlines of the groups on a logarithmic scale, so that small shares are visible."""
    several = table["part"].nunique() > 1
    for key, mine in table.groupby(["part", "group"], sort=False):
        part, group = map(str, cast(tuple[Any, ...], key))
        number, bins = GROUPS.index(group), mine["share"].to_numpy()
        drawn = bins.reshape(min(_DRAWN_BINS, len(bins)), -1).sum(axis=1)
        dash = ("-", "--", "-.", ":", "-")[number]
        bars: dict[str, Any] = {
            "values": 100 * drawn, "edges": np.linspace(0, 1, len(drawn) + 1), "baseline": 0.05,
            "color": GROUP_COLOURS[group],
        }  # fmt: skip
        label = _NAMES[group] + (f", {ROWS_OF[part]}" if several else "")
        axes.stairs(**bars, linewidth=1.5, label=label, linestyle=dash)
        axes.stairs(**bars, fill=True, alpha=0.12)
    axes.set_yscale("log")
    axes.set_ylim(0.05, 130)
    axes.set_yticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlim(0, 1)
