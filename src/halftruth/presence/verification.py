"""Verify a few labels to estimate the scores of all: which labels to verify, and the estimates.

A metric θ depends on which of the unknown labels are present, y, and the model of labelling says
w = P(present). To first order θ(y) = θ(w) + Σ g (y − w), with g = ∂θ/∂w per cell (row and class).

A plan draws n unknown cells with known probabilities π in proportion to |g| √(w (1 − w)), a tenth
of them uniformly, so that no cell is impossible: one systematic pass over the cells sorted by w.
Then they are shuffled: whoever stops early has a random part of the sample.

Verdicts give two estimates. "model" is θ(w) with w recalibrated (`solvers.fit_shift`): little
noise, but biased where the model is wrong. "unbiased" is θ(w) + Σ g (y − w) / π, right in
expectation whatever w is (to first order for F1 and average precision). "combined" weighs them by
their variances: the more the verdicts contradict the model, the less it counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from halftruth.labels import PRESENT, UNKNOWN, check
from halftruth.labels.checks import Array
from halftruth.presence.estimated_scores import (
    check_scored_rows,
    read_range,
    score_probabilities,
    shape_error,
)
from halftruth.presence.labelling_model import PresenceRange
from halftruth.presence.solvers import LogitShift, fit_shift, logit
from halftruth.presence.uncertainty import (
    MODEL_ERROR,
    SCORE_CLASS_SPREAD,
    SCORE_SPREAD,
    Z90,
    Estimate,
    Spreads,
)
from halftruth.seeds import check_seed

# What a plan can be made for, and what verdicts estimate.
METRICS = ("mAP", "CF1", "OF1")
SCORES = (*METRICS, "OP", "OR")
# Share of the sample that is drawn uniformly.
_UNIFORM = 0.1
_SMALLEST, _LARGEST = 1e-5, 0.999


@dataclass(frozen=True)
class VerificationPlan:
    """Cells to verify in this order, and the probability with which each came into the sample.

    >>> plan = VerificationPlan((9, 2), [4, 7], [1, 0], [0.5, 0.1], "OF1", 0)
    >>> VerificationPlan.from_dict(plan.to_dict()) == plan
    True
    """

    shape: tuple[int, int]
    rows: list[int]
    columns: list[int]
    inclusion: list[float]
    metric: str
    seed: int

    def __len__(self) -> int:
        return len(self.rows)

    def to_dict(self) -> dict[str, object]:
        """Plain numbers and lists, for JSON."""
        return {**vars(self), "shape": list(self.shape)}

    @classmethod
    def from_dict(cls, saved: dict[str, Any]) -> VerificationPlan:
        """The plan that `to_dict` has saved."""
        return cls(**{**saved, "shape": tuple(saved["shape"])})


@dataclass(frozen=True)
class VerifiedScore:
    """One metric after a verification: 90 % intervals of three estimates."""

    combined: Estimate
    unbiased: Estimate
    model: Estimate


def plan_verification(
    scores: Array,
    labels: Array,
    decisions: Array,
    present: PresenceRange | np.ndarray | None = None,
    *,
    cells: int = 200,
    metric: str = "all",
    seed: int = 0,
) -> VerificationPlan:
    """Choose the unknown cells whose verification is most informative about a metric.

    `scores`, `labels`, `decisions` and `present` are those of
    `halftruth.presence.estimated_scores.estimate_scores`. `metric` is mAP, CF1, OF1 or "all", which
    draws a third of the cells for each.

    >>> random = np.random.default_rng(0)
    >>> scores = random.random((300, 4))
    >>> truth = np.where(random.random((300, 4)) < scores**2, 1, -1)
    >>> shown = np.where((truth > 0) & (random.random((300, 4)) < 0.5), 1, 0)
    >>> plan = plan_verification(scores, shown, 0.5, cells=100)
    >>> verdicts = truth[plan.rows, plan.columns]
    >>> found = score_verdicts(plan, verdicts, scores, shown, 0.5)["OF1"].combined
    >>> hits = (truth[scores > 0.5] > 0).sum()
    >>> exact = 2 * hits / ((truth > 0).sum() + (scores > 0.5).sum())
    >>> bool(found.low < exact < found.high)
    True
    """
    check_seed(seed)
    points, values, predicted = check_scored_rows(scores, labels, decisions)
    if metric not in (*METRICS, "all"):
        raise ValueError(f"metric: expected {', '.join(METRICS)} or all, got {metric!r}")
    if cells < 2:
        raise ValueError(f"expected at least 2 cells, got {cells}")
    unknown = values == UNKNOWN
    if not unknown.any():
        raise ValueError("no label is unknown, so there is nothing to verify")
    w = _weights(values, read_range(values, points, present).middle)
    uniform = unknown / unknown.sum()
    size = _UNIFORM * uniform
    wanted = METRICS if metric == "all" else (metric,)
    slopes = _linearise(points, predicted, w)
    for name in wanted:
        part = np.abs(slopes[name][1]) * np.sqrt(w * (1 - w)) * unknown
        total = part.sum()
        size += (1 - _UNIFORM) / len(wanted) * (part / total if total > 0 else uniform)
    random = np.random.default_rng(seed)
    inclusion = _inclusion(size.ravel(), min(cells, int(unknown.sum())))
    chosen = _draw(inclusion, w.ravel(), random)
    row, column = np.unravel_index(random.permutation(chosen), values.shape)
    return VerificationPlan(
        (values.shape[0], values.shape[1]), row.tolist(), column.tolist(),
        inclusion.reshape(values.shape)[row, column].tolist(), metric, seed,
    )  # fmt: skip


def score_verdicts(
    plan: VerificationPlan,
    verdicts: Array,
    scores: Array,
    labels: Array,
    decisions: Array,
    present: PresenceRange | np.ndarray | None = None,
    *,
    new_rows: bool = True,
) -> dict[str, VerifiedScore]:
    """Estimate mAP, CF1, OF1, OP and OR from verdicts on the cells of a plan.

    Args:
        plan: from `plan_verification`, for the same rows and classes.
        verdicts: one per cell of the plan: +1 present, -1 absent, 0 not answered. Answers may stop
            anywhere. A cell that is skipped because it is hard to decide makes the result biased.
        scores: as for the plan; so are `labels`, `decisions` and `present`. Another
            `present` than the plan's is allowed: only the inclusion probabilities must be the same.
        labels: without the verdicts.
        decisions: of the model that is scored.
        present: P(present | score, label) before the verdicts.
        new_rows: the interval is for other rows of the same kind, as in `estimate_scores`; if
            False, for the complete labels of these rows.
    """
    points, values, predicted = check_scored_rows(scores, labels, decisions)
    answers = _check_answers(plan, verdicts, values.shape)
    answered = answers != 0
    cells = np.ravel_multi_index((plan.rows, plan.columns), values.shape)[answered]
    inclusion = np.array(plan.inclusion)[answered] * answered.mean()
    fitted = read_range(values, points, present)
    before = _weights(values, fitted.middle)
    y = (answers[answered] == PRESENT).astype(float)
    unknown = values == UNKNOWN
    after, shift = _recalibrate(before, unknown, cells, y, _prior_spreads(values, fitted))
    known, still_open = after.copy(), unknown.copy()
    known.ravel()[cells], still_open.ravel()[cells] = y, False
    at = PresenceRange(known, known, known, fitted.selection)
    by_rows = score_probabilities(points, values, predicted, at)
    metrics = _linearise(points, predicted, after)
    expected = after.ravel()[cells]
    found = {}
    for name in SCORES:
        value, slope = metrics[name]
        at_cells = slope.ravel()[cells]
        by_model: Estimate = getattr(by_rows, name)
        wrong = np.hypot(MODEL_ERROR, shape_error(values, name)) * by_model.value
        found[name] = _combine(
            by_model.value,
            float(np.hypot(_shift_spread(shift, before, still_open, slope, known), wrong)),
            value + float((at_cells * (y - expected) / inclusion).sum()),
            _sampling_spread(at_cells, y, expected, inclusion),
            by_model.width / (2 * Z90) if new_rows else 0.0,
        )
    return found


def _check_answers(plan: VerificationPlan, verdicts: Any, shape: tuple[int, ...]) -> np.ndarray:
    """The verdicts (+1, -1, 0 none) on the cells of a plan for rows x classes of this shape."""
    answers = np.asarray(check(np.atleast_2d(verdicts)))[0]
    if plan.shape != shape:
        raise ValueError(f"the plan is for rows x classes {plan.shape}, got {shape}")
    if answers.shape != (len(plan),):
        raise ValueError(f"expected {len(plan)} verdicts, one per cell, got {answers.shape}")
    if np.count_nonzero(answers) < 2:
        raise ValueError(f"expected at least 2 verdicts, got {np.count_nonzero(answers)}")
    return answers


def _combine(
    model: float, doubt: float, unbiased: float, noise: float, rows: float
) -> VerifiedScore:
    """Weigh two estimates by their variances; `rows` is the spread over other rows."""
    apart = unbiased - model
    # They differ by the noise of the unbiased estimate anyway; only more than that is bias.
    error = max(doubt**2, apart**2 - noise**2)
    share = error / max(error + noise**2, 1e-300)
    return VerifiedScore(
        combined=_around(model + share * apart, np.sqrt(share) * noise, rows),
        unbiased=_around(unbiased, noise, rows),
        model=_around(model, doubt, rows),
    )


def _recalibrate(
    before: np.ndarray, unknown: np.ndarray, cells: np.ndarray, y: np.ndarray, spreads: Spreads
) -> tuple[np.ndarray, LogitShift]:
    """P(present) of unknown cells shifted so that it fits the verdicts y on some cells."""
    classes = before.shape[1]
    shift = fit_shift(before.ravel()[cells], cells % classes, y > 0, classes, spreads)
    at = np.flatnonzero(unknown)
    after = before.ravel().copy()
    after[at] = shift.apply(after[at], at % classes)
    return after.reshape(before.shape), shift


def _shift_spread(
    shift: LogitShift, before: np.ndarray, still_open: np.ndarray, slope: np.ndarray, w: np.ndarray
) -> float:
    """Standard deviation of Σ slope · y over the cells that are still unknown."""
    curve = np.where(still_open, w * (1 - w), 0.0)
    moved = slope * curve
    # The derivatives of logit w by δ and −t of the shift are 1 and max(z, 0).
    steep = float((moved * np.maximum(logit(before), 0.0)).sum())
    variance = shift.variance_of(moved.sum(axis=0)[None], np.array([[moved.sum(), steep]]))[0]
    return float(np.sqrt(variance + (slope**2 * curve).sum()))


def _linearise(
    scores: np.ndarray, predicted: np.ndarray, w: np.ndarray
) -> dict[str, tuple[float, np.ndarray]]:
    """Each metric at P(present) = w, and its derivative by w, (N, K)."""
    total, chosen = w.sum(axis=0), predicted.sum(axis=0)
    safe_total, safe_chosen = np.maximum(total, 1e-9), np.maximum(chosen, 1)
    tp = (predicted * w).sum(axis=0)
    precision, recall = tp / safe_chosen, tp / safe_total
    cp, cr = precision.mean(), recall.mean()
    both = max(cp + cr, 1e-12)
    by_cp, by_cr = 2 * (cr / both) ** 2, 2 * (cp / both) ** 2
    classes = w.shape[1]
    cf1 = (by_cp * predicted / safe_chosen + by_cr * (predicted - recall) / safe_total) / classes
    right, all_ = float(tp.sum()), float(chosen.sum() + total.sum())
    of1 = 2 * right / max(all_, 1e-9)
    op, recalled = right / max(int(chosen.sum()), 1), right / max(float(total.sum()), 1e-9)
    # A positive at rank r has the precision (1 + expected other positives above it) / r.
    order = np.argsort(-scores, axis=0, kind="stable")
    placed = np.take_along_axis(w, order, 0)
    rank = np.arange(1, len(w) + 1)[:, None]
    at_rank = (1 + np.cumsum(placed, axis=0) - placed) / rank
    ap = (placed * at_rank).sum(axis=0) / safe_total
    share = placed / rank
    below = share.sum(axis=0) - np.cumsum(share, axis=0)
    exists = -np.expm1(-total)
    weight = exists / max(float(exists.sum()), 1e-12)
    by_ap = np.empty_like(w)
    np.put_along_axis(by_ap, order, weight * (at_rank + below - ap) / safe_total, 0)
    return {
        "mAP": (float(weight @ ap), by_ap),
        "CF1": (float(2 * cp * cr / both), cf1),
        "OF1": (of1, (2 * predicted - of1) / max(all_, 1e-9)),
        "OP": (op, predicted / max(int(chosen.sum()), 1)),
        "OR": (recalled, (predicted - recalled) / max(float(total.sum()), 1e-9)),
    }


def _inclusion(size: np.ndarray, cells: int) -> np.ndarray:
    """Inclusion probabilities in proportion to `size`, at most 1, that add up to `cells`."""
    inclusion = cells * size / size.sum()
    while (inclusion > 1).any():
        full = inclusion >= 1
        rest = size[~full].sum()
        inclusion = np.where(full, 1.0, (cells - full.sum()) * size / rest if rest > 0 else 0.0)
    return inclusion


def _draw(inclusion: np.ndarray, key: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Systematic sample: one cell per unit of cumulated probability, cells sorted by `key`.

    Ties of `key` are in random order.
    """
    order = random.permutation(len(key))
    order = order[np.argsort(key[order], kind="stable")]
    reached = np.cumsum(inclusion[order])
    marks = np.arange(random.random(), round(reached[-1]), 1.0)
    return order[np.minimum(np.searchsorted(reached, marks), len(order) - 1)]


