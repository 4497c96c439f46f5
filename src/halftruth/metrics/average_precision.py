"""Average precision: how well each class ranks its positives above the rest."""

from typing import Any, Unpack

import torch
from torch import Tensor

from halftruth.metrics.inputs import Array, Data
from halftruth.metrics.per_class import ByClass, by_class, mean_of_classes
from halftruth.metrics.ranks import rank_positives


def average_precision(scores: Array, labels: Array, **options: Unpack[ByClass]) -> Any:
    """Average precision of each class, as scikit-learn defines it.

        AP = 1/P · Σ  (positives with score >= s) / (samples with score >= s)
             over the P positives, s being the score of each

    Tied scores count together, so the order of the samples does not matter. Only the order of the
    scores matters: logits and probabilities give the same.

    Args:
        scores: (N, K) of any precision, without NaN; numpy, torch (CPU or CUDA) or lists.
        labels: (N, K) of +1, 0, -1. Everything that is not +1 is negative.
        empty: a class without positives is 0 with ``"zero"``, NaN otherwise (the default,
            ``"skip"``, and ``"nan"`` differ in the mean).
        ignore_unknown: leave the 0 (unknown) entries of each class out instead (False).
        block_bytes: working memory beside scores and labels; at least one class is held at a time.

    Returns:
        (K,) float64, numpy or torch as the scores were.

    Example:
        >>> scores = [[0.9, 0.2], [0.8, 0.7], [0.3, 0.6]]
        >>> average_precision(scores, [[1, 0], [-1, 0], [1, 0]])
        array([0.83333333,        nan])
    """
    data, values = by_class(_precision_sums, scores, labels, **options)
    return data.result(values)


def mean_average_precision(scores: Array, labels: Array, **options: Unpack[ByClass]) -> float:
    """Mean of ``average_precision`` over the classes: mAP, in 0..1.

    ``empty`` says what a class without positives does to the mean: ``"skip"`` leaves it out,
    ``"zero"`` counts it as 0 (the single-positive papers, scikit-learn, torchmetrics), ``"nan"``
    makes the mean NaN. Where no class has a positive, ``"skip"`` gives NaN with a warning.

    Example:
        >>> mean_average_precision([[0.9, 0.2], [0.8, 0.7]], [[1, 0], [0, 0]], empty="zero")
        0.5
    """
    _, values = by_class(_precision_sums, scores, labels, **options)
    why = "No class has a positive label: mAP is NaN."
    return mean_of_classes(values, options.get("empty", "skip"), why)


def _precision_sums(data: Data, block_bytes: int | None) -> tuple[Tensor, Tensor]:
    """Of each class: the precision at every positive, summed, and how many there are."""
    total = torch.zeros(data.shape[1], dtype=torch.float64, device=data.scores.device)
    count = torch.zeros_like(total)
    for ranks in rank_positives(data, block_bytes):
        precision = ranks.positives.double() / ranks.samples
        total.index_add_(0, ranks.column, precision)
        count.index_add_(0, ranks.column, torch.ones_like(precision))
    return total, count
