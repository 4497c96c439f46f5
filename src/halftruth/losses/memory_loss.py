"""The base class of losses that remember something about each training sample."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from halftruth import labels as label_codes
from halftruth.losses._engine.one_pass import compute_dtype
from halftruth.losses.base import Loss
from halftruth.losses.memory import Memory


class MemoryLoss(Loss):
    """A loss with a table of one row of K entries per training sample, addressed by `index`.

    A subclass creates `self.memory = Memory(dtype)` in its `__init__` and reads the rows of a
    batch as `context` in `terms`. It may override

    - `initial`, the value of every entry after `begin`,
    - `update`, the new rows of a training batch,
    - `observe`, to use the logits of the whole training set after an epoch (`needs_scores`).

    Saving, resuming, placement in host memory and merging between processes need no code. The
    argument `memory_dtype` of a method is the type of its table, by its name in torch.

        class LastPrediction(MemoryLoss):
            def __init__(self, **options):
                super().__init__(**options)
                self.memory = Memory("float16")

            def update(self, rows, logits, labels):
                return torch.sigmoid(logits)
    """

    needs_index = True
    initial: ClassVar[float] = 0
    memory: Memory

    def begin(self, labels: Tensor) -> None:
        self.memory.allocate(*label_codes.check(torch.as_tensor(labels)).shape, fill=self.initial)

    def prepare(self, logits: Tensor, labels: Tensor, index: Tensor | None) -> Any:
        """Return the rows of the batch as they were; in training, `update` replaces them."""
        assert index is not None
        rows = self.memory.read(index).to(logits.device)
        updated = self.update(rows, logits, labels) if self.training else None
        if updated is not None:
            self.memory.write(index, updated)
        return rows

    def update(self, rows: Tensor, logits: Tensor, labels: Tensor) -> Tensor | None:
        """Return the rows to remember after a training batch, or None to keep them."""
        return None

    def observe_all(self, scores: Tensor) -> None:
        """Call `observe` with the logits (N, K) of the training set, some samples at a time."""
        with self.memory.whole():
            for part, index in self.memory.sample_blocks(scores):
                self.observe(part, index)


def running_average(rows: Tensor, logits: Tensor, decay: float) -> Tensor:
    """decay · rows + (1 − decay) · p; p alone where a row holds a negative number (not seen)."""
    p = torch.sigmoid(logits.to(compute_dtype(logits)))
    moved = torch.lerp(p, rows.to(p.dtype), decay)
    return torch.where(rows < 0, p, moved)


# Methods that rank all samples of a class keep two numbers per class, not a mask of all samples.


def lowest(values: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """The last of the `counts` lowest values of each column, as (value, row); see `up_to`.

    Of equal values those of the first rows count as lower, so that the count is exact.

    >>> lowest(torch.tensor([[0.3], [0.1], [0.3], [0.2]]), torch.tensor([3]))
    (tensor([0.3000]), tensor([0]))
    """
    ordered, rows = values.T.contiguous().sort(dim=1, stable=True)
    last = (counts - 1).clamp(min=0).unsqueeze(1)
    value, row = ordered.gather(1, last).squeeze(1), rows.gather(1, last).squeeze(1)
    none = counts <= 0
    return value.masked_fill(none, -torch.inf), row.masked_fill(none, -1)


def up_to(values: Tensor, rows: Tensor, value: Tensor, row: Tensor) -> Tensor:
    """Whether entries rank no later than (value, row) of their column; ties go by row number."""
    return (values < value) | ((values == value) & (rows.unsqueeze(1) <= row))
