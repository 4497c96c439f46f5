"""The numerical methods of the model of labelling: logistic curves, shifts, one integral.

Every iteration of this package is here, with its limits on steps; the other files hold statistics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from halftruth.presence.uncertainty import Spreads

# A negative slope would reverse the ranking.
_LEAST_SLOPE = 1e-3
# Rounds of the projection on a hierarchy, the step at which it ends, and how far a child is below.
_ROUNDS, _NEAR, _BELOW = 300, 1e-7, 1e-9


def logit(scores: np.ndarray) -> np.ndarray:
    """log(s / (1 − s)), finite for 0 and 1."""
    safe = np.clip(scores, 1e-6, 1 - 1e-6)
    return np.asarray(np.log(safe) - np.log1p(-safe))


def sigmoid(z: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(−z)) without overflow."""
    return np.asarray(0.5 * (1 + np.tanh(0.5 * z)))


def ratio(over: np.ndarray, under: np.ndarray) -> np.ndarray:
    """over / under, 0 where under is not positive."""
    return np.divide(over, under, out=np.zeros(np.shape(under)), where=under > 1e-12)


def bisect(
    is_above: Callable[[np.ndarray], np.ndarray | bool],
    low: np.ndarray | float,
    high: np.ndarray | float,
    steps: int,
) -> np.ndarray:
    """Halve the interval `steps` times; `is_above` says, per entry, whether x is above the root.

    >>> bisect(lambda x: x**2 > [2, 9], np.zeros(2), np.full(2, 8.0), 40).round(3).tolist()
    [1.414, 3.0]
    """
    for _ in range(steps):
        middle = (low + high) / 2
        above = is_above(np.asarray(middle))
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return np.asarray((low + high) / 2)


def find_shift(logits: np.ndarray, total: float, cells: np.ndarray | float = 1.0) -> float:
    """Return the number to add to logits (N, K) so that the mean of Σ P per row is `total`.

    `cells`: how often each logit counts.

    >>> round(find_shift(np.zeros((5, 2)), 1.6), 3)
    1.386
    """

    def is_above(shift: np.ndarray) -> bool:
        return bool((cells * sigmoid(logits + shift)).sum(axis=1).mean() > total)

    return float(bisect(is_above, -30.0, 30.0, 60))


