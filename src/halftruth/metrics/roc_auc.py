"""ROC-AUC: how often a positive of a class scores higher than a negative."""

from typing import Any, Unpack

import torch
from torch import Tensor

from halftruth.metrics.inputs import Array, Data
from halftruth.metrics.per_class import ByClass, by_class, mean_of_classes
from halftruth.metrics.ranks import rank_positives


def roc_auc(scores: Array, labels: Array, **options: Unpack[ByClass]) -> Any:
    """Area under the ROC curve of each class, as scikit-learn defines it.

        AUC = P(s⁺ > s⁻) + P(s⁺ = s⁻) / 2        s⁺, s⁻: scores of a positive and of a negative

    Where positives were left unlabelled by chance, they count as negatives, and AUC becomes an
    affine function of what it would be with all labels, the same for every model: the order of
    models is kept (docs/selection.md). Arguments and result are those of ``average_precision``, but
    a class without negatives is empty, too.

    Example:
        >>> roc_auc([[0.9, 0.2], [0.8, 0.7], [0.3, 0.6]], [[1, 0], [-1, 0], [1, 0]])
        array([0.5, nan])
    """
    data, values = by_class(_pairs_won, scores, labels, **options)
    return data.result(values)


def mean_roc_auc(scores: Array, labels: Array, **options: Unpack[ByClass]) -> float:
    """Mean of ``roc_auc`` over the classes (macro AUC); ``empty`` as in ``mean_average_precision``.

    Example:
        >>> mean_roc_auc([[0.9, 0.2], [0.8, 0.7], [0.3, 0.6]], [[1, 0], [-1, 0], [1, 1]])
        0.5
    """
    _, values = by_class(_pairs_won, scores, labels, **options)
    why = "No class has both positive and negative labels: AUC is NaN."
    return mean_of_classes(values, options.get("empty", "skip"), why)


def _pairs_won(data: Data, block_bytes: int | None) -> tuple[Tensor, Tensor]:
    """Of each class: pairs of a positive and a negative in the right order, and all pairs."""
    samples = _samples(data)
    below, positives = torch.zeros_like(samples), torch.zeros_like(samples)
    for ranks in rank_positives(data, block_bytes):
        lower = samples[ranks.column] - ranks.samples + ranks.tied / 2
        below.index_add_(0, ranks.column, lower)
        positives.index_add_(0, ranks.column, torch.ones_like(lower))
    pairs = positives * (samples - positives)
    # Every pair of positives was counted as well, once each way or as a tie: P²/2 in all.
    return below - positives**2 / 2, pairs


def _samples(data: Data) -> Tensor:
    """How many samples of each class count, (K,) float64."""
    count, classes = data.shape
    device = data.scores.device
    if not data.ignore_unknown:
        return torch.full((classes,), count, dtype=torch.float64, device=device)
    total = torch.zeros(classes, dtype=torch.float64, device=device)
    for block in data.rows():
        assert block.known is not None
        total += block.known.sum(dim=0)
    return total
