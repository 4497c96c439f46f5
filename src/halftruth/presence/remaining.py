"""How many labels are still missing after some decisions of a review.

    logit P(present) = z − t max(z, 0) + δ + δₖ,    z = logit p

p is the probability of the audit, δ its error over all classes, δₖ the error of class k, and t how
overconfident it was about likely candidates; all have normal priors around 0. Accepted and rejected
candidates determine them by maximum a posteriori; the curvature there gives the interval.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from halftruth.presence.calibration import CLASS_SPREAD, SPREAD, Count
from halftruth.presence.labelling_model import logit, sigmoid

# Larger probabilities of an audit are not trusted.
_SUREST = 0.99
# Relative standard deviation of the number of missing labels that the scores do not show.
_UNSEEN = 0.5
_SHARED = np.diag([SPREAD**-2, SPREAD**-2])


@dataclass(frozen=True)
class Shift:
    """δ and −t, shared by all classes, δₖ, and the curvature at that point."""

    shared: np.ndarray
    own: np.ndarray
    mixed: np.ndarray
    diagonal: np.ndarray
    left: np.ndarray

    def apply(self, probability: np.ndarray, column: np.ndarray) -> np.ndarray:
        """P(present) after the decisions."""
        design = _design(probability)
        return sigmoid(design[:, 0] + design[:, 1:] @ self.shared + self.own[column])

    def spread_of(self, slopes: np.ndarray, shared: np.ndarray) -> float:
        """Standard deviation of a sum with these derivatives by δₖ, and by δ and −t."""
        rest = shared - self.mixed @ (slopes / self.diagonal)
        variance = (slopes**2 / self.diagonal).sum() + rest @ np.linalg.solve(self.left, rest)
        return float(np.sqrt(variance))


def fit_shift(
    probability: np.ndarray, column: np.ndarray, right: np.ndarray, classes: int
) -> Shift:
    """Newton steps to the most probable δ, t and δₖ, given verdicts (`right`) on candidates.

    >>> shift = fit_shift(np.full(50, 0.5), np.zeros(50, dtype=int), np.ones(50, dtype=bool), 2)
    >>> bool(shift.own[0] > 0 == shift.own[1] and shift.shared[0] > 0)
    True
    """
    design = _design(probability)
    z, x = design[:, 0], design[:, 1:]
    shared, own = np.zeros(2), np.zeros(classes)
    for _ in range(50):
        p = sigmoid(z + x @ shared + own[column])
        gap, curve = right - p, p * (1 - p)
        by_own = np.bincount(column, gap, minlength=classes) - own / CLASS_SPREAD**2
        by_shared = x.T @ gap - _SHARED @ shared
        diagonal = np.bincount(column, curve, minlength=classes) + CLASS_SPREAD**-2
        mixed = np.stack([np.bincount(column, curve * one, minlength=classes) for one in x.T])
        left = (x * curve[:, None]).T @ x + _SHARED - (mixed / diagonal) @ mixed.T
        step = np.clip(np.linalg.solve(left, by_shared - mixed @ (by_own / diagonal)), -1, 1)
        own_step = np.clip((by_own - step @ mixed) / diagonal, -1, 1)
        shared, own = shared + step, own + own_step
        if max(np.abs(step).max(), np.abs(own_step).max(initial=0)) < 1e-6:
            break
    return Shift(shared, own, mixed, diagonal, left)


def still_missing(
    probability: np.ndarray,
    column: np.ndarray,
    verdicts: np.ndarray,
    unlisted: np.ndarray,
) -> Count:
    """Estimate the missing labels after verdicts (+1 right, -1 wrong, 0 open) on candidates.

    `unlisted` (K,) is the expected number of missing labels that are not candidates.
    """
    known, open_ones = verdicts != 0, verdicts == 0
    shift = fit_shift(probability[known], column[known], verdicts[known] > 0, len(unlisted))
    p = shift.apply(probability[open_ones], column[open_ones])
    curve = p * (1 - p)
    slopes = np.bincount(column[open_ones], curve, minlength=len(unlisted)).astype(float)
    shared = _design(probability[open_ones])[:, 1:].T @ curve
    # Decisions on candidates are no evidence about labels that the scores do not show.
    rest = float(unlisted.sum())
    total = max(float(p.sum()) + rest, 1e-9)
    parts = (shift.spread_of(slopes, shared), np.sqrt(slopes.sum()), _UNSEEN * rest)
    spread = float(np.linalg.norm(parts)) / total
    factor = float(np.exp(1.96 * spread))
    return Count(total, total / factor, min(total * factor, len(p) + rest * factor))


def _design(probability: np.ndarray) -> np.ndarray:
    """(M, 3): z, and the factors of δ and −t."""
    z = logit(np.minimum(probability, _SUREST))
    return np.stack([z, np.ones_like(z), np.maximum(z, 0.0)], axis=1)
