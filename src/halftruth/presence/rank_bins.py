"""Count expected true positives and average precision per class, in bins of ranks.

Scores of many rows are sorted once. All that the estimates depend on are sums per group of rows,
decision, bin of ranks and class; leaving out a group of rows or moving P(present) then costs
little. `estimated_scores` has the formulas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from halftruth.labels import PRESENT, UNKNOWN
from halftruth.presence.labelling_model import logit, sigmoid

# Groups of rows for the jackknife.
GROUPS = 30
# The weight of the estimate by probabilities, in shown positives.
PROBABILITIES = 10.0
# Up to rank 64 each rank is its own bin; later bins grow by 8 %.
_SINGLE, _GROWTH = 64, 1.08
# The noise of a precision by shown labels may exceed 1, up to here.
_HIGHEST = 1.1
_BLOCK = 4_000_000


@dataclass(frozen=True)
class Move:
    """One draw: how far w lies towards an end of its range, error of logit w, factor of shape."""

    between: float
    shift: np.ndarray
    shape: float


# Per class (axis 1): the estimate, one row per left-out group, one row per draw.
Counts = dict[str, np.ndarray]


def count_classes(
    scores: np.ndarray,
    labels: np.ndarray,
    predicted: np.ndarray,
    hidden: list[np.ndarray],
    weight: np.ndarray,
    moves: Sequence[Move],
    seed: int,
    known: np.ndarray | None = None,
) -> Counts:
    """Count over blocks of classes. Rows are shuffled, so that ties are in random order."""
    rows = np.random.default_rng(seed).permutation(len(scores))
    group = np.arange(len(rows)) * GROUPS // len(rows)
    width = max(1, _BLOCK // len(rows))
    parts = []
    for first in range(0, scores.shape[1], width):
        at = slice(first, first + width)
        bins = _Bins(
            scores[rows, at], labels[rows, at], predicted[rows, at],
            [one[rows, at] for one in hidden], weight[rows], group,
            None if known is None else known[rows, at],
        )  # fmt: skip
        parts.append(bins.count([Move(m.between, m.shift[at], m.shape) for m in moves]))
    return {name: np.concatenate([part[name] for part in parts], axis=1) for name in parts[0]}


class _Bins:
    """Sums per group of rows, decision, bin of ranks and class: all that the scores depend on."""

    def __init__(
        self,
        scores: np.ndarray,
        labels: np.ndarray,
        predicted: np.ndarray,
        hidden: list[np.ndarray],
        weight: np.ndarray,
        group: np.ndarray,
        known: np.ndarray | None,
    ) -> None:
        rows, classes = scores.shape
        order = np.argsort(-scores, axis=0, kind="stable")
        bin_of_rank = _bin_ranks(rows)
        shape = (GROUPS, 2, int(bin_of_rank[-1]) + 1, classes)
        cell = group[order] * 2 + np.take_along_axis(predicted, order, 0)
        cell = (cell * shape[2] + bin_of_rank[:, None]) * classes + np.arange(classes)

        def add(values: np.ndarray) -> np.ndarray:
            placed = np.take_along_axis(values, order, 0).ravel()
            return np.bincount(cell.ravel(), placed, minlength=int(np.prod(shape))).reshape(shape)

        shown = labels == PRESENT
        heavy = np.where(shown, weight[:, None], 0.0)
        rows_in = add(np.ones_like(scores) if known is None else known)
        middle, *ends = (add(one) for one in hidden)
        self.parts = [rows_in, add(shown), add(heavy), add(heavy**2), middle]
        self.unknown = add(labels == UNKNOWN).sum(axis=0)
        self.ends = [end.sum(axis=0) for end in ends]

    def count(self, moves: Sequence[Move]) -> Counts:
        """The counts of all rows, without each group, and for each draw."""
        whole = [part.sum(axis=0) for part in self.parts]
        found = [_score_bins(*whole)]
        for group in range(GROUPS):
            found.append(_score_bins(*(one.sum(axis=0) - one[group] for one in self.parts)))
        if moves:
            cells = np.maximum(self.unknown, 1e-9)
            middle, low, high = (logit(one / cells) for one in (whole[4], *self.ends))
        for move in moves:
            end = high if move.between > 0 else low
            z = middle + abs(move.between) * (end - middle) + move.shift
            rows, shown, weight, square, _ = whole
            hidden = self.unknown * sigmoid(z)
            found.append(_score_bins(rows, shown, weight, square, hidden, move.shape))
        return {name: np.stack([one[name] for one in found]) for name in found[0]}


def _score_bins(
    rows: np.ndarray,
    shown: np.ndarray,
    weight: np.ndarray,
    square: np.ndarray,
    hidden: np.ndarray,
    shape: float = 1.0,
) -> dict[str, np.ndarray]:
    """Counts and average precision per class; arguments are (2, bins, K), predicted last.

    `shown` is the number of shown positives, `weight` and `square` the sums of their weights and
    squared weights, `hidden` the expected number of positives among the unknown labels.
    """
    mass = shown + hidden
    total, known = mass.sum(axis=(0, 1)), shown.sum(axis=(0, 1))
    predicted = rows[1].sum(axis=0)
    trust = known / (known + PROBABILITIES)
    recall = ratio(weight[1].sum(axis=0), weight.sum(axis=(0, 1)))
    by_shown = np.clip(total * recall, shown[1].sum(axis=0), predicted)
    by_probability = np.minimum(shape * mass[1].sum(axis=0), predicted)
    tp = np.minimum(trust * by_shown + (1 - trust) * by_probability, total)

    n, mass, weight, square = (one.sum(axis=0) for one in (rows, mass, weight, square))
    rank = np.cumsum(n, axis=0) - n / 2 + 0.5
    above = np.cumsum(mass, axis=0) - mass / 2 - ratio(mass, 2 * n)
    precision = np.minimum((1 + above) / rank, 1)
    by_probability = np.minimum(shape * ratio((mass * precision).sum(axis=0), total), 1)
    # The recall above a shown positive is measured on the other shown ones.
    own = ratio(square, weight)
    others = weight.sum(axis=0) - own
    part = ratio(np.cumsum(weight, axis=0) - (weight + own) / 2, others)
    # Cut off at 1, the noise of good rankings would go down only, and lower the estimate.
    precision = np.minimum((1 + np.maximum(total - 1, 0) * part) / rank, _HIGHEST)
    by_shown = ratio((weight * precision).sum(axis=0), weight.sum(axis=0))
    trust = np.where(known > 1, trust, 0.0)
    return {
        "tp": tp,
        "predicted": predicted,
        "total": total,
        "exists": np.where(known > 0, 1.0, -np.expm1(-total)),
        "ap": trust * by_shown + (1 - trust) * by_probability,
    }


def _bin_ranks(rows: int) -> np.ndarray:
    """(rows,) the bin of each rank."""
    edges = [*range(min(rows, _SINGLE))]
    while edges[-1] < rows:
        edges.append(max(edges[-1] + 1, int(edges[-1] * _GROWTH)))
    return np.searchsorted(edges, np.arange(rows), side="right") - 1


def ratio(over: np.ndarray, under: np.ndarray) -> np.ndarray:
    """over / under, 0 where under is not positive."""
    return np.divide(over, under, out=np.zeros(np.shape(under)), where=under > 1e-12)
