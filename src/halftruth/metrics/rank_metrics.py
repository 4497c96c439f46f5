"""Metrics of the order of the scores: average precision, ROC-AUC, precision and recall at k."""

import math
import warnings
from collections.abc import Callable
from typing import Any, Literal, TypedDict, Unpack, get_args

import torch
from torch import Tensor

from halftruth.metrics.counts import divide_counts, top
from halftruth.metrics.ranks import rank_positives
from halftruth.metrics.scores_and_labels import Array, Data, read

Empty = Literal["skip", "zero", "nan"]


class RankOptions(TypedDict, total=False):
    """Options of ``average_precision``, where they are documented."""

    empty: Empty
    ignore_unknown: bool
    block_bytes: int | None


def average_precision(scores: Array, labels: Array, **options: Unpack[RankOptions]) -> Any:
    """Average precision per class, as scikit-learn defines it.

        AP = 1/P · Σ  (positives with score >= s) / (samples with score >= s)
             over the P positives, s being the score of each

    Tied scores count together, so the order of the samples does not matter. Only the order of the
    scores matters: logits and probabilities give the same result.

    Args:
        scores: (N, K) of any precision, without NaN; numpy, torch (CPU or CUDA) or lists.
        labels: (N, K) of +1, 0, -1. Everything except +1 counts as negative.
        empty: a class without positives is 0 with ``"zero"``, NaN otherwise (the default,
            ``"skip"``, and ``"nan"`` differ in the mean).
        ignore_unknown: leave out the 0 (unknown) entries of each class (False).
        block_bytes: working memory besides scores and labels; at least one class is held at a time.

    Returns:
        (K,) float64, numpy or torch like the scores.

    Example:
        >>> scores = [[0.9, 0.2], [0.8, 0.7], [0.3, 0.6]]
        >>> average_precision(scores, [[1, 0], [-1, 0], [1, 0]])
        array([0.83333333,        nan])
    """
    data, values = _fraction_per_class(_precision_sums, scores, labels, **options)
    return data.result(values)


def mean_average_precision(scores: Array, labels: Array, **options: Unpack[RankOptions]) -> float:
    """Mean of ``average_precision`` over the classes: mAP, in 0..1.

    ``empty`` decides how a class without positives enters the mean: ``"skip"`` leaves it out,
    ``"zero"`` counts it as 0 (the single-positive papers, scikit-learn, torchmetrics), ``"nan"``
    makes the mean NaN. Where no class has a positive, ``"skip"`` gives NaN with a warning.

    Example:
        >>> mean_average_precision([[0.9, 0.2], [0.8, 0.7]], [[1, 0], [0, 0]], empty="zero")
        0.5
    """
    _, values = _fraction_per_class(_precision_sums, scores, labels, **options)
    why = "No class has a positive label: mAP is NaN."
    return _mean_over_classes(values, options.get("empty", "skip"), why)


def roc_auc(scores: Array, labels: Array, **options: Unpack[RankOptions]) -> Any:
    """Area under the ROC curve per class, as scikit-learn defines it.

        AUC = P(s⁺ > s⁻) + P(s⁺ = s⁻) / 2        s⁺, s⁻: scores of a positive and of a negative

    If positives were left unlabelled at random, they count as negatives, and AUC is an affine
    function of the AUC with complete labels, the same function for every model: the order of
    models does not change (docs/explained/selection.md). Arguments and result are those of
    ``average_precision``; a class without negatives is empty, too.

    Example:
        >>> roc_auc([[0.9, 0.2], [0.8, 0.7], [0.3, 0.6]], [[1, 0], [-1, 0], [1, 0]])
        array([0.5, nan])
    """
    data, values = _fraction_per_class(_ordered_pairs, scores, labels, **options)
    return data.result(values)


def mean_roc_auc(scores: Array, labels: Array, **options: Unpack[RankOptions]) -> float:
    """Mean of ``roc_auc`` over the classes (macro AUC); ``empty`` as in ``mean_average_precision``.

    Example:
        >>> mean_roc_auc([[0.9, 0.2], [0.8, 0.7], [0.3, 0.6]], [[1, 0], [-1, 0], [1, 1]])
        0.5
    """
    _, values = _fraction_per_class(_ordered_pairs, scores, labels, **options)
    why = "No class has both positive and negative labels: AUC is NaN."
    return _mean_over_classes(values, options.get("empty", "skip"), why)


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
    return divide_counts(hits, present).mean().item()


def propensities(counts: Array, rows: int, a: float = 0.55, b: float = 1.5) -> Any:
    """The probability that a present label was annotated, by how often its class is.

        p = 1 / (1 + C (n + b)^-a),   C = (log N - 1) (b + 1)^a

    Jain, Prabhu and Varma, KDD 2016, with their a and b for most data sets (Wikipedia: 0.5 and
    0.4, Amazon: 0.6 and 2.6). It is a rule of thumb about rare classes, not an estimate from your
    labels.

    Args:
        counts: (K,) the number of training rows in which each class is present.
        rows: the number of training rows, N; at least 3.

    >>> propensities([1, 1000], rows=10_000).round(3)
    array([0.109, 0.767])
    """
    given = torch.as_tensor(counts, dtype=torch.float64)
    if given.ndim != 1 or bool((given < 0).any()) or rows < 3:
        raise ValueError(
            f"Expected counts (K,) of at least 0 and at least 3 rows, but got counts of shape "
            f"{tuple(given.shape)} and {rows} rows."
        )
    c = (math.log(rows) - 1) * (b + 1) ** a
    values = 1 / (1 + c * (given + b) ** -a)
    return values if isinstance(counts, Tensor) else values.numpy()


