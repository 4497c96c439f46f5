"""Counts of true and false positives and negatives, from which thresholded metrics follow."""

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypedDict, Unpack

import numpy as np
import torch
from torch import Tensor

from halftruth.metrics.scores_and_labels import Array, Data, as_tensor, read


class UndefinedMetricWarning(UserWarning):
    """A ratio was 0/0 and counted as 0."""


@dataclass(frozen=True)
class Counts:
    """True and false positives and negatives, (K,) int64 each.

    ``normal`` holds the same four counts (tp, fp, fn, tn) for "the row has no class at all".
    Counts of different batches can be added: ``a + b``.
    """

    tp: Tensor
    fp: Tensor
    fn: Tensor
    tn: Tensor
    normal: Tensor

    def __add__(self, other: "Counts") -> "Counts":
        return Counts(
            self.tp + other.tp,
            self.fp + other.fp,
            self.fn + other.fn,
            self.tn + other.tn,
            self.normal + other.normal,
        )

    @property
    def precision(self) -> Tensor:
        """(K,) tp / (tp + fp), the positive predictive value; 0 where nothing was predicted."""
        return divide_counts(self.tp, self.tp + self.fp)

    @property
    def recall(self) -> Tensor:
        """(K,) tp / (tp + fn); 0 where no label was present."""
        return divide_counts(self.tp, self.tp + self.fn)

    @property
    def negative_precision(self) -> Tensor:
        """(K,) tn / (tn + fn), the negative predictive value; 0 where all are predicted."""
        return divide_counts(self.tn, self.tn + self.fn)

    def f_beta(self, beta: float = 1.0) -> Tensor:
        """(K,) (1+β²)·tp / ((1+β²)·tp + β²·fn + fp)."""
        return f_beta_of(self.tp, self.fp, self.fn, beta)


def divide_counts(part: Tensor, whole: Tensor) -> Tensor:
    """part / whole in float64, 0 where the whole is 0."""
    return part.double() / whole.double().masked_fill(whole == 0, 1.0)


def f_beta_of(tp: Tensor, fp: Tensor, fn: Tensor, beta: float) -> Tensor:
    """F_β from counts of any shape, 0 where there is neither a positive nor a prediction."""
    if not 0 < beta < math.inf:
        raise ValueError(f"Expected a finite beta > 0, but got {beta}.")
    hits = (1 + beta**2) * tp.double()
    return divide_counts(hits, hits + beta**2 * fn.double() + fp)


class CountOptions(TypedDict, total=False):
    """Options of ``count``, where they are documented."""

    top_k: int | None
    inclusive: bool
    ignore_unknown: bool


def count(
    scores: Array, labels: Array, threshold: float | Array = 0.5, **options: Unpack[CountOptions]
) -> Counts:
    """Count right and wrong predictions per class.

    Args:
        scores: (N, K) probabilities (or logits, with a threshold for logits).
        labels: (N, K) of +1, 0, -1. Everything except +1 counts as negative.
        threshold: a class is predicted where score > threshold; one number, or one per class. It
            is rounded to the precision of the scores, so that a float32 score of 0.1 ties with a
            threshold of 0.1.
        top_k: predict the k highest scores of each row instead (of ties, the first classes).
        inclusive: predict where score >= threshold.
        ignore_unknown: leave out unknown entries. A row then counts in ``normal`` only if it has
            a present class or all its classes are verified absent.

    Example:
        >>> counts = count([[0.9, 0.2], [0.8, 0.7]], [[1, 0], [-1, 1]])
        >>> counts.tp.tolist(), counts.fp.tolist(), counts.precision.tolist()
        ([1, 1], [1, 0], [0.5, 1.0])
    """
    total: Counts | None = None
    for predicted, present, known in predictions(scores, labels, threshold, **options):
        normal = _count_normal(predicted, present, known)
        answered = predicted if known is None else predicted & known
        entries = known.sum(0) if known is not None else len(predicted)
        right, positive, there = _sum(answered & present), _sum(answered), _sum(present)
        rest = entries - positive - there + right
        part = Counts(right, positive - right, there - right, rest, normal)
        total = part if total is None else total + part
    assert total is not None
    return total


