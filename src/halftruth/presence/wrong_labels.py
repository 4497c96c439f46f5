"""How likely each PRESENT label is wrong, estimated from out-of-sample scores.

    u = share of the absent rows of the class with a lower score

The scores of wrong labels are those of absent rows, so their u is uniform. That of correct labels
is near 1, but hard examples reach down to 0 and look the same as wrong labels. Over all classes

    density of u = ε + A exp(b u)        for u < 0.85

with ε the share of wrong labels. Where all labels are correct, b depends on how good the scores
are, which is the prior here: only a tail that is flatter than this counts as evidence of wrong
labels. The posterior is a sum over a grid of b and ε. A part of ε are hard examples after all:
their share is taken off, on average over its prior.
"""

from __future__ import annotations

import numpy as np

from halftruth.labels import PRESENT, UNKNOWN

_UPPER = 0.85
# Chosen on VOC 2012, COCO 2014 and five tables with 0, 2 and 10 % wrong labels (docs/audit.md).
# Prior of b: log-normal, around a value that depends on the shares of labels with u > 0.95 and with
# u < 0.85.
_TOP, _RATE, _RATE_BY_TOP, _RATE_BY_LOW, _RATE_SPREAD = 0.95, 1.3, 2.35, -0.4, 0.05
# Prior of ε: gamma with this shape and scale, so that most label files have few wrong labels.
_SHAPE, _SCALE = 0.3, 0.1
# Prior of the share of hard examples in ε, relative to the labels with u < 0.85: gamma with this
# shape and mean.
_HARD_SHAPE, _HARD_MEAN = 4.0, 0.05
_RATES, _SHARES, _GRID = 21, 67, 101


def find_wrong(labels: np.ndarray, scores: np.ndarray, present: np.ndarray) -> np.ndarray:
    """(N, K) probability that a PRESENT label is wrong, 0 for other labels.

    `present` (N, K) is the probability that a class is present, for the scores of absent rows.
    """
    listed = labels == PRESENT
    place = np.full(labels.shape, np.nan)
    for k in np.flatnonzero(listed.any(axis=0)):
        rows = labels[:, k] == UNKNOWN if (labels[:, k] == UNKNOWN).any() else ~listed[:, k]
        order = np.flatnonzero(rows)[np.argsort(scores[rows, k], kind="stable")]
        below = np.cumsum(1 - present[order, k])
        if not len(order) or below[-1] <= 0:
            continue
        place[listed[:, k], k] = np.interp(
            scores[listed[:, k], k], scores[order, k], below / below[-1], left=0.0
        )
    known = listed & ~np.isnan(place)
    wrong = np.zeros(labels.shape)
    wrong[known] = _wrong_given_place(place[known])
    return wrong


def _wrong_given_place(u: np.ndarray) -> np.ndarray:
    """P(wrong | u), averaged over the posterior of b and of the share of wrong labels."""
    low = u[u < _UPPER]
    if not len(low):
        return np.zeros(len(u))
    part = len(low) / len(u)
    centre = np.log(_RATE + _RATE_BY_TOP * (u > _TOP).mean() + _RATE_BY_LOW * part)
    deviation = np.linspace(-3, 3, _RATES)
    rates = np.exp(centre + _RATE_SPREAD * deviation)
    # The share of wrong labels among those with a low u, and among all labels.
    mixed = np.linspace(0, 1, _SHARES + 2)[1:-1]
    shares = mixed * part / _UPPER
    # A histogram: the likelihood needs no more of up to millions of labels.
    count, edges = np.histogram(low, bins=200, range=(0, _UPPER))
    middle = (edges[:-1] + edges[1:]) / 2
    log_post = np.log(_mixture(middle, rates, mixed)) @ count
    log_post += -0.5 * deviation[:, None] ** 2 + (_SHAPE - 1) * np.log(shares) - shares / _SCALE
    weight = np.exp(log_post - log_post.max())
    weight /= weight.sum()
    draws = np.random.default_rng(0).standard_gamma(_HARD_SHAPE, 500) / _HARD_SHAPE
    hard = _HARD_MEAN * part * draws
    mistaken = np.maximum(1 - hard / shares[:, None], 0).mean(axis=1)
    grid = np.linspace(0, 1, _GRID)
    wrong_at = (mistaken * mixed / _UPPER)[None, :, None] / _mixture(grid, rates, mixed)
    wrong = np.interp(u, grid, (weight[:, :, None] * wrong_at).sum(axis=(0, 1)))
    # Above the bound correct labels are denser than this curve; wrong labels stay uniform.
    high = u >= _UPPER
    expected = float((weight.sum(axis=0) * shares * mistaken).sum()) * len(u) * (1 - _UPPER)
    wrong[high] *= min(1.0, expected / max(float(wrong[high].sum()), 1e-12))
    return np.asarray(wrong)


def _mixture(u: np.ndarray, rates: np.ndarray, mixed: np.ndarray) -> np.ndarray:
    """Density (rates, shares, u) of the mixture of wrong and correct labels below the bound."""
    b = rates[:, None]
    correct = b * np.exp(b * u) / np.expm1(b * _UPPER)
    share = mixed[None, :, None]
    return np.asarray(share / _UPPER + (1 - share) * correct[:, None, :])
