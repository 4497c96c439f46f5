"""Average precision: how well each class ranks its positives above the rest."""

import warnings
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from halftruth.metrics.inputs import Array, Data, read
from halftruth.metrics.ranks import rank_positives

Empty = Literal["skip", "zero", "nan"]


def average_precision(
    scores: Array,
    labels: Array,
    *,
    empty: Empty = "skip",
    ignore_unknown: bool = False,
    block_bytes: int | None = None,
) -> Any:
    """Average precision of each class, as scikit-learn defines it.

        AP = 1/P · Σ  (positives with score >= s) / (samples with score >= s)
             over the P positives, s being the score of each

    Tied scores count together, so the order of the samples does not matter. Only the order of the
    scores matters: logits and probabilities give the same.

    Args:
        scores: (N, K) of any precision, without NaN; numpy, torch (CPU or CUDA) or lists.
        labels: (N, K) of +1, 0, -1. Everything that is not +1 is negative.
        empty: a class without positives is 0 with ``"zero"``, NaN otherwise.
        ignore_unknown: leave the 0 (unknown) entries of each class out instead.
        block_bytes: working memory beside scores and labels; at least one class is held at a time.

    Returns:
        (K,) float64, numpy or torch as the scores were.

    Example:
        >>> scores = [[0.9, 0.2], [0.8, 0.7], [0.3, 0.6]]
        >>> average_precision(scores, [[1, 0], [-1, 0], [1, 0]])
        array([0.83333333,        nan])
    """
    data = read(scores, labels, ignore_unknown)
    return data.result(_average_precision(data, empty, block_bytes))


def mean_average_precision(
    scores: Array,
    labels: Array,
    *,
    empty: Empty = "skip",
    ignore_unknown: bool = False,
    block_bytes: int | None = None,
) -> float:
    """Mean of ``average_precision`` over the classes: mAP, in 0..1.

    ``empty`` says what a class without positives does to the mean: ``"skip"`` leaves it out,
    ``"zero"`` counts it as 0 (the single-positive papers, scikit-learn, torchmetrics), ``"nan"``
    makes the mean NaN. Where no class has a positive, ``"skip"`` gives NaN with a warning.

    Example:
        >>> mean_average_precision([[0.9, 0.2], [0.8, 0.7]], [[1, 0], [0, 0]], empty="zero")
        0.5
    """
    data = read(scores, labels, ignore_unknown)
    return mean_of_classes(_average_precision(data, empty, block_bytes), empty)


def mean_of_classes(
    values: Tensor, empty: Empty, why: str = "No class has a positive label: mAP is NaN."
) -> float:
    """The mean under the ``empty`` policy of values that are NaN for classes without positives."""
    if empty != "skip":
        return values.mean().item()
    mean = values.nanmean().item()
    if mean != mean:
        warnings.warn(why, stacklevel=3)
    return mean


def _average_precision(data: Data, empty: Empty, block_bytes: int | None) -> Tensor:
    check_empty(empty)
    total = torch.zeros(data.shape[1], dtype=torch.float64, device=data.scores.device)
    count = torch.zeros_like(total)
    for ranks in rank_positives(data, block_bytes):
        precision = ranks.positives.double() / ranks.samples
        total.index_add_(0, ranks.column, precision)
        count.index_add_(0, ranks.column, torch.ones_like(precision))
    missing = 0.0 if empty == "zero" else torch.nan
    return torch.where(count > 0, total / count, missing)


def check_empty(empty: Empty) -> None:
    """Refuse a policy that does not exist."""
    if empty not in get_args(Empty):
        raise ValueError(f"Expected empty to be one of {get_args(Empty)}, but got {empty!r}.")
