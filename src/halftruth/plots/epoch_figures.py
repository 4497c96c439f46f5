"""Figures over epochs: learning curves, and the scores of unknown labels."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from halftruth.plots.run_records import NO_EPOCHS, NotRecorded, Record
from halftruth.plots.style import (
    GRID,
    Drawing,
    epochs_axis,
    legend_name,
    line_look,
    panels,
    shared_legend,
    styled,
)


@styled
def draw_curves(runs: Sequence[Record]) -> Drawing:
    """Draw training loss and validation mAP; a dot marks the kept epoch."""
    columns = {"loss": "training loss", **_maps(runs)}
    drawing = _series("curves", [run for run in runs if not run.is_ensemble] or runs, columns)
    for axes in drawing.figure.axes[1:]:
        for number, run in enumerate(runs):
            kept = run.epochs[run.epochs["number"] == _kept(run)]
            shown = axes.get_ylabel().replace("\n", " ")
            column = next(key for key, text in columns.items() if text == shown)
            if column in kept and len(kept):
                look = line_look(number)["color"]
                axes.plot(kept["number"], 100 * kept[column], "o", color=look, markersize=5)
    return drawing


def _maps(runs: Sequence[Record]) -> dict[str, str]:
    names = {
        "val_mAP": "validation mAP, %",
        "val_mAP_observed": "validation mAP on observed labels, %",
    }
    return {key: text for key, text in names.items() if any(key in run.epochs for run in runs)}


def _kept(run: Record) -> int:
    """The number of the kept epoch, counted over the stages; 0 where the run is not finished."""
    if not run.result:
        return 0
    chosen = (run.epochs["stage"] == run.result["best_stage"]) & (
        run.epochs["epoch"] == run.result["best_epoch"]
    )
    return int(run.epochs.loc[chosen, "number"].max()) if chosen.any() else 0


@styled
def draw_labelled_loss(runs: Sequence[Record]) -> Drawing:
    """Draw the loss -log p of the labelled positives (001 Fig. 7)."""
    names = {
        "train_loss_labelled": "loss of labelled positives, training rows",
        "val_loss_labelled": "loss of labelled positives, validation rows",
    }
    found = {key: text for key, text in names.items() if any(key in run.epochs for run in runs)}
    return _series("labelled-loss", runs, found)


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
        f"{part}_size_hidden": "mean |logit| of hidden positives",
        f"{part}_size_negative": "mean |logit| of true negatives",
    }
    return _series("ambiguity", runs, names)


def wasserstein(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Wasserstein distance W1 of histograms over [0, 1], one distance per row.

    >>> wasserstein(np.array([[4, 0, 0, 0]]), np.array([[0, 0, 2, 2]])).round(3)
    array([0.625])
    """
    shares = [np.cumsum(counts, axis=1) / counts.sum(axis=1)[:, None] for counts in (first, second)]
    distance: np.ndarray = np.abs(shares[0] - shares[1]).mean(axis=1)
    return distance


@styled
def draw_separation(runs: Sequence[Record]) -> Drawing:
    """Draw the Wasserstein distance of hidden positives from true negatives (002 Fig. 3a)."""
    tables = []
    for run in runs:
        run.part_with("hidden", "negative")
        for part in ("train", "val"):
            hidden, negative = (run.counts(part, group) for group in ("hidden", "negative"))
            if hidden.sum() and negative.sum():
                with np.errstate(invalid="ignore"):
                    distance = wasserstein(hidden, negative)
                name = f"{'training' if part == 'train' else 'validation'} rows"
                tables.append(_table(run, name, distance))
    return _lines("separation", runs, tables, "Wasserstein distance of\nhidden and negative labels")


