"""What the model looks at, by row number: a matrix of features, or images decoded once.

Labels never pass through here: they stay in the main process and are looked up by row, so that
what a method remembers or corrects is never lost in a worker's copy.
"""

import hashlib
import json
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from halftruth.data import ImageStore, check_images, decode_all
from halftruth.data.image_file import resize
from halftruth.data.transforms import Augment
from halftruth.train.checkpoint import write_text
from halftruth.train.prefetch import ahead

Rows = Iterable[np.ndarray]
Raw = tuple[Tensor, Tensor]


class Inputs(Protocol):
    """Batches of raw inputs by row, and how they become what the model takes."""

    def load(self, batches: Rows, device: torch.device) -> Iterator[Raw]:
        """(raw, rows) of each batch, on the device."""
        ...

    def prepare(self, raw: Tensor, *, keys: Tensor | None = None, views: int = 1) -> Tensor:
        """The model's input, (V·B, ...): augmented by the keys, one a row, if there are any."""
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


class _Pixels(Dataset[Any]):
    """uint8 pixels of whole batches of rows, from memory, a memory map or the image files."""

    def __init__(
        self, pixels: np.ndarray | None, store: ImageStore, names: Sequence[str], size: int
    ):
        self.pixels, self.store, self.names, self.size = pixels, store, names, size

    def __len__(self) -> int:
        return len(self.names)

    def __getitems__(self, rows: np.ndarray) -> Raw:
        """From the image files."""
        read = [resize(self.store.read(self.names[row], self.size), self.size) for row in rows]
        pixels = np.stack([np.asarray(picture) for picture in read])
        return torch.from_numpy(pixels), torch.from_numpy(rows)

    def gather(self, rows: np.ndarray, pinned: bool) -> Raw:
        """From the cached pixels, into memory that a GPU can fetch from by itself if wanted."""
        assert self.pixels is not None
        index = torch.from_numpy(rows)
        out = torch.empty((len(rows), *self.pixels.shape[1:]), dtype=torch.uint8, pin_memory=pinned)
        with warnings.catch_warnings():
            # A memory map is read-only, which torch warns of; it is only read.
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
            self.on_device = _copied(self.source.pixels, device)
        if self.on_device is not None:
            for rows in batches:
                index = torch.as_tensor(rows).to(device, non_blocking=True)
                yield self.on_device[index], index
            return
        for pixels, index in self._batches(batches, device):
            yield pixels.to(device, non_blocking=True), index.to(device, non_blocking=True)

    def _batches(self, batches: Rows, device: torch.device) -> Iterator[Raw]:
        """From cached pixels by threads, which copy without Python; from files by processes."""
        if self.source.pixels is not None:
            pinned = device.type == "cuda"
            return ahead(partial(self.source.gather, pinned=pinned), batches)
        workers = self.workers
        loader = DataLoader(
            self.source,
            batch_sampler=batches,  # type: ignore[arg-type]
            collate_fn=_as_it_is,
            num_workers=workers,
            pin_memory=device.type == "cuda",
            prefetch_factor=4 if workers else None,
            # New workers each epoch: where a process can be forked, they start in no time.
            multiprocessing_context="fork" if workers and sys.platform == "linux" else None,
            worker_init_fn=partial(_follow, os.getpid()),
        )
        return iter(loader)

    def prepare(self, raw: Tensor, *, keys: Tensor | None = None, views: int = 1) -> Tensor:
        if keys is None:
            return self.augment(raw, train=False)
        if views == 1:
            return self.augment(raw, keys=keys)
        return self.augment.views(raw, views, keys=keys).flatten(0, 1)


def _has_room(device: torch.device, pixels: np.ndarray | None) -> bool:
    """Whether all pixels fit into a quarter of a GPU's free memory: then nothing has to travel."""
    if device.type != "cuda" or pixels is None:
        return False
    return pixels.nbytes <= torch.cuda.mem_get_info(device)[0] / 4


def _copied(pixels: np.ndarray | None, device: torch.device) -> Tensor:
    """The pixels on the device, copied in parts: a memory map is never read as a whole."""
    assert pixels is not None
    copy = torch.empty(pixels.shape, dtype=torch.uint8, device=device)
    for at in range(0, len(pixels), 2048):
        copy[at : at + 2048] = torch.from_numpy(np.array(pixels[at : at + 2048])).to(device)
    return copy


def _as_it_is(batch: Any) -> Any:
    return batch


def _follow(parent: int, _: int) -> None:
    """Do not outlive who started this worker: torch asks who that was when it may be gone."""
    if os.getppid() != parent:
        os._exit(1)


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
    """Pixels of all images (None with cache "none") and the bad ones as (name, reason).

    The rows of bad images hold nothing and must not be used.
    """
    if cache == "none":
        return None, check_images(store, names, workers=workers, progress=progress)
    shape = (len(names), size, size, 3)
    if cache == "auto":
        cache = "disk" if shared or np.prod(shape, dtype=float) > _free_memory() / 2 else "memory"
    if cache == "disk":
        return _on_disk(store, names, shape, folder, workers, progress)
    done = decode_all(store, names, size, workers=workers, on_bad="skip", progress=progress)
    return done.pixels, done.bad


def _on_disk(
    store: ImageStore,
    names: Sequence[str],
    shape: tuple[int, ...],
    folder: Path,
    workers: int,
    progress: Callable[[int], None] | None,
) -> tuple[np.ndarray, list[tuple[str, str]]]:
    """A memory map that is made once and used again by every run over the same images."""
    key = hashlib.sha256(json.dumps([list(names), shape, stamp(store)]).encode()).hexdigest()[:16]
    path, notes = folder / f"pixels-{key}.npy", folder / f"pixels-{key}.json"
    if not notes.exists():
        folder.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            out = np.lib.format.open_memmap(new, mode="w+", dtype=np.uint8, shape=shape)
            done = decode_all(
                store, names, shape[1], workers=workers, out=out, on_bad="skip", progress=progress
            )
            out.flush()
            os.replace(new, path)
        finally:
            new.unlink(missing_ok=True)
        # Last, since it says that the pixels are whole.
        write_text(notes, json.dumps(done.bad))
    bad = [(name, reason) for name, reason in json.loads(notes.read_text(encoding="utf-8"))]
    return np.lib.format.open_memmap(path, mode="r"), bad


def stamp(store: ImageStore) -> list[list[str]]:
    """A digest of the names, sizes and times of all files behind the images."""
    stamps = []
    for source in store.sources:
        files = sorted(path for path in source.rglob("*") if path.is_file()) or [source]
        digest = hashlib.sha256()
        for path in files:
            facts = path.stat()
            name = path.relative_to(source)
            digest.update(f"{name}\0{facts.st_size}\0{facts.st_mtime_ns}\0".encode())
        stamps.append([str(source.resolve()), digest.hexdigest()])
    return stamps


def _free_memory() -> float:
    import psutil

    return float(psutil.virtual_memory().available)
