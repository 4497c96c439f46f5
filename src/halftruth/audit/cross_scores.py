"""Out-of-sample scores: every row is scored by a model that was not trained on it."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from halftruth.audit.score_sources import run_scores
from halftruth.data import DataError, fold_of_rows, split_rows, write_labels
from halftruth.data.verdicts import VERDICTS, write_verdicts
from halftruth.data.wide_matrix import Matrix
from halftruth.labels import PRESENT, LabelMatrix
from halftruth.presence.solvers import logit, sigmoid
from halftruth.train.config import Config
from halftruth.train.devices import count_processes, run_in_processes
from halftruth.train.results.trained_run import TrainedRun
from halftruth.train.run import train
from halftruth.train.run_logger import RunLogger
from halftruth.train.settings import SETTINGS, get_defaults
from halftruth.train.task import group_repeated_items

# The share of the training rows of a fold that chooses its epoch.
_VALIDATION = 0.1


# Calls a function with the arguments of each task.
Engine = Callable[[Callable[..., None], Sequence[tuple[Any, ...]]], object]


def cross_scores(
    labels: LabelMatrix,
    folder: Path,
    *,
    images: list[str] | None = None,
    features: Matrix | None = None,
    folds: int = 5,
    seed: int = 0,
    groups: np.ndarray | None = None,
    verified: np.ndarray | None = None,
    engine: Engine | None = None,
    quiet: bool = True,
    **settings: object,
) -> tuple[np.ndarray, list[tuple[str, str]]]:
    """(N, K) scores by `folds` trainings, each on the rows of the other folds; and bad images.

    Soft labels and weights are used. `verified` (N, K) are verdicts of a review: +1 present, -1
    absent, 0 none; training takes them as those of `halftruth train --verdicts`. `settings` are
    those of `halftruth.fit`. The runs are in folder/fold0, fold1, ... and share
    their cache of images; a finished run is not repeated. Rows of bad images score NaN.
    `engine(function, tasks)` trains the folds elsewhere, all at once, see `halftruth.ray`.
    `quiet=False` shows messages, and progress bars in a terminal.
    """
    items = np.arange(len(labels)).astype(str) if labels.items is None else labels.items
    labels = replace(labels, items=items)
    if groups is None:
        groups = group_repeated_items(labels.items)
    folder.mkdir(parents=True, exist_ok=True)
    fold = fold_of_rows(len(labels), folds, seed, groups)
    verified = np.zeros(labels.values.shape, np.int8) if verified is None else verified
    _check_same(folder, labels, (fold, features, verified), {"images": images, **settings})
    settings = {"report": False, "seed": seed, **settings}
    if verified.any():
        settings["verdicts"] = _write_verified(verified, labels.classes, folder / VERDICTS)
    if features is None:
        settings["images"] = images
        settings["cache_dir"] = settings.get("cache_dir") or str(folder / "cache")
    else:
        np.save(folder / "features.npy", features)
        settings["features"] = str(folder / "features.npy")
    positive = (np.where(verified == 0, labels.values, verified) == PRESENT).any(axis=1)
    chooses = _chooses_epoch(settings)
    trainings = [
        (
            replace(labels, split=_split_rows(fold, one, seed, groups, positive, chooses)),
            folder / f"fold{one}",
            settings,
        )
        for one in range(folds)
    ]
    scores, bad = np.full(labels.values.shape, np.nan), list[tuple[str, str]]()
    if engine is not None:
        engine(_train_fold, trainings)
    for number, run in enumerate(_train_folds(trainings, fold, quiet)):
        rows = np.flatnonzero(fold == number)
        held_out = None if features is None else features[rows]
        scores[rows], lost = run_scores(run, labels.select(rows), images=images, features=held_out)
        bad += lost
    # Folds of groups may differ in truth; random folds only by the labels that their model lacked.
    return scores if groups is not None else align_folds(scores, fold), bad


def _chooses_epoch(settings: dict[str, object]) -> bool:
    """Whether training chooses an epoch, which takes validation rows."""
    known = {key: value for key, value in settings.items() if key in SETTINGS}
    return not Config(**{**get_defaults(settings), **known}).fits_ensemble


def _train_folds(
    trainings: list[tuple[LabelMatrix, Path, dict[str, Any]]], fold: np.ndarray, quiet: bool
) -> Iterator[TrainedRun]:
    """Train the folds one after another, or in several processes if the first one took long."""
    logger, folds = RunLogger(None, quiet=quiet), len(trainings)
    with logger.progress("folds", folds) as advance:
        for number, (labels, out, settings) in enumerate(trainings):
            left_out = np.count_nonzero(fold == number)
            logger.log(f"fold {number + 1} of {folds}: training without {left_out:,} rows")
            started = time.monotonic()
            _train_fold(labels, out, settings)
            run = TrainedRun(out, device=settings.get("device", "auto"), quiet=quiet)
            on_cpu = run.accelerator.device.type == "cpu"
            if number == 0 and "features" in settings and on_cpu:
                left = (time.monotonic() - started) * (folds - 1)
                if (jobs := count_processes(left, folds - 1)) > 1:
                    logger.log(f"the other folds are trained in {jobs} processes")
                    run_in_processes(jobs, _train_fold, trainings[1:])
            yield run
            advance()


def align_folds(scores: np.ndarray, fold: np.ndarray) -> np.ndarray:
    """Move the logits of every fold to the mean of their class over all folds.

    A model that was trained without the labels of a fold has seen fewer of a rare class if the fold
    holds more of them, so that it scores exactly their rows too low.

    >>> align_folds(np.array([[0.2], [0.2], [0.8], [0.8]]), np.array([0, 0, 1, 1])).round(2).ravel()
    array([0.5, 0.5, 0.5, 0.5])
    """
    z = logit(scores)
    for column in z.T:
        # Rows of bad images score NaN.
        some = ~np.isnan(column)
        count = np.maximum(np.bincount(fold[some], minlength=fold.max() + 1), 1)
        mean = np.bincount(fold[some], column[some], minlength=len(count)) / count
        column[some] += column[some].mean() - mean[fold[some]] if some.any() else 0.0
    return sigmoid(z)


def _train_fold(labels: LabelMatrix, out: Path, settings: Mapping[str, object]) -> None:
    """Train without the rows of one fold, or resume that run; a finished run is kept."""
    table = out.with_name(f"{out.name}.parquet")
    write_labels(labels, table)
    if (out / "result.json").exists():
        return
    reading: dict[str, Any] = {
        "split_column": "split", "classes": list(labels.classes), "duplicates": "keep",
    }  # fmt: skip
    if labels.soft is not None:
        reading["soft"] = True
    if labels.weights is not None:
        weights = out.with_name(f"{out.name}-weights.npy")
        np.save(weights, labels.weights)
        reading["label_weights"] = str(weights)
    values = {**settings, "labels": str(table), "reading": reading, "out": str(out)}
    train(values, resume=(out / "config.yaml").exists(), quiet=True)


def _write_verified(verified: np.ndarray, classes: tuple[str, ...], path: Path) -> str:
    """Write verdicts as a file that `halftruth train --verdicts` reads, matched by row."""
    row, column = np.nonzero(verified)
    table = pd.DataFrame(
        {
            "row": row,
            "item": "",
            "class": np.array(classes, dtype=object)[column],
            "verdict": verified[row, column],
            "by": "review",
        }
    )
    write_verdicts(table, path)
    return str(path)


def _check_same(
    folder: Path,
    labels: LabelMatrix,
    arrays: tuple[Matrix | None, ...],
    settings: Mapping[str, object],
) -> None:
    """Refuse to continue folds that were started on other data or with other settings."""
    now = hashlib.sha256(json.dumps([labels.classes, settings], default=str).encode())
    items = [] if labels.items is None else labels.items.tolist()
    for part in (labels.values, labels.soft, labels.weights, *arrays, np.array(items, dtype=str)):
        now.update(b"" if part is None else np.ascontiguousarray(part).tobytes())
    path = folder / "identity.txt"
    if path.exists() and path.read_text(encoding="utf-8") != now.hexdigest():
        raise DataError(
            f"{folder}: contains folds of other labels or other settings; remove it, or choose "
            "another folder (--out)"
        )
    path.write_text(now.hexdigest(), encoding="utf-8")


def _split_rows(
    fold: np.ndarray, number: int, seed: int, groups: np.ndarray | None, positive: np.ndarray,
    chooses: bool,
) -> np.ndarray:  # fmt: skip
    """train, val or test per row; the fold is the test part, which is not used for selection.

    `chooses`: whether training chooses an epoch; otherwise there is no validation part.
    """
    parts = np.where(fold == number, "test", "train").astype("<U5")
    if not chooses:
        return parts
    rest = np.flatnonzero(fold != number)
    inside = None if groups is None else groups[rest]
    for attempt in range(100):
        # With few rows, the validation part may have no positive, and no epoch can be selected.
        draw = (seed + number + 1000 * attempt) % 2**32
        _, held_out = split_rows(len(rest), val=_VALIDATION, seed=draw, groups=inside)
        if positive[rest[held_out]].any():
            break
    parts[rest[held_out]] = "val"
    return parts
