"""Collect scores batch by batch, each sample once, and evaluate at the end."""

from typing import Any

import torch
from torch import Tensor

from halftruth import labels as label_codes
from halftruth.metrics.evaluate import evaluate
from halftruth.metrics.inputs import Array, as_tensor


class Evaluator:
    """Scores and labels by sample index; a sample that comes again is not counted again.

    Distributed samplers pad the last batch with samples seen elsewhere; the first scores of a
    sample stay. The memory is one row a sample up to the highest index.

    Args:
        num_samples: the number of samples, where it is known: storage is made once, and ``compute``
            refuses to answer while some are missing.

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
        """``scores``, ``labels`` and ``index`` of the samples so far, in the order of the index.

        Send this between processes, e.g. ``torch.distributed.all_gather_object(parts, e.state())``
        and ``e.merge(part)`` for each.
        """
        index = self._seen.nonzero().squeeze(1)
        if len(index) == len(self._seen):
            return {"scores": self._scores, "labels": self._labels, "index": index}
        return {"scores": self._scores[index], "labels": self._labels[index], "index": index}

    def merge(self, other: "Evaluator | dict[str, Tensor]") -> "Evaluator":
        """Add what another evaluator (or its ``state()``) has seen; returns itself."""
        state = other.state() if isinstance(other, Evaluator) else other
        if len(state["index"]):
            self.update(state["scores"], state["labels"], state["index"])
        return self

    def compute(self, **options: Any) -> dict[str, float]:
        """``evaluate`` on the samples so far, with its options."""
        if self.num_samples is not None and len(self) < self.num_samples:
            missing = (~self._seen).nonzero().squeeze(1)[:5].tolist()
            raise ValueError(
                f"Expected {self.num_samples} samples, but only {len(self)} came "
                f"(first missing: {missing or 'all'}). Merge the other processes first, or use "
                "Evaluator() to evaluate whatever came."
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
        # Doubling copies every row a bounded number of times, however many batches come.
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
                f"Sample {int(index[differs][0])} came twice with different labels. "
                "Expected index to identify a sample: is it the position in the data set?"
            )
