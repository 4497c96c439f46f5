"""Read many images: find those that cannot be read, or decode all into one array.

`progress(n)` is called with the number of images read since the last call, as bars expect.
"""

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
    """Pixels (N, size, size, 3) uint8; rows where `good` is False are empty and listed in `bad`."""

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
    """Read every image completely and list (name, reason) of those that fail.

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
    """List the bad images, one per line, and what to do."""
    if len(bad) == total:
        lines = [f"none of the {total:,} images can be read:"]
        advice = "Check the image folder and the names in the label file."
    else:
        lines = [f"{len(bad):,} of {total:,} images cannot be read:"]
        advice = "Repair or remove them, or leave them out with on_bad='skip' (--bad-images skip)."
    lines += [f"  {name}: {reason}" for name, reason in bad[:limit]]
    if len(bad) > limit:
        lines.append(f"  and {len(bad) - limit:,} more")
    return "\n".join([*lines, advice])


def _for_each(
    work: Callable[[int], Result], count: int, workers: int, progress: Progress | None
) -> list[Result]:
    """Results in order. Threads suffice, since Pillow decodes without holding the GIL."""
    results = []
    pool = ThreadPoolExecutor(max_workers=max(1, workers))
    try:
        for result in pool.map(work, range(count)):
            results.append(result)
            if progress is not None:
                progress(1)
    finally:
        pool.shutdown(cancel_futures=True)  # so that Ctrl-C does not wait for the rest
    return results
