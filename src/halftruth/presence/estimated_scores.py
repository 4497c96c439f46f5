"""Precision, recall, F1 and average precision of rows whose labels are incomplete.

Every score has one of three bases:

- "verified": measured on known labels, PRESENT against ABSENT (`score_verified`);
- "estimated": unknown labels count by P(present), with a 90 % interval (`estimate_scores`);
- "unknown = absent": as if the labels were complete (`score_as_if_complete`).

An estimate needs two things per class: how many rows are positive, T = Σ w with w = P(present |
score, label), and where they are ranked. The second is estimated in two ways:

    by probabilities: true positives = Σ w over the predicted rows
    by shown labels:  true positives = T · recall,  recall measured on the n shown positives

The first has little noise but depends on the shape of the fitted curve; the second holds for every
curve if labels are missing at random, but is noisy for rare classes. Their mean with the weights 10
and n is used, for average precision, too. Where each row shows one of its positives, a shown
positive has the weight 1 / P(shown) = Σ w over the row.

The interval has two parts: other rows (a jackknife over 30 groups) and the labelling (draws of w
between the ends of the `PresenceRange`, with the errors of `uncertainty`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from halftruth.labels import ABSENT, PRESENT, UNKNOWN
from halftruth.labels.checks import Array
from halftruth.metrics import average_precision
from halftruth.presence.calibration import check_labels_and_scores, read_rows
from halftruth.presence.labelling_model import PresenceRange, choose_selection
from halftruth.presence.probabilities import Selection, fit_probabilities
from halftruth.presence.ranking import measure_ranking
from halftruth.presence.solvers import logit, ratio, sigmoid
from halftruth.presence.uncertainty import (
    SCORE_BEYOND,
    SCORE_CLASS_SPREAD,
    SCORE_FEW_LABELS,
    SCORE_SHAPE,
    SCORE_SPREAD,
    Z90,
    Estimate,
)
from halftruth.seeds import check_seed

# Groups of rows for the jackknife.
_GROUPS = 30
# The weight of the estimate by probabilities, in shown positives.
_PROBABILITIES = 10.0
# Up to rank 64 each rank is its own bin; later bins grow by 8 %.
_SINGLE, _GROWTH = 64, 1.08
# The noise of a precision by shown labels may exceed 1, up to here.
_HIGHEST = 1.1
_BLOCK = 4_000_000


# Per class (axis 1): the estimate, one row per left-out group, one row per draw.
_Counts = dict[str, np.ndarray]


@dataclass(frozen=True)
class EstimatedScores:
    """Scores on one basis (`basis`); `precision` to `ap` are (K, 3): value, low, high per class.

    OP and OR are precision and recall over all labels. As in `halftruth.metrics`, CF1 averages both
    over all classes, 0/0 counts as 0, and mAP leaves out classes without positives: each class has
    the weight P(it has a positive).
    """

    basis: str
    mAP: Estimate
    CF1: Estimate
    OF1: Estimate
    OP: Estimate
    OR: Estimate
    labels_per_row: Estimate
    precision: np.ndarray
    recall: np.ndarray
    f1: np.ndarray
    ap: np.ndarray

    def to_dict(self) -> dict[str, object]:
        """Plain numbers and lists, for JSON."""
        return {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in asdict(self).items()
        }


def estimate_scores(
    scores: Any,
    labels: Any,
    decisions: Any,
    present: PresenceRange | np.ndarray | None = None,
    *,
    selection: Selection = "auto",
    spread: float = SCORE_SPREAD,
    draws: int = 100,
    seed: int = 0,
    new_rows: bool = True,
    groups: np.ndarray | None = None,
) -> EstimatedScores:
    """Estimate the scores that complete labels would give, with 90 % intervals.

    Args:
        scores: (N, K) of rows that the model was not trained on; probabilities if `present` is
            None, else anything that ranks.
        labels: (N, K) of +1 present, 0 unknown, -1 absent.
        decisions: (N, K) of bool, or thresholds (one, or one per class): predicted where
            score > threshold.
        present: P(present | score, label). A `PresenceRange`; or one (N, K) array, then `spread` is
            all that is known of its error; or None: `infer_range` of these rows.
        selection: how labels came to be missing, see `halftruth.presence.labelling_model`.
        spread: standard deviation of the error of logit P(present) that all classes share.
        draws: number of draws of P(present) for the interval.
        seed: of the draws.
        new_rows: the interval is for other rows of the same kind; if False, for the complete labels
            of these rows.
        groups: (N,) rows of the same value, such as copies of a row, are not independent.

    Scores that do not rank the shown labels are refused (`NoRankingError`).

    Example:
        >>> random = np.random.default_rng(1)
        >>> present = random.random((500, 3)) < 0.3
        >>> scores = 1 / (1 + np.exp(2 - 3 * present + random.normal(size=present.shape)))
        >>> shown = (present & (random.random(present.shape) < 0.5)).astype(np.int8)
        >>> estimated = estimate_scores(scores, shown, 0.5)
        >>> hits = (present & (scores > 0.5)).sum()
        >>> truth = 2 * hits / (present.sum() + (scores > 0.5).sum())
        >>> estimated.OF1.low < truth < estimated.OF1.high
        np.True_
        >>> score_as_if_complete(scores, shown, 0.5).OF1.high < truth
        np.True_
    """
    check_seed(seed)
    points, values, predicted = check_scored_rows(scores, labels, decisions)
    if draws < 20:
        raise ValueError(f"expected draws of at least 20, got {draws}")
    present = read_range(values, points, present, selection)
    if (values == UNKNOWN).any():
        measure_ranking(values, points, groups).require()
    moves = _draw_moves(values, draws, seed, spread)
    return score_probabilities(points, values, predicted, present, moves, seed, new_rows)


def read_range(
    labels: np.ndarray,
    scores: np.ndarray,
    present: PresenceRange | np.ndarray | None,
    selection: Selection = "auto",
) -> PresenceRange:
    """`present` as a range: fitted to the rows if it is None, without width if it is an array."""
    if present is None:
        present = infer_range(labels, scores, selection)
    elif not isinstance(present, PresenceRange):
        how = choose_selection(labels) if selection == "auto" else selection
        present = PresenceRange(present, present, present, how)
    for end in (present.middle, present.low, present.high):
        if np.shape(end) != labels.shape:
            raise ValueError(
                f"expected present of the shape of the labels, rows x classes {labels.shape}, "
                f"got {np.shape(end)}"
            )
    return present


def _draw_moves(labels: np.ndarray, draws: int, seed: int, spread: float) -> list[_Move]:
    """Random errors of P(present); they are larger where classes show few labels."""
    classes, shown = labels.shape[1], max((labels == PRESENT).sum(), 1)
    shared = float(np.hypot(spread, np.sqrt(SCORE_FEW_LABELS * classes / shown)))
    random = np.random.default_rng(seed)
    return [
        _Move(
            between=SCORE_BEYOND * random.normal() / Z90,
            shift=np.asarray(
                shared * random.normal() + SCORE_CLASS_SPREAD * random.normal(size=classes)
            ),
            shape=float(np.exp(SCORE_SHAPE * random.normal())),
        )
        for _ in range(draws)
    ]


def infer_range(labels: Array, scores: Array, selection: Selection = "auto") -> PresenceRange:
    """P(present | score, label) of rows not trained on, by the model of labelling of these rows."""
    values, points = check_labels_and_scores(labels, scores)
    if not (values == PRESENT).any():
        raise ValueError("no label is PRESENT (1), so the scores of present classes are not known")
    z = logit(points)
    return fit_probabilities(values, z, selection=selection).infer(values, z)


def score_verified(scores: Array, labels: Array, decisions: Array) -> EstimatedScores | None:
    """Scores on the known labels only; None if PRESENT or ABSENT does not occur among them.

    They hold for all labels only if it does not depend on the scores which labels were verified.

    >>> score_verified([[0.9], [0.2], [0.4]], [[1], [-1], [0]], 0.5).OF1.value
    1.0
    >>> score_verified([[0.9], [0.2]], [[1], [0]], 0.5) is None
    True
    """
    points, values, predicted = check_scored_rows(scores, labels, decisions)
    if not ((values == PRESENT).any() and (values == ABSENT).any()):
        return None
    return _score_known("verified", points, values, predicted, values != UNKNOWN)


def score_as_if_complete(scores: Array, labels: Array, decisions: Array) -> EstimatedScores:
    """Scores that count every unknown label as absent; the interval is of the rows only."""
    points, values, predicted = check_scored_rows(scores, labels, decisions)
    return _score_known("unknown = absent", points, values, predicted, None)


def score_probabilities(
    scores: np.ndarray,
    labels: np.ndarray,
    predicted: np.ndarray,
    present: PresenceRange,
    moves: Sequence[_Move] = (),
    seed: int = 0,
    new_rows: bool = True,
) -> EstimatedScores:
    """The estimate for `present`; without draws (`moves`) its interval is of the rows only."""
    ends = (present.middle, present.low, present.high)
    hidden = [np.where(labels == UNKNOWN, end, 0.0) for end in ends]
    weight = _weigh_rows(labels, present)
    counts = _count_classes(scores, labels, predicted, hidden, weight, moves, seed)
    return _summarise("estimated", counts, len(labels), new_rows)


def shape_error(labels: np.ndarray, metric: str) -> float:
    """Relative error of an estimate that is due to the shape of the curves: less with many labels.

    >>> shape_error(np.ones((10, 1)), "mAP"), shape_error(np.zeros((10, 1)), "mAP")
    (0.1, 0.2)
    """
    shown = (labels == PRESENT).sum(axis=0)
    # The others count labels, so that frequent classes count more.
    weight = np.ones(len(shown)) if metric in ("mAP", "CF1") else shown + 1e-9
    by_curve = _PROBABILITIES / (shown + _PROBABILITIES)
    return float(SCORE_SHAPE * np.average(by_curve, weights=weight))


def check_scored_rows(
    scores: Array, labels: Array, decisions: Array
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores as float64, labels as int8 and decisions as bool, all (N, K)."""
    values, points = read_rows(labels, scores)
    if points.ndim != 2 or not points.size:
        raise ValueError(f"expected rows x classes, at least one of each, got {points.shape}")
    if np.isnan(points).any():
        row, column = np.argwhere(np.isnan(points))[0]
        raise ValueError(f"scores[{row}, {column}]: expected a number, got NaN")
    decided = np.asarray(decisions)
    if decided.dtype != bool:
        if decided.shape not in ((), points.shape[1:]):
            raise ValueError(
                f"decisions: expected one threshold, {points.shape[1]} thresholds or a bool array "
                f"of shape {points.shape}, got an array of {decided.dtype} of shape {decided.shape}"
            )
        decided = points > decided
    if decided.shape != points.shape:
        raise ValueError(f"expected decisions of shape {points.shape}, got {decided.shape}")
    return points, values, decided


