"""Calibrated probabilities of missing and of wrong labels, and how many there are of each.

Missing labels follow from the model of labelling. For wrong labels, the shown labels of class k are
a mixture: correct ones are drawn from the rows in proportion to p = P(present | score), wrong ones
in proportion to 1 − p:

    P(row i is shown) = (1 − ε) pᵢ / Σ p + ε (1 − pᵢ) / Σ (1 − p),    logit p = a + b t

t is the calibrated logit. Wrong labels made the fit of t too flat, so b is fitted again, one per
class around a common value, together with the share ε; a keeps Σ p. P(wrong) is averaged over a
grid of both. ε also holds hard examples, correct labels that the model does not see at all; their
share is taken off, on average over its prior. So P(wrong) has a range: its low end takes off as
many hard examples as are likely, its high end none. Verdicts of a review correct P(wrong) of the
other labels and narrow the range (`remaining`). docs/explained/audit.md has the reasons.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from halftruth.labels import ABSENT, PRESENT, UNKNOWN, LabelMatrix, check
from halftruth.labels.checks import Array
from halftruth.presence.labelling_model import find_class_curves
from halftruth.presence.probabilities import SELECTIONS, Selection, fit_probabilities
from halftruth.presence.ranking import measure_ranking
from halftruth.presence.review_update import ReviewPosterior
from halftruth.presence.solvers import bisect, logit, sigmoid
from halftruth.presence.uncertainty import (
    CLASS_DOUBT,
    DOUBT,
    MOST_WRONG,
    WRONG_LEAST_HARD,
    WRONG_SPREADS,
    Z90,
    Estimate,
)
from halftruth.seeds import check_seed

# An unknown label has at most the probability 1 − this of being present.
_DOUBT_OF_ANY = 0.005
# Wrong labels: bins of the scores of a class.
_BINS = 200
# Grids: b of a class, its centre over all classes, its spread on a log scale, and ε.
_SLOPES, _CENTRES = np.geomspace(0.15, 8.0, 34), np.geomspace(0.5, 4.0, 13)
_SPREADS, _SHARES = np.array([0.03, 0.1, 0.2, 0.35, 0.6]), np.geomspace(0.001, 0.6, 30)
# Priors of the centre (log-normal), of the spread and of ε (exponential).
_CENTRE, _CENTRE_SPREAD, _SPREAD_MEAN, _SHARE_MEAN = 1.15, 0.4, 0.3, 0.4
# A label has a low score if fewer than this share of the absent rows have lower ones. The share of
# hard examples is exponential; its mean is _HARD_LEAST, and _HARD times the squared share of low
# scores among correct labels. Chosen, as the prior of ε, on fifteen data sets.
_LOW, _HARD, _HARD_LEAST = 0.7, 1.25, 0.004
_LEVELS = -np.log((np.arange(40) + 0.5) / 40)
_TENTHS = 10


@dataclass(frozen=True)
class Calibration:
    """P(present) of every label, P(wrong) of every PRESENT label with its range, and counts.

    `missing` has one estimate per class and `wrong` one number; the totals are over all classes.
    """

    present: np.ndarray
    wrong_probability: np.ndarray
    missing: list[Estimate]
    missing_total: Estimate
    wrong: list[float]
    wrong_total: Estimate
    selection: str
    only_shown: bool
    wrong_least: np.ndarray
    wrong_most: np.ndarray


def calibrate(
    labels: Array | LabelMatrix,
    scores: Array,
    *,
    verified: Any = None,
    selection: Selection = "auto",
    propensity: Any = None,
    possible: Any = None,
    unlabelled_rows: str = "auto",
    groups: np.ndarray | None = None,
    parents: Sequence[Sequence[int]] = (),
    seed: int = 0,
) -> Calibration:
    """Turn out-of-sample scores into probabilities, without complete labels.

    Args:
        labels: (N, K) of +1 present, 0 unknown, -1 absent, or a `LabelMatrix`.
        scores: (N, K) of probabilities in 0..1, of a model that was not fitted to these rows.
        verified: (N, K) verdicts of a review: +1 present, -1 absent, 0 not reviewed. Reviewed
            labels are no longer missing or wrong in the counts.
        selection: how labels came to be missing, as in `fit_probabilities`; so are `propensity`,
            `possible`, `unlabelled_rows`, `groups` and `parents`.
        seed: of the sample of rows that is fitted, where there are many.

    Scores that do not rank the shown labels are refused (`NoRankingError`).

    >>> scores = np.array([[0.9], [0.8], [0.7], [0.1], [0.2]] * 40)
    >>> labels = np.array([[1], [1], [0], [0], [0]] * 40, dtype=np.int8)
    >>> found = calibrate(labels, scores)
    >>> bool(found.present[2, 0] > 0.5 > found.present[3, 0])
    True
    >>> 20 < found.missing_total.value < 60
    True
    """
    check_seed(seed)
    values, points = check_labels_and_scores(labels, scores)
    verdicts = _check_verified(verified, values)
    if selection not in SELECTIONS:
        raise ValueError(f"selection: expected {' or '.join(SELECTIONS)}, got {selection!r}")
    if not (values == PRESENT).any():
        raise ValueError("no label is PRESENT (1), so the scores of present classes are not known")
    if (values == UNKNOWN).any():
        measure_ranking(values, points, groups).require()
    z = logit(points)
    fitted = fit_probabilities(
        values, z, selection=selection, verified=verdicts, propensity=propensity,
        possible=possible, unlabelled_rows=unlabelled_rows, groups=groups, parents=parents,
        seed=seed,
    )  # fmt: skip
    # Each label by itself: what other labels of the row tell about it is not worth the order of the
    # scores (benchmarks/results/audit.md).
    alone = replace(fitted, assumptions={"missing_at_random": 1.0})
    found = alone.infer(values, z, verified=verdicts, propensity=propensity)
    open_ones = (values == UNKNOWN) & (verdicts == 0)
    if propensity is None and not fitted.parents and not find_class_curves(values, z):
        # Without evidence that scores differ between classes, their order is kept.
        at = np.flatnonzero(open_ones & (found.middle > 0))
        at = at[np.lexsort((found.middle.flat[at], points.flat[at]))]
        for one in (found.middle, found.low, found.high):
            one.flat[at] = np.sort(one.flat[at])
    # No unknown label is certain, however high its score: the order stays the same.
    present = np.where(open_ones, found.middle * (1 - _DOUBT_OF_ANY * found.middle), found.middle)
    # (4, K): missing labels per class, their range, and the variance of their number by chance.
    by_chance = found.middle * (1 - found.middle)
    missing = [
        np.where(open_ones, one, 0.0).sum(axis=0)
        for one in (found.middle, found.low, found.high, by_chance)
    ]
    cells = open_ones.sum(axis=0)
    of_class = float(np.hypot(DOUBT, CLASS_DOUBT))
    # The labels of the file, less rows that cannot show a class: reviewed labels were chosen by
    # their scores, and without them the others would look too good.
    shown = np.where(values == PRESENT, PRESENT, np.minimum(verdicts, values))
    suspect = find_wrong(shown, fitted.offset + fitted.slope * z, present, verdicts)
    # A reviewed label has a verdict, not a probability; it is not counted any more.
    doubtful = suspect.probability
    wrong = np.where(verdicts == 0, doubtful, (verdicts == ABSENT) & (values == PRESENT))
    return Calibration(
        present=present,
        wrong_probability=wrong,
        missing=[
            _count(one, of_class, most) for *one, most in zip(*missing, cells, strict=True)
        ],
        missing_total=_count([one.sum() for one in missing], DOUBT, cells.sum()),
        wrong=[float(value) for value in doubtful.sum(axis=0)],
        wrong_total=_count(
            [doubtful.sum(), suspect.low, suspect.high, (doubtful * (1 - doubtful)).sum()], 0.0,
            ((values == PRESENT) & (verdicts == 0)).sum(),
        ),
        selection=fitted.selection,
        only_shown=fitted.only_shown,
        wrong_least=np.where(verdicts == 0, suspect.least, wrong),
        wrong_most=np.where(verdicts == 0, suspect.most, wrong),
    )  # fmt: skip


def check_labels_and_scores(
    labels: Array | LabelMatrix, scores: Array
) -> tuple[np.ndarray, np.ndarray]:
    """(N, K) labels as int8 and probabilities as float64; an error names the first invalid one."""
    values, points = read_rows(labels, scores)
    invalid = find_invalid(points)
    if invalid is not None:
        row, column = invalid
        raise ValueError(
            f"scores[{row}, {column}]: expected a probability in 0..1, got {points[row, column]} "
            "(apply the sigmoid to logits first)"
        )
    return values, points


def read_rows(labels: Array | LabelMatrix, scores: Array) -> tuple[np.ndarray, np.ndarray]:
    """(N, K) labels as int8 and scores as float64, of one shape."""
    values = labels.values if isinstance(labels, LabelMatrix) else np.asarray(check(labels))
    if hasattr(scores, "detach"):
        scores = scores.detach().cpu().float()
    points = np.asarray(scores, dtype=np.float64)
    if points.shape != values.shape:
        raise ValueError(
            f"expected scores of the shape of the labels, rows x classes {values.shape}, "
            f"got {points.shape}"
        )
    return values, points


def find_invalid(scores: np.ndarray) -> tuple[int, int] | None:
    """Row and column of the first score that is not a number in 0..1."""
    invalid = ~((scores >= 0) & (scores <= 1))
    if not invalid.any():
        return None
    row, column = np.argwhere(invalid)[0]
    return int(row), int(column)


def _check_verified(verified: Array | None, labels: np.ndarray) -> np.ndarray:
    if verified is None:
        return np.zeros(labels.shape, dtype=np.int8)
    verdicts = np.asarray(check(verified))
    if verdicts.shape != labels.shape:
        raise ValueError(f"expected verified of shape {labels.shape}, got {verdicts.shape}")
    return verdicts


def _count(parts: Sequence[float], doubt: float, cells: int) -> Estimate:
    """The number of labels among some cells, from its value, low and high end and its variance.

    The interval is widened by doubt of the model and by chance, to at most all cells.
    """
    value, low, high, variance = map(float, parts)
    spread = np.hypot(doubt, np.sqrt(variance) / max(value, 1.0))
    factor = float(np.exp(Z90 * spread))
    most = min(max(high, value) * factor, max(float(cells), value))
    return Estimate(value, min(low, value) / factor, most)


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
    """Estimate how likely each PRESENT label is wrong.

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
    chance_of_share, unseen = _infer_unseen(parts)
    below = np.concatenate([part.below for part in parts])
    part_wrong = _take_off_hard_examples(below)
    # Wrong labels for every share ε (M) and every level of hard examples (H), with its probability.
    expected = sum(part.count @ one for part, one in zip(parts, unseen, strict=True))
    counts = (np.asarray(expected)[:, None] * part_wrong).ravel()
    order = np.argsort(counts, kind="stable")
    chance = np.cumsum(np.repeat(chance_of_share / len(_LEVELS), len(_LEVELS))[order])
    low, high = np.interp((0.05, 0.95), chance, counts[order])
    # The share and the level of hard examples at both ends of the interval.
    states = order[np.minimum(np.searchsorted(chance, (0.05, 0.95)), len(order) - 1)]
    shares = states // len(_LEVELS)
    for part, one in zip(parts, unseen, strict=True):
        at = part.rows, part.column
        wrong[at] = (one @ (chance_of_share * part_wrong.mean(axis=1)))[part.bins]
        for end, state, share in zip((least, most), states, shares, strict=True):
            end[at] = (one[:, share] * part_wrong.ravel()[state])[part.bins]
        most[at] = np.maximum(most[at], _limit(part.below, below))
    sure = max(1 - WRONG_LEAST_HARD / _SHARES[shares[0]], 0.0)
    least, most = np.minimum(least, sure * wrong), np.maximum(most, wrong)
    low, high = float(min(low, least.sum())), float(max(high, most.sum()))
    found = WrongLabels(wrong, least, most, low, high)
    return found if verdicts is None else _correct(found, labels, verdicts)


