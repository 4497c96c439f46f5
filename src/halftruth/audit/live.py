"""How many labels are still missing, given the decisions so far: calibrated again as they come in.

    logit P(there) = logit p + δ + δₖ          δ ~ N(0, SPREAD²),  δₖ ~ N(0, CLASS_SPREAD²)

p is what the audit said, δ how far it was off over all, δₖ for class k: what a reviewer accepts
and rejects tells both, by maximum a posteriori; the curvature there gives the interval.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from halftruth.audit.calibration import CLASS_SPREAD, SPREAD, Count
from halftruth.audit.presence import logit, sigmoid


@dataclass(frozen=True)
class Shift:
    """The fitted δ + δₖ of each class, and the curvature at that point."""

    offsets: np.ndarray
    curvature: np.ndarray

    def spread_of(self, slopes: np.ndarray) -> float:
        """Standard deviation of a sum that grows by slopes[k] where δ + δₖ does."""
        diagonal = self.curvature + CLASS_SPREAD**-2
        left = self.curvature.sum() + SPREAD**-2 - (self.curvature**2 / diagonal).sum()
        rest = slopes.sum() - (self.curvature * slopes / diagonal).sum()
        return float(np.sqrt((slopes**2 / diagonal).sum() + rest**2 / left))


def fit_shift(
    probability: np.ndarray, column: np.ndarray, right: np.ndarray, classes: int
) -> Shift:
    """Newton's steps to the most probable δ and δₖ, after verdicts (`right`) on candidates.

    >>> shift = fit_shift(np.full(50, 0.5), np.zeros(50, dtype=int), np.ones(50, dtype=bool), 2)
    >>> bool(shift.offsets[0] > 2 > shift.offsets[1] > 0.5)
    True
    """
    z = logit(probability)
    common, own = 0.0, np.zeros(classes)
    curve: np.ndarray = np.zeros(classes)
    for _ in range(30):
        p = sigmoid(z + common + own[column])
        gap = np.bincount(column, right - p, minlength=classes)
        curve = np.bincount(column, p * (1 - p), minlength=classes).astype(float)
        g_common, g_own = gap.sum() - common / SPREAD**2, gap - own / CLASS_SPREAD**2
        diagonal = curve + CLASS_SPREAD**-2
        left = curve.sum() + SPREAD**-2 - (curve**2 / diagonal).sum()
        step = np.clip((g_common - (curve * g_own / diagonal).sum()) / left, -1, 1)
        own_step = np.clip((g_own - curve * step) / diagonal, -1, 1)
        common, own = common + step, own + own_step
        if max(abs(step), np.abs(own_step).max(initial=0)) < 1e-6:
            break
    return Shift(common + own, curve)


def still_missing(
    probability: np.ndarray,
    column: np.ndarray,
    verdicts: np.ndarray,
    unlisted: np.ndarray,
) -> Count:
    """The estimate after verdicts (+1 right, -1 not, 0 open) on the candidates.

    `unlisted` (K,) is the expected number of missing labels that are no candidates.
    """
    known = verdicts != 0
    shift = fit_shift(probability[known], column[known], verdicts[known] > 0, len(unlisted))
    p = sigmoid(logit(probability[~known]) + shift.offsets[column[~known]])
    listed = np.bincount(column[~known], p, minlength=len(unlisted))
    slopes = np.bincount(column[~known], p * (1 - p), minlength=len(unlisted))
    # Unlikely ones grow with their odds.
    rest = unlisted * np.exp(np.clip(shift.offsets, -3, 3))
    total = float(listed.sum() + rest.sum())
    spread = shift.spread_of(slopes + rest) / max(total, 1e-9)
    chance = np.sqrt(slopes.sum() + rest.sum()) / max(total, 1e-9)
    factor = float(np.exp(1.96 * np.hypot(spread, chance)))
    return Count(total, total / factor, min(total * factor, len(p) + float(rest.sum()) * factor))