@styled
def draw_corrected(runs: Sequence[Record]) -> Drawing:
    """Draw precision and recall of the missing labels that a method finds (003 Fig. 7).

    These are its pseudo-labels, if it has some, or else the unknown labels above its threshold.
    """
    tables = []
    for run in runs:
        if "pseudo_positive_precision" in run.epochs:
            precision = run.epochs["pseudo_positive_precision"].to_numpy(dtype=float)
            recall = run.epochs["pseudo_positive_recall"].to_numpy(dtype=float)
        else:
            part = run.part_with("hidden", "negative")
            hidden, negative = (run.counts(part, group) for group in ("hidden", "negative"))
            first = round(run.threshold * hidden.shape[1])
            right, wrong = hidden[:, first:].sum(axis=1), negative[:, first:].sum(axis=1)
            with np.errstate(invalid="ignore"):
                precision, recall = right / (right + wrong), right / hidden.sum(axis=1)
        tables.append(_table(run, "precision, %", 100 * precision))
        tables.append(_table(run, "recall, %", 100 * recall))
    drawing = _lines("corrected", runs, tables, "")
    for axes in drawing.figure.axes:
        axes.set_ylim(0, 102)
        name = axes.get_title().removesuffix(", %")
        axes.set_ylabel(f"{name} of the labels\ntaken for missing ones, %")
        axes.set_title("")
    return drawing


def _table(run: Record, series: str, values: np.ndarray) -> pd.DataFrame:
    epochs = run.epochs.iloc[: len(values)]
    columns = {"run": run.name, "series": series, "epoch": epochs["number"].to_numpy()}
    return pd.DataFrame({**columns, "value": values})


def _series(name: str, runs: Sequence[Record], columns: dict[str, str]) -> Drawing:
    """Draw one panel per column of metrics.jsonl, shares in percent."""
    tables = []
    for key, text in columns.items():
        scale = 100 if text.endswith("%") else 1
        for run in runs:
            if key in run.epochs:
                values = run.epochs[key].to_numpy(dtype=float)
                tables.append(_table(run, text, scale * values))
    drawing = _lines(name, runs, tables, "")
    for axes in drawing.figure.axes:
        axes.set_ylabel(textwrap.fill(axes.get_title(), 30))
        axes.set_title("")
    return drawing


def _lines(name: str, runs: Sequence[Record], tables: list[pd.DataFrame], text: str) -> Drawing:
    """Draw one panel per series with one line per run."""
    if all(run.is_ensemble for run in runs):
        raise NotRecorded(f"{runs[0].folder}: {NO_EPOCHS}")
    if not tables:
        asked = ", ".join(str(run.folder) for run in runs)
        raise NotRecorded(
            f"not recorded by {asked}: no complete labels were given (--truth), or the run is from "
            "an older version"
        )
    numbers = pd.concat(tables, ignore_index=True)
    titles = list(dict.fromkeys(numbers["series"]))
    figure, grid = panels(1, len(titles), width=3.7, height=2.9)
    for axes, title in zip(grid[0], titles, strict=True):
        for place, run in enumerate(runs):
            line = numbers[(numbers["series"] == title) & (numbers["run"] == run.name)]
            if len(line):
                shown = legend_name(run.name)
                axes.plot(line["epoch"], line["value"], label=shown, **line_look(place))
        if numbers.loc[numbers["series"] == title, "value"].isna().all():
            axes.text(0.5, 0.5, "not defined", ha="center", transform=axes.transAxes)
            axes.set_yticks([])
        axes.set_title(title)
        axes.set_ylabel(text)
        _mark_stages(axes, runs)
    shared_legend(figure, grid)
    return Drawing(name, figure, numbers)


def _mark_stages(axes: Axes, runs: Sequence[Record]) -> None:
    """Mark whole epochs, and the change of stage if it is the same in all runs."""
    epochs_axis(axes, max(len(run.epochs) for run in runs))
    changes = {int((run.epochs["stage"] == run.epochs["stage"].iloc[0]).sum()) for run in runs}
    if len(changes) == 1 and (at := changes.pop()) < max(len(run.epochs) for run in runs):
        axes.axvline(at + 0.5, color=GRID, linewidth=0.8, linestyle=":")