def find_shifts(logits: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """(K,) what to add to each column of logits (N, K) so that the mean P is that share (K,).

    >>> find_shifts(np.zeros((5, 2)), np.array([0.5, 0.8])).round(3).tolist()
    [0.0, 1.386]
    """
    ends = np.full(len(shares), 40.0)
    return bisect(lambda one: sigmoid(logits + one).mean(axis=0) > shares, -ends, ends, 60)


def project_on_hierarchy(values: np.ndarray, parents: Sequence[Sequence[int]]) -> np.ndarray:
    """The nearest values (N, K), by squares, with no child above its parent.

    `parents`: pairs of a child and its parent; a class may have several parents. Projects on one
    pair after the other, each time without the last move for this pair (Dykstra's algorithm),
    which ends at the nearest values for all. A child is a little below, so that ranks are strict.

    >>> project_on_hierarchy(np.array([[0.8, 0.4], [0.2, 0.4]]), [[0, 1]]).round(2).tolist()
    [[0.6, 0.6], [0.2, 0.4]]
    """
    found = np.array(values, dtype=np.float64)
    if not len(parents):
        return found
    child, parent = np.asarray(parents).T
    rows = np.flatnonzero((found[:, child] >= found[:, parent]).any(axis=1))
    part = found[rows].T
    moved = np.zeros((len(parents), len(rows)))
    for _ in range(_ROUNDS):
        most = 0.0
        for k, (low, high) in enumerate(parents):
            now = np.maximum((part[low] - part[high]) / 2 + moved[k], 0.0)
            step = moved[k] - now
            part[low] += step
            part[high] -= step
            moved[k] = now
            most = max(most, float(np.abs(step).max(initial=0.0)))
        if most < _NEAR:
            break
    # What is left is far below the digits that count.
    for _ in range(len(part)):
        above = part[child] + _BELOW > part[parent]
        if not above.any():
            break
        for low, high in parents:
            part[low] = np.minimum(part[low], part[high] - _BELOW)
    found[rows] = np.maximum(part.T, 0.0)
    return found


def fit_shared_curve(z: np.ndarray, cells: np.ndarray, present: np.ndarray) -> tuple[float, float]:
    """Return offset and slope of P = σ(a + b z), where `present` of the `cells` at each z are.

    For each slope one offset makes Σ P the number of present cells, so the level is right whatever
    the slope; along these, the likelihood has one maximum. Scores that do not rank get the lowest
    slope, which leaves their order and the mean.

    >>> z = np.linspace(-4, 4, 9)
    >>> offset, slope = fit_shared_curve(z, np.full(9, 50.0), 50 * sigmoid(0.5 * z - 1))
    >>> round(offset, 2), round(slope, 2)
    (-1.0, 0.5)
    """
    total = float(present.sum())

    def is_above(slope: np.ndarray) -> bool:
        at = slope * z
        p = sigmoid(at + find_shift(at[None], total, cells))
        return bool((cells * p - present) @ z > 0)

    slope = float(bisect(is_above, _LEAST_SLOPE, 8.0, 30))
    return find_shift(slope * z[None], total, cells), slope


def integrate_others(
    p: np.ndarray, shown: np.ndarray, propensity: np.ndarray | None, nodes: int
) -> Iterator[tuple[float, np.ndarray | float, np.ndarray]]:
    """The terms of E[θ_j / (θ_j + Σ θ_m y_m)] = ∫₀¹ Π (1 − pₘ + pₘ t^(θₘ/θⱼ)) dt, m ≠ j.

    j is the first class of a row (N, K) that is `shown`. Yields, per node of Gauss and Legendre,
    its weight, t^(θₘ/θⱼ), and the logarithms of the factors (N, K), 0 for shown classes.
    """
    power: np.ndarray | float = 1.0
    if propensity is not None:
        power = propensity / propensity[shown.argmax(axis=1)][:, None]
    for node, weight in zip(*np.polynomial.legendre.leggauss(nodes), strict=True):
        t = ((node + 1) / 2) ** power
        lost = np.maximum(p * (t - 1), 2.0**-53 - 1)
        yield weight / 2, t, np.where(shown, 0.0, np.log1p(lost))


def sum_derivatives(
    z: np.ndarray, gap: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Gradient (K, 2) and information (K, 2, 2) of offset and slope per class.

    `gap` (N, K) is target − p, `weight` its expected squared size.
    """
    gradient = np.stack([gap.sum(axis=0), (gap * z).sum(axis=0)], axis=1)
    h00, h01, h11 = weight.sum(axis=0), (weight * z).sum(axis=0), (weight * z * z).sum(axis=0)
    rows = [np.stack([h00, h01], axis=1), np.stack([h01, h11], axis=1)]
    return gradient, np.stack(rows, axis=1)


def fit_curves(z: np.ndarray, target: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Return offset and slope (K, 2) of σ(a + b z) that are closest to probabilities (N, K).

    >>> z = np.linspace(-2, 2, 9)[:, None]
    >>> fit_curves(z, sigmoid(0.5 + 2 * z), np.array([[0.0, 1.0]])).round(3).tolist()
    [[0.5, 2.0]]
    """
    # Centred, so that a column without spread has an offset all the same.
    middle = z.mean(axis=0)
    z, at = z - middle, start + start[:, [1]] * np.outer(middle, [1.0, 0.0])
    for _ in range(30):
        p = sigmoid(at[:, 0] + at[:, 1] * z)
        slopes, bend = sum_derivatives(z, target - p, np.maximum(p * (1 - p), 1e-12))
        (g0, g1), ((h00, h01), (_, h11)) = slopes.T, bend.transpose(1, 2, 0)
        h00, h11 = h00 + 1e-6, h11 + 1e-6
        det = np.maximum(h00 * h11 - h01 * h01, 1e-12)
        step = np.stack([(h11 * g0 - h01 * g1) / det, (h00 * g1 - h01 * g0) / det], axis=1)
        step = keep_slope_above(_LEAST_SLOPE, at, step, g0 / h00)
        at = at + np.clip(step, -0.5, 0.5)
        if np.abs(step).max() < 1e-6:
            break
    return at - at[:, [1]] * np.outer(middle, [1.0, 0.0])


def keep_slope_above(
    least: float, at: np.ndarray, step: np.ndarray, alone: np.ndarray
) -> np.ndarray:
    """Steps (K, 2) that do not lead to a slope below `least`, which would reverse the ranking.

    `alone` (K,): the step of the offset while the slope stays. With that of both, the offset would
    move for a slope that cannot, for ever.
    """
    stopped = at[:, 1] + step[:, 1] < least
    end = np.stack([alone, least - at[:, 1]], axis=1)
    return np.where(stopped[:, None], np.clip(end, -0.5, 0.5), step)


def step_towards_mean(
    at: np.ndarray, slopes: np.ndarray, bend: np.ndarray, held: np.ndarray, centre_held: np.ndarray
) -> np.ndarray:
    """(K, 2) Newton step of offsets and slopes that are regularised towards their mean.

    `slopes`, `bend`: gradient and information (`sum_derivatives`). `held`: precision (2, 2) of the
    deviation of a class from the mean, or one per class; `centre_held`: of the mean around (0, 1).
    """
    centre = at.mean(axis=0)
    total = bend + held
    own = np.linalg.solve(total, (slopes - ((at - centre)[:, None] @ held)[:, 0])[..., None])
    follow = np.linalg.solve(total, bend)
    left = (bend - bend @ follow).sum(axis=0) + centre_held
    pull = (slopes[..., None] - bend @ own).sum(axis=0)[:, 0] - centre_held @ (centre - [0.0, 1.0])
    common = np.linalg.solve(left, pull)
    return np.asarray(common + (own - follow @ common[:, None])[..., 0])


def step_below_ceiling(
    at: np.ndarray, x: np.ndarray, y: np.ndarray, ceiling: np.ndarray, held: np.ndarray
) -> np.ndarray:
    """One step of Fisher scoring for P(y = 1 | x) = c σ(w x), per class.

    `at` (K, D) holds w, `x` is (K, N, D), `y` (K, N), `ceiling` c (K, 1), `held` the precision
    (D, D) of w around 0. Steps are damped and at most 0.5.
    """
    p = sigmoid((x @ at[..., None])[..., 0])
    gap = np.where(y > 0, 1.0, p * (1 - ceiling) / (1 - ceiling * p)) - p
    information = ceiling * p * (1 - p) ** 2 / (1 - ceiling * p)
    bend = (x * information[..., None]).swapaxes(1, 2) @ x + held + 0.5 * np.eye(x.shape[2])
    slope = (gap[:, None] @ x)[:, 0] - at @ held
    return at + np.clip(np.linalg.solve(bend, slope[..., None])[..., 0], -0.5, 0.5)


def fit_choice_exponent(
    log_n: np.ndarray, kept: np.ndarray, row: np.ndarray, weight: np.ndarray
) -> float:
    """γ of P(kept) = n^γ / Σ n^γ over the options of a row, with the prior N(0, 1).

    `log_n`, `kept` and `row` have one entry per option, `weight` one per row (0 leaves it out).
    """
    exponent = 0.0
    for _ in range(20 if weight.any() else 0):
        size = np.exp(exponent * (log_n - log_n.max()))
        share = size / np.bincount(row, size, len(weight))[row] * weight[row]
        mean = np.bincount(row, share * log_n, len(weight))
        slope = float((weight[row] * kept * log_n).sum() - mean.sum()) - exponent
        bend = float((share * (log_n - mean[row]) ** 2).sum()) + 1.0
        step = float(np.clip(slope / bend, -0.5, 0.5))
        exponent += step
        if abs(step) < 1e-6:
            break
    return exponent


@dataclass(frozen=True)
class LogitShift:
    """δ and −t, shared by all classes, δₖ per class, and the curvature at that point.

    logit P = z − t max(z, 0) + δ + δₖ
    """

    shared: np.ndarray
    own: np.ndarray
    mixed: np.ndarray
    diagonal: np.ndarray
    left: np.ndarray

    def apply(self, probability: np.ndarray, column: np.ndarray) -> np.ndarray:
        """Return the shifted probabilities of cells, given the number of the class of each."""
        z = logit(probability)
        return sigmoid(z + shift_design(z) @ self.shared + self.own[column])

    def variance_of(self, slopes: np.ndarray, shared: np.ndarray) -> np.ndarray:
        """Variances (Q,) of Q sums with these derivatives by δₖ (Q, K) and by δ and −t (Q, 2)."""
        rest = shared - (slopes / self.diagonal) @ self.mixed.T
        own = (slopes**2 / self.diagonal).sum(axis=1)
        return np.asarray(own + (rest * np.linalg.solve(self.left, rest.T).T).sum(axis=1))


def shift_design(z: np.ndarray) -> np.ndarray:
    """(M, 2): the factors of δ and −t in a `Shift`."""
    return np.stack([np.ones_like(z), np.maximum(z, 0.0)], axis=1)


def fit_shift(
    probability: np.ndarray,
    column: np.ndarray,
    right: np.ndarray,
    classes: int,
    spreads: Spreads,
    start: LogitShift | None = None,
) -> LogitShift:
    """Newton steps to the most probable δ, t and δₖ, given verdicts (`right`) on cells.

    >>> from halftruth.presence.uncertainty import MISSING_SPREADS
    >>> column, right = np.zeros(50, dtype=int), np.ones(50, dtype=bool)
    >>> shift = fit_shift(np.full(50, 0.5), column, right, 2, MISSING_SPREADS)
    >>> bool(shift.own[0] > 0 == shift.own[1] and shift.shared[0] > 0)
    True
    """
    z = logit(probability)
    x = shift_design(z)
    weak = np.diag([spreads.shared**-2, spreads.steep**-2])
    shared, own = (np.zeros(2), np.zeros(classes)) if start is None else (start.shared, start.own)
    for _ in range(50):
        p = sigmoid(z + x @ shared + own[column])
        gap, curve = right - p, p * (1 - p)
        by_own = np.bincount(column, gap, minlength=classes) - own / spreads.own**2
        by_shared = x.T @ gap - weak @ shared
        diagonal = np.bincount(column, curve, minlength=classes) + spreads.own**-2
        mixed = np.stack([np.bincount(column, curve * one, minlength=classes) for one in x.T])
        left = (x * curve[:, None]).T @ x + weak - (mixed / diagonal) @ mixed.T
        step = np.clip(np.linalg.solve(left, by_shared - mixed @ (by_own / diagonal)), -1, 1)
        own_step = np.clip((by_own - step @ mixed) / diagonal, -1, 1)
        shared, own = shared + step, own + own_step
        if max(np.abs(step).max(), np.abs(own_step).max(initial=0)) < 1e-6:
            break
    return LogitShift(shared, own, mixed, diagonal, left)
