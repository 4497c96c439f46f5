"""A stage on features in memory, in this process alone: what the scikit-learn classifier needs."""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from accelerate import DistributedType
from sklearn.utils.sparsefuncs import mean_variance_axis
from torch import Tensor, nn

from halftruth.models.classifier import Standardize
from halftruth.train.inputs import Features, Inputs, Raw, Rows

# Rows that are made dense, and double, at once.
_BLOCK = 4096


class OneProcess:
    """What a stage asks of an Accelerator, for one process in float32.

    Accelerate keeps one state a process: a classifier must not change that of a program that
    trains something else meanwhile, nor wait for the program's other processes.
    """

    num_processes, process_index, is_main_process = 1, 0, True
    scaler = None
    mixed_precision = "no"
    distributed_type = DistributedType.NO
    autocast = staticmethod(nullcontext)

    def __init__(self, device: str = "cpu") -> None:
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        self.device = torch.device(device)

    def prepare(self, *objects: Any) -> tuple[Any, ...]:
        return objects

    def wait_for_everyone(self) -> None:
        """There is nobody else."""


class SparseRows:
    """A sparse matrix of features: only the rows of a batch are made dense, and standardised."""

    def __init__(self, matrix: Any, scale: Standardize) -> None:
        self.matrix, self.scale = matrix, scale

    def load(self, batches: Rows, device: torch.device) -> Iterator[Raw]:
        for rows in batches:
            dense = in_blocks(self.scale, self.matrix[rows]).float()
            yield dense.to(device), torch.as_tensor(rows).to(device)

    def prepare(self, raw: Tensor, *, keys: Tensor | None = None, views: int = 1) -> Tensor:
        return raw


def standardized_inputs(X: Any, scale: Standardize) -> Inputs:
    """The rows of a dense or sparse matrix, standardised."""
    if is_sparse(X):
        return SparseRows(X, scale)
    return Features(in_blocks(scale, X).float())


def standardization(X: Any) -> Standardize:
    """Means and deviations of the columns, in double precision."""
    if is_sparse(X):
        mean, variance = mean_variance_axis(X, axis=0)
    else:
        mean = X.mean(axis=0, dtype=np.float64)
        squares = (np.square(X[rows] - mean).sum(axis=0) for rows in _blocks(X))
        variance = sum(squares) / len(X)
    std = np.sqrt(variance)
    # Less is rounding: the column does not vary, and is only centred.
    std[std <= 1e-12 * np.abs(mean)] = 1.0
    scale = Standardize(X.shape[1]).double()
    scale.mean.copy_(torch.from_numpy(mean))
    scale.std.copy_(torch.from_numpy(std))
    return scale


@torch.no_grad()
def in_blocks(module: nn.Module, X: Any) -> Tensor:
    """module(X) in double precision, a block of rows at a time."""
    blocks = (np.array(dense(X[rows]), dtype=np.float64) for rows in _blocks(X))
    return torch.cat([module(torch.from_numpy(block)) for block in blocks])


def _blocks(X: Any) -> list[slice]:
    return [slice(at, at + _BLOCK) for at in range(0, X.shape[0], _BLOCK)]


def is_sparse(values: Any) -> bool:
    return hasattr(values, "toarray")


def dense(values: Any) -> Any:
    """The array itself, or that of a sparse one."""
    return values.toarray() if is_sparse(values) else values
