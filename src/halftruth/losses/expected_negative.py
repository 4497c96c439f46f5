"""EN: the expected number of negatives per class, those with the lowest predictions."""

import warnings
from collections.abc import Sequence
from typing import Any, Unpack

import torch
from torch import Tensor

from halftruth import labels as label_codes
from halftruth.losses import curves
from halftruth.losses._engine.logit import Logit
from halftruth.losses.base import Options, register, require
from halftruth.losses.curves import Curve
from halftruth.losses.memory import Memory
from halftruth.losses.memory_loss import MemoryLoss, lowest, running_average, up_to


@register("en")
class ExpectedNegative(MemoryLoss):
    """In each class the N − N_i samples with the lowest average prediction are negatives.

        ℓ⁺ = −log p      ℓ⁻ = −log(1−p)
        ℓ° = ℓ⁻ if the sample's p̄_i is among the N − N_i lowest of class i, else 0
        p̄ ← μ p̄ + (1−μ) p  whenever the sample is in a batch

    The samples are ranked after each epoch, for the next one. Verelst et al., WACV 2023, as paper
    002 restates it (eq. 20); there is no public code. Our reading: μ = `decay`; a sample that was
    not seen yet counts as negative (all samples in the first epoch); labelled samples are ranked,
    too. `expected_positives` is N_i per class, (K,), or the average number of positives per row,
    which is then distributed over the classes in proportion to their labelled positives.
    UNKNOWN: negative if ranked low, else ignored.
    Needs: index, begin(), start_epoch(), end_epoch().

    Args:
        expected_positives: N_i per class (K,), or the mean number of positives per row.
        decay: μ, of the running average.
    """

    paper = "Verelst et al. 2023"
    unknown_is = "negative if ranked low, else ignored"
    depends_on_epoch = True
    without_epochs = "every unknown label is a negative until end_epoch() ranks the samples"
    initial = -1.0  # not seen yet
    expected_negatives: Tensor
    bound: Tensor
    last_row: Tensor

    def __init__(
        self,
        expected_positives: float | Tensor | Sequence[float],
        decay: float = 0.8,
        memory_dtype: str = "float16",
        **options: Unpack[Options],
    ) -> None:
        super().__init__(**options)
        expected = torch.as_tensor(expected_positives, dtype=torch.float64)
        ok = (
            expected.dim() <= 1
            and expected.numel() > 0
            and bool(((expected >= 0) & expected.isfinite()).all())
        )
        require(
            ok,
            expected_positives,
            "expected_positives",
            "to be a finite number >= 0, or one per class",
        )
        self.expected_positives = expected
        self.decay = require(0 <= decay < 1, decay, "decay", "in [0, 1)")
        self.memory = Memory(memory_dtype)
        self.register_buffer("expected_negatives", torch.empty(0, dtype=torch.long))
        # The last negative sample of each class, ordered by p̄ and then by row.
        self.register_buffer("bound", torch.empty(0, dtype=torch.float64))
        self.register_buffer("last_row", torch.empty(0, dtype=torch.long))
        self._new_epoch = False

    def begin(self, labels: Tensor) -> None:
        labels = label_codes.check(torch.as_tensor(labels))
        rows, classes = labels.shape
        positives = self._positives_of_classes(labels)
        device = self.bound.device
        self.expected_negatives = (rows - positives).to(device)
        self.bound = torch.full((classes,), torch.inf, dtype=torch.float64, device=device)
        self.last_row = torch.full((classes,), rows, device=device)
        super().begin(labels)

    def _positives_of_classes(self, labels: Tensor) -> Tensor:
        """N_i per class, an integer from 0 to N."""
        rows, classes = labels.shape
        expected = self.expected_positives.to(labels.device)
        if expected.dim() == 0:
            require(
                bool(expected <= classes), float(expected), "expected_positives", f"<= {classes}"
            )
            labelled = torch.zeros(classes, dtype=torch.float64, device=labels.device)
            for part in labels.split(max((1 << 22) // max(classes, 1), 1)):
                labelled += (part > 0).sum(dim=0)
            share = labelled / labelled.sum().clamp(min=1)
            return (rows * expected * share).round().clamp(max=rows).long()
        if len(expected) != classes:
            raise ValueError(
                f"expected one number of positives for each of the {classes} classes, "
                f"got {len(expected)}"
            )
        over = expected > rows
        if bool(over.any()):
            column = int(over.int().argmax())
            raise ValueError(
                f"expected_positives[{column}] is {expected[column]:g}; expected at most {rows}, "
                "the number of training samples (it counts samples of a class)"
            )
        return expected.round().long()

    def start_epoch(self, epoch: int, epochs: int) -> None:
        super().start_epoch(epoch, epochs)
        self._new_epoch = True

    def end_epoch(self, scores: Tensor | None = None) -> None:
        with self.memory.whole():
            for columns in self.memory.column_blocks():
                block = self.memory.values[:, columns].to(self.memory.near, copy=True)
                value, row = lowest(block, self.expected_negatives[columns].to(block.device))
                self.bound[columns] = value.to(self.bound)
                self.last_row[columns] = row.to(self.bound.device)

    def _negative(self, average: Tensor, index: Tensor) -> Tensor:
        bound, last_row = self.bound.to(average.device), self.last_row.to(average.device)
        below = up_to(average.double(), index, bound, last_row)
        return below | (average < 0)

    def pseudo_labels(self, index: Tensor) -> Tensor:
        return -self._negative(self.memory.read(index), index).to(torch.int8)

    def prepare(self, logits: Tensor, labels: Tensor, index: Tensor | None) -> Tensor:
        """Return which entries are negative in this epoch."""
        assert index is not None
        average = super().prepare(logits, labels, index)
        return self._negative(average, index.to(logits.device))

    def update(self, rows: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
        if not torch.compiler.is_compiling():
            self._warn_without_ranks()
        return running_average(rows, logits, self.decay)

    def _warn_without_ranks(self) -> None:
        if self._new_epoch and self.epoch > 0 and bool(self.bound.isposinf().all()):
            warnings.warn(
                f"epoch {self.epoch + 1} begins and end_epoch() has not been called: until then "
                "en counts every unknown label as negative",
                stacklevel=5,
            )
        self._new_epoch = False

    def unknown(self, s: Logit) -> Curve:
        return curves.nothing(s)

    def terms(self, s: Logit, labels: Tensor, context: Any, rows: slice) -> Curve:
        curve = super().terms(s, labels, context, rows)
        where = (labels == label_codes.UNKNOWN) & context[rows]
        return curves.patched(curve, where, self.absent, s)
