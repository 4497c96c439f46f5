"""Thresholds per class, chosen exactly on validation data: every split of the scores is tried.

A threshold t predicts score > t. It never separates tied scores, lies halfway between the two
scores it separates, and has the precision of the scores.
"""

import math
import warnings
from typing import Any

import torch
from torch import Tensor

from halftruth.metrics.ranks import Ranks, rank_positives
from halftruth.metrics.scores_and_labels import Array, Data, read


def best(
    scores: Array,
    labels: Array,
    beta: float = 1.0,
    *,
    ignore_unknown: bool = False,
    fallback: float = 0.5,
    block_bytes: int | None = None,
) -> Any:
    """The threshold per class, (K,), that maximises F_β.

        F_β = (1+β²)·tp / (β²·positives + predicted)

    Of several equally good ones the highest is taken, which predicts least. A class without
    positives has no best threshold and gets ``fallback``; where predicting every sample is best,
    the threshold lies below all scores. Choose on validation data, never on the test set.

    Example:
        >>> scores = [[0.9, 0.1], [0.6, 0.2], [0.4, 0.3], [0.1, 0.4]]
        >>> best(scores, [[1, 0], [1, 0], [0, 0], [0, 0]])
        array([0.5, 0.5])
    """
    if not 0 < beta < math.inf:
        raise ValueError(f"Expected a finite beta > 0, but got {beta}.")
    if math.isnan(fallback):
        raise ValueError("Expected a number for fallback, but got NaN.")
    data = read(scores, labels, ignore_unknown)
    chosen = torch.full((data.shape[1],), fallback, dtype=torch.float64, device=data.scores.device)
    for ranks in rank_positives(data, block_bytes):
        positives = _most(ranks.positives.double(), ranks.column, data)[ranks.column]
        hits = (1 + beta**2) * ranks.positives.double()
        value = hits / (beta**2 * positives + ranks.samples)
        # Nothing lies below -inf, so no strict threshold can include it.
        value = torch.where(ranks.score > -torch.inf, value, -torch.inf)
        good = (value == _most(value, ranks.column, data)[ranks.column]) & (value > 0)
        highest = _most(torch.where(good, ranks.score, -torch.inf), ranks.column, data)
        _place(chosen, ranks, good & (ranks.score == highest[ranks.column]), data.scores.dtype)
    return data.result(chosen)


def for_precision(
    scores: Array,
    labels: Array,
    precision: float,
    *,
    ignore_unknown: bool = False,
    block_bytes: int | None = None,
) -> object:
    """The threshold per class, (K,), with the highest recall at this precision or better.

    Where no threshold reaches the precision, and in classes without positives, it is +inf (the
    class is never predicted), and one warning gives the number of such classes.

    Example:
        >>> scores = [[0.9], [0.6], [0.4], [0.1]]
        >>> for_precision(scores, [[1], [0], [1], [0]], precision=0.6)
        array([0.25])
    """
    if not 0 < precision <= 1:
        raise ValueError(f"Expected a precision in (0, 1], but got {precision}.")
    data = read(scores, labels, ignore_unknown)
    chosen = torch.full((data.shape[1],), torch.inf, dtype=torch.float64, device=data.scores.device)
    for ranks in rank_positives(data, block_bytes):
        good = ranks.positives.double() / ranks.samples >= precision
        good &= ranks.score > -torch.inf
        lowest = -_most(torch.where(good, -ranks.score, -torch.inf), ranks.column, data)
        _place(chosen, ranks, good & (ranks.score == lowest[ranks.column]), data.scores.dtype)
    never = int((chosen == torch.inf).sum())
    if never:
        warnings.warn(
            f"No threshold reaches precision {precision} in {never} of {len(chosen)} classes: "
            "they get +inf and are never predicted.",
            stacklevel=2,
        )
    return data.result(chosen)


def _most(values: Tensor, column: Tensor, data: Data) -> Tensor:
    """The highest value per class, (K,), -inf where it has none."""
    lowest = torch.full((data.shape[1],), -torch.inf, dtype=values.dtype, device=values.device)
    return lowest.scatter_reduce(0, column, values, "amax")


def _place(chosen: Tensor, ranks: Ranks, picked: Tensor, dtype: torch.dtype) -> None:
    """Write the threshold below the picked positives into ``chosen``, (K,)."""
    score, below = ranks.score[picked], ranks.below[picked]
    middle = (below + (score - below) / 2).to(dtype).double()
    # Adjacent numbers have no middle, infinite ones no finite middle: then the score below is
    # the threshold, since the comparison is strict.
    middle = torch.where(torch.isfinite(middle) & (middle < score), middle, below)
    # Nothing below: a finite number that is lower at any precision and for any score.
    under = (score - score.abs().clamp_min(1.0)).to(dtype).double()
    under = torch.where(score == torch.inf, 0.0, under)
    chosen[ranks.column[picked]] = torch.where(below == -torch.inf, under, middle)
