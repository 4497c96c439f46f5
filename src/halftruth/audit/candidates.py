"""Ranked tables and masks of what labels miss, and of labels that are probably wrong.

Every function takes labels and out-of-sample scores, both (N, K): arrays, tensors or data frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from halftruth.audit.arrays import Scored, scored
from halftruth.labels import ABSENT, PRESENT, UNKNOWN
from halftruth.presence.calibration import Calibration, calibrate

CUTS = (0.95, 0.9, 0.8, 0.7, 0.6, 0.5)


def missing_labels(
    labels: Any,
    scores: Any,
    *,
    classes: Sequence[str] | None = None,
    items: Sequence[str] | None = None,
    most: int | None = None,
    calibration: Calibration | None = None,
    **options: Any,
) -> pd.DataFrame:
    """The UNKNOWN labels that are probably there, most certain first.

    Columns: rank, row, item, class, score, probability (calibrated), and expected_precision: the
    share that is there of all candidates down to this one. All unknown labels are ranked unless
    `most` says how many. The scores must be out-of-sample: of a model that was not trained on
    the row it scores. `options` go to `calibrate`.

    >>> labels = np.repeat([[1, 0], [0, 1], [1, 0], [0, 0]], 20, axis=0)
    >>> scores = np.repeat([[0.9, 0.8], [0.1, 0.9], [0.8, 0.1], [0.1, 0.1]], 20, axis=0)
    >>> found = missing_labels(labels, scores, classes=["cat", "dog"], most=20)
    >>> found["class"].unique().tolist(), sorted(found["row"]) == list(range(20))
    (['dog'], True)
    """
    data = scored(labels, scores, classes=classes, items=items)
    known = calibration or calibrate(data.labels, data.scores, **options)
    return _ranked(data, data.labels == UNKNOWN, known.present, most)


def wrong_labels(
    labels: Any,
    scores: Any,
    *,
    classes: Sequence[str] | None = None,
    items: Sequence[str] | None = None,
    most: int | None = None,
    calibration: Calibration | None = None,
    **options: Any,
) -> pd.DataFrame:
    """The PRESENT labels that are probably wrong, most certain first; columns as above."""
    data = scored(labels, scores, classes=classes, items=items)
    known = calibration or calibrate(data.labels, data.scores, **options)
    return _ranked(data, data.labels == PRESENT, known.wrong_probability, most, sign=-1)


def missing_mask(labels: Any, scores: Any, *, precision: float = 0.9, **options: Any) -> np.ndarray:
    """(N, K) True for as many of the first candidates as are expected to be right this often."""
    table = missing_labels(labels, scores, **options)
    chosen = table[: cut_at(table["expected_precision"].to_numpy(), precision)]
    mask = np.zeros(np.shape(scores), dtype=bool)
    columns = {name: k for k, name in enumerate(dict.fromkeys(_names(labels, scores, options)))}
    mask[chosen["row"], chosen["class"].map(columns)] = True
    return mask


def cut_at(expected_precision: np.ndarray, precision: float) -> int:
    """How many of the first candidates can be taken at this expected precision.

    >>> cut_at(np.array([1.0, 0.95, 0.9, 0.85]), 0.9)
    3
    """
    if not 0 < precision <= 1:
        raise ValueError(f"expected a precision in 0..1 (above 0), got {precision}")
    enough = np.flatnonzero(expected_precision >= precision)
    return int(enough[-1]) + 1 if len(enough) else 0


def ranked(labels: Any, scores: Any, **options: Any) -> np.ndarray:
    """(M, 2) row and column of the unknown labels, most probably there first."""
    data = scored(labels, scores)
    present = calibrate(data.labels, data.scores, **options).present
    places = np.argwhere(data.labels == UNKNOWN)
    at = tuple(places.T)
    return places[np.lexsort((-data.scores[at], -present[at]))]


def per_class(
    labels: Any,
    scores: Any,
    *,
    classes: Sequence[str] | None = None,
    calibration: Calibration | None = None,
    **options: Any,
) -> pd.DataFrame:
    """For each class: labels by kind, and how many are estimated to be missing and to be wrong."""
    data = scored(labels, scores, classes=classes)
    known = calibration or calibrate(data.labels, data.scores, **options)
    return pd.DataFrame(
        {
            "class": data.classes,
            "present": (data.labels == PRESENT).sum(axis=0),
            "absent": (data.labels == ABSENT).sum(axis=0),
            "unknown": (data.labels == UNKNOWN).sum(axis=0),
            "missing": [count.estimate for count in known.missing],
            "missing_low": [count.low for count in known.missing],
            "missing_high": [count.high for count in known.missing],
            "wrong": known.wrong,
        }
    )


def precision_cuts(expected_precision: np.ndarray, cuts: Sequence[float] = CUTS) -> pd.DataFrame:
    """How many candidates reach each precision, and how many of them are expected to be right."""
    taken = np.array([cut_at(expected_precision, cut) for cut in cuts], dtype=int)
    reached = np.array([expected_precision[count - 1] if count else np.nan for count in taken])
    return pd.DataFrame(
        {
            "precision": list(cuts),
            "candidates": taken,
            "expected_right": np.round(np.nan_to_num(taken * reached), 1),
        }
    )


def summary(labels: Any, scores: Any, **options: Any) -> dict[str, Any]:
    """The audit in a few numbers."""
    data = scored(labels, scores)
    known = calibrate(data.labels, data.scores, **options)
    table = missing_labels(data.labels, data.scores, calibration=known)
    total = known.missing_total
    return {
        "labels": int(data.labels.size),
        "present": int((data.labels == PRESENT).sum()),
        "unknown": int((data.labels == UNKNOWN).sum()),
        "missing": total.estimate,
        "missing_interval": (total.low, total.high),
        "wrong": known.wrong_total,
        "selection": known.selection,
        "at_90_percent_precision": cut_at(table["expected_precision"].to_numpy(), 0.9),
    }


def _ranked(
    data: Scored, among: np.ndarray, probability: np.ndarray, most: int | None, sign: int = 1
) -> pd.DataFrame:
    row, column = np.nonzero(among)
    certain, score = probability[row, column], data.scores[row, column]
    order = np.lexsort((-sign * score, -certain))[:most]
    row, column, certain, score = row[order], column[order], certain[order], score[order]
    places = np.arange(1, len(order) + 1)
    return pd.DataFrame(
        {
            "rank": places,
            "row": row,
            "item": data.items[row],
            "class": np.array(data.classes, dtype=object)[column],
            "score": score,
            "probability": certain,
            "expected_precision": np.cumsum(certain) / places,
        }
    )


def _names(labels: Any, scores: Any, options: dict[str, Any]) -> tuple[str, ...]:
    return scored(labels, scores, classes=options.get("classes")).classes
