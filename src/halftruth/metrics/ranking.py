"""Precision and recall of the k highest scores of each row."""

import torch
from torch import Tensor

from halftruth.metrics.counts import ratio, top
from halftruth.metrics.inputs import Array, read


def precision_at_k(scores: Array, labels: Array, k: int) -> float:
    """Mean over the rows of (present classes among the k highest scores) / k.

    Example:
        >>> precision_at_k([[0.9, 0.2, 0.5]], [[1, 0, 0]], k=2)
        0.5
    """
    hits, _ = _hits(scores, labels, k)
    return (hits.double() / k).mean().item()


def recall_at_k(scores: Array, labels: Array, k: int) -> float:
    """Mean over the rows of (present classes among the k highest scores) / (present classes).

    A row without present classes counts as 0.

    Example:
        >>> recall_at_k([[0.9, 0.2, 0.5]], [[1, 1, 0]], k=2)
        0.5
    """
    hits, present = _hits(scores, labels, k)
    return ratio(hits, present).mean().item()


def _hits(scores: Array, labels: Array, k: int) -> tuple[Tensor, Tensor]:
    data = read(scores, labels)
    if not 1 <= k <= data.shape[1]:
        raise ValueError(f"Expected k between 1 and {data.shape[1]} classes, but got {k}.")
    found = [((top(b.scores, k) & b.present).sum(1), b.present.sum(1)) for b in data.rows()]
    hits, present = zip(*found, strict=True)
    return torch.cat(hits), torch.cat(present)
