"""Inputs by row number (features, or images decoded once) and the order of the batches.

Labels are not part of a batch. They stay in the main process and are looked up by row, so that
labels that a method corrects are never lost in the copy of a worker process.
"""

import hashlib
import json
import math
import os
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from halftruth.data import ImageStore, check_images, decode_all
from halftruth.data.image_file import resize
from halftruth.data.memory import get_free_memory
from halftruth.data.transforms import Augment
from halftruth.models import Classifier
from halftruth.models.classifier import Standardize
from halftruth.train.config import Config
from halftruth.train.journal import Journal
from halftruth.train.run_folder import replace_file, write_text
from halftruth.train.task import Task

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

    def __init__(self, matrix: Any, scale: Standardize) -> None:
        self.matrix, self.scale = matrix, scale

    def load(self, batches: Rows, device: torch.device) -> Iterator[Raw]:
        for rows in batches:
            dense = apply_in_blocks(self.scale, self.matrix[rows]).float()
            yield dense.to(device), torch.as_tensor(rows).to(device)


class _Pixels(Dataset[Any]):
    """uint8 pixels of batches of rows: cached, in a memory map, or from the image files."""

    def __init__(
        self, pixels: np.ndarray | None, store: ImageStore, names: Sequence[str], size: int
    ):
        self.pixels, self.store, self.names, self.size = pixels, store, names, size

    def __len__(self) -> int:
        return len(self.names)

    def __getitems__(self, rows: np.ndarray) -> Raw:
        """Read the image files."""
        images = [resize(self.store.read(self.names[row], self.size), self.size) for row in rows]
        pixels = np.stack([np.asarray(image) for image in images])
        return torch.from_numpy(pixels), torch.from_numpy(rows)

    def gather(self, rows: np.ndarray, pinned: bool) -> Raw:
        """Copy cached pixels, into page-locked memory if `pinned`."""
        assert self.pixels is not None
        index = torch.from_numpy(rows)
        out = torch.empty((len(rows), *self.pixels.shape[1:]), dtype=torch.uint8, pin_memory=pinned)
        with warnings.catch_warnings():
            # torch warns that a memory map is read-only; nothing writes to it.
            warnings.simplefilter("ignore", UserWarning)
            source = torch.from_numpy(self.pixels)
        torch.index_select(source, 0, index, out=out)
        return out, index


class Images:
    """Images at the model's size; flipping, cropping and normalising happen on the device."""

    def __init__(
        self,
        store: ImageStore,
        names: Sequence[str],
        size: int,
        *,
        augment: Augment,
        workers: int = 2,
        pixels: np.ndarray | None = None,
    ) -> None:
        self.augment, self.workers = augment, workers
        self.source = _Pixels(pixels, store, names, size)
        self.on_device: Tensor | None = None

    def load(self, batches: Rows, device: torch.device) -> Iterator[Raw]:
        if self.on_device is None and _has_room(device, self.source.pixels):
            self.on_device = _copy_to(device, self.source.pixels)
        if self.on_device is not None:
            for rows in batches:
                index = torch.as_tensor(rows).to(device, non_blocking=True)
                yield self.on_device[index], index
            return
        for pixels, index in self._batches(batches, device):
            yield pixels.to(device, non_blocking=True), index.to(device, non_blocking=True)

    def _batches(self, batches: Rows, device: torch.device) -> Iterator[Raw]:
        """Yield batches: cached pixels are fetched by threads, files are read by processes."""
        if self.source.pixels is not None:
            pinned = device.type == "cuda"
            return prefetch(partial(self.source.gather, pinned=pinned), batches)
        workers = self.workers
        loader = DataLoader(
            self.source,
            batch_sampler=batches,  # type: ignore[arg-type]
            collate_fn=_return_unchanged,
            num_workers=workers,
            pin_memory=device.type == "cuda",
            prefetch_factor=4 if workers else None,
            # New workers every epoch: forked processes start quickly.
            multiprocessing_context="fork" if workers and sys.platform == "linux" else None,
            worker_init_fn=partial(_end_with_parent, os.getpid()),
        )
        return iter(loader)

    def prepare(self, raw: Tensor, *, keys: Tensor | None = None, views: int = 1) -> Tensor:
        if keys is None:
            return self.augment(raw, train=False)
        if views == 1:
            return self.augment(raw, keys=keys)
        return self.augment.views(raw, views, keys=keys).flatten(0, 1)

    def crop_boxes(self, keys: Tensor, views: int = 1) -> Tensor:
        if views > 1:
            # The first of several views is the whole image.
            return torch.tensor([[0.0, 0.0, 1.0, 1.0]], device=keys.device).expand(len(keys), 4)
        return self.augment.crop_boxes(keys)


