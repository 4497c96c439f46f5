"""Figures of label files: counts, co-occurrence, positives per row, hidden labels; categories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from halftruth.bench import read_bench_yaml
from halftruth.data import DataError, read_labels
from halftruth.labels import PRESENT, UNKNOWN, LabelMatrix, co_occurrence
from halftruth.plots.style import (
    GROUP_COLOURS,
    Drawing,
    name_points,
    name_ticks,
    panels,
    shorten,
    styled,
)
from halftruth.train.config import Config
from halftruth.train.task import align_truth, truth_options

# Up to this many classes get one bar each; more are drawn as a curve over their ranks.
_NAMED = 45
_NUMBERED = 12
# So many classes have a bar in the figure of COCO's annotations.
_MOST = 20


def read_with_truth(
    path: Path, reading: dict[str, Any], truth: Path, reading_truth: dict[str, object]
) -> tuple[LabelMatrix, np.ndarray]:
    """Read a label file, and the complete labels of its items from a second file."""
    config = Config(
        labels=str(path), truth=str(truth), reading=reading, reading_truth=reading_truth
    )
    labels = read_labels(path, **reading)
    return labels, align_truth(labels, read_labels(truth, **truth_options(config)), truth)


def draw_data(labels: LabelMatrix, truth: np.ndarray | None = None) -> list[Drawing]:
    """Draw all figures of a label file; `truth` are the complete labels (N, K), if known.

    Co-occurrence is left out where no row has two present labels.
    """
    if not len(labels):
        raise DataError("there are no rows to draw")
    drawings = [draw_counts(labels, truth), draw_positives(labels, truth)]
    if ((labels.values if truth is None else truth) == PRESENT).sum(axis=1).max() > 1:
        drawings.append(draw_co_occurrence(labels, truth))
    return drawings if truth is None else [*drawings, draw_hiding(labels, truth)]


def class_counts(labels: LabelMatrix, truth: np.ndarray | None = None) -> pd.DataFrame:
    """Labelled and hidden positives, one row per class, the most frequent class first.

    `unannotated_positive` is the share of the UNKNOWN labels of a class that are present.
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


def draw_counts(labels: LabelMatrix, truth: np.ndarray | None = None) -> Drawing:
    """Draw the labelled and hidden positives per class (000 Fig. 5a; 002 Fig. 4)."""
    numbers = class_counts(labels, truth)
    groups = {name: name for name in ("labelled", "hidden") if name in numbers}
    return draw_per_class("counts", numbers, groups, f"positives among {len(labels):,} rows")


def draw_hiding(labels: LabelMatrix, truth: np.ndarray) -> Drawing:
    """Draw the share of unknown labels that are present, per class (001 Fig. 10)."""
    numbers = class_counts(labels, truth)
    text = "unknown labels that are present, %"
    return draw_per_class("hiding", numbers, {"unannotated_positive": "hidden"}, text, scale=100)


@styled
def draw_positives(labels: LabelMatrix, truth: np.ndarray | None = None) -> Drawing:
    """Draw how many rows have no, one, two, ... positives."""
    found = {"labelled": labels.values} | ({} if truth is None else {"complete labels": truth})
    counts = {kind: (values == PRESENT).sum(axis=1) for kind, values in found.items()}
    places = np.arange(max(int(count.max(initial=0)) for count in counts.values()) + 1)
    figure, grid = panels(1, 1, width=5, height=3)
    axes, width, tables = grid[0, 0], 0.8 / len(counts), []
    for number, (kind, count) in enumerate(counts.items()):
        rows = np.bincount(count, minlength=len(places))
        tables.append(pd.DataFrame({"kind": kind, "positives": places, "rows": rows}))
        colour = GROUP_COLOURS[("labelled", "hidden")[number]]
        text = f"{kind}: {count.mean():.2f} per row"
        left = (number - (len(counts) - 1) / 2) * width
        axes.bar(places + left, rows, width, color=colour, label=text)
    axes.set_xlabel("positives per row")
    axes.set_ylabel("rows")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(axis="x", visible=False)
    axes.legend()
    return Drawing("positives", figure, pd.concat(tables, ignore_index=True))


