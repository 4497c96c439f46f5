"""The rule of ranking: without it nothing is estimated, promised or listed as missing.

Scores of rows that the model was not fitted on must rank the rows that show a class above the
others, class by class, so that the frequency of classes alone is no ranking:

    T = Σ_k Σ_i shown_ik r_ik,    r_ik: rank of row i in class k, with mean 0 and variance 1

If the scores knew nothing, any order of the rows would be as likely as any other. The variance of T
over all orders is exact, Σ (SᵀS)(RᵀR) / (N − 1) with the centred labels S and ranks R, so that
classes may go together or exclude each other. Rows of one group (copies of a row, images of one
patient) are less evidence than others: the variance is multiplied by the ratio of the variance
between groups to that between rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from halftruth.labels import PRESENT

# Standard errors above chance: scores of shuffled rows reach them in 0.6 % of all cases.
_ENOUGH = 2.5
_MOST_ROWS = 20_000
# Another column must rank the labels of a class this much better (AUC) before it is reported.
_CLEARLY = 0.2


class NoRankingError(ValueError):
    """Scores do not rank the shown labels, so that nothing can be estimated from them."""


@dataclass(frozen=True)
class Ranking:
    """How far the scores rank the shown labels above chance, in standard errors, and mean AUC."""

    z: float
    auc: float
    rows: int

    @property
    def found(self) -> bool:
        """Whether the scores rank the labels, beyond chance."""
        return self.z >= _ENOUGH

    def describe(self) -> str:
        """Return the reasons why nothing can be estimated, in one sentence."""
        return (
            "the inputs do not explain the labels: rows that show a class do not have clearly "
            f"higher scores for it than the others (AUC {self.auc:.2f}, 0.5 is chance; "
            f"{self.z:.1f} standard errors above it in {self.rows:,} rows, expected {_ENOUGH}). "
            "Likely reasons: the rows are in another order than the labels, a wrong file or "
            "column, inverted scores, too few labels, or nothing to learn"
        )

    def require(self) -> None:
        """Refuse scores that do not rank."""
        if not self.found:
            raise NoRankingError(self.describe())


def measure_ranking(
    labels: np.ndarray, scores: np.ndarray, groups: np.ndarray | None = None
) -> Ranking:
    """Compare the scores (N, K) of rows that show a class with those of all others.

    `groups` (N,): rows of the same value are not independent.

    >>> z = np.arange(40.0)[:, None]
    >>> measure_ranking(z > 20, z).found, measure_ranking(z % 2, z).found
    (True, False)
    >>> noise = np.random.default_rng(17).normal(size=(2, 20, 1)).repeat(9, axis=1)
    >>> measure_ranking(noise[0] > 0, noise[1]).found
    True
    >>> measure_ranking(noise[0] > 0, noise[1], np.arange(20).repeat(9)).found
    False
    """
    rows = _draw_rows(len(labels))
    shown = (np.asarray(labels)[rows] == PRESENT).astype(np.float64)
    count, n = shown.sum(axis=0), len(rows)
    rank = rank_columns(np.asarray(scores)[rows])
    tells = (count > 0) & (count < n) & (rank.std(axis=0) > 0)
    if not tells.any():
        return Ranking(0.0, 0.5, n)
    shown, rank, count = shown[:, tells], rank[:, tells], count[tells]
    # The AUC of a class is 0.5 + Σ shown · (rank − mean) / (n_k (N − n_k)).
    own = (shown * rank).sum(axis=0)
    auc = 0.5 + own.sum() / (count * (n - count)).sum()
    spread = rank.std(axis=0)
    moved, shown = rank / spread, shown - shown.mean(axis=0)
    variance = ((shown.T @ shown) * (moved.T @ moved)).sum() / (n - 1)
    if groups is not None:
        by_row = (shown * moved).sum(axis=1)
        by_row -= by_row.mean()
        by_group = np.bincount(np.unique(groups[rows], return_inverse=True)[1], by_row)
        variance *= max((by_group**2).sum() / max((by_row**2).sum(), 1e-12), 1)
    return Ranking(float((own / spread).sum() / np.sqrt(max(variance, 1e-12))), float(auc), n)


def rank_columns(values: np.ndarray) -> np.ndarray:
    """Return the ranks in each column (N, K), around their mean; equal values share one."""
    ranks = np.empty(values.shape)
    for k, column in enumerate(values.T):
        _, place, count = np.unique(column, return_inverse=True, return_counts=True)
        ranks[:, k] = (np.cumsum(count) - (count + 1) / 2)[place] - (len(column) - 1) / 2
    return ranks


def question_order(
    labels: np.ndarray, scores: np.ndarray, classes: Sequence[str], named: bool = True
) -> list[str]:
    """What to ask about scores (N, K) that fit the labels of other classes, or rank upside down.

    `named`: columns have the names of classes, so that only two that fit each other's labels are
    in another order. Differences are beyond chance: the largest of K AUCs by chance, each with a
    standard deviation of 0.29 / √positives.
    """
    asked, rows = [], _draw_rows(len(labels))
    shown, given = np.asarray(labels)[rows] == PRESENT, np.asarray(scores)[rows]
    if np.isin(given, (0, 1)).all():
        asked.append("all scores are 0 or 1, as labels and decisions are; give probabilities")
    count, n = shown.sum(axis=0), len(shown)
    at = np.flatnonzero((count > 0) & (count < n))
    if not len(at):
        return asked
    ranks = rank_columns(given)
    count = count[at]
    auc = 0.5 + (shown[:, at].T @ ranks) / (count * (n - count))[:, None]
    own, best = auc[np.arange(len(at)), at], auc.argmax(axis=1)
    beyond = _CLEARLY + 0.29 * np.sqrt(2 * np.log(auc.shape[1] + 1) / count)
    # Inverted scores have a low AUC, too: their own column must not explain the labels then.
    moved = {
        int(at[k]): int(best[k])
        for k in np.flatnonzero(auc.max(axis=1) - np.maximum(own, 1 - own) > beyond)
    }
    if named:
        moved = {k: other for k, other in moved.items() if moved.get(other) == k}
    if moved:
        told = [
            f"that of {classes[j]!r} fits the labels of {classes[k]!r}" for k, j in moved.items()
        ]
        asked.append(
            f"the scores seem to be in another class order: {'; '.join(told[:3])}; give a table "
            "with the right names of classes in its header"
        )
    below = [classes[k] for k in at[0.5 - own > beyond]]
    if below:
        asked.append(
            "rows that show these classes have lower scores for them than the others: "
            f"{', '.join(map(repr, below[:5]))}; are scores or labels inverted, or rows in another "
            "order?"
        )
    return asked


def _draw_rows(count: int) -> np.ndarray:
    few = count <= _MOST_ROWS
    return np.arange(count) if few else np.random.default_rng(0).choice(count, _MOST_ROWS, False)