def propensity_scored_precision_at_k(
    scores: Array, labels: Array, k: int, propensity: Array
) -> float:
    """Precision at k in which a hit counts 1/p, divided by the best possible value (PSP@k).

        PSP@k = Σ_rows Σ_{top k} y/p  /  Σ_rows (the k largest y/p of the row)

    p: (K,) the probability that a present label of the class was annotated, see ``propensities``.
    Of rows with many missing labels it is unbiased if p is right; rare classes count more.

    >>> scores, labels = [[0.9, 0.2, 0.1], [0.8, 0.7, 0.1]], [[1, 0, 0], [0, 1, 0]]
    >>> propensity_scored_precision_at_k(scores, labels, 1, propensity=[0.8, 0.8, 0.4])
    0.5
    """
    data = read(scores, labels)
    weights = 1 / torch.as_tensor(propensity, dtype=torch.float64, device=data.scores.device)
    if weights.shape != (data.shape[1],) or not bool(((weights >= 1) & weights.isfinite()).all()):
        raise ValueError(
            f"Expected one propensity in (0, 1] for each of {data.shape[1]} classes, but got "
            f"{propensity!r:.60}."
        )
    _check_k(k, data)
    gained = best = 0.0
    for block in data.rows():
        value = block.present * weights
        gained += (value * top(block.scores, k)).sum().item()
        best += value.topk(k, dim=1).values.sum().item()
    return gained / best if best else float("nan")


def _fraction_per_class(
    fraction: Callable[[Data, int | None], tuple[Tensor, Tensor]],
    scores: Array,
    labels: Array,
    *,
    empty: Empty = "skip",
    ignore_unknown: bool = False,
    block_bytes: int | None = None,
) -> tuple[Data, Tensor]:
    """The checked input, and (K,) numerator / denominator; a denominator of 0 is an empty class."""
    if empty not in get_args(Empty):
        raise ValueError(f"Expected empty to be one of {get_args(Empty)}, but got {empty!r}.")
    data = read(scores, labels, ignore_unknown)
    part, whole = fraction(data, block_bytes)
    return data, torch.where(whole > 0, part / whole, 0.0 if empty == "zero" else torch.nan)


def _mean_over_classes(values: Tensor, empty: Empty, why: str) -> float:
    """The mean of values that are NaN for empty classes; ``empty="skip"`` leaves those out."""
    if empty != "skip":
        return values.mean().item()
    mean = values.nanmean().item()
    if mean != mean:
        warnings.warn(why, stacklevel=3)
    return mean


def _precision_sums(data: Data, block_bytes: int | None) -> tuple[Tensor, Tensor]:
    """Per class: the sum of the precision at every positive, and the number of positives."""
    total = torch.zeros(data.shape[1], dtype=torch.float64, device=data.scores.device)
    count = torch.zeros_like(total)
    for ranks in rank_positives(data, block_bytes):
        precision = ranks.positives.double() / ranks.samples
        total.index_add_(0, ranks.column, precision)
        count.index_add_(0, ranks.column, torch.ones_like(precision))
    return total, count


def _ordered_pairs(data: Data, block_bytes: int | None) -> tuple[Tensor, Tensor]:
    """Per class: pairs of a positive and a negative in the right order, and all such pairs."""
    samples = _known_samples(data)
    below, positives = torch.zeros_like(samples), torch.zeros_like(samples)
    for ranks in rank_positives(data, block_bytes):
        lower = samples[ranks.column] - ranks.samples + ranks.tied / 2
        below.index_add_(0, ranks.column, lower)
        positives.index_add_(0, ranks.column, torch.ones_like(lower))
    pairs = positives * (samples - positives)
    # Every pair of positives was counted as well, once each way or as a tie: P²/2 in all.
    return below - positives**2 / 2, pairs


def _known_samples(data: Data) -> Tensor:
    """The number of samples that count per class, (K,) float64."""
    count, classes = data.shape
    device = data.scores.device
    if not data.ignore_unknown:
        return torch.full((classes,), count, dtype=torch.float64, device=device)
    total = torch.zeros(classes, dtype=torch.float64, device=device)
    for block in data.rows():
        assert block.known is not None
        total += block.known.sum(dim=0)
    return total


def _check_k(k: int, data: Data) -> None:
    if not 1 <= k <= data.shape[1]:
        raise ValueError(f"Expected k between 1 and {data.shape[1]} classes, but got {k}.")


def _hits(scores: Array, labels: Array, k: int) -> tuple[Tensor, Tensor]:
    """Per row: present classes among the k highest scores, and all present classes."""
    data = read(scores, labels)
    _check_k(k, data)
    found = [((top(b.scores, k) & b.present).sum(1), b.present.sum(1)) for b in data.rows()]
    hits, present = zip(*found, strict=True)
    return torch.cat(hits), torch.cat(present)