def _infer_unseen(parts: list[_Class]) -> tuple[np.ndarray, list[np.ndarray]]:
    """The probability of every share ε (M,), and P(not seen by the model | label) given ε.

    The second is (bins, M) per class; such labels are wrong, or hard examples. Both are sums over
    the slope of the class (B), and over the centre (C) and spread (S) of the slopes of all classes.
    """
    away = np.log(_SLOPES[:, None, None] / _CENTRES[:, None]) / _SPREADS
    slope_prior = np.exp(-0.5 * away**2)
    slope_prior /= slope_prior.sum(axis=0)
    centre_prior = -0.5 * (np.log(_CENTRES / _CENTRE) / _CENTRE_SPREAD)[:, None] ** 2
    log_prior = centre_prior - _SPREADS / _SPREAD_MEAN
    tops = [part.likelihood.max(axis=0) for part in parts]
    inside = [
        np.einsum("bm,bcs->csm", np.exp(part.likelihood - top), slope_prior) + 1e-300
        for part, top in zip(parts, tops, strict=True)
    ]
    of_classes = sum(np.log(one) + top for one, top in zip(inside, tops, strict=True))
    total = log_prior[..., None] + of_classes
    # The grid of ε is even on a log scale, hence the factor ε.
    weight = np.exp(total - total.max() - _SHARES / _SHARE_MEAN) * _SHARES
    weight /= weight.sum()
    chance_of_share = weight.sum(axis=(0, 1))
    given = weight / np.maximum(chance_of_share, 1e-300)
    unseen = []
    for part, top, one in zip(parts, tops, inside, strict=True):
        slopes = np.einsum("csm,bcs->bm", given / one, slope_prior)
        slopes *= np.exp(part.likelihood - top)
        log_odds = np.log(_SHARES) - np.log1p(-_SHARES)
        by_share = [slopes[:, m] @ sigmoid(odds - part.odds).T for m, odds in enumerate(log_odds)]
        unseen.append(np.stack(by_share, axis=1))
    return chance_of_share, unseen


def _take_off_hard_examples(below: np.ndarray) -> np.ndarray:
    """(M, H): which part of ε is wrong, for levels of the share of hard examples.

    `below`: the share of absent rows with lower scores, per shown label.
    """
    low = np.count_nonzero(below < _LOW) / len(below)
    correct_low = np.maximum(low - _LOW * _SHARES, 0.0) / (1 - _SHARES)
    hard = _HARD_LEAST + _HARD * correct_low**2
    return np.maximum(1 - np.outer(hard / _SHARES, _LEVELS), 0.0)


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
    model = ReviewPosterior(
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
    offsets = bisect(
        lambda a: sigmoid(_SLOPES[:, None] * middle + a[:, None]) @ rows > total,
        np.full(len(_SLOPES), -200.0),
        np.full(len(_SLOPES), 200.0),
        40,
    )
    kept, bins = np.unique(place[shown], return_inverse=True)
    count = np.bincount(bins).astype(float)
    z = np.clip(middle[kept, None] * _SLOPES + offsets, -50, 50)
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
