"""Scores of a trained run, and which of the rows it was trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from halftruth.data import DataError, read_labels
from halftruth.data.errors import some
from halftruth.labels import LabelMatrix
from halftruth.train.task import choose_parts, read_groups, reading_options
from halftruth.train.trained_run import TrainedRun


def reading_of(run: TrainedRun, labels: str | Path) -> dict[str, Any]:
    """How training read this file, if it did."""
    same = Path(run.config.labels).resolve() == Path(labels).resolve()
    return reading_options(run.config) if same else {}


def run_scores(
    run: TrainedRun,
    labels: LabelMatrix,
    *,
    images: list[str] | None = None,
    features: np.ndarray | None = None,
) -> tuple[np.ndarray, list[tuple[str, str]]]:
    """(N, K) scores for the classes of the labels, NaN for bad images, which come second."""
    missing = [name for name in labels.classes if name not in run.classes]
    if missing:
        raise DataError(f"{run.folder}: the run does not know the classes {some(missing)}")
    columns = [run.classes.index(name) for name in labels.classes]
    if features is not None:
        return run.score(features=features).probabilities[:, columns], []
    if labels.items is None:
        raise DataError("the label file names no images; give the column with --image-column")
    items = [str(item) for item in labels.items]
    found = run.score(images=images, items=items)
    lost = {name for name, _ in found.bad}
    scores = np.full(labels.values.shape, np.nan)
    scores[[item not in lost for item in items]] = found.probabilities[:, columns]
    return scores, found.bad


def trained_on(run: TrainedRun, labels: LabelMatrix) -> np.ndarray | None:
    """(N,) True for rows that the run was trained on; None where that cannot be told."""
    try:
        taught = read_labels(run.config.labels, **reading_options(run.config))
        rows = choose_parts(run.config, taught, read_groups(run.config)).train
    except (DataError, OSError):
        return None
    if taught.items is None or labels.items is None:
        if len(taught) != len(labels):
            return None
        return np.isin(np.arange(len(labels)), rows)
    return np.isin(labels.items, taught.items[rows])
