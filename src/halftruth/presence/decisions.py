"""From probabilities to decisions: which classes to predict, without complete labels.

A rule gives one threshold per class on P(present | x). With the probabilities p of rows the model
was not fitted on, the expected counts of any threshold t are known: Σ_{p>t} p of the predictions
are right, of n(t) predictions and Σ p present labels. So

    expected precision = Σ_{p>t} p / n(t),     expected recall = Σ_{p>t} p / Σ p,
    expected F_β = (1+β²) Σ_{p>t} p / (n(t) + β² Σ p).

A cut per class at its highest expected F1 ("macro-f1") predicts a class nearly everywhere if its
scores hardly rank; one cut for all classes at the highest expected F1 over all labels leaves rare
classes out. The default ("f1") is the geometric mean of both cuts (docs/decisions.md).
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from halftruth.presence.probabilities import (
    Probabilities,
    average_over_level,
    fit_probabilities,
)
from halftruth.presence.propensity import LabelBias, choose_possible, choose_propensity
from halftruth.presence.ranking import NoRankingError
from halftruth.presence.solvers import find_shift, logit, project_on_hierarchy, sigmoid
from halftruth.presence.uncertainty import Z90, Estimate

# A class with fewer shown labels is not predicted: nothing is known about it. One label is enough
# for the default, since curves of rare classes are regularised (docs/decisions.md).
LEAST_SHOWN = 1
# Smaller probabilities do not count in the choice of a threshold for all of many classes.
_LEAST_POOLED = 1e-3
RULES = (
    "f1, macro-f1, f2, precision=0.9, recall=0.9, threshold=0.5 (of calibrated probabilities), "
    "score=0.5 (of the sigmoid of the logits), top=3, count, cost=5 (a missed label costs 5 times "
    "as much as a wrong one)"
)
_FREE = ("f1", "macro-f1", "f2", "count")
# From this factor between the ends of labels per row, decisions depend on what is not known.
_WIDE = 1.5
_WAYS_OUT = (
    "To know more: --labels-per-row, complete labels of 100 rows (--complete-rows), or a review"
)
# One shift needs few rows.
_ROWS_OF_SHIFT = 2_000
# Rules that promise something, which needs to be known.
_PROMISES = ("precision", "recall")
_WITH_NUMBER = {"precision": (0, 1), "recall": (0, 1), "threshold": (0, 1), "score": (0, 1),
                "top": (1, np.inf), "cost": (0, np.inf)}  # fmt: skip


@dataclass(frozen=True)
class Rule:
    """A parsed rule: its name and its number."""

    name: str
    number: float = 0.0

    def __str__(self) -> str:
        return self.name if self.name in _FREE else f"{self.name}={self.number:g}"


def parse_rule(text: str, classes: int | None = None) -> Rule:
    """Return the rule of a text such as "f1" or "precision=0.9", which suits so many classes.

    >>> parse_rule("recall=0.95")
    Rule(name='recall', number=0.95)
    """
    name, equals, number = str(text).strip().lower().partition("=")
    if name in _FREE and not equals:
        return Rule(name)
    found = re.fullmatch(r"[0-9]*\.?[0-9]+", number.strip())
    if name not in _WITH_NUMBER or not found:
        raise ValueError(f"decide: expected one of {RULES}, got {text!r}")
    value, (low, high) = float(number), _WITH_NUMBER[name]
    whole = name != "top" or value == int(value)
    if not (low <= value <= high and whole and (value > 0 or name in ("threshold", "score"))):
        bounds = "a whole number of at least 1" if name == "top" else "a positive number"
        bounds = "a number from 0 to 1" if high == 1 else bounds
        raise ValueError(f"decide: {name} needs {bounds}, got {number}")
    if name == "top" and classes is not None and value > classes:
        raise ValueError(
            f"decide: top needs at most {classes:,}, the number of classes, got {value:g}"
        )
    return Rule(name, value)


@dataclass(frozen=True)
class Decisions:
    """The rule, a threshold on P(present | x) per class, and the classes that are predicted."""

    rule: Rule
    thresholds: np.ndarray
    predicted: np.ndarray

    def __call__(self, probabilities: np.ndarray) -> np.ndarray:
        """Return (N, K) booleans: which classes are predicted."""
        p = np.where(self.predicted, probabilities, -np.inf)
        chosen = p > self.thresholds
        if self.rule.name == "top":
            count = min(int(self.rule.number), p.shape[1])
            rank = np.argsort(np.argsort(-p, axis=1, kind="stable"), axis=1, kind="stable")
            chosen &= rank < count
        return np.asarray(chosen)


def decide(
    probabilities: np.ndarray,
    shown: np.ndarray,
    rule: str | Rule = "f1",
    known: Probabilities | None = None,
    *,
    shared: bool = False,
) -> Decisions:
    """Return thresholds for a rule, from P(present | x) of rows the model was not fitted on.

    `probabilities` is (N, K); `shown` (K,) counts PRESENT labels per class: a class with none is
    not predicted. `known`: the model behind the probabilities, which says whether a precision or
    a recall can be promised: a precision at the fewest labels per row it allows, a recall at the
    most; the rule "score=0.5" needs its curves. `shared`: one threshold for all classes, where most
    have too few labels.

    >>> p = np.array([[0.9, 0.2], [0.6, 0.1], [0.1, 0.1]])
    >>> decide(p, np.array([5, 5]), "f1")(p).tolist()
    [[True, False], [True, False], [False, False]]
    >>> decide(p, np.array([5, 5]), "macro-f1")(p).tolist()
    [[True, True], [True, False], [False, False]]
    """
    rule = parse_rule(rule, len(shown)) if isinstance(rule, str) else rule
    if rule.name in _PROMISES and known is not None and known.not_known:
        raise NoRankingError(f"{rule} cannot be promised: {known.not_known}")
    p = np.asarray(probabilities, dtype=np.float64)
    predicted = np.asarray(shown) >= LEAST_SHOWN
    if shared and rule.name != "score":
        some = p[p >= min(_LEAST_POOLED, p.max(axis=1).min())]
        one = decide(some[:, None], np.array([LEAST_SHOWN]), rule)
        limits = np.full(len(predicted), one.thresholds[0])
        return Decisions(rule, limits, predicted & one.predicted[0])
    if rule.name in ("threshold", "cost", "top"):
        value = {"threshold": rule.number, "cost": 1 / (1 + rule.number), "top": 0.0}[rule.name]
        thresholds = np.full(p.shape[1], value)
    elif rule.name == "score":
        if known is None:
            raise ValueError(f"decide: {rule} needs curves, from logits to probabilities")
        # P(present | x) where the sigmoid of the logit has this value.
        thresholds = sigmoid(known.offset + known.slope * logit(np.array(rule.number)))
    else:
        end = None if known is None or rule.name not in _PROMISES else known.labels_per_row
        target = 0.0 if end is None else end.low if rule.name == "precision" else end.high
        shift = 0.0 if known is None or end is None else _find_shift_to(target, p, known)
        safe = sigmoid(logit(p) + shift) if shift else p
        found = [_choose_threshold(safe[:, k], rule) for k in range(p.shape[1])]
        thresholds = np.array(found)
        if shift:
            inside = np.isfinite(thresholds)
            same = sigmoid(logit(np.where(inside, thresholds, 0.5)) - shift)
            thresholds = np.where(inside, same, np.inf)
        if rule.name == "precision" and known is not None:
            _warn_of_few(rule, np.isfinite(thresholds)[predicted], safe[:, predicted], known)
        if rule.name == "f1" and predicted.any():
            overall = _choose_threshold(p[:, predicted].ravel(), rule)
            thresholds = np.sqrt(thresholds * overall)
        predicted = predicted & np.isfinite(thresholds)
    thresholds = np.where(np.isfinite(thresholds), thresholds, 1.0)
    if known is not None and known.parents:
        # Where a child is predicted, so are its parents: no threshold of a parent is higher.
        thresholds = 1 - project_on_hierarchy(1 - thresholds[None], known.parents)[0]
    return Decisions(rule, thresholds, predicted)


def _find_shift_to(end: float, p: np.ndarray, known: Probabilities) -> float:
    """The shift of all logits to an end of the interval of labels per row."""
    part = p[:: max(len(p) // _ROWS_OF_SHIFT, 1)]
    total = float(part.sum(axis=1).mean()) * end / max(known.labels_per_row.value, 1e-12)
    return find_shift(logit(part), float(np.clip(total, 1e-6, 0.999 * p.shape[1])))


def _warn_of_few(rule: Rule, found: np.ndarray, safe: np.ndarray, known: Probabilities) -> None:
    """Say so where a precision cannot be had for most classes, and which one can."""
    if 2 * found.sum() >= len(found) or not safe.size:
        return
    text = "no class is" if not found.any() else f"only {found.sum()} of {len(found)} classes are"
    why = describe_level(known)
    warnings.warn(
        f"{rule}: {text} predicted; the highest precision that can be promised is "
        f"{safe.max():.2f}{f': {why}' if why else ''}. {_WAYS_OUT}",
        stacklevel=3,
    )


def describe_level(known: Probabilities) -> str:
    """Why labels do not tell how many are present; '' where they do, roughly."""
    count = known.labels_per_row
    if count.high <= _WIDE * count.low:
        return ""
    if known.selection == "single_positive":
        return "rows show one label each, which does not tell how many are missing"
    return f"labels per row are only known to be between {count.low:.2g} and {count.high:.2g}"


@dataclass(frozen=True)
class Expected:
    """What decisions will be like on new rows, with 90 % intervals.

    `precision` and `recall` are over all labels, None where nothing is predicted or present;
    `predicted` is the number of labels per row. `level`: why it is not known how many there are.
    """

    precision: Estimate | None
    recall: Estimate | None
    predicted: Estimate
    level: str = ""

    def describe(self) -> str:
        """Return one sentence, and the ways out where the level is not known."""
        if self.precision is None or self.recall is None:
            return f"expected: nothing is predicted. {_WAYS_OUT}"
        text = (
            f"expected on new rows: precision {self.precision.percent()}, recall "
            f"{self.recall.percent()}, {self.predicted} labels predicted per row"
        )
        return f"{text}; {self.level}. {_WAYS_OUT}" if self.level else text


def expect(decisions: Decisions, p: np.ndarray, known: Probabilities) -> Expected | None:
    """Return what decisions will be like, from P(present | x) of rows not fitted on.

    The intervals go from the fewest to the most labels per row that the labels allow, and are
    wider by chance. None where nothing is known of missing labels.

    >>> z = np.array([[3.0], [2.0], [-3.0], [-4.0]] * 50)
    >>> known = fit_probabilities(np.sign(z).astype(np.int8), z)
    >>> found = expect(decide(known(z), np.array([100])), known(z), known)
    >>> found.precision.value > 0.9, found.predicted.value
    (True, 0.5)
    """
    if known.not_known:
        return None
    chosen, count = decisions(p), known.labels_per_row
    per_row = chosen.sum(axis=1)
    noise = Z90 * float(per_row.std()) / max(len(p), 1) ** 0.5
    mean = float(per_row.mean())
    predicted = Estimate(mean, max(mean - noise, 0.0), min(mean + noise, float(p.shape[1])))
    level = describe_level(known)
    if not chosen.any():
        return Expected(None, None, predicted, level)
    ends = [sigmoid(logit(p) + _find_shift_to(e, p, known)) for e in (count.low, count.high)]
    found = []
    for q in (p, *ends):
        hits, all_hits = float(q[chosen].sum()), float(q.sum())
        by_chance = (q * (1 - q) * chosen).sum(), (q * (1 - q) * ~chosen).sum()
        recall = hits / max(all_hits, 1e-12)
        found.append((
            (hits / int(chosen.sum()), by_chance[0] ** 0.5 / chosen.sum()),
            (recall, np.hypot((1 - recall) * by_chance[0] ** 0.5, recall * by_chance[1] ** 0.5)
             / max(all_hits, 1e-12)),
        ))  # fmt: skip
    both: list[Estimate] = []
    for (value, _), *others in zip(*found, strict=True):
        low = min(one - Z90 * spread for one, spread in others)
        high = max(one + Z90 * spread for one, spread in others)
        both.append(Estimate(value, float(np.clip(low, 0, value)), float(np.clip(high, value, 1))))
    return Expected(both[0], both[1], predicted, level)


def _choose_threshold(p: np.ndarray, rule: Rule) -> float:
    """Return the threshold of one class; infinity where no threshold meets the rule.

    Rows with equal probabilities are decided alike: a threshold lies between two different ones.
    """
    order = np.sort(p)[::-1]
    # For each different probability, the rows with at least that one.
    count = np.flatnonzero(np.append(order[:-1] > order[1:], True)) + 1
    right, total = np.cumsum(order)[count - 1], float(p.sum())
    if rule.name in ("f1", "macro-f1", "f2"):
        weight = 4.0 if rule.name == "f2" else 1.0
        best = int(np.argmax((1 + weight) * right / (count + weight * total)))
    elif rule.name == "precision":
        enough = np.flatnonzero(right / count >= rule.number)
        if not len(enough):
            return np.inf
        best = int(enough[-1])
    elif rule.name == "recall":
        best = min(int(np.searchsorted(right, rule.number * total)), len(count) - 1)
    else:
        if round(total) == 0:
            return np.inf
        best = int(np.searchsorted(count, min(round(total), len(order))))
    reached = count[best]
    lower = order[reached] if reached < len(order) else 0.0
    return float((order[reached - 1] + lower) / 2)


def fit_decisions(
    labels: np.ndarray,
    rows: np.ndarray,
    logits: np.ndarray,
    *,
    shown: np.ndarray,
    rule: str | Rule,
    bias: LabelBias | None = None,
    exponent: float | None = None,
    verified: np.ndarray | None = None,
    **known: Any,
) -> tuple[Probabilities, Decisions, np.ndarray | None]:
    """Fit the model of labelling to some rows, and choose thresholds by the rule.

    Args:
        labels: (N, K) of all rows that were learnt from.
        rows: (n,) numbers of rows that the model was not fitted to.
        logits: (n, K) of these rows.
        shown: (K,) PRESENT labels per class of the rows that the model was fitted to.
        rule: such as "f1" or "precision=0.9".
        bias: the test of the labels, see `choose_propensity`; so is `exponent`.
        exponent: γ by complete rows.
        verified: (n, K) labels of `rows` that people have verified.
        known: labels_per_row, prevalence, complete and seed of `fit_probabilities`.

    Returns:
        The probabilities, the decisions, and the propensities of the classes (None: all equal).

    >>> z = np.array([[3.0, -2.0], [2.0, 4.0], [-3.0, 3.0], [-4.0, -3.0]] * 50)
    >>> labels = (z > 0).astype(np.int8)
    >>> fitted = fit_decisions(labels, np.arange(200), z, shown=labels.sum(axis=0), rule="f1")
    >>> fitted[1](fitted[0](z[:2])).tolist()
    [[True, False], [True, True]]
    """
    propensity = choose_propensity(labels, bias, exponent)
    probabilities = fit_probabilities(
        labels[rows], logits, verified=verified, propensity=propensity,
        possible=choose_possible(labels, bias, exponent), **known,
    )  # fmt: skip
    probabilities = average_over_level(probabilities, logits)
    try:
        decisions = decide(probabilities(logits), shown, rule, probabilities)
    except NoRankingError as error:
        warnings.warn(f"{error}. Nothing is predicted", stacklevel=2)
        nothing = np.zeros(len(shown), dtype=bool)
        decisions = Decisions(parse_rule(str(rule)), np.ones(len(shown)), nothing)
    return probabilities, decisions, propensity