@styled
def draw_co_occurrence(labels: LabelMatrix, truth: np.ndarray | None = None) -> Drawing:
    """Draw the share of the rows with one class that also have another one (000 Fig. 5c)."""
    values = labels.values if truth is None else truth
    counts = co_occurrence(values)
    order = np.argsort(-np.diag(counts), kind="stable")
    counts = counts[np.ix_(order, order)]
    names = [labels.classes[k] for k in order]
    share = counts / np.maximum(np.diag(counts)[:, None], 1)
    side = float(np.clip(2.2 + 0.24 * len(names), 4, 10))
    figure, grid = panels(1, 1, width=side + 1, height=side)
    axes = grid[0, 0]
    # Every class occurs with itself: the diagonal would only spoil the colour scale.
    shown = np.where(np.eye(len(names), dtype=bool), np.nan, share)
    image = axes.imshow(shown, aspect="auto", vmin=0, vmax=np.nanmax(shown, initial=0.01))
    axes.grid(False)
    places = list(range(len(names)))
    name_ticks(axes.xaxis, places, names, 40)
    name_ticks(axes.yaxis, places, names, 40)
    axes.tick_params(axis="x", rotation=90)
    axes.set_ylabel("of the rows with this class ...")
    axes.set_xlabel("... this share also has this class")
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


def draw_annotations(labels: LabelMatrix, counts: Mapping[str, int], text: str) -> list[Drawing]:
    """Draw counts per class of COCO and per category, and which categories co-occur (000 Fig. 5).

    counts: annotated objects, where an image with five dogs counts five times, or images; `text`
    says which. Classes of other data sets are categories of their own.
    """
    known = read_bench_yaml("datasets.yaml")["datasets"]["coco2014"]["categories"]
    category = {one: name for name, some in known.items() for one in some}
    category |= {one: one for one in labels.classes if one not in category}
    numbers = pd.DataFrame(counts.items(), columns=["class", "annotations"])
    numbers["category"] = numbers["class"].map(category)
    summed = numbers.groupby("category")["annotations"].sum().reset_index()
    found, look = [], {"annotations": "labelled"}
    for name, table, key in (("", numbers, "class"), ("-categories", summed, "category")):
        table = table.sort_values("annotations", ascending=False, kind="stable").head(_MOST)
        found.append(draw_per_class(f"annotations{name}", table, look, text, key))
    # PRESENT is the largest label: a category is present where one of its classes is.
    columns = pd.DataFrame(labels.values.T).groupby([category[one] for one in labels.classes])
    joined = columns.max().T
    together = draw_co_occurrence(LabelMatrix(joined.to_numpy(), tuple(map(str, joined))))
    return [*found, replace(together, name="co-occurrence-categories")]


@styled
def draw_per_class(
    name: str,
    numbers: pd.DataFrame,
    groups: dict[str, str],
    text: str,
    names: str = "class",
    scale: float = 1,
) -> Drawing:
    """Draw columns of a table one upon the other: named bars, or areas over ranks if too many.

    `groups`: the colour of each column; `names`: the column with the names of the rows.
    """
    titles, count = [str(one) for one in numbers[names]], len(numbers)
    are_named, ranks, top = count <= _NAMED, np.arange(count), np.zeros(count)
    figure, grid = panels(1, 1, width=6, height=1.1 + 0.19 * count if are_named else 3.4)
    axes = grid[0, 0]
    for column, group in groups.items():
        values = scale * numbers[column].to_numpy()
        look: dict[str, object] = {"color": GROUP_COLOURS[group], "label": column}
        if are_named:
            axes.barh(ranks, values, 0.75, left=top, **look)
        else:
            axes.fill_between(ranks + 1, top, top + values, step="mid", **look)
        top = top + values
    if are_named:
        axes.set_yticks(ranks, [shorten(one) for one in titles])
        axes.set_ylim(count - 0.4, -0.6)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(text)
    else:
        axes.set_xlim(1, count)
        axes.set_ylim(0, float(top.max(initial=1)) * 1.15)
        axes.set_xlabel("classes, the most frequent first")
        axes.set_ylabel(text)
        picked = np.unique(np.linspace(0, count - 1, 12).round().astype(int))
        name_points(axes, [(k + 1, float(top[k]), titles[k]) for k in picked], below=False)
    if len(groups) > 1:
        axes.legend(loc="lower right" if are_named else "upper right")
    return Drawing(name, figure, numbers.reset_index(drop=True))
