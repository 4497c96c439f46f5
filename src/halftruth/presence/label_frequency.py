"""Which label frequencies c = P(shown | present) fit the labels, if labels are missing at random.

How many labels are missing is visible in the scores only indirectly. One c for all classes (times
the propensity of the class, where it is given) leaves two traces: P(shown | score) levels off at c
where the scores are highest; and if every row has a present class, a row without a label misses
one, so that the share of such rows, and their scores, depend on c.

Where classes go together, the first trace is clearer next to other shown labels: P(shown | score,
other shown labels) = c P(present | score, other shown labels). Frequent classes are fitted in this
way, too, and count by that likelihood if it is higher.

The curves are fitted for each c of a grid, once for independent classes and once given that no row
is empty. The likelihoods of these fits, tempered, are their weights; where rows are empty, the
second assumption fits worse and gets no weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from halftruth.labels import ABSENT, PRESENT
from halftruth.presence.labelling_model import Presence, draw_rows, fit_presence
from halftruth.presence.solvers import logit, sigmoid, step_below_ceiling

# Equal steps of log c: without evidence, no factor of the number of labels is preferred.
_SHARES = np.exp(np.linspace(np.log(0.97), np.log(0.14), 11))
# The model is wrong in the details, so more rows do not make its likelihood more certain.
_ROWS_BELIEVED = 300
# The grid is compared on a part of the labels, since one number needs fewer rows than many curves:
# on the first number of labels, or more with many classes, to have some rows, up to the second.
_LABELS, _MOST_LABELS, _SOME_ROWS = 60_000, 300_000, 600
# Frequent classes that are fitted to other shown labels, too: how many, the labels that each has,
# rows, folds, steps per share, and the ridge: more of it would keep present labels from looking
# certain, which looks like a higher share.
_FREQUENT, _LEAST_LABELS, _MOST_ROWS = 20, 20, 2_000
_FOLDS, _STEPS, _RIDGE = 4, 6, 0.5
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
            sum(w for fit, w in zip(self.fits, self.weights, strict=True) if fit.at_least_one)
        )

    def prior(self, scores: np.ndarray) -> np.ndarray:
        """P(present | score), the mean of the fits in logits."""
        both = zip(self.fits, self.weights, strict=True)
        return sigmoid(np.sum([w * logit(fit.prior(scores)) for fit, w in both], axis=0))


def fit_label_frequency(
    labels: np.ndarray,
    scores: np.ndarray,
    propensity: np.ndarray | None = None,
    *,
    use_blank_rows: bool = True,
    only_shown: bool = False,
) -> ShareFits:
    """Fit the curves for each share of a grid, and weigh them by their likelihoods.

    `use_blank_rows`: each label is shown or not by itself, so that blank rows and other shown
    labels tell of the share; not so where every row shows one label by design. `only_shown`: rows
    that show nothing are not listed.
    """
    most = min(max(_LABELS, _SOME_ROWS * labels.shape[1]), _MOST_LABELS)
    some = draw_rows(labels.shape, most, 0, labels == PRESENT)
    part, points = labels[some], scores[some]
    grid: list[Presence] = []
    blank_rows_count = use_blank_rows and labels.shape[1] > 1 and not only_shown
    for at_least_one in (False, True) if blank_rows_count else (False,):
        fit = None
        for share in _SHARES:
            fit = fit_presence(
                part, points, selection="missing_at_random", at_least_one=at_least_one,
                only_shown=only_shown, share=float(share), start=fit, steps=40,
                propensity=propensity, loose=True,
            )  # fmt: skip
            grid.append(fit)
    likelihood = np.array([fit.log_evidence(part, points) for fit in grid])
    if use_blank_rows:
        gain = _compare_with_other_labels(labels, scores, propensity, only_shown)
        likelihood += np.resize(gain * len(part) / len(labels), len(grid))
    weight = np.exp((likelihood - likelihood.max()) * min(1.0, _ROWS_BELIEVED / len(part)))
    weight /= weight.sum()
    count = np.array([fit.prior(points).sum(axis=1).mean() for fit in grid])
    fits, weights = [], []
    for at_least_one in (False, True):
        mine = np.array([fit.at_least_one == at_least_one for fit in grid])
        total = float(weight[mine].sum())
        if total < _LEAST_WEIGHT:
            continue
        z = np.log(np.resize(_SHARES, len(grid))[mine])
        middle = float(weight[mine] @ z / total)
        nearest = np.flatnonzero(mine)[np.abs(z - middle).argmin()]
        mean = fit_presence(
            labels, scores, selection="missing_at_random", at_least_one=at_least_one,
            only_shown=only_shown, share=float(np.exp(middle)), start=grid[nearest],
            steps=40, propensity=propensity,
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


def _compare_with_other_labels(
    labels: np.ndarray, scores: np.ndarray, propensity: np.ndarray | None, only_shown: bool
) -> np.ndarray:
    """Log-likelihood per share that other shown labels add to the scores; 0 if they add nothing."""
    shown = labels == PRESENT
    count = shown.sum(axis=0)
    some = np.argsort(-count, kind="stable")[:_FREQUENT]
    some = np.sort(some[count[some] >= _LEAST_LABELS])
    if len(some) < 2 or (labels == ABSENT).any():
        return np.zeros(len(_SHARES))
    rows = draw_rows(labels.shape, _MOST_ROWS * labels.shape[1], 0, shown)
    target, z = shown[np.ix_(rows, some)].astype(float), logit(scores[np.ix_(rows, some)])
    theta = np.ones(len(some)) if propensity is None else propensity[some]
    z = (z - z.mean(axis=0)) / np.maximum(z.std(axis=0), 1e-9)
    alone = np.stack([np.ones_like(z.T), z.T], axis=2)
    others = target * (1 - np.eye(len(some)))[:, None]
    # A row that shows another class is listed anyway, so that nothing else follows from that.
    counts = (others.sum(axis=2) > 0) | (not only_shown)
    without, together = (
        _fit_other_rows(x * counts[..., None], target.T, theta, counts)
        for x in (alone, np.concatenate([alone, others], axis=2))
    )
    if together.max() <= without.max():
        return np.zeros(len(_SHARES))
    return np.asarray((together - without) * len(labels) / len(rows))


def _fit_other_rows(
    x: np.ndarray, shown: np.ndarray, theta: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    """Log-likelihood per share of P(shown | x) = c θ σ(w x), fitted to other rows (Fisher scoring).

    `x` is (K, N, D), `shown` (K, N), `theta` (K,); rows that do not count (K, N) have x = 0.
    """
    classes, rows, inputs = x.shape
    fold, found = np.arange(rows) % _FOLDS, np.zeros(len(_SHARES))
    held = np.diag([1e-3, 1e-3, *[_RIDGE] * (inputs - 2)])
    for left_out in range(_FOLDS):
        a, y = x[:, fold != left_out], shown[:, fold != left_out]
        at = np.zeros((classes, inputs))
        at[:, 0], at[:, 1] = logit(y.mean(axis=1)), 1.0
        for number, share in enumerate(_SHARES):
            c = np.minimum(share * theta, 0.999)[:, None]
            for _ in range(_STEPS):
                at = step_below_ceiling(at, a, y, c, held)
            p = c * sigmoid((x[:, fold == left_out] @ at[..., None])[..., 0])
            p = np.where(shown[:, fold == left_out] > 0, p, 1 - p)
            found[number] += np.log(np.maximum(p[counts[:, fold == left_out]], 1e-9)).sum()
    return found
