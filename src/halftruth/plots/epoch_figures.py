"""Figures over epochs: learning curves, and the scores of unknown labels."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from halftruth.plots.run_records import NO_EPOCHS, ROWS_OF, NotRecorded, Record
from halftruth.plots.style import (
    COLOURS,
    GRID,
    Drawing,
    legend_name,
    line_look,
    panels,
    shared_legend,
    shorten,
    styled,
)

_BANDS = {"precision": COLOURS[4], "recall": COLOURS[2]}


@styled
def draw_curves(runs: Sequence[Record]) -> Drawing:
    """Draw training loss and validation mAP; a dot marks the kept epoch."""
    drawing = _series(
        "curves",
        [run for run in runs if not run.is_ensemble] or runs,
        {
            "loss": "training loss",
            "val_mAP": "validation mAP, %",
            "val_mAP_observed": "validation mAP on observed labels, %",
        },
    )
    by_series = drawing.numbers.groupby("series", sort=False)
    # The kept epoch of a run that is not finished is not known.
    best = {run.name: run.number(run.place("best")) for run in runs if run.result}
    for axes, (_, numbers) in list(zip(drawing.figure.axes, by_series, strict=True))[1:]:
        for place, run in enumerate(runs):
            kept = numbers[(numbers["run"] == run.name) & (numbers["epoch"] == best.get(run.name))]
            look = {"color": line_look(place)["color"], "markersize": 5}
            axes.plot(kept["epoch"], kept["value"], "o", **look)
    return drawing


@styled
def draw_labelled_loss(runs: Sequence[Record], parts: Sequence[str] = ("train", "val")) -> Drawing:
    """Draw the loss -log p of the labelled positives (001 Fig. 7)."""
    names = {
        f"{part}_loss_labelled": f"loss of labelled positives, {ROWS_OF[part]}" for part in parts
    }
    return _series("labelled-loss", runs, names)


@styled
def draw_predictive_values(runs: Sequence[Record]) -> Drawing:
    """Draw PPV and NPV at the method's threshold: class means, validation rows (004 Fig. 2)."""
    names = {
        "val_PPV": "PPV: present among those above the threshold, %",
        "val_NPV": "NPV: absent among those below the threshold, %",
    }
    drawing = _series("predictive-values", runs, names)
    thresholds = {run.name: run.threshold for run in runs}
    drawing.numbers["threshold"] = drawing.numbers["run"].map(thresholds)
    listed = ", ".join(dict.fromkeys(f"{one:g}" for one in thresholds.values()))
    for axes in drawing.figure.axes:
        axes.set_xlabel(f"epoch (threshold p = {listed})")
    return drawing


@styled
def draw_ambiguity(runs: Sequence[Record]) -> Drawing:
    """Draw the mean |logit| of unknown labels: near 0 they are undecided (001 Fig. 8)."""
    part = "train" if all("train_size_hidden" in run.epochs for run in runs) else "val"
    names = {
        f"{part}_size_hidden": "hidden positives",
        f"{part}_size_negative": "true negatives",
    }
    return _series("ambiguity", runs, names, text=f"mean |logit|, {ROWS_OF[part]}")


