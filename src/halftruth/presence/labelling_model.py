"""How likely each class is present in each row, estimated from incomplete labels.

    z = logit(score) / scale,   p = P(present | z) = σ(a + b z)          a, b per class

Only PRESENT and ABSENT labels are certain. Whether an UNKNOWN label is present is a hidden
variable, and p is fitted by expectation-maximisation over it. What an unknown label means depends
on how labels came to be missing ("selection"):

- "missing_at_random": each positive is labelled with the probability c of its class (Elkan and
  Noto, KDD 2008), and each negative with the probability d, 0 where nothing is labelled ABSENT:
  P(present | unlabelled) = p (1 − c) / (p (1 − c) + (1 − p) (1 − d));
- "single_positive": each row shows one of its n positives, all equally likely (Cole et al., CVPR
  2021):
  P(present | j shown) = p I₂ / (p I₂ + (1 − p) I₁),  I₁ = E[1/(1+M)], I₂ = E[1/(2+M)],
  where M is the number of further present classes: E[1/(1+M)] = ∫₀¹ Π (1 − pₘ + pₘ t) dt.

A class-dependent selection has a propensity θ per class (`propensity`), relative to each other:
"missing_at_random" labels a positive of class k with the probability c θ_k, "single_positive" shows
class k of a row with the probability θ_k / Σ θ over its present classes.

Classes are independent given their scores, or (`at_least_one`) given also that at least one class
of the row is present. Then a row without a label is known to miss one ("missing_at_random"), and
high scores next to a shown label count less ("single_positive"). Slopes and offsets of the classes
are regularised towards their mean, which helps rare classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from halftruth.labels import ABSENT, PRESENT, UNKNOWN, find_complete_rows
from halftruth.presence.solvers import (
    bisect,
    integrate_others,
    keep_slope_above,
    logit,
    sigmoid,
    step_towards_mean,
    sum_derivatives,
)

# How strongly the (offset, slope) and the labelling probability of a class are regularised towards
# the mean of all classes; chosen on VOC 2012 and COCO 2014, where the complete labels are known.
_DEVIATION, _FREQUENCY = np.diag([10.0, 300.0]), 20.0
# Scores that were fitted to the shown labels have the same slope for all classes if every present
# label is shown. So where shares are compared, classes with many labels are hardly drawn towards
# each other.
_LOOSE, _MANY = 0.01, 20
# One curve for all classes; folds and standard errors of the comparison with one per class.
_TOGETHER, _FOLDS, _CLEARLY = 1e6 * np.eye(2), 4, 2.5
# Keeps the curve finite where a few rows separate the classes perfectly.
_CENTRE = np.diag([0.1, 1.0])
_CLOSE = 1e-4
# The share of rows with more than one label up to which labels are still called one per row.
_FEW = 0.02
# The least slope of a curve, and the least spread of logits that is one.
_LEAST_SLOPE, _LEAST_SPREAD = 0.01, 0.1
# A listed row stands for at most this many that are not listed.
_MOST_UNLISTED = 20.0


@dataclass(frozen=True)
class Presence:
    """The fitted curve per class, and how often a label is known.

    `label_frequency`: the probability that a positive is labelled PRESENT; `absent_frequency`: that
    a negative is labelled ABSENT.
    """

    selection: str
    offset: np.ndarray
    slope: np.ndarray
    label_frequency: np.ndarray
    at_least_one: bool = False
    scale: float = 1.0
    absent_frequency: np.ndarray | float = 0.0
    propensity: np.ndarray | None = None
    # Rows that show nothing are not listed.
    only_shown: bool = False

    def prior(self, scores: np.ndarray) -> np.ndarray:
        """P(present | score), without using the label."""
        p = self._independent(scores)
        if self.only_shown:
            return np.minimum(p * _favour_listed(p, self.label_frequency), 1 - 1e-9)
        return np.minimum(p / _find_nonempty(p), 1 - 1e-9) if self.at_least_one else p

    def _independent(self, scores: np.ndarray) -> np.ndarray:
        return sigmoid(self.offset + self.slope * logit(scores) / self.scale)

    def posterior(self, labels: np.ndarray, scores: np.ndarray) -> np.ndarray:
        """P(present | score, label): 1 where PRESENT, 0 where ABSENT."""
        shown = labels == PRESENT
        p = np.where(labels == UNKNOWN, self._independent(scores), shown)
        if self.selection == "single_positive":
            hidden = infer_next_to_shown(p, shown, self.propensity)
        else:
            blank = ~shown.any(axis=1, keepdims=True) if self.at_least_one else None
            hidden = _infer_missing(p, self.label_frequency, self.absent_frequency, blank)
        return np.where(labels == UNKNOWN, hidden, p)

    def log_evidence(self, labels: np.ndarray, scores: np.ndarray) -> float:
        """The log-likelihood of labels that are missing at random, averaged over loose curves.

        At the best curves alone, a larger share would look better the more classes there are: their
        curves are less free then (Laplace's approximation, with independent classes).
        """
        p, c = np.clip(self._independent(scores), 1e-9, 1 - 1e-9), self.label_frequency
        z, weight = logit(scores) / self.scale, c * p * (1 - p) ** 2 / (1 - c * p)
        _, bend = sum_derivatives(z, weight, weight)
        free = 0.5 * float(np.linalg.slogdet(bend + _hold_loosely(labels))[1].sum())
        return self._log_likelihood(labels, scores) - free

    def _log_likelihood(self, labels: np.ndarray, scores: np.ndarray) -> float:
        """Of labels outside of complete rows and complete classes."""
        p = np.clip(self._independent(scores), 1e-9, 1 - 1e-9)
        whole = find_complete_rows(labels)[:, None] | ~(labels == UNKNOWN).any(axis=0)
        d = np.clip(self.absent_frequency + np.zeros(p.shape[1]), 1e-9, 1 - 1e-9)
        shown = np.where(whole, 1.0, self.label_frequency)
        known = np.where(whole, 0.0, np.where(labels == ABSENT, np.log(d), np.log1p(-d)))
        absent = np.log1p(-p) + known
        of_label = np.where(labels == UNKNOWN, np.log(p * (1 - shown) + np.exp(absent)), absent)
        of_label = np.where(labels == PRESENT, np.log(p * shown), of_label)
        of_row = of_label.sum(axis=1)
        if self.only_shown:
            # The labels of a row, given that it shows one at least.
            return float((of_row - np.log(_find_nonempty(p * shown)[:, 0])).sum())
        if not self.at_least_one:
            return float(of_row.sum())
        blank = ~(labels == PRESENT).any(axis=1)
        # The classes of a row without a label may all be missing, but not all be absent.
        empty = np.minimum(absent.sum(axis=1) - of_row, -1e-9)
        of_row = of_row + np.where(blank, np.log(-np.expm1(empty)), 0.0)
        return float((of_row - np.log(_find_nonempty(p)[:, 0])).sum())


def choose_selection(labels: np.ndarray) -> str:
    """Return "single_positive" where rows show one label each, else "missing_at_random".

    Nothing is ABSENT in rows that show one label each by design.

    Where every row has a label, a few rows may have more than one: if labels were missing at
    random, rows would be blank. Rows that are labelled completely do not count, unless all are.
    """
    if not (complete := find_complete_rows(labels)).all():
        labels = labels[~complete]
    if labels.shape[1] < 2 or (labels == ABSENT).any():
        return "missing_at_random"
    shown = np.count_nonzero(labels == PRESENT, axis=1)
    several, blank = (shown > 1).mean() if len(shown) else 0.0, (shown == 0).any()
    one_each = several == 0 or (several <= _FEW and not blank)
    return "single_positive" if one_each else "missing_at_random"


def draw_rows(shape: tuple[int, ...], most: int, seed: int, shown: np.ndarray) -> np.ndarray:
    """Row numbers of a sample with at most `most` labels; all rows if it would show no label."""
    count = max(most // shape[1], 1)
    if shape[0] <= count:
        return np.arange(shape[0])
    rows = np.sort(np.random.default_rng(seed).choice(shape[0], count, replace=False))
    return rows if shown[rows].any() else np.arange(shape[0])


def fit_presence(
    labels: np.ndarray,
    scores: np.ndarray,
    *,
    selection: str,
    at_least_one: bool = False,
    only_shown: bool = False,
    propensity: np.ndarray | None = None,
    start: Presence | None = None,
    steps: int = 60,
    share: float | None = None,
    loose: bool = False,
) -> Presence:
    """Fit by expectation-maximisation, with an optional starting fit.

    `only_shown`: rows that show nothing are not listed, so that each listed row stands for
    (1 − κ) / κ more, κ = P(a label of the row is shown), in which every label is unknown.
    `share` fixes P(shown | present) of all classes instead of fitting one per class; with a
    `propensity` per class (K,), at most 1, it is `share` times that. `loose`: classes with
    many labels are hardly drawn towards their mean.
    """
    # One scale for all classes, so that the priors do not depend on how confident the scores are.
    # Scores that are nearly constant are not made to look spread.
    scale = max(float(logit(scores).std()), _LEAST_SPREAD) if start is None else start.scale
    z = logit(scores) / scale
    present = labels == PRESENT
    # Rows that are labelled completely tell what is present, and nothing of what others leave out.
    complete = find_complete_rows(labels)[:, None]
    part = np.ones((len(z), 1)) if complete.all() else (~complete).astype(float)
    labelled = (part * present).sum(axis=0)
    negative = (part * (labels == ABSENT)).sum(axis=0)
    # Rows in which at least one class is present.
    certain = (
        present.any(axis=1, keepdims=True) | (selection == "missing_at_random")
    ) & at_least_one
    now = start
    if now is None:
        flat = np.zeros(z.shape[1])
        now = Presence(
            selection, flat, flat + 1, flat + 0.7, at_least_one, scale, 0.0, propensity, only_shown
        )
        now = _maximise(now, z, present.astype(float), np.zeros_like(certain), steps=15)
    before, held = 0.0, _hold_loosely(labels) if loose else _DEVIATION
    if share is not None:
        relative = np.ones(z.shape[1]) if propensity is None else propensity
        now = replace(now, label_frequency=np.clip(share * relative, 0.01, 0.999))
    for _ in range(steps):
        expected, weight = now.posterior(labels, scores), None
        total = (part * expected).sum(axis=0)
        if only_shown:
            p = now._independent(scores)
            unlisted = _count_unlisted(p * now.label_frequency)
            hidden_there = _infer_missing(p, now.label_frequency, 0.0)
            weight = 1 + part * unlisted
            expected = (expected + (weight - 1) * hidden_there) / weight
        absent_frequency = np.minimum(negative / np.maximum(part.sum() - total, 1.0), 0.999)
        now = replace(
            _maximise(now, z, expected, certain, weight=weight, held=held),
            absent_frequency=absent_frequency,
        )
        if share is None:
            common = labelled.sum() / max(total.sum(), 1.0)
            frequency = (labelled + _FREQUENCY * common) / (total + _FREQUENCY)
            now = replace(now, label_frequency=np.clip(frequency, 0.01, 0.999))
        hidden = float(total.sum() - labelled.sum())
        if abs(hidden - before) < _CLOSE * max(hidden, 1.0):
            break
        before = hidden
    return now


def find_class_curves(labels: np.ndarray, logits: np.ndarray) -> bool:
    """Whether one curve per class predicts the shown labels of other rows better than one of all.

    If not, scores mean the same in all classes. Scores (N, K) that were fitted to the shown labels
    do, however little is shown.
    """
    if len(logits) < 2 * _FOLDS:
        return False
    shown = (labels == PRESENT).astype(float)
    z = logits / max(float(logits.std()), _LEAST_SPREAD)
    flat, none = np.zeros(z.shape[1]), np.zeros((len(z), 1), dtype=bool)
    start = Presence("missing_at_random", flat, flat + 1, flat)
    fold = np.random.default_rng(0).permutation(len(z)) % _FOLDS
    gain = np.zeros(len(z))
    for one in range(_FOLDS):
        inside = fold != one
        for sign, held in ((1, _DEVIATION), (-1, _TOGETHER)):
            fit = _maximise(start, z[inside], shown[inside], none[inside], steps=20, held=held)
            p = sigmoid(fit.offset + fit.slope * z[~inside])
            found = np.where(shown[~inside] > 0, p, 1 - p)
            gain[~inside] += sign * np.log(np.maximum(found, 1e-9)).sum(axis=1)
    return bool(gain.sum() > _CLEARLY * gain.std() * len(z) ** 0.5)


def _hold_loosely(labels: np.ndarray) -> np.ndarray:
    """(K, 2, 2) how strongly curves are held where shares are compared."""
    many = (labels == PRESENT).sum(axis=0) >= _MANY
    return np.where(many[:, None, None], _LOOSE, 1.0) * _DEVIATION


def _maximise(
    now: Presence,
    z: np.ndarray,
    present: np.ndarray,
    certain: np.ndarray,
    steps: int = 2,
    weight: np.ndarray | None = None,
    held: np.ndarray = _DEVIATION,
) -> Presence:
    """Newton steps of the logistic regression of `present` on z, per class.

    In `certain` rows at least one class is present: P(k | at least one) = p / (1 − Π (1 − pₘ)).
    """
    at = np.stack([now.offset, now.slope], axis=1)
    for _ in range(steps):
        p = sigmoid(at[:, 0] + at[:, 1] * z)
        if certain.any():
            p = np.where(certain, np.minimum(p / _find_nonempty(p), 1.0), p)
        gap, curve = present - p, np.maximum(p * (1 - p), 1e-9)
        if weight is not None:
            gap, curve = weight * gap, weight * curve
        slopes, bend = sum_derivatives(z, gap, curve)
        step = step_towards_mean(at, slopes, bend, held, _CENTRE)
        step = keep_slope_above(_LEAST_SLOPE, at, step, slopes[:, 0] / bend[:, 0, 0])
        # In the same direction: clipped by itself, a number of two that make up for each other
        # would never arrive.
        at = at + step / np.maximum(2 * np.abs(step).max(axis=1, keepdims=True), 1)
    return replace(now, offset=at[:, 0], slope=at[:, 1])


def _infer_missing(
    p: np.ndarray,
    label_frequency: np.ndarray | float,
    absent_frequency: np.ndarray | float,
    blank: np.ndarray | None = None,
) -> np.ndarray:
    """P(present | unlabelled), where labels are missing at random.

    `blank` (N, 1): rows without a label, of which at least one class is present; None where rows
    may be empty.
    """
    missed = p * (1 - label_frequency)
    hidden = missed / np.maximum(missed + (1 - p) * (1 - absent_frequency), 1e-12)
    if blank is None:
        return np.asarray(hidden)
    return np.where(blank, np.minimum(hidden / _find_nonempty(hidden), 1.0), hidden)


def _count_unlisted(shown: np.ndarray) -> np.ndarray:
    """(N, 1) for how many rows that show nothing a listed row stands, by P(k is shown) (N, K)."""
    listed = _find_nonempty(shown)
    return np.minimum((1 - listed) / listed, _MOST_UNLISTED)


def _favour_listed(p: np.ndarray, label_frequency: np.ndarray) -> np.ndarray:
    """P(the row is listed | k is present) / P(the row is listed), (N, K)."""
    none = np.log1p(-np.minimum(p * label_frequency, 1 - 1e-9))
    total = none.sum(axis=1, keepdims=True)
    listed = np.maximum(-np.expm1(total), 1e-12)
    return (1 - (1 - label_frequency) * np.exp(total - none)) / listed


def infer_next_to_shown(
    p: np.ndarray, shown: np.ndarray, propensity: np.ndarray | None = None
) -> np.ndarray:
    """P(present | another class is the one shown); p for rows that show none."""
    one, two = np.zeros_like(p), np.zeros_like(p)
    for weight, lost, others in integrate_others(p, shown, propensity, 8):
        product = weight * np.exp(others.sum(axis=1, keepdims=True) - others)
        one += product
        two += lost * product
    given = p * two / np.maximum(p * two + (1 - p) * one, 1e-300)
    return np.where(shown.any(axis=1, keepdims=True), given, p)


def _find_nonempty(p: np.ndarray) -> np.ndarray:
    """(N, 1) P(at least one class is present), for independent classes."""
    none = np.log1p(-np.minimum(p, 1 - 1e-12)).sum(axis=1, keepdims=True)
    return np.maximum(-np.expm1(none), 1e-12)


@dataclass(frozen=True)
class PresenceRange:
    """P(present | score, label), (N, K): the best estimate, and the ends of what is plausible.

    `low` and `high` are the fits with the fewest and the most present labels, about 90 % apart.
    """

    middle: np.ndarray
    low: np.ndarray
    high: np.ndarray
    selection: str


def infer_presence(
    labels: np.ndarray,
    p: np.ndarray,
    assumptions: Mapping[str, float],
    verified: np.ndarray,
    propensity: np.ndarray | None = None,
) -> np.ndarray:
    """P(present | x, label): 1 where PRESENT, 0 where ABSENT, else by the selection.

    `p` (N, K) is P(present | x) of the rows. `assumptions` are weights of:

    - "missing_at_random": labels are missing at random, classes are independent given x;
    - "no empty row": the same, given that at least one class of every row is present;
    - "single_positive": each row shows one of its present labels; "single_positive, at least one":
      with the same condition.

    Verdicts (`verified`) override labels; which labels were shown is read from `labels` alone.
    """
    shown = labels == PRESENT
    known = np.where(verified == 0, labels, verified)
    sure = known != UNKNOWN
    certain = (known == PRESENT).astype(float)
    whole = find_complete_rows(labels)[:, None]
    part = np.ones(len(labels), bool) if whole.all() else ~whole[:, 0]
    present = np.maximum(np.where(sure, certain, p)[part].sum(axis=0), 1e-9)
    label_frequency = np.clip(
        shown[part].sum(axis=0) / np.maximum(p[part].sum(axis=0), 1e-9), 0.01, 0.999
    )
    negative = (labels[part] == ABSENT).sum(axis=0)
    absent_frequency = np.minimum(negative / np.maximum(part.sum() - present, 1.0), 0.999)
    conditional = {"no empty row", "single_positive, at least one"} & assumptions.keys()
    free = _remove_condition(p) if conditional else p
    found = np.zeros(p.shape)
    for name, weight in assumptions.items():
        q = free if name in conditional else p
        if name.startswith("single_positive"):
            hidden = infer_next_to_shown(np.where(sure, certain, q), shown, propensity)
        else:
            blank = ~shown.any(axis=1, keepdims=True) if name in conditional else None
            hidden = _infer_missing(q, label_frequency, absent_frequency, blank)
        found += weight * hidden
    return np.where(sure, certain, np.clip(found, 0.0, 1.0))


def _remove_condition(p: np.ndarray) -> np.ndarray:
    """Probabilities q of independent classes with q / (1 − Π (1 − q)) = p.

    q = s p, where s = 1 − Π (1 − s p), one number per row; it tends to 0 where a row's p add up to
    1, since then exactly one class is present.
    """
    # Above the solution s is larger than the probability that the row is not empty.
    low, high = np.full((len(p), 1), 1e-4), np.ones((len(p), 1))
    return bisect(lambda s: s > _find_nonempty(s * p), low, high, 25) * p
