"""How likely each PRESENT label is wrong, estimated from out-of-sample scores.

Shown labels of class k are a mixture. Correct ones are drawn from the rows in proportion to
p = P(present | score), wrong ones in proportion to 1 − p:

    P(row i is shown) = (1 − ε) pᵢ / Σ p + ε (1 − pᵢ) / Σ (1 − p),    logit p = a + b t

t is the calibrated logit of the score. Wrong labels made the fit of t too flat, so b is fitted
again, one per class around a common value, together with the share ε; a keeps Σ p. All of this is a
sum over a grid, so that P(wrong) is averaged over everything that the labels leave open.

ε also holds hard examples: correct labels that the model does not see at all. Labels alone cannot
tell them from wrong ones. Their share is taken off, on average over its prior: it grows with how
many correct labels have low scores. So P(wrong) has a range. Its low end takes off as many hard
examples as are likely, its high end none: there every label that could be wrong is. The verdicts of
a review tell more: they correct P(wrong) of all other labels and narrow the range
(`halftruth.presence.remaining`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from halftruth.labels import ABSENT, PRESENT, UNKNOWN
from halftruth.presence.estimate import Z90, Estimate
from halftruth.presence.labelling_model import sigmoid
from halftruth.presence.remaining import WRONG_SPREADS, VerdictModel

_BINS = 200
# Grids: b of a class, its centre over all classes, its spread on a log scale, and ε.
_SLOPES, _CENTRES = np.geomspace(0.15, 8.0, 34), np.geomspace(0.5, 4.0, 13)
_SPREADS, _SHARES = np.array([0.03, 0.1, 0.2, 0.35, 0.6]), np.geomspace(0.001, 0.6, 30)
# Priors of the centre (log-normal), of the spread and of ε (exponential).
_CENTRE, _CENTRE_SPREAD, _SPREAD_MEAN, _SHARE_MEAN = 1.15, 0.4, 0.3, 0.4
# A label has a low score if fewer than this share of the absent rows have lower ones. The share of
# hard examples is exponential; its mean is _HARD_LEAST, and _HARD times the squared share of low
# scores among correct labels. Chosen, as the prior of ε, on fifteen data sets (docs/audit.md).
_LOW, _HARD, _HARD_LEAST = 0.7, 1.25, 0.004
_LEVELS = -np.log((np.arange(40) + 0.5) / 40)
# The low end of the range allows for at least this share of hard examples, the high end for at most
# this share of wrong labels.
_MAY_BE_HARD, MOST_WRONG = 0.05, 0.2
_TENTHS = 10


@dataclass(frozen=True)
class WrongLabels:
    """(N, K) P(wrong) of PRESENT labels, 0 elsewhere, its range, and the interval of their number.

    The ends of the range belong together: a list of labels has a precision between their means.
    """

    probability: np.ndarray
    least: np.ndarray
    most: np.ndarray
    low: float
    high: float


@dataclass(frozen=True)
class _Class:
    """Shown labels of a class by bin: how many, and the log odds of correct, by slope (bins, B)."""

    column: int
    rows: np.ndarray
    bins: np.ndarray
    count: np.ndarray
    odds: np.ndarray
    likelihood: np.ndarray
    # The share of absent rows with lower scores, per shown label.
    below: np.ndarray


def find_wrong(
    labels: np.ndarray,
    logits: np.ndarray,
    present: np.ndarray,
    verdicts: np.ndarray | None = None,
) -> WrongLabels:
    """How likely PRESENT labels are wrong.

    `logits` (N, K) are calibrated, without knowledge of the label; `present` (N, K) is P(present)
    with it. `verdicts` (N, K) are ABSENT or PRESENT for reviewed labels, else 0; reviewed labels
    are neither in the probabilities nor in the number.
    """
    wrong, least, most = np.zeros((3, *labels.shape))
    parts = [
        part for k in map(int, np.flatnonzero((labels == PRESENT).any(axis=0)))
        if (part := _describe(k, labels[:, k], logits[:, k], present[:, k])) is not None
    ]  # fmt: skip
    if not parts:
        return WrongLabels(wrong, least, most, 0.0, 0.0)
    # (B, C, S) prior of a slope given centre and spread; (C, S) prior of those.
    away = np.log(_SLOPES[:, None, None] / _CENTRES[:, None]) / _SPREADS
    prior = np.exp(-0.5 * away**2)
    prior /= prior.sum(axis=0)
    common = -0.5 * (np.log(_CENTRES / _CENTRE) / _CENTRE_SPREAD)[:, None] ** 2
    common = common - _SPREADS / _SPREAD_MEAN
    tops = [part.likelihood.max(axis=0) for part in parts]
    inside = [
        np.einsum("bm,bcs->csm", np.exp(part.likelihood - top), prior) + 1e-300
        for part, top in zip(parts, tops, strict=True)
    ]
    total = common[..., None] + sum(
        np.log(one) + top for one, top in zip(inside, tops, strict=True)
    )
    # The grid of ε is even on a log scale, hence the factor ε.
    weight = np.exp(total - total.max() - _SHARES / _SHARE_MEAN) * _SHARES
    weight /= weight.sum()
    of_share = weight.sum(axis=(0, 1))
    given = weight / np.maximum(of_share, 1e-300)
    labels_shown = sum(int(part.count.sum()) for part in parts)
    below = np.concatenate([part.below for part in parts])
    low = np.count_nonzero(below < _LOW) / labels_shown
    correct_low = np.maximum(low - _LOW * _SHARES, 0.0) / (1 - _SHARES)
    # (M, H): which part of ε is wrong, for levels of the share of hard examples.
    hard = _HARD_LEAST + _HARD * correct_low**2
    part_wrong = np.maximum(1 - np.outer(hard / _SHARES, _LEVELS), 0.0)
    # Per class (bins, M): P(not seen by the model | label), wrong or hard.
    unseen = []
    for part, top, one in zip(parts, tops, inside, strict=True):
        slopes = np.einsum("csm,bcs->bm", given / one, prior) * np.exp(part.likelihood - top)
        by_share = [
            slopes[:, m] @ _share_of_wrong(part.odds, share).T for m, share in enumerate(_SHARES)
        ]
        unseen.append(np.stack(by_share, axis=1))
    expected = sum(part.count @ one for part, one in zip(parts, unseen, strict=True))
    counts = (np.asarray(expected)[:, None] * part_wrong).ravel()
    order = np.argsort(counts, kind="stable")
    chance = np.cumsum(np.repeat(of_share / len(_LEVELS), len(_LEVELS))[order])
    ends = np.interp((0.05, 0.95), chance, counts[order])
    # The share and the level of hard examples at both ends of the interval.
    states = order[np.minimum(np.searchsorted(chance, (0.05, 0.95)), len(order) - 1)]
    for part, one in zip(parts, unseen, strict=True):
        at = part.rows, part.column
        wrong[at] = (one @ (of_share * part_wrong.mean(axis=1)))[part.bins]
        for end, state in zip((least, most), states, strict=True):
            share = state // len(_LEVELS)
            end[at] = (one[:, share] * part_wrong.ravel()[state])[part.bins]
        most[at] = np.maximum(most[at], _limit(part.below, below))
    sure = max(1 - _MAY_BE_HARD / _SHARES[states[0] // len(_LEVELS)], 0.0)
    least, most = np.minimum(least, sure * wrong), np.maximum(most, wrong)
    found = WrongLabels(
        wrong, least, most, float(min(ends[0], least.sum())), float(max(ends[1], most.sum()))
    )
    return found if verdicts is None else _correct(found, labels, verdicts)


def _correct(found: WrongLabels, labels: np.ndarray, verdicts: np.ndarray) -> WrongLabels:
    """Correct the probabilities by verdicts on some of the PRESENT labels."""
    at = np.nonzero(labels == PRESENT)
    reviewed, p = verdicts[at], np.clip(found.probability[at], 1e-6, 1 - 1e-6)
    if not reviewed.any():
        return found
    spread = max(found.high, p.sum()) / p.sum()
    sums = np.bincount(at[1], p, minlength=labels.shape[1])
    per_class = [Estimate(float(x), 0.0, float(spread * x)) for x in sums]
    total = Estimate(float(p.sum()), min(found.low, float(p.sum())), float(spread * p.sum()))
    model = VerdictModel(
        p, at[1], per_class, total, ends=(found.least[at], found.most[at]), spreads=WRONG_SPREADS
    )
    # In that model +1 is a candidate that was right: here a label that is wrong.
    left = model.update(-reviewed)
    wrong, least, most = np.zeros((3, *labels.shape))
    for one, values in ((wrong, left.probability), (least, left.least), (most, left.most)):
        one[at] = np.where(reviewed == 0, values, 0.0)
    return WrongLabels(wrong, least, most, left.total.low, left.total.high)


def _limit(below: np.ndarray, all_below: np.ndarray) -> np.ndarray:
    """P(wrong) at most, for labels with this share of absent rows below them.

    Wrong labels have the scores of absent rows, so each tenth of these holds a tenth of them. There
    are no more than the labels with the lowest scores allow, and no more than `MOST_WRONG`.

    >>> _limit(np.array([0.05, 0.95]), np.r_[np.full(10, 0.05), np.full(990, 0.95)]).round(2)
    array([0.18, 0.  ])
    """
    count = len(all_below)
    place = np.minimum((all_below * _TENTHS).astype(int), _TENTHS - 1)
    held = np.bincount(place, minlength=_TENTHS)
    lower = np.cumsum(held)[:-1]
    shares = np.arange(1, _TENTHS) / _TENTHS
    most = (lower + Z90 * np.sqrt(lower) + Z90**2 / 2) / (count * shares)
    share = min(MOST_WRONG, float(most.min()))
    limit = np.minimum(share * count / _TENTHS / np.maximum(held, 1e-9), 1.0)
    limit = np.minimum.accumulate(limit)
    return np.asarray(limit[np.minimum((below * _TENTHS).astype(int), _TENTHS - 1)])


def _share_of_wrong(odds: np.ndarray, share: float) -> np.ndarray:
    return np.asarray(sigmoid(np.log(share) - np.log1p(-share) - odds))


def _describe(
    column: int, labels: np.ndarray, logits: np.ndarray, present: np.ndarray
) -> _Class | None:
    """The shown labels of a class; None where every row is labelled PRESENT."""
    shown = np.flatnonzero(labels == PRESENT)
    # Rows that could show the class: not those verified absent, unless every row is known.
    possible = labels != ABSENT if (labels == UNKNOWN).any() else np.ones(len(labels), dtype=bool)
    if len(shown) == len(labels):
        return None
    edges = np.linspace(logits.min(), logits.max() + 1e-9, _BINS + 1)
    place = np.clip(np.searchsorted(edges, logits, side="right") - 1, 0, _BINS - 1)
    rows = np.bincount(place[possible], minlength=_BINS).astype(float)
    middle = (edges[:-1] + edges[1:]) / 2
    total = float(np.clip((rows * sigmoid(middle)).sum(), 1e-3, 0.98 * rows.sum()))
    low, high = np.full(len(_SLOPES), -200.0), np.full(len(_SLOPES), 200.0)
    for _ in range(40):
        a = (low + high) / 2
        more = sigmoid(_SLOPES[:, None] * middle + a[:, None]) @ rows > total
        low, high = np.where(more, low, a), np.where(more, a, high)
    kept, bins = np.unique(place[shown], return_inverse=True)
    count = np.bincount(bins).astype(float)
    z = np.clip(middle[kept, None] * _SLOPES + (low + high) / 2, -50, 50)
    # Log of (p / Σ p) / ((1 − p) / Σ (1 − p)), and of the mixture up to a constant.
    odds = z + np.log((rows.sum() - total) / total)
    mixture = (
        np.log(_SHARES + (1 - _SHARES) * np.exp(odds)[..., None]) - np.log1p(np.exp(z))[..., None]
    )
    likelihood = np.einsum("i,ibm->bm", count, mixture)
    # The share of absent rows below each shown label.
    absent = np.bincount(place, 1 - present, minlength=_BINS) - np.bincount(
        place[shown], 1 - present[shown], minlength=_BINS
    )
    below = np.cumsum(absent) / max(absent.sum(), 1e-12)
    return _Class(column, shown, bins, count, odds, likelihood, below[place[shown]])