def _weigh_rows(labels: np.ndarray, present: PresenceRange) -> np.ndarray:
    """(N,) how many positives a shown positive of a row stands for."""
    if present.selection != "single_positive":
        return np.ones(len(labels))
    expected = np.where(labels == UNKNOWN, present.middle, labels == PRESENT).sum(axis=1)
    return np.asarray(np.maximum(expected, 1.0))


def _score_known(
    basis: str,
    scores: np.ndarray,
    labels: np.ndarray,
    predicted: np.ndarray,
    known: np.ndarray | None,
) -> EstimatedScores:
    predicted = predicted if known is None else predicted & known
    nothing = [np.zeros(labels.shape)] * 3
    counts = _count_classes(scores, labels, predicted, nothing, np.ones(len(labels)), known=known)
    exact = average_precision(scores, labels, ignore_unknown=known is not None)
    # Bins are close enough for the interval, not for a value that can be computed exactly.
    counts["ap"] += np.nan_to_num(exact) - counts["ap"][0]
    return _summarise(basis, counts, len(labels))


def _summarise(basis: str, counts: _Counts, rows: int, new_rows: bool = True) -> EstimatedScores:
    tp, predicted, total, exists, ap = counts.values()
    precision, recall = ratio(tp, predicted), ratio(tp, total)
    class_precision, class_recall = precision.mean(axis=1), (exists * recall).mean(axis=1)
    counted = np.full(len(tp), float(rows))
    counted[1 : 1 + _GROUPS] *= 1 - 1 / _GROUPS

    def interval(values: np.ndarray, most: float = 1.0) -> np.ndarray:
        """(K, 3): the value, and the interval from the left-out groups and the draws."""
        value, groups, draws = values[0], values[1 : 1 + _GROUPS], values[1 + _GROUPS :]
        by_rows = new_rows * Z90 * np.sqrt((_GROUPS - 1) * groups.var(axis=0))
        low, high = np.quantile(draws, (0.05, 0.95), axis=0) if len(draws) else (value, value)
        low = value - np.hypot(by_rows, np.maximum(value - low, 0))
        high = value + np.hypot(by_rows, np.maximum(high - value, 0))
        return np.clip(np.stack([value, low, high], axis=1), 0, most)

    def estimate(values: np.ndarray, most: float = 1.0) -> Estimate:
        return Estimate(*map(float, interval(values[:, None], most)[0]))

    return EstimatedScores(
        basis,
        mAP=estimate(ratio((exists * ap).sum(axis=1), exists.sum(axis=1))),
        CF1=estimate(ratio(2 * class_precision * class_recall, class_precision + class_recall)),
        OF1=estimate(ratio(2 * tp.sum(axis=1), (predicted + total).sum(axis=1))),
        OP=estimate(ratio(tp.sum(axis=1), predicted.sum(axis=1))),
        OR=estimate(ratio(tp.sum(axis=1), total.sum(axis=1))),
        labels_per_row=estimate(total.sum(axis=1) / counted, most=tp.shape[1]),
        precision=interval(precision),
        recall=interval(recall),
        f1=interval(ratio(2 * tp, predicted + total)),
        ap=interval(ap),
    )


