"""Many images at once: which of them can be read, and all of them as one array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, NamedTuple, TypeVar

import numpy as np

from halftruth.data.errors import DataError
from halftruth.data.image_file import BadImage, Fit, resize
from halftruth.data.images import ImageStore

Progress = Callable[[int], None]
Result = TypeVar("Result")


class Decoded(NamedTuple):
    """Pixels (N, size, size, 3) uint8; rows where `good` is False hold nothing and are in `bad`."""

    pixels: np.ndarray
    good: np.ndarray
    bad: list[tuple[str, str]]


def check_images(
    store: ImageStore,
    names: Sequence[str],
    *,
    size: int | None = 32,
    workers: int = 2,
    progress: Progress | None = None,
) -> list[tuple[str, str]]:
    """Read every image to its end and list (name, reason) of those that fail.

    A JPEG is decoded at a fraction of its size (`size`), which still reads all of its data.
    """

    def reason(row: int) -> str | None:
        try:
            store.read(names[row], size)
        except BadImage as error:
            return error.reason
        return None

    reasons = _for_each(reason, len(names), workers, progress)
    return [(name, why) for name, why in zip(names, reasons, strict=True) if why is not None]


def decode_all(
    store: ImageStore,
    names: Sequence[str],
    size: int,
    *,
    fit: Fit = "squash",
    workers: int = 2,
    out: np.ndarray | None = None,
    on_bad: Literal["fail", "skip"] = "fail",
    progress: Progress | None = None,
) -> Decoded:
    """Decode and resize all images into one array (`out`, for example a memory map).

    With on_bad="fail" one error lists the bad images after all were tried. With "skip" they are
    listed in the result, and their rows must not be used: drop them with `good`.
    """
    if on_bad not in ("fail", "skip"):
        raise ValueError(f"on_bad must be 'fail' or 'skip', got {on_bad!r}")
    shape = (len(names), size, size, 3)
    pixels = np.zeros(shape, dtype=np.uint8) if out is None else out
    if pixels.shape != shape or pixels.dtype != np.uint8:
        raise ValueError(f"out must be uint8 of shape {shape}, got {pixels.dtype} {pixels.shape}")

    def fill(row: int) -> str | None:
        try:
            pixels[row] = np.asarray(resize(store.read(names[row], size), size, fit))
        except BadImage as error:
            return error.reason
        return None

    reasons = _for_each(fill, len(names), workers, progress)
    bad = [(name, why) for name, why in zip(names, reasons, strict=True) if why is not None]
    if bad and on_bad == "fail":
        raise DataError(describe_bad(bad, len(names)))
    return Decoded(pixels, np.array([why is None for why in reasons], dtype=bool), bad)


def describe_bad(bad: Sequence[tuple[str, str]], total: int, limit: int = 10) -> str:
    """The bad images in words, one a line, and what can be done."""
    lines = [f"{len(bad):,} of {total:,} images cannot be read:"]
    lines += [f"  {name}: {reason}" for name, reason in bad[:limit]]
    if len(bad) > limit:
        lines.append(f"  and {len(bad) - limit:,} more")
    lines.append("Repair or remove them, or leave them out with on_bad='skip' (--bad-images skip).")
    return "\n".join(lines)


def _for_each(
    work: Callable[[int], Result], count: int, workers: int, progress: Progress | None
) -> list[Result]:
    """Results in order; threads are enough, since Pillow decodes without holding the GIL."""
    results = []
    pool = ThreadPoolExecutor(max_workers=max(1, workers))
    try:
        for done, result in enumerate(pool.map(work, range(count)), start=1):
            results.append(result)
            if progress is not None:
                progress(done)
    finally:
        pool.shutdown(cancel_futures=True)  # so that Ctrl-C does not wait for the rest
    return results
