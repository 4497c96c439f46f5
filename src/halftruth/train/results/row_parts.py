"""The rows of an input in parts, which any number of processes can score one by one."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from halftruth.data import BadImage, DataError
from halftruth.data.image_archives import is_archive
from halftruth.data.images import open_images
from halftruth.data.remote import describe_file
from halftruth.data.shards import expand_all

S = TypeVar("S")
# So many parts at least, of so many rows at least: for balance, and for little to do again.
_PARTS, LEAST_ROWS = 64, 4096
# Rows and images of a part, at most.
PART_ROWS, _PART_IMAGES = 131_072, 8192


@dataclass
class RowParts(Generic[S]):
    """Rows in parts; `read(unit)` yields the scores of one of `units`, block by block.

    Units do not depend on the number of processes, so that all of them score the same blocks.
    """

    units: Sequence[Any]
    read: Callable[..., Iterator[S]]
    # Rows or images; None where only reading tells.
    count: int | None
    # Bytes of the files, about.
    size: float = 0.0
    # Warns of what only all rows of this process tell.
    warn: Callable[[], None] = lambda: None
    # Bytes of a block while it is scored, about.
    block: float = 0.0

    def __iter__(self) -> Iterator[S]:
        for unit in self.units:
            yield from self.read(unit)
        self.warn()


def cut_rows(count: int, batch: int, most: int, least: int = 1) -> list[tuple[int, int]]:
    """Return (first, last) of each part; all but the last have full batches.

    >>> cut_rows(20, 6, 131_072), len(cut_rows(1_000_000, 256, 131_072))
    ([(0, 6), (6, 12), (12, 18), (18, 20)], 64)
    """
    rows = min(max(-(-count // _PARTS), least), most)
    rows = -(-rows // batch) * batch
    return [(at, min(at + rows, count)) for at in range(0, count, rows)]


def list_images(source: Any, batch: int) -> tuple[list[tuple[Any, Any]], int | None, float]:
    """Return images as units (store, names), their number and their bytes, about.

    Each of several shards is a unit without names: it is opened where it is scored.
    """
    given = [source] if isinstance(source, str | Path) else source
    if isinstance(given, list | tuple) and all(isinstance(one, str | Path) for one in given):
        shards = expand_all(given)
        if len(shards) > 1 and all(map(is_archive, shards)):
            return (
                [(shard, None) for shard in shards],
                None,
                sum(describe_file(one)[0] for one in shards),
            )
    store = open_images(source).by_address()
    names = store.names()
    if not names:
        raise DataError(f"there are no images in {store}")
    units = [
        (store.select(own), own)
        for own in (names[at:end] for at, end in cut_rows(len(names), batch, _PART_IMAGES))
    ]
    sizes = []
    with suppress(BadImage):
        # One that cannot be read is listed when it is scored.
        for name in names[:: -(-len(names) // 100)]:
            sizes.append(len(store.read_bytes(name)))
    return units, len(names), sum(sizes) / max(len(sizes), 1) * len(names)
