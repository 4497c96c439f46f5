"""Inputs by row number and the order of the batches; `image_inputs` has those on images.

Labels are not part of a batch. They stay in the main process and are looked up by row, so that
labels that a method corrects are never lost in the copy of a worker process.
"""

import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from halftruth.data.wide_matrix import Matrix, WideMatrix
from halftruth.models.classifier import Standardize

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

Rows = Iterable[np.ndarray]
Raw = tuple[Tensor, Tensor]
T = TypeVar("T")
R = TypeVar("R")

# Threads that fetch batches, and batches fetched in advance. Fetching releases the GIL, so threads
# run in parallel.
FETCHING_THREADS, FETCHED_AHEAD = 2, 4
# Rows that are converted to dense float64 at once.
_ROWS_PER_BLOCK = 4096
_64_BITS = (1 << 64) - 1


class Inputs(Protocol):
    """Batches of raw inputs by row, and their conversion to inputs of the model."""

    def load(self, batches: Rows, device: torch.device) -> Iterator[Raw]:
        """Yield (raw inputs, rows) of each batch, on the device."""
        ...

    def prepare(self, raw: Tensor, *, keys: Tensor | None = None, views: int = 1) -> Tensor:
        """Return the input of the model (V·B, ...), augmented if there are keys (one per row)."""
        ...

    def crop_boxes(self, keys: Tensor, views: int = 1) -> Tensor:
        """Return (B, 4) left, top, width and height of the crop that `prepare` makes per key."""
        ...


class Features:
    """A matrix of features, kept on the device."""

    def __init__(self, features: np.ndarray | Tensor) -> None:
        self.features = torch.as_tensor(features, dtype=torch.float32)

    def load(self, batches: Rows, device: torch.device) -> Iterator[Raw]:
        self.features = self.features.to(device)
        for rows in batches:
            index = torch.from_numpy(rows).to(device, non_blocking=True)
            yield self.features.index_select(0, index), index

    def prepare(self, raw: Tensor, *, keys: Tensor | None = None, views: int = 1) -> Tensor:
        if views > 1:
            raise ValueError("features have no augmented views; use images or one view")
        return raw

    def crop_boxes(self, keys: Tensor, views: int = 1) -> Tensor:
        raise ValueError("features are not cropped; use images")


class SparseFeatures(Features):
    """A sparse matrix of features: only the rows of a batch are made dense and standardised."""

    def __init__(self, matrix: "csr_matrix", scale: Standardize) -> None:
        self.matrix, self.scale = matrix, scale

    def load(self, batches: Rows, device: torch.device) -> Iterator[Raw]:
        for rows in batches:
            dense = apply_in_blocks(self.scale, self.matrix[rows]).float()
            yield dense.to(device), torch.as_tensor(rows).to(device)


class WideFeatures(Features):
    """A wide sparse matrix of features, of which a batch stays sparse."""

    def __init__(self, matrix: WideMatrix) -> None:
        self.matrix = matrix.sparse

    def load(self, batches: Rows, device: torch.device) -> Iterator[Raw]:
        for rows in batches:
            yield make_sparse_tensor(self.matrix[rows]).to(device), torch.as_tensor(rows).to(device)


def make_inputs(matrix: Matrix) -> Features:
    """Return inputs with the rows of a dense or a wide matrix."""
    return WideFeatures(matrix) if isinstance(matrix, WideMatrix) else Features(matrix)


def make_sparse_tensor(matrix: "csr_matrix") -> Tensor:
    """Return a scipy CSR matrix as a sparse tensor of torch."""
    start, columns, values = (
        torch.from_numpy(np.require(part, requirements="W"))
        for part in (matrix.indptr, matrix.indices, matrix.data)
    )
    with warnings.catch_warnings():
        # torch calls the format new; only its container is used.
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support")
        return torch.sparse_csr_tensor(
            start, columns, values, size=tuple(matrix.shape), check_invariants=False
        )


# ---------------------------------------------------------------------- batches


