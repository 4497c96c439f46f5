"""All common metrics in one call, on arrays or collected batch by batch."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from halftruth import labels as label_codes
from halftruth.metrics.counts import Counts, count, warn_undefined
from halftruth.metrics.rank_metrics import Empty, mean_average_precision
from halftruth.metrics.scores_and_labels import Array, as_tensor
from halftruth.metrics.threshold_metrics import (
    Weights,
    class_and_overall,
    f1_neg,
    f2_ciw,
    macro_f_beta,
    micro_f_beta,
)


def evaluate(
    scores: Array,
    labels: Array,
    threshold: float | Array = 0.5,
    *,
    top_k: int | None = None,
    class_weights: Weights | None = None,
    classes: Sequence[str] | None = None,
    empty: Empty = "skip",
    inclusive: bool = False,
    ignore_unknown: bool = False,
) -> dict[str, float]:
    """mAP CP CR CF1 OP OR OF1 macro_F1 micro_F1 macro_F2 F1_neg, as fractions in 0..1.

    Args:
        scores: (N, K) probabilities; logits need a threshold for logits.
        labels: (N, K) of +1, 0, -1. Everything except +1 counts as negative.
        threshold: a class is predicted where score > threshold; one number, or one per class
            (``thresholds``).
        top_k: adds ``CP@k`` to ``OF1@k``, where the k highest scores of each row are predicted.
        class_weights: adds ``F2_CIW``; (K,), or by name together with ``classes``.
        classes: the class names of the columns.
        empty: how a class without positives enters mAP, see ``mean_average_precision``.
        inclusive: predict where score >= threshold.
        ignore_unknown: leave out the 0 (unknown) entries instead of counting them as negative.

    Example:
        >>> scores, labels = [[0.9, 0.2], [0.8, 0.7], [0.1, 0.3]], [[1, 0], [0, 1], [0, 0]]
        >>> report = evaluate(scores, labels)
        >>> report["mAP"], round(report["CF1"], 3), report["F1_neg"]
        (1.0, 0.857, 1.0)
    """
    counts = count(scores, labels, threshold, inclusive=inclusive, ignore_unknown=ignore_unknown)
    warn_undefined(
        precision=counts.tp + counts.fp == 0,
        recall=counts.tp + counts.fn == 0,
        F1_neg=counts.normal[:3].sum() == 0,
    )
    report = {
        "mAP": mean_average_precision(scores, labels, empty=empty, ignore_unknown=ignore_unknown),
        **summarize_counts(counts),
    }
    if class_weights is not None:
        report["F2_CIW"] = f2_ciw(counts, class_weights, classes)
    if top_k is not None:
        highest = count(scores, labels, top_k=top_k, ignore_unknown=ignore_unknown)
        for name, value in class_and_overall(highest).items():
            report[f"{name}@{top_k}"] = value
    return report


def summarize_counts(counts: Counts) -> dict[str, float]:
    """Return CP CR CF1 OP OR OF1 macro_F1 micro_F1 macro_F2 F1_neg of counts."""
    return {
        **class_and_overall(counts),
        "macro_F1": macro_f_beta(counts),
        "micro_F1": micro_f_beta(counts),
        "macro_F2": macro_f_beta(counts, 2.0),
        "F1_neg": f1_neg(counts),
    }


class Evaluator:
    """Collects scores and labels by sample index; a repeated sample is counted once.

    Distributed samplers pad the last batch with repeated samples; the first scores of a sample are
    kept. The memory is one row per sample up to the highest index.

    Args:
        num_samples: the number of samples, if known: storage is allocated once, and ``compute``
            raises an error while some are missing.

    Example:
        >>> evaluator = Evaluator()
        >>> evaluator.update([[0.9, 0.2], [0.8, 0.7]], [[1, 0], [0, 1]], index=[0, 1])
        >>> evaluator.update([[0.1, 0.2], [0.8, 0.7]], [[0, 0], [0, 1]], index=[2, 1])
        >>> len(evaluator), evaluator.compute()["mAP"]
        (3, 1.0)
    """

    def __init__(self, num_samples: int | None = None) -> None:
        if num_samples is not None and num_samples < 1:
            raise ValueError(f"Expected num_samples of at least 1, but got {num_samples}.")
        self.num_samples = num_samples
        self._scores = torch.empty(0, 0)
        self._labels = torch.empty(0, 0, dtype=torch.int8)
        self._seen = torch.empty(0, dtype=torch.bool)

    def __len__(self) -> int:
        return int(self._seen.sum())

    def update(self, scores: Array, labels: Array, index: Array) -> None:
        """Add a batch: (B, K) scores, (B, K) labels, and the (B,) indices of its samples."""
        scores, labels, index = as_tensor(scores), as_tensor(labels), as_tensor(index)
        self._check(scores, labels, index)
        if len(index) == 0:
            return
        codes: Tensor = label_codes.check(labels)
        self._grow(scores, int(index.max()) + 1)
        device = self._seen.device
        scores, labels, index = scores.to(device), codes.to(device), index.to(device).long()

        unique, inverse = index.unique(return_inverse=True)
        place = torch.arange(len(index), device=index.device)
        first = torch.full_like(unique, len(index)).scatter_reduce(0, inverse, place, "amin")
        self._refuse_contradictions(labels, labels[first][inverse], index)
        known = self._seen[index]
        self._refuse_contradictions(labels[known], self._labels[index[known]], index[known])

        first = first[~self._seen[unique]]
        self._scores[index[first]] = scores[first].to(self._scores.dtype)
        self._labels[index[first]] = labels[first]
        self._seen[index[first]] = True

    def state(self) -> dict[str, Tensor]:
        """``scores``, ``labels`` and ``index`` of the samples so far, ordered by index.

        Send this between processes, e.g. ``torch.distributed.all_gather_object(parts, e.state())``
        and ``e.merge(part)`` for each.
        """
        index = self._seen.nonzero().squeeze(1)
        if len(index) == len(self._seen):
            return {"scores": self._scores, "labels": self._labels, "index": index}
        return {"scores": self._scores[index], "labels": self._labels[index], "index": index}

    def merge(self, other: "Evaluator | dict[str, Tensor]") -> "Evaluator":
        """Add the samples of another evaluator (or of its ``state()``); return itself."""
        state = other.state() if isinstance(other, Evaluator) else other
        if len(state["index"]):
            self.update(state["scores"], state["labels"], state["index"])
        return self

    def compute(self, **options: Any) -> dict[str, float]:
        """Run ``evaluate`` on the samples so far, with its options."""
        if self.num_samples is not None and len(self) < self.num_samples:
            missing = (~self._seen).nonzero().squeeze(1)[:5].tolist()
            raise ValueError(
                f"Expected {self.num_samples} samples, but got only {len(self)} "
                f"(first missing: {missing or 'all'}). Merge the other processes first, or use "
                "Evaluator() to evaluate an unknown number of samples."
            )
        if len(self) == 0:
            raise ValueError("Expected at least one sample: call update before compute.")
        state = self.state()
        return evaluate(state["scores"], state["labels"], **options)

    def _check(self, scores: Tensor, labels: Tensor, index: Tensor) -> None:
        if scores.ndim != 2 or labels.shape != scores.shape or index.shape != scores.shape[:1]:
            raise ValueError(
                "Expected scores (B, K), labels (B, K) and index (B,), but got "
                f"{tuple(scores.shape)}, {tuple(labels.shape)} and {tuple(index.shape)}."
            )
        if index.is_floating_point() or index.dtype == torch.bool:
            raise TypeError(f"Expected an integer index, but got {index.dtype}.")
        if len(self._seen) and scores.shape[1] != self._scores.shape[1]:
            raise ValueError(
                f"Expected {self._scores.shape[1]} classes as before, but got {scores.shape[1]}."
            )
        if len(index) and index.min() < 0:
            raise IndexError(f"Expected an index from 0, but got {int(index.min())}.")
        if len(index) and self.num_samples is not None and index.max() >= self.num_samples:
            raise IndexError(
                f"Expected an index below num_samples = {self.num_samples}, "
                f"but got {int(index.max())}."
            )

    def _grow(self, scores: Tensor, needed: int) -> None:
        have = len(self._seen)
        if needed <= have:
            return
        # Doubling copies every row a bounded number of times, whatever the number of batches.
        size = self.num_samples or max(needed, 2 * have)
        dtype = self._scores.dtype if have else scores.dtype
        device = self._seen.device if have else scores.device
        wide = torch.empty(size, scores.shape[1], dtype=dtype, device=device)
        codes = torch.zeros(size, scores.shape[1], dtype=torch.int8, device=device)
        seen = torch.zeros(size, dtype=torch.bool, device=device)
        if have:
            wide[:have], codes[:have], seen[:have] = self._scores, self._labels, self._seen
        self._scores, self._labels, self._seen = wide, codes, seen

    @staticmethod
    def _refuse_contradictions(labels: Tensor, before: Tensor, index: Tensor) -> None:
        differs = (labels != before).any(1)
        if differs.any():
            raise ValueError(
                f"Sample {int(index[differs][0])} was given twice with different labels. "
                "Expected index to identify a sample: is it the position in the data set?"
            )