def _has_room(device: torch.device, pixels: np.ndarray | None) -> bool:
    """Return whether all pixels fit into a quarter of the GPU's free memory."""
    if device.type != "cuda" or pixels is None:
        return False
    return pixels.nbytes <= torch.cuda.mem_get_info(device)[0] / 4


def _copy_to(device: torch.device, pixels: np.ndarray | None) -> Tensor:
    """Copy the pixels to the device in parts, since a memory map may not fit into memory."""
    assert pixels is not None
    copy = torch.empty(pixels.shape, dtype=torch.uint8, device=device)
    for at in range(0, len(pixels), 2048):
        copy[at : at + 2048] = torch.from_numpy(np.array(pixels[at : at + 2048])).to(device)
    return copy


def _return_unchanged(batch: Any) -> Any:
    return batch


def _end_with_parent(parent: int, _: int) -> None:
    """End a worker whose parent died before torch began to check for that."""
    if os.getppid() != parent:
        os._exit(1)


def read_images(
    config: Config, task: Task, model: Classifier, journal: Journal, accelerator: Accelerator
) -> tuple[Images, list[tuple[str, str]]]:
    """Decode the task's images once at the model's size; return them and the unreadable ones."""
    assert task.store is not None
    names, size = task.names, model.image_size
    with (
        accelerator.main_process_first(),
        journal.progress("reading images", len(names)) as advance,
    ):
        pixels, bad = decode(
            task.store,
            names,
            size,
            cache=config.cache,
            folder=Path(config.cache_dir or Path(config.out) / "cache"),
            workers=max(config.workers, 1),
            shared=accelerator.num_processes > 1,
            progress=advance,
        )
    augment = Augment.preset(config.augment, size, model.mean, model.std)
    images = Images(task.store, names, size, augment=augment, workers=config.workers, pixels=pixels)
    return images, bad


def decode(
    store: ImageStore,
    names: Sequence[str],
    size: int,
    *,
    cache: str,
    folder: Path,
    workers: int,
    shared: bool = False,
    progress: Callable[[int], None] | None = None,
) -> tuple[np.ndarray | None, list[tuple[str, str]]]:
    """Return the pixels of all images (None with cache "none") and the bad ones as (name, reason).

    The rows of bad images hold no pixels and must not be used.
    """
    if cache == "none":
        return None, check_images(store, names, workers=workers, progress=progress)
    shape = (len(names), size, size, 3)
    if cache == "auto":
        cache = "disk" if shared or math.prod(shape) > get_free_memory() / 2 else "memory"
    if cache == "disk":
        return _decode_to_disk(store, names, shape, folder, workers, progress)
    done = decode_all(store, names, size, workers=workers, on_bad="skip", progress=progress)
    return done.pixels, done.bad


def _decode_to_disk(
    store: ImageStore,
    names: Sequence[str],
    shape: tuple[int, ...],
    folder: Path,
    workers: int,
    progress: Callable[[int], None] | None,
) -> tuple[np.ndarray, list[tuple[str, str]]]:
    """Return a memory map, which is written once and shared by all runs on the same images."""
    key = make_cache_key(list(names), shape, digest_image_files(store))
    path, notes = folder / f"pixels-{key}.npy", folder / f"pixels-{key}.json"
    if not notes.exists():
        with replace_file(path, shared=True) as new:
            out = np.lib.format.open_memmap(new, mode="w+", dtype=np.uint8, shape=shape)
            done = decode_all(
                store, names, shape[1], workers=workers, out=out, on_bad="skip", progress=progress
            )
            out.flush()
        # Written last: if it exists, the pixels are complete.
        write_text(notes, json.dumps(done.bad))
    bad = [(name, reason) for name, reason in json.loads(notes.read_text(encoding="utf-8"))]
    return np.lib.format.open_memmap(path, mode="r"), bad


