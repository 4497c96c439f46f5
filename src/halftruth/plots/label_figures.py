"""What a label file holds: counts, co-occurrence, positives a row, and what was hidden."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from halftruth.bench.datasets.label_settings import hide
from halftruth.data import DataError, read_labels
from halftruth.labels import ABSENT, PRESENT, UNKNOWN, LabelMatrix, co_occurrence
from halftruth.plots.style import (
    GROUP_COLOURS,
    Drawing,
    name_points,
    name_ticks,
    panels,
    shortened,
    styled,
)
from halftruth.train.config import Config
from halftruth.train.task import align_truth, truth_options

# Up to so many classes are named one by one; more are drawn as a curve over their ranks.
_NAMED = 45
_NUMBERED = 12


def read_hidden(
    path: Path,
    reading: dict[str, Any],
    truth: Path | None = None,
    reading_truth: dict[str, Any] | None = None,
    setting: str | None = None,
    seed: int = 1200,
) -> tuple[LabelMatrix, np.ndarray | None]:
    """A label file and the complete labels: from a second file, or by hiding some of the first.

    `setting` is one of `halftruth.bench.datasets.label_settings.SETTINGS`, such as "single".
    """
    if truth is not None and setting is not None:
        raise DataError("expected the complete labels (--truth) or what to hide (--hide), not both")
    config = Config(
        labels=str(path),
        truth=None if truth is None else str(truth),
        reading=reading,
        reading_truth=reading_truth or {},
    )
    labels = read_labels(path, **reading)
    if truth is not None:
        return labels, align_truth(labels, read_labels(truth, **truth_options(config)), truth)
    if setting is None:
        return labels, None
    # What is hidden was there; what was not labelled cannot be hidden.
    complete = np.where(labels.values == PRESENT, PRESENT, ABSENT).astype(np.int8)
    return replace(labels, values=hide(complete, setting, seed)), complete


def draw_data(labels: LabelMatrix, truth: np.ndarray | None = None) -> list[Drawing]:
    """All figures of a label file; `truth` is the complete labels (N, K), where they are known."""
    if not len(labels):
        raise DataError("there are no rows to draw")
    drawings = [draw_counts(labels, truth), draw_positives(labels, truth)]
    drawings.append(draw_co_occurrence(labels, truth))
    return drawings if truth is None else [*drawings, draw_hiding(labels, truth)]


def class_counts(labels: LabelMatrix, truth: np.ndarray | None = None) -> pd.DataFrame:
    """A row a class, the most frequent first: labelled, and by the truth hidden, positives.

    `unannotated_positive` is the share of the UNKNOWN labels of a class that are really there.
    """
    values = labels.values
    table = pd.DataFrame(
        {"class": labels.classes, "rows": len(values), "labelled": (values == PRESENT).sum(axis=0)}
    )
    if truth is not None:
        unknown = values == UNKNOWN
        hidden = (unknown & (truth == PRESENT)).sum(axis=0)
        known = (unknown & (truth != UNKNOWN)).sum(axis=0)
        table["hidden"] = hidden
        table["unannotated_positive"] = hidden / np.maximum(known, 1)
    total = table["labelled"] + table.get("hidden", 0)
    return table.loc[total.sort_values(ascending=False, kind="stable").index].reset_index(drop=True)


@styled
def draw_counts(labels: LabelMatrix, truth: np.ndarray | None = None) -> Drawing:
    """Positives of every class, labelled and hidden (000 Fig. 5a; 002 Fig. 4)."""
    numbers = class_counts(labels, truth)
    groups = [name for name in ("labelled", "hidden") if name in numbers]
    figure, axes = _class_panel(len(numbers))
    low = np.zeros(len(numbers))
    for name in groups:
        _per_class(axes, numbers, numbers[name].to_numpy(), GROUP_COLOURS[name], name, low)
        low = low + numbers[name].to_numpy()
    _finish(axes, numbers, f"positives, of {len(labels):,} rows", low)
    return Drawing("counts", figure, numbers)


@styled
def draw_hiding(labels: LabelMatrix, truth: np.ndarray) -> Drawing:
    """How much of what is not labelled is really there, class by class (001 Fig. 10)."""
    numbers = class_counts(labels, truth)
    figure, axes = _class_panel(len(numbers))
    share = 100 * numbers["unannotated_positive"].to_numpy()
    _per_class(axes, numbers, share, GROUP_COLOURS["hidden"], "really there")
    _finish(axes, numbers, "unknown labels that are really there, %", share)
    return Drawing("hiding", figure, numbers)


@styled
def draw_positives(labels: LabelMatrix, truth: np.ndarray | None = None) -> Drawing:
    """How many rows have no, one, two ... positives, as labelled and in truth."""
    found = {"labelled": (labels.values == PRESENT).sum(axis=1)}
    if truth is not None:
        found["in truth"] = (truth == PRESENT).sum(axis=1)
    most = max(int(count.max(initial=0)) for count in found.values())
    tables = [
        pd.DataFrame(
            {"kind": kind, "positives": range(most + 1), "rows": np.bincount(c, minlength=most + 1)}
        )
        for kind, c in found.items()
    ]
    figure, grid = panels(1, 1, width=5, height=3)
    axes, width = grid[0, 0], 0.8 / len(found)
    for number, (table, colour) in enumerate(zip(tables, ("labelled", "hidden"), strict=False)):
        places = table["positives"] + (number - (len(found) - 1) / 2) * width
        kind = str(table["kind"].iloc[0])
        mean = float(found[kind].mean())
        text = f"{kind}: {mean:.2f} a row"
        axes.bar(places, table["rows"], width, color=GROUP_COLOURS[colour], label=text)
    axes.set_xlabel("positive labels a row")
    axes.set_ylabel("rows")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(axis="x", visible=False)
    axes.legend()
    return Drawing("positives", figure, pd.concat(tables, ignore_index=True))


@styled
def draw_co_occurrence(labels: LabelMatrix, truth: np.ndarray | None = None) -> Drawing:
    """Of the rows with a class (down), how many hold another one (across) (000 Fig. 5c)."""
    values = labels.values if truth is None else truth
    counts = co_occurrence(values)
    order = np.argsort(-np.diag(counts), kind="stable")
    counts = counts[np.ix_(order, order)]
    names = [labels.classes[k] for k in order]
    share = counts / np.maximum(np.diag(counts)[:, None], 1)
    side = float(np.clip(2.2 + 0.24 * len(names), 4, 10))
    figure, grid = panels(1, 1, width=side + 1, height=side)
    axes = grid[0, 0]
    # A class always comes with itself: the diagonal says nothing and would outshine the rest.
    shown = np.where(np.eye(len(names), dtype=bool), np.nan, share)
    image = axes.imshow(shown, aspect="auto", vmin=0, vmax=np.nanmax(shown, initial=0.01))
    axes.grid(False)
    places = list(range(len(names)))
    name_ticks(axes.xaxis, places, names, 40)
    name_ticks(axes.yaxis, places, names, 40)
    axes.tick_params(axis="x", rotation=90)
    axes.set_ylabel("of the rows with this class ...")
    axes.set_xlabel("... so many hold this one, too")
    figure.colorbar(image, ax=axes, label="share of rows", shrink=0.7)
    if len(names) <= _NUMBERED:
        bright = float(image.norm.vmax or 1) / 2
        for a, b in np.argwhere(~np.isnan(shown)):
            colour = "black" if shown[a, b] > bright else "white"
            text = f"{100 * shown[a, b]:.0f}"
            axes.text(b, a, text, ha="center", va="center", fontsize=7, color=colour)
    first, second = np.nonzero(counts)
    numbers = pd.DataFrame(
        {
            "class": [names[k] for k in first],
            "with": [names[k] for k in second],
            "rows": counts[first, second],
            "share": share[first, second],
        }
    )
    return Drawing("co-occurrence", figure, numbers)


def _class_panel(classes: int) -> tuple[Any, Axes]:
    """Room for a bar and a name a class, or for a curve where there are too many."""
    height = 1.1 + 0.19 * classes if classes <= _NAMED else 3.4
    figure, grid = panels(1, 1, width=6, height=height)
    return figure, grid[0, 0]


def _per_class(
    axes: Axes,
    numbers: pd.DataFrame,
    values: np.ndarray,
    colour: str,
    label: str,
    low: np.ndarray | float = 0.0,
) -> None:
    ranks = np.arange(len(numbers))
    if len(numbers) <= _NAMED:
        axes.barh(ranks, values, 0.75, left=low, color=colour, label=label)
    else:
        base = low if isinstance(low, np.ndarray) else np.zeros(len(values))
        axes.fill_between(ranks + 1, base, base + values, color=colour, label=label, step="mid")


def _finish(axes: Axes, numbers: pd.DataFrame, text: str, tops: np.ndarray) -> None:
    names = [str(name) for name in numbers["class"]]
    if len(names) <= _NAMED:
        axes.set_yticks(range(len(names)), [shortened(name) for name in names])
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(text)
    else:
        axes.set_xlim(1, len(names))
        axes.set_ylim(0, float(tops.max(initial=1)) * 1.15)
        axes.set_xlabel("classes, the most frequent first")
        axes.set_ylabel(text)
        ranks = np.unique(np.linspace(0, len(names) - 1, 12).round().astype(int))
        points = [(rank + 1, float(tops[rank]), names[rank]) for rank in ranks]
        name_points(axes, points, below=False)
    if len(axes.get_legend_handles_labels()[1]) > 1:
        axes.legend(loc="lower right" if len(names) <= _NAMED else "upper right")