def predictions(
    scores: Array,
    labels: Array,
    threshold: float | Array,
    *,
    top_k: int | None = None,
    inclusive: bool = False,
    ignore_unknown: bool = False,
) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """Yield masks of predicted, present and known entries (None: all), some rows at a time."""
    data = read(scores, labels, ignore_unknown)
    rule = Threshold(data, threshold, top_k, inclusive)
    for block in data.rows():
        yield rule(block.scores), block.present, block.known


def _count_normal(predicted: Tensor, present: Tensor, known: Tensor | None) -> Tensor:
    said, empty = ~predicted.any(1), ~present.any(1)
    certain = torch.ones_like(empty) if known is None else ~empty | known.all(1)
    four = (said & empty, said & ~empty, ~said & empty, ~said & ~empty)
    return torch.stack([(mask & certain).sum() for mask in four])


def _sum(mask: Tensor) -> Tensor:
    # int32 sums of a block are many times faster than int64 ones, and a block never overflows.
    return mask.sum(0, dtype=torch.int32).long()


class Threshold:
    """A rule that turns scores into predictions: checked once, applied block by block."""

    def __init__(
        self, data: Data, threshold: float | Array, top_k: int | None, inclusive: bool
    ) -> None:
        self.top_k, self.inclusive = top_k, inclusive
        classes = data.shape[1]
        if top_k is not None and not 1 <= top_k <= classes:
            raise ValueError(f"Expected top_k between 1 and {classes} classes, but got {top_k}.")
        limit = as_tensor(threshold if isinstance(threshold, Tensor) else np.asarray(threshold))
        if limit.ndim > 0 and limit.shape != (classes,):
            raise ValueError(
                f"Expected one threshold, or one for each of {classes} classes, "
                f"but got shape {tuple(limit.shape)}."
            )
        if torch.isnan(limit).any():
            raise ValueError(f"Expected thresholds without NaN, but got {limit.tolist()}.")
        self.may_be_logits = limit.ndim == 0 and 0 < limit.item() < 1 and top_k is None
        self.threshold = limit.to(data.scores.device, data.scores.dtype)

    def __call__(self, scores: Tensor) -> Tensor:
        if self.top_k is not None:
            return top(scores, self.top_k)
        if self.may_be_logits:
            self._warn_of_logits(scores)
        return scores >= self.threshold if self.inclusive else scores > self.threshold

    def _warn_of_logits(self, scores: Tensor) -> None:
        low, high = (bound.item() for bound in torch.aminmax(scores))
        if low < 0 or high > 1:
            self.may_be_logits = False
            warnings.warn(
                f"Scores from {low:.3g} to {high:.3g} are compared with the threshold "
                f"{self.threshold.item():.3g}, but probabilities lie in [0, 1]. If these are "
                "logits, pass torch.sigmoid(scores) or a threshold for logits (0 is probability "
                "0.5).",
                stacklevel=5,
            )


def top(scores: Tensor, k: int) -> Tensor:
    """Mask of the k highest scores of each row, exactly k of them: of ties, the first classes."""
    last = scores.topk(k, dim=1).values[:, -1:]
    above, tied = scores > last, scores == last
    room = k - above.sum(1, keepdim=True)
    return above | (tied & (tied.cumsum(1) <= room))


def warn_undefined(**undefined: Tensor) -> None:
    """Warn once of the ratios that were 0/0, with the number of classes."""
    found = {name: (int(mask.sum()), mask.numel()) for name, mask in undefined.items()}
    parts = [
        f"{name} of {n} of {classes} classes" if classes > 1 else name
        for name, (n, classes) in found.items()
        if n
    ]
    if parts:
        warnings.warn(
            f"Undefined (0/0), counted as 0: {', '.join(parts)}.",
            UndefinedMetricWarning,
            stacklevel=3,
        )
