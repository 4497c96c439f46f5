"""Ranked tables and masks of labels that are probably missing or probably wrong.

Every function takes labels and out-of-sample scores, both (N, K): arrays, tensors or data frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from halftruth.labels import ABSENT, PRESENT, UNKNOWN, LabelMatrix, check_classes
from halftruth.labels.checks import Array
from halftruth.presence.calibration import Calibration, calibrate, check_labels_and_scores

PRECISIONS = (0.95, 0.9, 0.8, 0.7, 0.6, 0.5)


@dataclass(frozen=True)
class ScoredLabels:
    """Labels and scores (N, K) of the same rows and classes, with the names of both."""

    labels: np.ndarray
    scores: np.ndarray
    classes: tuple[str, ...]
    items: np.ndarray
    # The rows of the label file.
    rows: np.ndarray


def match_scores(
    labels: Array | LabelMatrix,
    scores: Array,
    *,
    classes: Sequence[str] | None = None,
    items: Sequence[str] | None = None,
) -> ScoredLabels:
    """Check labels (N, K) of +1, 0, -1 against probabilities (N, K).

    Names come from a `LabelMatrix` or a data frame. Without names, classes are class0, class1, ...
    and items are row numbers.

    >>> match_scores([[1, 0]], [[0.9, 0.2]]).classes
    ('class0', 'class1')
    """
    if isinstance(labels, LabelMatrix):
        classes = labels.classes if classes is None else classes
        if items is None and labels.items is not None:
            items = [str(item) for item in labels.items]
    elif classes is None and hasattr(labels, "columns"):
        classes = [str(name) for name in labels.columns]
    values, points = check_labels_and_scores(labels, scores)
    rows, columns = values.shape
    names = check_classes([f"class{k}" for k in range(columns)] if classes is None else classes)
    if len(names) != columns:
        raise ValueError(f"expected {columns} class names, one per column, got {len(names)}")
    texts = np.asarray(range(rows) if items is None else list(items), dtype=str)
    if texts.shape != (rows,):
        raise ValueError(f"expected {rows:,} items, one per row, got {len(texts):,}")
    return ScoredLabels(values, points, names, texts, np.arange(rows))


def missing_labels(
    labels: Array | LabelMatrix,
    scores: Array,
    *,
    classes: Sequence[str] | None = None,
    items: Sequence[str] | None = None,
    most: int | None = None,
    calibration: Calibration | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Rank the UNKNOWN labels by the probability that they are present.

    Columns: rank, row, item, class, score, probability (calibrated) and expected_precision: the
    expected share of present labels among all candidates down to this rank. `most` limits the
    number of rows. The scores must be out-of-sample: from a model that was not trained on the row
    it scores. `options` go to `calibrate`.

    >>> labels = np.repeat([[1, 0], [0, 1], [1, 0], [0, 0]], 20, axis=0)
    >>> scores = np.repeat([[0.9, 0.8], [0.1, 0.9], [0.8, 0.1], [0.1, 0.1]], 20, axis=0)
    >>> found = missing_labels(labels, scores, classes=["cat", "dog"], most=20)
    >>> found["class"].unique().tolist(), sorted(found["row"]) == list(range(20))
    (['dog'], True)
    """
    data = match_scores(labels, scores, classes=classes, items=items)
    known = calibration or calibrate(data.labels, data.scores, **options)
    return _rank(data, data.labels == UNKNOWN, known.present, most)