@dataclass(frozen=True)
class _Move:
    """One draw: how far w lies towards an end of its range, error of logit w, factor of shape."""

    between: float
    shift: np.ndarray
    shape: float


def _count_classes(
    scores: np.ndarray,
    labels: np.ndarray,
    predicted: np.ndarray,
    hidden: list[np.ndarray],
    weight: np.ndarray,
    moves: Sequence[_Move] = (),
    seed: int = 0,
    known: np.ndarray | None = None,
) -> _Counts:
    """Count over blocks of classes. Rows are shuffled, so that ties are in random order."""
    rows = np.random.default_rng(seed).permutation(len(scores))
    known = np.ones_like(scores) if known is None else known
    width = max(1, _BLOCK // len(rows))
    parts = []
    for first in range(0, scores.shape[1], width):
        at = slice(first, first + width)
        points, given, cut, counted, *ends = (
            one[rows, at] for one in (scores, labels, predicted, known, *hidden)
        )
        heavy = np.where(given == PRESENT, weight[rows, None], 0.0)
        sums = _sum_bins(
            points, cut, [counted, given == PRESENT, heavy, heavy**2, given == UNKNOWN, *ends]
        )
        parts.append(_count(sums, [_Move(m.between, m.shift[at], m.shape) for m in moves]))
    return {name: np.concatenate([part[name] for part in parts], axis=1) for name in parts[0]}


def _sum_bins(
    scores: np.ndarray, predicted: np.ndarray, values: list[np.ndarray]
) -> list[np.ndarray]:
    """Sums of values (N, K) per group of rows, decision, bin of ranks and class."""
    rows, classes = scores.shape
    group = np.arange(rows) * _GROUPS // rows
    order = np.argsort(-scores, axis=0, kind="stable")
    bin_of_rank = _bin_ranks(rows)
    shape = (_GROUPS, 2, int(bin_of_rank[-1]) + 1, classes)
    cell = group[order] * 2 + np.take_along_axis(predicted, order, 0)
    cell = ((cell * shape[2] + bin_of_rank[:, None]) * classes + np.arange(classes)).ravel()
    placed = (np.take_along_axis(one, order, 0).ravel() for one in values)
    return [np.bincount(cell, one, minlength=int(np.prod(shape))).reshape(shape) for one in placed]


def _count(sums: list[np.ndarray], moves: Sequence[_Move]) -> _Counts:
    """The counts of all rows, without each group, and for each draw."""
    whole = [one.sum(axis=0) for one in sums]
    *known, unknown, middle, low, high = whole
    found = [_score_bins(known, middle)]
    for group in range(_GROUPS):
        *some, _, hidden, _, _ = (one - part[group] for one, part in zip(whole, sums, strict=True))
        found.append(_score_bins(some, hidden))
    if moves:
        middle, low, high = (logit(one / np.maximum(unknown, 1e-9)) for one in (middle, low, high))
    for move in moves:
        end = high if move.between > 0 else low
        z = middle + abs(move.between) * (end - middle) + move.shift
        found.append(_score_bins(known, unknown * sigmoid(z), move.shape))
    return {name: np.stack([one[name] for one in found]) for name in found[0]}


def _score_bins(
    known: Sequence[np.ndarray], hidden: np.ndarray, shape: float = 1.0
) -> dict[str, np.ndarray]:
    """Counts and average precision per class; arrays are (2, bins, K), predicted last.

    `known`: the numbers of rows and of shown positives, the sums of the weights of these and of
    their squares. `hidden`: the expected number of positives among the unknown labels.
    """
    rows, shown, weight, square = known
    mass = shown + hidden
    total, count = mass.sum(axis=(0, 1)), shown.sum(axis=(0, 1))
    predicted = rows[1].sum(axis=0)
    trust = count / (count + _PROBABILITIES)
    recall = ratio(weight[1].sum(axis=0), weight.sum(axis=(0, 1)))
    by_shown = np.clip(total * recall, shown[1].sum(axis=0), predicted)
    by_probability = np.minimum(shape * mass[1].sum(axis=0), predicted)
    tp = np.minimum(trust * by_shown + (1 - trust) * by_probability, total)

    n, mass, weight, square = (one.sum(axis=0) for one in (rows, mass, weight, square))
    rank = np.cumsum(n, axis=0) - n / 2 + 0.5
    above = np.cumsum(mass, axis=0) - mass / 2 - ratio(mass, 2 * n)
    precision = np.minimum((1 + above) / rank, 1)
    by_probability = np.minimum(shape * ratio((mass * precision).sum(axis=0), total), 1)
    # The recall above a shown positive is measured on the other shown ones.
    own = ratio(square, weight)
    others = weight.sum(axis=0) - own
    part = ratio(np.cumsum(weight, axis=0) - (weight + own) / 2, others)
    # Cut off at 1, the noise of good rankings would go down only, and lower the estimate.
    precision = np.minimum((1 + np.maximum(total - 1, 0) * part) / rank, _HIGHEST)
    by_shown = ratio((weight * precision).sum(axis=0), weight.sum(axis=0))
    trust = np.where(count > 1, trust, 0.0)
    return {
        "tp": tp,
        "predicted": predicted,
        "total": total,
        "exists": np.where(count > 0, 1.0, -np.expm1(-total)),
        "ap": trust * by_shown + (1 - trust) * by_probability,
    }


def _bin_ranks(rows: int) -> np.ndarray:
    """(rows,) the bin of each rank."""
    edges = [*range(min(rows, _SINGLE))]
    while edges[-1] < rows:
        edges.append(max(edges[-1] + 1, int(edges[-1] * _GROWTH)))
    return np.searchsorted(edges, np.arange(rows), side="right") - 1
