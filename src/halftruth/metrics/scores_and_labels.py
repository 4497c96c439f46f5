"""The input of every metric: accept arrays of any kind, check them, and split them into blocks.

A block is small enough that a metric of 1,000,000 x 80 scores never holds a second copy of them.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from halftruth import labels as label_codes
from halftruth.labels.checks import Array as Array

# A GPU needs large blocks to be busy; on a CPU small ones are as fast.
BLOCK_BYTES = {"cpu": 32 << 20, "cuda": 1 << 30}


@dataclass(frozen=True)
class Block:
    """Some samples: scores, a mask of PRESENT classes, and a mask of known ones (None: all)."""

    scores: Tensor
    present: Tensor
    known: Tensor | None


@dataclass(frozen=True)
class Data:
    """Scores and labels of shape (N, K) as tensors, not copied, and the array type of results."""

    scores: Tensor
    labels: Tensor
    as_numpy: bool
    ignore_unknown: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        return self.scores.shape[0], self.scores.shape[1]

    def result(self, values: Tensor) -> object:
        """Return values as the scores were given: a numpy array, or a tensor on their device."""
        return values.cpu().numpy() if self.as_numpy else values

    def rows(self) -> Iterator[Block]:
        """Yield checked blocks of samples, with the scores in their own precision."""
        samples, classes = self.shape
        # Scores, predictions, labels and their masks: about 16 bytes per entry.
        for where in slices(samples, block_bytes_on(self.scores.device) // (16 * classes)):
            scores, labels = self.scores[where], self.labels[where].to(self.scores.device)
            self.check(scores, labels)
            known = labels != label_codes.UNKNOWN if self.ignore_unknown else None
            yield Block(scores, labels == label_codes.PRESENT, known)

    def check(self, scores: Tensor | np.ndarray, labels: Tensor | np.ndarray) -> None:
        """Refuse NaN scores and invalid label codes in a part (tensors or numpy arrays)."""
        # The minimum of an array with a NaN is NaN: this check needs no mask.
        lowest = scores.min()
        if lowest != lowest:
            row, column = torch.isnan(self.scores).nonzero()[0].tolist()
            raise ValueError(
                f"Expected scores without NaN, but row {row}, column {column} is NaN. "
                "A loss that diverged or a division by zero is the usual cause."
            )
        # As Python numbers: an unsigned tensor would read -1 as 255.
        low, high = float(labels.min()), float(labels.max())
        broken = self.labels.is_floating_point() and bool((labels % 1 != 0).any())
        if low < label_codes.ABSENT or high > label_codes.PRESENT or broken:
            label_codes.check(self.labels)
            raise ValueError("Expected labels of +1 (present), 0 (unknown) or -1 (absent) only.")


def read(scores: Array, labels: Array, ignore_unknown: bool = False) -> Data:
    """Check types and shapes; values are checked block by block, when they are read."""
    as_numpy = not isinstance(scores, Tensor)
    scores, labels = as_tensor(scores), as_tensor(labels)
    if scores.ndim != 2:
        raise ValueError(
            f"Expected scores of shape (samples, classes), but got {tuple(scores.shape)}. "
            "For a single class use scores[:, None]."
        )
    if labels.shape != scores.shape:
        raise ValueError(
            f"Expected labels of the shape of the scores, {tuple(scores.shape)}, "
            f"but got {tuple(labels.shape)}."
        )
    if scores.numel() == 0:
        raise ValueError(
            f"Expected at least one sample and one class, but got shape {tuple(scores.shape)}: "
            "no metric is defined on an empty array."
        )
    if not scores.is_floating_point():
        scores = scores.double()
    if scores.device.type not in ("cpu", "cuda"):
        scores, labels = scores.cpu(), labels.cpu()  # results are float64, which other devices lack
    return Data(scores, labels, as_numpy, ignore_unknown)


def as_tensor(values: Array) -> Tensor:
    """A tensor over the same memory where that is possible; never part of a graph."""
    if isinstance(values, Tensor):
        return values.detach()
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"Expected an array of numbers, but got dtype {array.dtype}.")
    if array.dtype.kind == "u" and array.itemsize > 1:
        array = array.astype(np.int64)  # torch has no arithmetic for these
    if any(stride < 0 for stride in array.strides):
        array = array.copy()  # also where one row is contiguous with a negative stride
    with warnings.catch_warnings():
        # Memory-mapped scores are read-only; nothing here writes to them.
        warnings.filterwarnings("ignore", message=".*not writable.*")
        return torch.from_numpy(array)


def slices(length: int, step: int) -> Iterator[slice]:
    """Consecutive slices of at most ``step`` (at least 1) that cover ``length``."""
    step = max(1, step)
    for start in range(0, length, step):
        yield slice(start, min(start + step, length))


def block_bytes_on(device: torch.device) -> int:
    """The working memory that a metric may use on this device."""
    return BLOCK_BYTES["cuda" if device.type == "cuda" else "cpu"]
