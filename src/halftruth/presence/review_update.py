"""Probabilities of candidates that nobody has reviewed yet, corrected by the verdicts of a review.

    logit P(present) = z − t max(z, 0) + δ + δₖ,    z = logit p

p is the probability of the audit, δ its error over all classes, δₖ that of class k, and t how
overconfident it was about likely candidates (`uncertainty.Spreads`). Verdicts determine them by
maximum a posteriori (`solvers.fit_shift`); the curvature there gives the intervals.
The same model with wider priors serves the labels that are probably wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from halftruth.presence.solvers import LogitShift, fit_shift, logit, shift_design, sigmoid
from halftruth.presence.uncertainty import MISSING_SPREADS, UNSEEN_SPREAD, Estimate, Spreads

# Ends of a range that are nearer to 0 or 1 count as this near when verdicts narrow it.
_SURE = 0.005


@dataclass(frozen=True)
class Remaining:
    """Probabilities after the verdicts (1 or 0 where there is one), and what is left to find.

    `least` and `most` are the range of the probabilities, where it is known.
    """

    probability: np.ndarray
    least: np.ndarray
    most: np.ndarray
    total: Estimate
    per_class: list[Estimate]


class ReviewPosterior:
    """Updates the probabilities and counts of an audit by the verdicts on its candidates.

    `before` holds the counts of the audit per class and `total` those over all classes; `ends` the
    range of every probability, if there is one. Without verdicts counts and ranges stay exactly
    these; verdicts move the estimates and narrow the intervals and ranges.
    """

    def __init__(
        self,
        probability: np.ndarray,
        column: np.ndarray,
        before: Sequence[Estimate],
        total: Estimate,
        *,
        ends: tuple[np.ndarray, np.ndarray] | None = None,
        spreads: Spreads = MISSING_SPREADS,
    ) -> None:
        self._p, self._column, self._spreads = probability, column, spreads
        self._ranged = ends is not None
        self._ends = (probability, probability) if ends is None else ends
        self._before, self._total = [*before], total
        listed = np.bincount(column, probability, minlength=len(self._before))
        # What the audit counts and does not list: decisions on candidates are no evidence about it.
        self._unlisted = np.maximum([count.value for count in before] - listed, 0.0)
        self._last: LogitShift | None = None
        nobody = np.zeros(len(probability), dtype=np.int8)
        _, _, self._first_spread, self._first_shift = self._estimate(nobody)

    def update(self, verdicts: np.ndarray) -> Remaining:
        """Take account of verdicts: +1 right, -1 wrong, 0 none, one per candidate."""
        p, expected, spread, shift = self._estimate(verdicts)
        ratio = spread / np.maximum(self._first_spread, 1e-12)
        probability = np.where(verdicts == 0, p, verdicts > 0)
        most = np.full(len(ratio), np.inf)
        if verdicts.any():
            # No more than the open candidates can be present, and what the audit does not list.
            left = np.bincount(self._column[verdicts == 0], minlength=len(self._before))
            most = np.append(left, left.sum()) + 2 * np.append(self._unlisted, self._unlisted.sum())
        counts = [
            _scale(*one)
            for one in zip([*self._before, self._total], expected, ratio, most, strict=True)
        ]
        least, highest = (
            self._move(end, p, shift / self._first_shift) if verdicts.any() else end
            for end in self._ends
        )
        if verdicts.any() and self._ranged:
            # The ends of what is listed and open, and of what the audit does not list, as before.
            left = verdicts == 0
            low = max(self._total.low - self._ends[0].sum(), 0.0) + least[left].sum()
            high = max(self._total.high - self._ends[1].sum(), 0.0) + highest[left].sum()
            value = counts[-1].value
            counts[-1] = Estimate(value, float(min(low, value)), float(max(high, value)))
        return Remaining(
            probability,
            np.where(verdicts == 0, least, verdicts > 0),
            np.where(verdicts == 0, highest, verdicts > 0),
            counts[-1],
            counts[:-1],
        )

    def _move(self, end: np.ndarray, p: np.ndarray, ratio: float) -> np.ndarray:
        """An end of the range around new probabilities, nearer by `ratio` on the logit scale."""
        away = logit(np.clip(end, _SURE, 1 - _SURE)) - logit(np.clip(self._p, _SURE, 1 - _SURE))
        return sigmoid(logit(p) + ratio * away)

    def _estimate(self, verdicts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        """P(present) per candidate; labels left per class and in all, with relative spreads.

        And the standard deviation of the mean shift of the open candidates, on the logit scale.
        """
        classes = len(self._before)
        known, left = verdicts != 0, verdicts == 0
        self._last = fit_shift(
            self._p[known], self._column[known], verdicts[known] > 0, classes, self._spreads,
            self._last,
        )  # fmt: skip
        p = self._last.apply(self._p, self._column)
        column, curve = self._column[left], (p * (1 - p))[left]
        x = shift_design(logit(self._p[left]))
        slopes = np.bincount(column, curve, minlength=classes).astype(float)
        shared = np.stack(
            [np.bincount(column, curve * one, minlength=classes) for one in x.T], axis=1
        )
        expected = np.bincount(column, p[left], minlength=classes) + self._unlisted
        # One sum per class, then the sum over all classes.
        variance = self._last.variance_of(
            np.vstack([np.diag(slopes), slopes]), np.vstack([shared, shared.sum(axis=0)])
        )
        shift = float(np.sqrt(variance[-1])) / max(float(slopes.sum()), 1e-12)
        unseen = np.append(self._unlisted, self._unlisted.sum())
        variance = variance + np.append(slopes, slopes.sum()) + (UNSEEN_SPREAD * unseen) ** 2
        expected = np.append(expected, expected.sum())
        return p, expected, np.sqrt(variance) / np.maximum(expected, 1e-9), shift


def _scale(before: Estimate, estimate: float, ratio: float, most: float) -> Estimate:
    """The interval of the audit around a new estimate, wider or narrower by `ratio` on a log scale.

    >>> print(_scale(Estimate(100, 50, 200), 40, 0.5, 1000))
    40 (28 to 57)
    """
    if before.value <= 0 or before.low <= 0:
        return Estimate(float(estimate), 0.0, float(max(before.high, estimate)))
    low = estimate * (before.low / before.value) ** ratio
    high = estimate * (before.high / before.value) ** ratio
    return Estimate(float(estimate), float(low), float(max(min(high, most), estimate)))