def wrong_labels(
    labels: Array | LabelMatrix,
    scores: Array,
    *,
    classes: Sequence[str] | None = None,
    items: Sequence[str] | None = None,
    most: int | None = None,
    calibration: Calibration | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Rank the PRESENT labels by the probability that they are wrong.

    Columns as above, but hard examples look like wrong labels, so that there is no expected
    precision, only its range: between the means of `at_least` and of `at_most` over a list.
    """
    data = match_scores(labels, scores, classes=classes, items=items)
    known = calibration or calibrate(data.labels, data.scores, **options)
    table = _rank(data, data.labels == PRESENT, known.wrong_probability, most, sign=-1)
    place = {name: k for k, name in enumerate(data.classes)}
    at = table["row"].to_numpy(), table["class"].map(place).to_numpy(dtype=np.intp)
    ends = {"at_least": known.wrong_least[at], "at_most": known.wrong_most[at]}
    return table.drop(columns="expected_precision").assign(**ends)


def missing_mask(labels: Any, scores: Any, *, precision: float = 0.9, **options: Any) -> np.ndarray:
    """(N, K) True for the longest ranked list of candidates with this expected precision."""
    table = missing_labels(labels, scores, **options)
    chosen = table[: count_at_precision(table["expected_precision"].to_numpy(), precision)]
    names = match_scores(labels, scores, classes=options.get("classes")).classes
    mask = np.zeros(np.shape(scores), dtype=bool)
    mask[chosen["row"], chosen["class"].map(names.index)] = True
    return mask


def count_at_precision(expected_precision: np.ndarray, precision: float) -> int:
    """Length of the longest ranked list with at least this expected precision.

    >>> count_at_precision(np.array([1.0, 0.95, 0.9, 0.85]), 0.9)
    3
    """
    if not 0 < precision <= 1:
        raise ValueError(f"expected a precision above 0 and at most 1, got {precision}")
    enough = np.flatnonzero(expected_precision >= precision)
    return int(enough[-1]) + 1 if len(enough) else 0


def rank_unknown(labels: Array | LabelMatrix, scores: Array, **options: Any) -> np.ndarray:
    """(M, 2) row and column of the unknown labels, the most probable ones first."""
    data = match_scores(labels, scores)
    present = calibrate(data.labels, data.scores, **options).present
    places = np.argwhere(data.labels == UNKNOWN)
    at = tuple(places.T)
    return places[np.lexsort((-data.scores[at], -present[at]))]


def per_class(
    labels: Array | LabelMatrix,
    scores: Array,
    *,
    classes: Sequence[str] | None = None,
    calibration: Calibration | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Count the labels per class: present, absent, unknown, estimated missing, estimated wrong."""
    data = match_scores(labels, scores, classes=classes)
    known = calibration or calibrate(data.labels, data.scores, **options)
    return pd.DataFrame(
        {
            "class": data.classes,
            "present": (data.labels == PRESENT).sum(axis=0),
            "absent": (data.labels == ABSENT).sum(axis=0),
            "unknown": (data.labels == UNKNOWN).sum(axis=0),
            "missing": [count.value for count in known.missing],
            "missing_low": [count.low for count in known.missing],
            "missing_high": [count.high for count in known.missing],
            "wrong": known.wrong,
        }
    )


def precision_table(
    expected_precision: np.ndarray, precisions: Sequence[float] = PRECISIONS
) -> pd.DataFrame:
    """Count the candidates at each expected precision, and the expected number of correct ones."""
    taken = np.array(
        [count_at_precision(expected_precision, precision) for precision in precisions], dtype=int
    )
    reached = np.array([expected_precision[count - 1] if count else np.nan for count in taken])
    return pd.DataFrame(
        {
            "precision": list(precisions),
            "candidates": taken,
            "expected_right": np.round(np.nan_to_num(taken * reached), 1),
        }
    )


def summary(labels: Array | LabelMatrix, scores: Array, **options: Any) -> dict[str, object]:
    """Return the main numbers of an audit."""
    data = match_scores(labels, scores)
    known = calibrate(data.labels, data.scores, **options)
    table = missing_labels(data.labels, data.scores, calibration=known)
    total = known.missing_total
    return {
        "labels": int(data.labels.size),
        "present": int((data.labels == PRESENT).sum()),
        "unknown": int((data.labels == UNKNOWN).sum()),
        "missing": total.value,
        "missing_interval": (total.low, total.high),
        "wrong": known.wrong_total.value,
        "wrong_interval": (known.wrong_total.low, known.wrong_total.high),
        "selection": known.selection,
        "at_90_percent_precision": count_at_precision(table["expected_precision"].to_numpy(), 0.9),
    }


def _rank(
    data: ScoredLabels, among: np.ndarray, probability: np.ndarray, most: int | None, sign: int = 1
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
