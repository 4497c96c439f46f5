"""Soft labels and weights: how probable a label is, and how much it counts.

A soft label is the probability that the class is present: 1 is PRESENT, 0 is ABSENT, NaN is
UNKNOWN. Everything that needs one of the three codes takes the more probable one.
"""

from collections.abc import Sequence

import numpy as np

from halftruth.labels.checks import Array
from halftruth.labels.codes import ABSENT, PRESENT, UNKNOWN, as_array


def check_soft(values: Array) -> np.ndarray:
    """Check that soft labels are a matrix of numbers in [0, 1] or NaN; return float32.

    >>> check_soft([[0.5, float("nan")]])
    array([[0.5, nan]], dtype=float32)
    """
    try:
        soft = np.asarray(values, dtype=np.float32)
    except (TypeError, ValueError):
        raise ValueError(f"expected soft labels to be numbers, got {values!r:.60}") from None
    if soft.ndim != 2:
        raise ValueError(f"expected soft labels of shape (rows, classes), got {soft.shape}")
    # Not `soft < 0 | soft > 1`, so that infinities are found and NaN is not.
    wrong = np.argwhere(~((soft >= 0) & (soft <= 1)) & ~np.isnan(soft))
    if len(wrong):
        row, column = wrong[0]
        raise ValueError(
            f"soft[{row}, {column}] is {soft[row, column]:g}; expected the probability that the "
            f"class is present, from 0 to 1, or NaN (unknown); {len(wrong):,} such values"
        )
    return soft


def harden(soft: Array) -> np.ndarray:
    """Return the codes of soft labels: PRESENT above 0.5, ABSENT below, UNKNOWN at 0.5 and NaN.

    >>> harden([[0.9, 0.1, 0.5, float("nan")]])
    array([[ 1, -1,  0,  0]], dtype=int8)
    """
    checked = check_soft(soft)
    codes = np.full(checked.shape, UNKNOWN, dtype=np.int8)
    codes[checked > 0.5] = PRESENT
    codes[checked < 0.5] = ABSENT
    return codes


def check_weights(weights: np.ndarray | Sequence[float], shape: tuple[int, int]) -> np.ndarray:
    """Check weights per row (N,) or (N, 1), or per label (N, K); return float32 (N, 1) or (N, K).

    >>> check_weights([1, 2], (2, 3)).shape
    (2, 1)
    """
    try:
        found = np.asarray(weights, dtype=np.float32)
    except (TypeError, ValueError):
        raise ValueError(f"expected weights to be numbers, got {weights!r:.60}") from None
    if found.ndim == 1:
        found = found[:, None]
    if found.shape not in (shape, (shape[0], 1)):
        raise ValueError(
            f"expected one weight for each of {shape[0]:,} rows, or for each of {shape[0]:,} x "
            f"{shape[1]:,} labels, got shape {np.shape(weights)}"
        )
    wrong = np.argwhere(~((found >= 0) & np.isfinite(found)))
    if len(wrong):
        row, column = wrong[0]
        raise ValueError(
            f"weights[{row}, {column}] is {found[row, column]:g}; expected a finite number of at "
            f"least 0 ({len(wrong):,} such values)"
        )
    return found


def give_weight(weights: np.ndarray, verified: np.ndarray) -> np.ndarray:
    """Return weights in which verified labels (N, K) of weight 0 count as the others of their row.

    Where a whole row has the weight 0, they get the weight 1.

    >>> give_weight(np.array([[2.0, 0.0], [0.0, 0.0]]), np.array([[True, True], [False, True]]))
    array([[2., 2.],
           [0., 1.]])
    """
    lost = verified & (weights <= 0)
    if not lost.any():
        return weights
    most = weights.max(axis=1, keepdims=True)
    return np.where(lost, np.where(most > 0, most, 1), weights)


def scale_weights(weights: np.ndarray) -> np.ndarray:
    """Return weights with a mean of 1 over those that count, which are not 0.

    Then weights do not change the learning rate or the strength of a prior.
    """
    return weights / weights[weights > 0].mean()


def count_votes(votes: Array, rows: np.ndarray, items: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the soft labels and the number of votes (items, K) of several annotators.

    votes: (N, K) labels, one row per annotator and item; an UNKNOWN label is no vote. rows: (N,)
    the item of each row. A label without votes is NaN with weight 1, as all unknown labels.

    >>> soft, count = count_votes([[1, 0], [1, -1], [-1, 0]], np.array([0, 0, 0]), 1)
    >>> soft.round(2), count
    (array([[0.67, 0.  ]], dtype=float32), array([[3., 1.]], dtype=float32))
    """
    labels = as_array(votes)
    present = np.zeros((items, labels.shape[1]), dtype=np.float32)
    known = np.zeros_like(present)
    np.add.at(present, rows, labels == PRESENT)
    np.add.at(known, rows, labels != UNKNOWN)
    with np.errstate(invalid="ignore"):
        soft = present / known
    return soft, np.maximum(known, 1)
