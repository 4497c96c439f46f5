"""A trained run measured on a label file."""

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from halftruth.data import DataError, named_splits, read_labels
from halftruth.data.errors import some
from halftruth.labels import LabelMatrix
from halftruth.metrics import average_precision
from halftruth.metrics import evaluate as score_labels
from halftruth.metrics.counts import UndefinedMetricWarning
from halftruth.train.task import choose_parts, read_groups, reading_options, truth_options
from halftruth.train.trained_run import Source, TrainedRun, opened


class Evaluation(NamedTuple):
    """Metrics over all, a table of classes, and the images that could not be read."""

    metrics: dict[str, float]
    classes: pd.DataFrame
    bad: list[tuple[str, str]]


def evaluate(
    run: TrainedRun | str | Path,
    labels: str | Path,
    *,
    images: Source | None = None,
    features: str | Path | None = None,
    split: str | None = None,
    reading: dict[str, Any] | None = None,
    **options: Any,
) -> Evaluation:
    """A run's metrics on a label file, with the thresholds fitted when it was trained.

    Classes are matched by name. `split` takes the rows of one part ("train", "val", "test") of the
    file's split column; for the file the run was trained on, of the parts it was trained with.
    That file is read as in training unless `reading` says otherwise. Labels that are not present
    count as absent unless `ignore_unknown=True`.
    """
    run = opened(run)
    given = read_labels(labels, **{**_reading(run, labels), **(reading or {})})
    missing = [name for name in run.classes if name not in given.classes]
    if missing:
        raise DataError(f"{labels}: the run knows classes that the labels lack: {some(missing)}")
    values = given.values[:, [given.classes.index(name) for name in run.classes]]
    rows = np.arange(len(values)) if split is None else _part(run, given, labels, split)
    items = None if given.items is None else [str(given.items[row]) for row in rows]
    if features is not None:
        matrix = run.read_features(features, labels=given)[rows]
        scores = run.score(features=matrix, items=items)
    else:
        if items is None:
            raise DataError(f"{labels}: the file names no images")
        scores = run.score(images=images, items=items, bad_images="skip")
        lost = {name for name, _ in scores.bad}
        rows = rows[[item not in lost for item in items]]
        if not len(rows):
            raise DataError(f"{labels}: none of its {len(items):,} images can be read")
    truth = values[rows]
    ignore = bool(options.get("ignore_unknown", False))
    with warnings.catch_warnings():
        # A class that occurs nowhere is in the table, with no AP.
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        metrics = score_labels(scores.probabilities, truth, threshold=run.thresholds, **options)
        ap = average_precision(scores.probabilities, truth, ignore_unknown=ignore, empty="nan")
    counts = (truth > 0).sum(axis=0)
    table = pd.DataFrame(
        {"class": run.classes, "present": counts, "AP": ap, "threshold": run.thresholds}
    )
    return Evaluation(metrics, table, scores.bad)


def _same_file(one: str | Path | None, other: str | Path) -> bool:
    return one is not None and Path(one).resolve() == Path(other).resolve()


def _reading(run: TrainedRun, labels: str | Path) -> dict[str, Any]:
    """How training read this file, if it did."""
    config = run.config
    if _same_file(config.truth, labels):
        return truth_options(config)
    return reading_options(config) if _same_file(config.labels, labels) else {}


def _part(run: TrainedRun, given: LabelMatrix, labels: str | Path, split: str) -> np.ndarray:
    if split not in ("train", "val", "test"):
        raise DataError(f"split: expected train, val or test, got {split!r}")
    config = run.config
    if _same_file(config.labels, labels) and (given.split is not None or split != "test"):
        parts = choose_parts(config, given, read_groups(config))
    elif given.split is None:
        raise DataError(f"{labels}: there is no split column, so no part {split!r}")
    else:
        parts = named_splits(given.split)
    rows: np.ndarray = getattr(parts, split)
    if not len(rows):
        raise DataError(f"{labels}: no row belongs to the part {split!r}")
    return rows