def prefetch(fetch: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """Yield fetch(item) of every item, in order, and fetch the next few in advance.

    >>> list(prefetch(str, range(3)))
    ['0', '1', '2']
    """
    pool = ThreadPoolExecutor(FETCHING_THREADS, thread_name_prefix="halftruth-fetch")
    waiting: deque[Future[R]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(fetch, item))
            if len(waiting) > FETCHED_AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        # If the reader stops early, waiting items are not fetched.
        pool.shutdown(cancel_futures=True)


class Batches:
    """The rows of every step of an epoch: they depend on (seed, epoch) only, for resuming.

    The rows of a step are the same for any number of processes: process r of w takes every w-th of
    them. With fewer rows than processes, a process repeats one row with weight 0, so that all take
    part in the exchange of gradients.

    `shards`: the shard of each row of the label table. Then process r reads only the shards r,
    r + w, ..., and an epoch reads the shards of a process one after the other. Each step has rows
    of all shards that are being read, in proportion to their number of rows.
    """

    def __init__(
        self,
        rows: np.ndarray,
        batch_size: int,
        seed: int,
        rank: int = 0,
        world: int = 1,
        shards: np.ndarray | None = None,
    ) -> None:
        self.rows, self.batch_size, self.seed = np.asarray(rows), batch_size, seed
        self.rank, self.world = rank, world
        self.epoch = 0
        self.start = 0
        # The lane of each row of the label table; a process reads whole lanes.
        self.lane = None if shards is None else assign_lanes(shards, self.rows)
        if self.lane is not None and self.lane.max() < world - 1:
            # Fewer shards than processes.
            self.lane = None
        self.shards = None if self.lane is None else shards
        # For a step without a row of this process.
        self._own_row = self._take_mine(self.rows)[:1]
        self._drawn: tuple[int, np.ndarray] = (-1, self.rows)

    @property
    def steps(self) -> int:
        return -(-len(self.rows) // self.batch_size)

    def draw_order(self, epoch: int) -> np.ndarray:
        """Return all rows in the order of an epoch, over all processes."""
        if self._drawn[0] == epoch:
            return self._drawn[1]
        random = np.random.default_rng([self.seed, epoch])
        order = random.permutation(self.rows)
        if self.shards is not None and self.lane is not None:
            order = order_by_lanes(order, self.shards, self.lane, random)
        self._drawn = epoch, order
        return order

    def get_rows_of_step(self, epoch: int, step: int) -> np.ndarray:
        """Return all rows of one step, over all processes."""
        return self.draw_order(epoch)[step * self.batch_size : (step + 1) * self.batch_size]

    def _take_mine(self, whole: np.ndarray) -> np.ndarray:
        if self.lane is None:
            return whole[self.rank :: self.world]
        return whole[self.lane[whole] % self.world == self.rank]

    def __len__(self) -> int:
        return self.steps - self.start

    def __iter__(self) -> Iterator[np.ndarray]:
        """Yield the rows of this process, from step `start` of `epoch` on."""
        epoch = self.epoch
        for step in range(self.start, self.steps):
            whole = self.get_rows_of_step(epoch, step)
            mine = self._take_mine(whole)
            yield np.ascontiguousarray(mine if len(mine) else self._own_row)

    def weight(self, step: int) -> float:
        """Return the weight with which the mean over processes is the mean over the whole batch.

        Processes may differ in their rows, but the exchange of gradients weights them equally.
        """
        if self.lane is not None:
            whole = self.get_rows_of_step(self.epoch, step)
            return len(self._take_mine(whole)) * self.world / len(whole)
        size = min(self.batch_size, len(self.rows) - step * self.batch_size)
        return len(range(self.rank, size, self.world)) * self.world / size


# Lanes at most: so many shards are read at the same time, and so many processes may share them.
LANES = 64


def assign_lanes(shards: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the lane of each row of the label table: its shard's, with about equal lanes.

    The largest shard goes first, each to the lane with the fewest rows. The number of lanes does
    not depend on the number of processes, so that batches do not either.

    >>> assign_lanes(np.array([0, 0, 0, 1, 2, 2]), np.arange(6))
    array([0, 0, 0, 2, 1, 1])
    """
    names, counts = np.unique(shards[rows], return_counts=True)
    lanes = np.zeros(min(LANES, len(names)), dtype=int)
    lane_of = {}
    for k in np.argsort(-counts, kind="stable"):
        lane = int(lanes.argmin())
        lanes[lane] += counts[k]
        lane_of[int(names[k])] = lane
    return np.array([lane_of.get(int(shard), 0) for shard in shards])


def order_by_lanes(
    order: np.ndarray, shards: np.ndarray, lane: np.ndarray, random: np.random.Generator
) -> np.ndarray:
    """Return shuffled rows so that each lane reads its shards one after the other.

    The i-th of n rows of a lane goes to the place (i + 1/2) / n of the epoch.
    """
    # The order of the shards differs between epochs.
    turn = random.permutation(int(shards.max()) + 1)
    place = np.empty(len(order))
    for number in np.unique(lane[order]):
        own = np.flatnonzero(lane[order] == number)
        own = own[np.argsort(turn[shards[order[own]]], kind="stable")]
        place[own] = (np.arange(len(own)) + 0.5) / len(own)
    return order[np.argsort(place, kind="stable")]


def seed_step(seed: int, epoch: int, step: int, rank: int, device: torch.device) -> None:
    """Seed the random numbers of a step; dropout is then the same after a resume."""
    state = 0
    for number in (seed, epoch, step, rank):
        state = _mix_bits(state + number)
    # torch.manual_seed seeds every kind of accelerator, which takes longer than a small step.
    torch.default_generator.manual_seed(state)
    if device.type == "cuda":
        torch.cuda.manual_seed(state)
    elif device.type != "cpu":
        torch.manual_seed(state)


def make_keys(seed: int, epoch: int, rows: Tensor, count: int) -> Tensor:
    """Return the key of each of some of `count` rows: its augmentation in an epoch depends on it.

    The same in any batch, process and device. No two rows or epochs of a run share a key; those of
    different seeds are as good as never equal.

    >>> make_keys(2**32 - 1, 10**6, torch.tensor([0, 5]), 10**9).diff().tolist()
    [5]
    """
    # Modulo 2^64, as a signed number: int64 has no more bits.
    start = ((seed * 1_000_003 + epoch) * count + (1 << 63)) % (1 << 64) - (1 << 63)
    return rows + start


def _mix_bits(number: int) -> int:
    """Return SplitMix64 of a number: similar numbers give unrelated results."""
    z = (number + 0x9E3779B97F4A7C15) & _64_BITS
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _64_BITS
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _64_BITS
    return z ^ (z >> 31)


# ---------------------------------------------------------------------- features in memory


def standardize_inputs(X: object, scale: Standardize) -> Features:
    """Return inputs with the standardised rows of a dense or sparse matrix."""
    if is_sparse(X):
        return SparseFeatures(X, scale)
    return Features(apply_in_blocks(scale, X).float())


def fit_standardization(X: "np.ndarray | csr_matrix") -> Standardize:
    """Return the standardisation by means and deviations of the columns, in float64."""
    if is_sparse(X):
        from sklearn.utils.sparsefuncs import mean_variance_axis

        mean, variance = mean_variance_axis(X, axis=0)
    else:
        mean = X.mean(axis=0, dtype=np.float64)
        squares = (np.square(X[rows] - mean).sum(axis=0) for rows in _split_into_blocks(X))
        variance = sum(squares) / len(X)
    std = np.sqrt(variance)
    # A smaller deviation is rounding: the column is constant, and is only centred.
    std[std <= 1e-12 * np.abs(mean)] = 1.0
    scale = Standardize(X.shape[1]).double()
    scale.mean.copy_(torch.from_numpy(mean))
    scale.std.copy_(torch.from_numpy(std))
    return scale


def share_scale(scale: Standardize, columns: np.ndarray | None) -> Standardize:
    """Let some columns keep half of their scales relative to each other, and return the module.

    Their deviations become the geometric mean of their own and the common one. Standardised one by
    one, a rare term of a text would count a hundred times as much as a common one.
    """
    if columns is not None:
        own = scale.std[columns]
        scale.std[columns] = (own * own.mean()).sqrt()
    return scale


@torch.no_grad()
def apply_in_blocks(module: nn.Module, X: "np.ndarray | csr_matrix") -> Tensor:
    """Return module(X) in float64, computed in blocks of rows."""
    head = getattr(module, "head", None)
    parts = _split_into_blocks(X, getattr(head, "most_rows", _ROWS_PER_BLOCK))
    if is_sparse(X) and getattr(head, "columns", None) is not None:
        some = (X[rows].astype(np.float64) for rows in parts)
        return torch.cat([module(make_sparse_tensor(block)) for block in some])
    blocks = (np.array(to_dense(X[rows]), dtype=np.float64) for rows in parts)
    # Some heads compute in float32.
    return torch.cat([module(torch.from_numpy(block)).double() for block in blocks])


def _split_into_blocks(X: "np.ndarray | csr_matrix", size: int = _ROWS_PER_BLOCK) -> list[slice]:
    return [slice(at, at + size) for at in range(0, X.shape[0], size)]


def is_sparse(values: object) -> bool:
    return hasattr(values, "toarray")


def to_dense(values: Any) -> np.ndarray:
    """Return a sparse matrix as a dense array, anything else unchanged."""
    return values.toarray() if is_sparse(values) else values