def make_cache_key(*facts: Any) -> str:
    """Return a part of a file name that depends on all the facts."""
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]


def digest_image_files(store: ImageStore) -> list[list[str]]:
    """Return digests of the names, sizes and times of all image files, one per source."""
    digests = []
    for source in store.sources:
        files = sorted(path for path in source.rglob("*") if path.is_file()) or [source]
        digest = hashlib.sha256()
        for path in files:
            facts = path.stat()
            name = path.relative_to(source)
            digest.update(f"{name}\0{facts.st_size}\0{facts.st_mtime_ns}\0".encode())
        digests.append([str(source.resolve()), digest.hexdigest()])
    return digests


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
    """

    def __init__(
        self, rows: np.ndarray, batch_size: int, seed: int, rank: int = 0, world: int = 1
    ) -> None:
        self.rows, self.batch_size, self.seed = np.asarray(rows), batch_size, seed
        self.rank, self.world = rank, world
        self.epoch = 0
        self.start = 0

    @property
    def steps(self) -> int:
        return -(-len(self.rows) // self.batch_size)

    def get_rows_of_step(self, epoch: int, step: int) -> np.ndarray:
        """Return all rows of one step, over all processes."""
        order = np.random.default_rng([self.seed, epoch]).permutation(self.rows)
        return order[step * self.batch_size : (step + 1) * self.batch_size]

    def __len__(self) -> int:
        return self.steps - self.start

    def __iter__(self) -> Iterator[np.ndarray]:
        """Yield the rows of this process, from step `start` of `epoch` on."""
        order = np.random.default_rng([self.seed, self.epoch]).permutation(self.rows)
        for step in range(self.start, self.steps):
            whole = order[step * self.batch_size : (step + 1) * self.batch_size]
            mine = whole[self.rank :: self.world]
            yield np.ascontiguousarray(mine if len(mine) else whole[:1])

    def weight(self, step: int) -> float:
        """Return the weight with which the mean over processes is the mean over the whole batch.

        Processes may differ by one row, but the exchange of gradients weights them equally.
        """
        size = min(self.batch_size, len(self.rows) - step * self.batch_size)
        mine = len(range(self.rank, size, self.world))
        return mine * self.world / size


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


def _mix_bits(number: int) -> int:
    """Return SplitMix64 of a number: similar numbers give unrelated results."""
    z = (number + 0x9E3779B97F4A7C15) & _64_BITS
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _64_BITS
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _64_BITS
    return z ^ (z >> 31)


# ---------------------------------------------------------------------- features in memory


def standardize_inputs(X: Any, scale: Standardize) -> Features:
    """Return inputs with the standardised rows of a dense or sparse matrix."""
    if is_sparse(X):
        return SparseFeatures(X, scale)
    return Features(apply_in_blocks(scale, X).float())


def fit_standardization(X: Any) -> Standardize:
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
def apply_in_blocks(module: nn.Module, X: Any) -> Tensor:
    """Return module(X) in float64, computed in blocks of rows."""
    blocks = (np.array(to_dense(X[rows]), dtype=np.float64) for rows in _split_into_blocks(X))
    return torch.cat([module(torch.from_numpy(block)) for block in blocks])


def _split_into_blocks(X: Any) -> list[slice]:
    return [slice(at, at + _ROWS_PER_BLOCK) for at in range(0, X.shape[0], _ROWS_PER_BLOCK)]


def is_sparse(values: Any) -> bool:
    return hasattr(values, "toarray")


def to_dense(values: Any) -> Any:
    """Return a sparse matrix as a dense array, anything else unchanged."""
    return values.toarray() if is_sparse(values) else values