def _sampling_spread(
    slope: np.ndarray, y: np.ndarray, expected: np.ndarray, inclusion: np.ndarray
) -> float:
    """Standard deviation of Σ slope (y − expected) / inclusion over samples.

    The larger of what the residuals show and what the probabilities let expect: a few residuals
    with large weights may be missing in a sample.
    """
    part = slope * (y - expected) / inclusion
    left, n = 1 - inclusion, len(part)
    shown = n / (n - 1) * ((part - part.mean()) ** 2 * left).sum()
    foreseen = ((slope / inclusion) ** 2 * expected * (1 - expected) * left).sum()
    return float(np.sqrt(max(shown, foreseen)))


def _prior_spreads(labels: np.ndarray, fitted: PresenceRange) -> Spreads:
    """How far logit P(present) may be off: the range of the fits, and `SCORE_SPREAD`."""
    unknown = labels == UNKNOWN
    most, least = (np.where(unknown, end, 0.0).sum() + 1 for end in (fitted.high, fitted.low))
    half = abs(np.log(most / least)) / (2 * Z90)
    shared = float(np.hypot(SCORE_SPREAD, half))
    return Spreads(shared=shared, steep=SCORE_SPREAD, own=SCORE_CLASS_SPREAD)


def _weights(labels: np.ndarray, present: np.ndarray) -> np.ndarray:
    """P(present) of every cell: 1 and 0 where known, never quite so where unknown."""
    inside = np.clip(present, _SMALLEST, _LARGEST)
    return np.where(labels == UNKNOWN, inside, (labels == PRESENT).astype(float))


def _around(value: float, spread: float, rows: float) -> Estimate:
    half = Z90 * float(np.hypot(spread, rows))
    value = min(max(float(value), 0.0), 1.0)
    return Estimate(value, max(value - half, 0.0), min(value + half, 1.0))
