"""Which probabilities that a present label is shown fit the labels, if labels miss at random.

How many labels are missing is visible in the scores only indirectly. One share c = P(shown |
present) for all classes (times the propensity of the class, where it is given) leaves two traces:

- P(shown | score) levels off at c where the scores are highest;
- if every row has at least one present class, a row without a label misses one. The share of such
  rows, and what their scores look like, then tell c.

c is not fitted freely: the curves are fitted for each c of a grid, once for independent classes and
once given that no row is empty. The likelihoods of these fits, tempered, are their weights; where
rows are empty, the second assumption fits worse and gets no weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from halftruth.labels import PRESENT
from halftruth.presence.labelling_model import (
    Presence,
    draw_rows,
    fit_presence,
    logit,
    sigmoid,
)

# Equal steps of log c: without evidence, no factor of the number of labels is preferred.
_SHARES = np.exp(np.linspace(np.log(0.97), np.log(0.14), 11))
# The model is wrong in the details, so more rows do not make its likelihood more certain.
_ROWS_BELIEVED = 300
# The grid is compared on a part of the labels, since one number needs fewer rows than many curves:
# on the first number of labels, or more with many classes, to have some rows, up to the second.
_LABELS, _MOST_LABELS, _SOME_ROWS = 60_000, 300_000, 600
# An assumption with a smaller weight is left out of the mean.
_LEAST_WEIGHT = 0.05


@dataclass(frozen=True)
class ShareFits:
    """Fits with the mean share, their weights, and the ends of the number of labels per row.

    `low` and `high` are factors of the mean number of labels per row, about 90 % apart.
    """

    fits: list[Presence]
    weights: list[float]
    low: float
    high: float

    @property
    def nonempty(self) -> float:
        """The weight of the assumption that every row has a present class."""
        return float(
            sum(w for fit, w in zip(self.fits, self.weights, strict=True) if fit.given_one)
        )

    def prior(self, scores: np.ndarray) -> np.ndarray:
        """P(present | score), the mean of the fits in logits."""
        both = zip(self.fits, self.weights, strict=True)
        return sigmoid(np.sum([w * logit(fit.prior(scores)) for fit, w in both], axis=0))


def fit_shares(
    labels: np.ndarray,
    scores: np.ndarray,
    propensity: np.ndarray | None = None,
    *,
    blank_rows_tell: bool = True,
) -> ShareFits:
    """Fit the curves for each share of a grid, and weigh them by their likelihoods.

    `blank_rows_tell`: also fit given that no row is empty.
    """
    most = min(max(_LABELS, _SOME_ROWS * labels.shape[1]), _MOST_LABELS)
    some = draw_rows(labels.shape, most, 0, labels == PRESENT)
    part, points = labels[some], scores[some]
    grid: list[Presence] = []
    for given_one in (False, True) if blank_rows_tell and labels.shape[1] > 1 else (False,):
        fit = None
        for share in _SHARES:
            fit = fit_presence(
                part, points, selection="random", given_one=given_one, share=float(share),
                start=fit, steps=40, propensity=propensity,
            )  # fmt: skip
            grid.append(fit)
    likelihood = np.array([fit.log_likelihood(part, points) for fit in grid])
    weight = np.exp((likelihood - likelihood.max()) * min(1.0, _ROWS_BELIEVED / len(part)))
    weight /= weight.sum()
    count = np.array([fit.prior(points).sum(axis=1).mean() for fit in grid])
    fits, weights = [], []
    for given_one in (False, True):
        mine = np.array([fit.given_one == given_one for fit in grid])
        total = float(weight[mine].sum())
        if total < _LEAST_WEIGHT:
            continue
        z = np.log(np.resize(_SHARES, len(grid))[mine])
        middle = float(weight[mine] @ z / total)
        start = [fit for fit in grid if fit.given_one == given_one][np.abs(z - middle).argmin()]
        mean = fit_presence(
            labels, scores, selection="random", given_one=given_one, share=float(np.exp(middle)),
            start=start, steps=40, propensity=propensity,
        )  # fmt: skip
        fits.append(mean)
        weights.append(total)
    weights = [one / sum(weights) for one in weights]
    found = ShareFits(fits, weights, 1.0, 1.0)
    count_of_mean = float(found.prior(points).sum(axis=1).mean())
    order = np.argsort(count)
    below = np.cumsum(weight[order]) - weight[order] / 2
    low, high = np.interp([0.05, 0.95], below, np.log(np.maximum(count[order], 1e-12)))
    ends = [float(np.exp(end)) / max(count_of_mean, 1e-12) for end in (low, high)]
    return ShareFits(fits, weights, min(ends[0], 1.0), max(ends[1], 1.0))