def wasserstein(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Wasserstein distance W1 of histograms over [0, 1], one distance per row.

    >>> wasserstein(np.array([[4, 0, 0, 0]]), np.array([[0, 0, 2, 2]])).round(3)
    array([0.625])
    """
    shares = [np.cumsum(counts, axis=1) / counts.sum(axis=1)[:, None] for counts in (first, second)]
    distance: np.ndarray = np.abs(shares[0] - shares[1]).mean(axis=1)
    return distance


@styled
def draw_separation(runs: Sequence[Record], parts: Sequence[str] = ("train", "val")) -> Drawing:
    """Draw the Wasserstein distance of hidden positives from true negatives (002 Fig. 3a)."""
    tables = []
    for run in runs:
        run.part_with("hidden", "negative")
        for part in parts:
            name = ROWS_OF[part]
            hidden, negative = (run.counts(part, group) for group in ("hidden", "negative"))
            if hidden.sum() and negative.sum():
                with np.errstate(invalid="ignore"):
                    tables.append(_table(run, name, wasserstein(hidden, negative)))
    drawing = _lines("separation", runs, tables)
    for axes in drawing.figure.axes:
        axes.set_title(axes.get_ylabel())
        axes.set_ylabel("Wasserstein distance of\nhidden and negative labels")
    return drawing


@styled
def draw_corrected(
    runs: Sequence[Record], threshold: float | None = None, band: Sequence[float] = ()
) -> Drawing:
    """Draw precision and recall of the missing labels that a method finds (003 Fig. 7).

    These are its pseudo-labels, if it has some, or else the unknown labels above its threshold, or
    above one `threshold` for all runs. `band`: two thresholds; the range between them is that of
    pseudo-labels by the trained model of the first run.
    """
    tables, bands = [], {}
    for run in runs:
        if "pseudo_positive_precision" in run.epochs and threshold is None:
            names = ("pseudo_positive_precision", "pseudo_positive_recall")
            precision, recall = (run.epochs[name].to_numpy(dtype=float) for name in names)
        else:
            above = run.threshold if threshold is None else threshold
            precision, recall = _find_missing(run, above)
        if len(band) and run is runs[0]:
            ends = np.array([[one[-1] for one in _find_missing(run, at)] for at in band])
            bands = dict(zip(("precision", "recall"), 100 * ends.T, strict=True))
        tables.append(_table(run, "precision, %", 100 * precision))
        tables.append(_table(run, "recall, %", 100 * recall))
    drawing = _lines("corrected", runs, tables)
    for axes in drawing.figure.axes:
        axes.set_ylim(0, 102)
        name = axes.get_ylabel().removesuffix(", %")
        axes.set_ylabel(f"{name} of the labels\ntaken for missing ones, %")
        if name in bands:
            # As in the paper: yellow for precision, green for recall.
            look: dict[str, Any] = {"color": _BANDS[name], "alpha": 0.25, "linewidth": 0}
            text = f"pseudo-labels of the trained {runs[0].name}, p > {band[0]:g} to {band[1]:g}"
            span = axes.axhspan(*sorted(bands[name]), label=text, **look)
            axes.legend(handles=[span], loc="best", fontsize=6)
    return drawing


def _find_missing(run: Record, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """Precision and recall per epoch of the unknown labels above a threshold."""
    part = run.part_with("hidden", "negative")
    hidden, negative = (run.counts(part, group) for group in ("hidden", "negative"))
    first = round(threshold * hidden.shape[1])
    right, wrong = hidden[:, first:].sum(axis=1), negative[:, first:].sum(axis=1)
    with np.errstate(invalid="ignore"):
        return right / (right + wrong), right / hidden.sum(axis=1)


def _table(run: Record, series: str, values: np.ndarray) -> pd.DataFrame:
    epochs = run.epochs["number"].to_numpy()[: len(values)]
    return pd.DataFrame({"run": run.name, "series": series, "epoch": epochs, "value": values})


def _series(name: str, runs: Sequence[Record], columns: dict[str, str], text: str = "") -> Drawing:
    """Draw one panel per column of metrics.jsonl that was recorded, shares in percent.

    With a `text` for the y-axis: one panel per run, and one line per column.
    """
    tables = [
        _table(run, text, (100 if text.endswith("%") else 1) * run.epochs[key].to_numpy(float))
        for key, text in columns.items()
        for run in runs
        if key in run.epochs
    ]
    return _lines(name, runs, tables, text)


def _lines(
    name: str, runs: Sequence[Record], tables: list[pd.DataFrame], text: str = ""
) -> Drawing:
    """Draw one panel per series with one line per run, or with a `text` the other way round."""
    if all(run.is_ensemble for run in runs):
        raise NotRecorded(f"{runs[0].folder}: {NO_EPOCHS}")
    if not tables:
        asked = ", ".join(str(run.folder) for run in runs)
        raise NotRecorded(f"not recorded by {asked}: no complete labels were given (--truth)")
    numbers = pd.concat(tables, ignore_index=True)
    panel, lines = ("run", "series") if text else ("series", "run")
    parts = numbers.groupby(panel, sort=False)
    figure, grid = panels(1, len(parts), width=3.7, height=2.9)
    first = min(int(run.epochs["number"].min()) for run in runs)
    last = max(int(run.epochs["number"].max()) for run in runs)
    # The change of stage, if it is the same in all runs.
    trained = [run.epochs[run.epochs["number"] > 0]["stage"] for run in runs]
    changes = {int((stages == stages.iloc[0]).sum()) for stages in trained}
    order = list(dict.fromkeys(numbers[lines]))
    for axes, (title, table) in zip(grid[0], parts, strict=True):
        for key, line in table.groupby(lines, sort=False):
            look = line_look(order.index(key))
            axes.plot(line["epoch"], line["value"], label=legend_name(str(key)), **look)
        if table["value"].isna().all():
            axes.text(0.5, 0.5, "not defined", ha="center", transform=axes.transAxes)
            axes.set_yticks([])
        axes.set_ylabel(text or textwrap.fill(str(title), 30))
        axes.set_title(shorten(str(title), 36) if text else "")
        axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
        axes.set_xlim(first - 0.5, last + 0.5)
        axes.set_xlabel("epoch")
        if len(changes) == 1 and max(changes) < last:
            axes.axvline(max(changes) + 0.5, color=GRID, linewidth=0.8, linestyle=":")
    shared_legend(figure, grid)
    return Drawing(name, figure, numbers)
