"""Out-of-sample scores: every row is scored by a model that was not trained on it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from halftruth.data import DataError, fold_of_rows, write_labels
from halftruth.labels import PRESENT, LabelMatrix

# The share of a fold's training rows that chooses its epoch.
VALIDATION = 0.1


def cross_scores(
    labels: LabelMatrix,
    folder: Path,
    *,
    images: list[str] | None = None,
    features: np.ndarray | None = None,
    folds: int = 5,
    seed: int = 0,
    groups: np.ndarray | None = None,
    tell: Callable[[str], None] = lambda text: None,
    **settings: Any,
) -> tuple[np.ndarray, list[tuple[str, str]]]:
    """(N, K) scores by `folds` trainings, each on the rows of the other folds; and bad images.

    `settings` are those of `halftruth.fit`. The runs are in folder/fold0, fold1, ... and share
    what they decode; a finished one is not repeated. Rows of bad images score NaN.
    """
    from halftruth.train.start import train
    from halftruth.train.trained_run import TrainedRun

    named = labels.items
    if named is None:
        named = np.array([str(row) for row in range(len(labels))])
    if groups is None and len(np.unique(named)) < len(named):
        # A model that has seen an item is no judge of its other rows.
        groups = named
    folder.mkdir(parents=True, exist_ok=True)
    fold = fold_of_rows(len(labels), folds, seed, groups)
    _check_same(folder, labels, fold, features, {"images": images, **settings})
    scores = np.full(labels.values.shape, np.nan)
    bad: list[tuple[str, str]] = []
    if features is not None:
        np.save(folder / "features.npy", features)
    for number in range(folds):
        out = folder / f"fold{number}"
        parts = _parts(fold, number, seed, groups, (labels.values == PRESENT).any(axis=1))
        table = folder / f"fold{number}.parquet"
        write_labels(replace(labels, items=named, split=parts), table)
        tell(f"fold {number + 1} of {folds}: training without {int((fold == number).sum()):,} rows")
        values = {
            "report": False,
            **settings,
            "labels": str(table),
            "reading": {
                "split_column": "split",
                "classes": list(labels.classes),
                "duplicates": "keep",
            },
            "out": str(out),
            "seed": seed,
            "cache_dir": settings.get("cache_dir") or str(folder / "cache"),
        }
        source: dict[str, Any] = (
            {"images": images} if features is None else {"features": str(folder / "features.npy")}
        )
        done = (out / "result.json").exists()
        if not done:
            train({**values, **source}, resume=(out / "config.yaml").exists(), quiet=True)
        run = TrainedRun(out, device=settings.get("device", "auto"))
        rows = np.flatnonzero(fold == number)
        if features is not None:
            scores[rows] = run.score(features=features[rows]).probabilities
        else:
            found = run.score(images=images, items=[str(item) for item in named[rows]])
            lost = {name for name, _ in found.bad}
            rows = rows[[str(item) not in lost for item in named[rows]]]
            scores[rows], bad = found.probabilities, bad + found.bad
    return scores, bad


def _check_same(
    folder: Path,
    labels: LabelMatrix,
    fold: np.ndarray,
    features: np.ndarray | None,
    settings: dict[str, Any],
) -> None:
    """Refuse to go on with folds that were begun on other data or with other settings."""
    now = hashlib.sha256(json.dumps([labels.classes, settings], default=str).encode())
    items = [] if labels.items is None else labels.items.tolist()
    for part in (labels.values, fold, features, np.array(items, dtype=str)):
        now.update(b"" if part is None else np.ascontiguousarray(part).tobytes())
    path = folder / "identity.txt"
    if path.exists() and path.read_text(encoding="utf-8") != now.hexdigest():
        raise DataError(
            f"{folder}: holds folds of other labels or other settings; remove it, or choose "
            "another folder (--out)"
        )
    path.write_text(now.hexdigest(), encoding="utf-8")


def _parts(
    fold: np.ndarray, number: int, seed: int, groups: np.ndarray | None, positive: np.ndarray
) -> np.ndarray:
    """train, val or test for each row; the fold itself is the test part, which chooses nothing."""
    from halftruth.data import split_rows

    rest = np.flatnonzero(fold != number)
    inside = None if groups is None else groups[rest]
    for attempt in range(100):
        # Of few rows those held out may all be without a label, and then they choose nothing.
        draw = seed + number + 1000 * attempt
        _, held_out = split_rows(len(rest), val=VALIDATION, seed=draw, groups=inside)
        if positive[rest[held_out]].any():
            break
    parts = np.where(fold == number, "test", "train").astype("<U5")
    parts[rest[held_out]] = "val"
    return parts


def check_learnable(labels: LabelMatrix) -> None:
    """Refuse labels that leave nothing to learn from."""
    if not (labels.values == PRESENT).any():
        raise DataError(
            "no label is present (1), so there is nothing to learn; see --zero, --blank"
        )
