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

from dataclasses import dataclass

import numpy as np

from halftruth.labels import PRESENT

# Standard errors above chance: scores of shuffled rows reach them in 0.6 % of all cases.
_ENOUGH = 2.5
_MOST_ROWS = 20_000


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
    rows = np.arange(len(labels))
    if len(rows) > _MOST_ROWS:
        rows = np.random.default_rng(0).choice(rows, _MOST_ROWS, replace=False)
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
