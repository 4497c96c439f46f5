"""Images by row number: decoded once into memory or onto disk, or read from files each epoch."""

import json
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, gather_object
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from halftruth.data import ImageStore, check_images, decode_all
from halftruth.data.image_file import resize
from halftruth.data.memory import get_free_memory
from halftruth.data.transforms import Augment
from halftruth.models import Classifier
from halftruth.train.config import Config
from halftruth.train.inputs.batches import Raw, Rows, assign_lanes, prefetch
from halftruth.train.inputs.cache_keys import digest_image_files, make_cache_key
from halftruth.train.run_folder import replace_file, write_text
from halftruth.train.run_logger import RunLogger
from halftruth.train.task import Task

# Images that several processes decode at once, each.
_TOGETHER = 256


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
        shards: np.ndarray | None = None,
    ) -> None:
        """`shards`: the shard of each image, if they are read from shards in every epoch."""
        self.augment, self.workers = augment, workers
        self.shards = shards if pixels is None else None
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


def _return_unchanged(batch: object) -> object:
    return batch


def _end_with_parent(parent: int, _: int) -> None:
    """End a worker whose parent died before torch began to check for that."""
    if os.getppid() != parent:
        os._exit(1)


def read_images(
    config: Config, task: Task, model: Classifier, logger: RunLogger, accelerator: Accelerator
) -> tuple[Images, list[tuple[str, str]]]:
    """Decode the task's images once at the model's size; return them and the unreadable ones.

    Several processes divide the images, by shards if there are shards.
    """
    assert task.store is not None
    names, size, world = task.names, model.image_size, accelerator.num_processes
    shards = find_shards(task.store, names)
    options: dict[str, Any] = {
        "cache": config.cache,
        "folder": Path(config.cache_dir or Path(config.out) / "cache"),
        "workers": max(config.workers, 1),
    }
    rows = np.arange(len(names))
    if world > 1 and shards is not None:
        rows = rows[assign_lanes(shards, rows) % world == accelerator.process_index]
    elif world > 1:
        rows = np.array_split(rows, world)[accelerator.process_index]
    with logger.progress("reading images", len(rows)) as advance:
        if world == 1 or config.cache == "memory":
            pixels, bad = decode_images(task.store, names, size, **options, progress=advance)
        else:
            pixels, bad = decode_together(
                task.store, names, size, rows, **options, accelerator=accelerator, progress=advance
            )
    augment = Augment.preset(config.augment, size, model.mean, model.std)
    images = Images(
        task.store, names, size,
        augment=augment, workers=config.workers, pixels=pixels, shards=shards,
    )  # fmt: skip
    return images, bad


def find_shards(store: ImageStore, names: Sequence[str]) -> np.ndarray | None:
    """Return the number of the shard of each image; None unless several shards hold all of them."""
    if len(store.sources) < 2:
        return None
    found = [store.get_shard(name) for name in names]
    # An image that is missing is listed later, as one that cannot be read.
    known = {number for number in found if number is not None}
    if len(known) < 2:
        return None
    return np.array([0 if number is None else number for number in found])


def decode_images(
    store: ImageStore,
    names: Sequence[str],
    size: int,
    *,
    cache: str,
    folder: Path,
    workers: int,
    progress: Callable[[int], None] | None = None,
) -> tuple[np.ndarray | None, list[tuple[str, str]]]:
    """Return the pixels of all images (None with cache "none") and the bad ones as (name, reason).

    The rows of bad images hold no pixels and must not be used.
    """
    if cache == "none":
        return None, check_images(store, names, workers=workers, progress=progress)
    shape = (len(names), size, size, 3)
    if cache == "auto":
        cache = "disk" if math.prod(shape) > get_free_memory() / 2 else "memory"
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
    path, notes = _name_cache(store, names, shape, folder)
    if not notes.exists():
        with replace_file(path, shared=True) as new:
            out = np.lib.format.open_memmap(new, mode="w+", dtype=np.uint8, shape=shape)
            done = decode_all(
                store, names, shape[1], workers=workers, out=out, on_bad="skip", progress=progress
            )
            out.flush()
        # Written last: if it exists, the pixels are complete.
        write_text(notes, json.dumps(done.bad), shared=True)
    return _open_cache(path, notes)


def decode_together(
    store: ImageStore,
    names: Sequence[str],
    size: int,
    rows: np.ndarray,
    *,
    cache: str,
    folder: Path,
    workers: int,
    accelerator: Accelerator,
    progress: Callable[[int], None] | None = None,
) -> tuple[np.ndarray | None, list[tuple[str, str]]]:
    """The same as `decode`, in several processes: each reads its `rows`, into one file on disk."""
    if cache == "none":
        own = [names[row] for row in rows]
        bad = check_images(store, own, workers=workers, progress=progress)
        return None, _gather_bad(bad, names)
    shape = (len(names), size, size, 3)
    path, notes = _name_cache(store, names, shape, folder)
    complete = [notes.exists()]
    broadcast_object_list(complete)
    if not complete[0]:
        part = path.with_name(f".part.{path.name}")
        if accelerator.is_main_process:
            folder.mkdir(parents=True, exist_ok=True)
            np.lib.format.open_memmap(part, mode="w+", dtype=np.uint8, shape=shape)
        accelerator.wait_for_everyone()
        out = np.lib.format.open_memmap(part, mode="r+")
        bad = []
        for at in range(0, len(rows), _TOGETHER):
            some = rows[at : at + _TOGETHER]
            done = decode_all(
                store, [names[row] for row in some], size,
                workers=workers, on_bad="skip", progress=progress,
            )  # fmt: skip
            out[some] = done.pixels
            bad += done.bad
        out.flush()
        bad = _gather_bad(bad, names)
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            os.replace(part, path)
            write_text(notes, json.dumps(bad), shared=True)
        accelerator.wait_for_everyone()
    return _open_cache(path, notes)


def _gather_bad(bad: list[tuple[str, str]], names: Sequence[str]) -> list[tuple[str, str]]:
    """The bad images of all processes, in the order of the rows."""
    reasons = dict(gather_object(bad))
    return [(name, reasons[name]) for name in names if name in reasons]


def _name_cache(
    store: ImageStore, names: Sequence[str], shape: tuple[int, ...], folder: Path
) -> tuple[Path, Path]:
    """The files of decoded pixels and of the list of bad images."""
    key = make_cache_key(list(names), shape, digest_image_files(store))
    return folder / f"pixels-{key}.npy", folder / f"pixels-{key}.json"


def _open_cache(path: Path, notes: Path) -> tuple[np.ndarray, list[tuple[str, str]]]:
    bad = [(name, reason) for name, reason in json.loads(notes.read_text(encoding="utf-8"))]
    return np.lib.format.open_memmap(path, mode="r"), bad
