"""Ranks and their correlation."""

import statistics
from collections.abc import Sequence


def spearman(pairs: Sequence[tuple[float, float]]) -> float:
    """Spearman's rank correlation; equal values share their mean rank, NaN where all are equal.

    >>> spearman([(1, 10), (2, 30), (3, 20)])
    0.5
    """
    one, other = (ranks([pair[side] for pair in pairs]) for side in (0, 1))
    try:
        return statistics.correlation(one, other)
    except statistics.StatisticsError:
        return float("nan")


def ranks(values: Sequence[float]) -> list[float]:
    """The place of each value from the smallest up, from 1.

    >>> ranks([5, 1, 5])
    [2.5, 1.0, 2.5]
    """
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) + 1) / 2 for value in values]
