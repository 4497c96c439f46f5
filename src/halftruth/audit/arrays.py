"""What the functions of the audit take: labels and scores as plain arrays, tables or matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from halftruth.labels import LabelMatrix, check, check_classes


@dataclass(frozen=True)
class Scored:
    """Labels and scores of the same rows and classes, with their names."""

    labels: np.ndarray
    scores: np.ndarray
    classes: tuple[str, ...]
    items: np.ndarray


def scored(
    labels: Any,
    scores: Any,
    *,
    classes: Sequence[str] | None = None,
    items: Sequence[str] | None = None,
) -> Scored:
    """Check labels (N, K) of +1, 0, -1 against scores (N, K), which are probabilities.

    A `LabelMatrix` or a data frame brings the names of its classes (and items) along; without any,
    they are class0, class1, ... and the number of the row.

    >>> scored([[1, 0]], [[0.9, 0.2]]).classes
    ('class0', 'class1')
    """
    if isinstance(labels, LabelMatrix):
        classes = labels.classes if classes is None else classes
        if items is None and labels.items is not None:
            items = [str(item) for item in labels.items]
        labels = labels.values
    elif classes is None and hasattr(labels, "columns"):
        classes = [str(name) for name in labels.columns]
    values = np.asarray(check(labels))
    points = check_scores(scores, values.shape)
    names = [f"class{k}" for k in range(values.shape[1])] if classes is None else classes
    known = check_classes(names)
    if len(known) != values.shape[1]:
        raise ValueError(f"got {len(known)} class names for labels of {values.shape[1]} columns")
    texts = np.asarray(range(len(values)) if items is None else list(items), dtype=str)
    if texts.shape != (len(values),):
        raise ValueError(f"expected an item for each of {len(values):,} rows, got {len(texts):,}")
    return Scored(values, points, known, texts)


def check_scores(scores: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Probabilities of this shape as float64; the first that is none is named."""
    if hasattr(scores, "detach"):
        scores = scores.detach().cpu().float()
    points = np.asarray(scores, dtype=np.float64)
    if points.shape != shape:
        raise ValueError(
            f"expected scores of the labels' shape {shape}, rows by classes, got {points.shape}"
        )
    wrong = ~((points >= 0) & (points <= 1))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise ValueError(
            f"scores[{row}, {column}] is {points[row, column]}; expected probabilities in 0..1 "
            "(of logits, take the sigmoid first)"
        )
    return points


def check_verified(verified: Any, labels: np.ndarray) -> np.ndarray:
    """Verdicts on labels: +1 there, -1 not there, 0 not looked at; int8, zeros where None."""
    if verified is None:
        return np.zeros(labels.shape, dtype=np.int8)
    verdicts = np.asarray(check(verified))
    if verdicts.shape != labels.shape:
        raise ValueError(f"expected verified of shape {labels.shape}, got {verdicts.shape}")
    return verdicts
