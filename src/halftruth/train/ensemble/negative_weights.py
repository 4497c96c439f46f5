"""How much a row that shows one class counts as a row without another class, (K, K).

Where each row shows one of its classes, the others count as absent, though some are present. A
member learns from this which class is *named*, not which is present. Two tables correct it:

- Frequent classes are named first (`find_pairs`): used where labels look biased.
- Classes occur together (`fit_similar`): if rows that show j have scores for k nearly as high as
  rows that show k, k is probably present there, and was not named. Classes that are only confused
  have a lower score: a model that tells them apart at all gives its own rows more.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import torch
from torch import Tensor

from halftruth.labels import PRESENT
from halftruth.presence.propensity import shows_one, weigh_pairs
from halftruth.train.ensemble.members import RIDGE, fit_linear_path

# With more classes, a table of all pairs of classes is too large.
_MOST_PAIRED = 2_000
# Up to this similarity, classes may be confused. From here, a row counts less, down to nothing.
_CONFUSED = 0.5
# The mean score of a class with few rows is drawn towards that of all rows, by as many rows.
_PRIOR_ROWS = 5.0
# The least lead of a class in its own rows, in standard deviations: less is noise.
_LEAST_LEAD = 0.5
# No label counts for nothing: weight 0 would mean that nobody was asked.
_LEAST = 0.001
# Of very many rows, these are enough to find similar classes.
_ENOUGH_ROWS = 10_000


def can_pair(labels: np.ndarray) -> bool:
    """Return whether rows show one class each, of not too many classes."""
    return labels.shape[1] <= _MOST_PAIRED and shows_one(labels)


def find_pairs(labels: Tensor) -> np.ndarray | None:
    """Return the table for frequent classes that are named first, or None where there is none."""
    values = labels.cpu().numpy()
    return weigh_pairs(values) if can_pair(values) else None


def count_as_absent(labels: Tensor, pairs: np.ndarray) -> Tensor:
    """Return (N, K) how much each unknown label counts as absent, by the class its row shows.

    Rows that show nothing, or several classes, count in full.
    """
    return weigh_unknown((labels == PRESENT).float(), torch.from_numpy(pairs).float())


def weigh_unknown(present: Tensor, pairs: Tensor) -> Tensor:
    """The same for what is present, (..., N, K), and a table (..., K, K) for each batch."""
    alone = present.sum(dim=-1, keepdim=True) == 1
    return torch.where(alone, present @ pairs, 1.0)


# ---------------------------------------------------------------------- similar classes


@dataclass(frozen=True)
class ScoreSums:
    """Sums of standardised out-of-sample scores: over all rows, and over rows that show a class."""

    rows: float
    # (K,): rows that show the class, sum of its scores over all rows.
    shown: Tensor
    total: Tensor
    # (K, K): the sum of the scores of class k over rows that show class j.
    by_shown: Tensor

    @classmethod
    def of(cls, labels: Tensor, scores: Tensor) -> ScoreSums:
        """Return the sums of these rows."""
        shown = (labels == PRESENT).float()
        return cls(len(labels), shown.sum(dim=0), scores.sum(dim=0), shown.T @ scores)

    @classmethod
    def join(cls, parts: list[ScoreSums], times: int = 1) -> ScoreSums:
        """Return the sums of all parts, in which each row occurs so many times."""
        return cls(
            sum(one.rows for one in parts) / times,
            *(
                torch.stack([getattr(one, name) for one in parts]).sum(dim=0) / times
                for name in ("shown", "total", "by_shown")
            ),
        )

    def weigh(self) -> np.ndarray:
        """Return the table for classes that occur together.

            r_jk = (mean of s_k in rows that show j − b_k) / (mean of s_k in rows that show k − b_k)
            w_jk = 1 − clip((r_jk − ½) / ½, 0, 1),    w_kk = 1

        b_k is the mean in rows that do not show k.

        >>> labels = torch.eye(3, dtype=torch.int8).repeat(50, 1)
        >>> scores = torch.tensor([[1.0, 0.9, 0.0], [0.9, 1.0, 0.0], [0.0, 0.0, 1.0]])
        >>> ScoreSums.of(labels, scores.repeat(50, 1)).weigh().round(1).tolist()
        [[1.0, 0.5, 1.0], [0.5, 1.0, 1.0], [1.0, 1.0, 1.0]]
        """
        own, count = self.by_shown.diagonal(), self.shown.clamp(min=1)
        base = (self.total - own) / (self.rows - self.shown).clamp(min=1)
        surplus = self.by_shown - self.shown[:, None] * base
        lead = (surplus.diagonal() / count).clamp(min=_LEAST_LEAD)
        similar = surplus / (count[:, None] + _PRIOR_ROWS) / lead
        weight = (1 - (similar - _CONFUSED) / (1 - _CONFUSED)).clamp(_LEAST, 1.0)
        # Of a class that no row shows, nothing is known.
        weight[:, self.shown == 0] = 1.0
        return np.asarray(weight.fill_diagonal_(1.0).double().numpy())


def fit_similar(
    x: object, labels: Tensor, fold: np.ndarray, weights: Tensor | None = None
) -> dict[int | None, np.ndarray]:
    """Return tables for classes that occur together: one per fold, and one of all rows (None).

    The table of a fold does not depend on its labels in any way. With a table that did, rare labels
    of held-out rows would be predicted: rows that look like them would count less as absent.
    """
    numbers = [int(one) for one in np.unique(fold[fold >= 0])]
    if len(numbers) == 1:
        # Many rows: one part is held out from everything.
        inside = np.flatnonzero(fold < 0)
        inside = inside[:: -(-len(inside) // _ENOUGH_ROWS)]
        halves = np.full(len(fold), -1)
        halves[inside] = np.arange(len(inside)) % 2
        pairs = ((0, 1), (1, 0))
        parts = [sum_scores(x, labels, halves == a, [halves == b], weights)[0] for a, b in pairs]
        table = ScoreSums.join(parts).weigh()
        return {None: table, numbers[0]: table}
    found: dict[int | None, list[ScoreSums]] = {one: [] for one in numbers}
    for a, b in combinations(numbers, 2):
        inside = (fold != a) & (fold != b)
        without_b, without_a = sum_scores(x, labels, inside, [fold == a, fold == b], weights)
        found[a].append(without_a)
        found[b].append(without_b)
    tables = {one: ScoreSums.join(some).weigh() for one, some in found.items()}
    everything = [one for some in found.values() for one in some]
    return tables | {None: ScoreSums.join(everything, times=len(numbers) - 1).weigh()}


def sum_scores(
    x: Any,
    labels: Tensor,
    inside: np.ndarray,
    parts: list[np.ndarray],
    weights: Tensor | None = None,
) -> list[ScoreSums]:
    """Return the sums for parts of the rows, by a linear model fitted to the rows inside."""
    at = torch.from_numpy(inside).to(labels.device)
    trust = None if weights is None else weights[at]
    layer = fit_linear_path(x[at], labels[at], (RIDGE,), trust)[RIDGE].to(labels.device)
    found = []
    for part in parts:
        rows = torch.from_numpy(part).to(labels.device)
        with torch.no_grad():
            scores = x[rows] @ layer.weight.T + layer.bias
        spread = scores.std(dim=0).clamp(min=1e-3)
        standard = (scores - scores.mean(dim=0)) / spread
        found.append(ScoreSums.of(labels[rows].cpu(), standard.cpu()))
    return found
