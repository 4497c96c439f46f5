"""Sources of features that are read in blocks of rows: Parquet, Arrow, .npy, or memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from halftruth.data.errors import DataError, nearest, some
from halftruth.data.feature_columns import (
    FEATURE_KEYS,
    MATRIX,
    FeatureColumns,
    bare_matrix,
    numbers_if_all,
    read_feature_columns,
    refuse_other_columns,
    select_feature_columns,
)
from halftruth.data.readers.arrow_file import ArrowFile, table_to_arrays
from halftruth.data.readers.cells import number_rows
from halftruth.data.readers.numpy_file import find_matrix, load_arrays
from halftruth.data.readers.text_table import ITEM_COLUMNS, plain
from halftruth.data.shards import ARROW, PARQUET, expand_shards

if TYPE_CHECKING:
    import pyarrow as pa

# Rows of a block, at most, and its bytes, about.
BLOCK_ROWS, BLOCK_BYTES = 16384, 64 << 20


class BlockSource:
    """Features in memory, as blocks of rows; the base of sources on disk."""

    def __init__(self, columns: FeatureColumns) -> None:
        self.columns = columns
        self.place, self.ids, self.header = columns.place, columns.ids, columns.header
        self.count = len(columns)

    @property
    def size(self) -> int:
        """The bytes that the source would take in memory, beyond what it takes already."""
        return 0

    @property
    def names(self) -> list[str] | None:
        """The names of the columns; None for a bare matrix."""
        return self.columns.names

    def blocks(self, first: int = 0, last: int | None = None) -> Iterator[FeatureColumns]:
        """Yield the columns of the rows from `first` to before `last`, in order, in blocks."""
        last = self.count if last is None else last
        for at in range(first, last, BLOCK_ROWS):
            yield self.columns.select(np.arange(at, min(at + BLOCK_ROWS, last)))

    def sample(self, rows: np.ndarray) -> FeatureColumns:
        """Return some rows, given by increasing numbers."""
        parts, at = [], 0
        for block in self.blocks():
            chosen = rows[np.searchsorted(rows, at) : np.searchsorted(rows, at + len(block))] - at
            parts.append(block.select(chosen))
            at += len(block)
        return _join(parts)


class MatrixFile(BlockSource):
    """A .npy file, which stays on disk."""

    def __init__(self, path: Path) -> None:
        self.place, self.ids, self.header = str(path), None, ()
        self.matrix, _ = find_matrix(load_arrays(path, mapped=True), FEATURE_KEYS, None, path)
        self.count = len(self.matrix)

    @property
    def size(self) -> int:
        # A float32 file is used as it is.
        return 0 if self.matrix.dtype == np.float32 else 4 * self.matrix.size

    @property
    def names(self) -> None:
        return None

    def blocks(self, first: int = 0, last: int | None = None) -> Iterator[FeatureColumns]:
        last = self.count if last is None else last
        rows = max(1, min(BLOCK_ROWS, BLOCK_BYTES // (8 * self.matrix.shape[1])))
        for at in range(first, last, rows):
            part = np.array(self.matrix[at : min(at + rows, last)])
            yield bare_matrix(part, None, self.place, first=at)

    def find_gaps(self, most: int = 1000) -> np.ndarray:
        """Return the numbers of rows with a missing value, `most` of them."""
        found: list[int] = []
        at = 0
        for block in self.blocks():
            gone = np.isnan(block.columns[MATRIX]).any(axis=1)
            found += (at + np.flatnonzero(gone)[: most - len(found)]).tolist()
            at += len(block)
        return np.array(found, dtype=int)

    def sample(self, rows: np.ndarray) -> FeatureColumns:
        return bare_matrix(np.array(self.matrix[rows]), None, self.place)


class ArrowShards(BlockSource):
    """Parquet or Arrow files with the same columns; row groups are read one after the other."""

    def __init__(
        self,
        path: str | Path,
        shards: Sequence[Path],
        drop_columns: Sequence[str] = (),
        categorical: Sequence[str] = (),
        lenient: bool = False,
    ) -> None:
        self.place, self.files = str(path), [ArrowFile(one) for one in shards]
        refuse_other_columns(self.files)
        self.header = tuple(self.files[0].schema.names)
        self.count = sum(map(len, self.files))
        for argument, given in (("drop_columns", drop_columns), ("categorical", categorical)):
            for name in given:
                if name not in self.header and not lenient:
                    raise DataError(
                        f"{argument}={name!r} (--read-features): there is no such column"
                        f"{nearest(name, self.header)}; the columns are {some(self.header, 12)}"
                    )
        self.read = [name for name in self.header if name not in drop_columns]
        self.categorical = [name for name in categorical if name in self.read]
        # Where reading stands: the next row, what was read of it, and what comes then.
        self._next, self._rest = -1, None
        self._stream: Iterator[pa.Table] = iter(())

    @cached_property
    def ids(self) -> np.ndarray | None:  # type: ignore[override]
        """The ids of all rows, read when they are asked for."""
        named = [name for name in self.read if plain(name) in ITEM_COLUMNS]
        if not named:
            return None
        parts = [
            select_feature_columns(
                {**table_to_arrays(block, self.place), "row": np.zeros(len(block))},
                number_rows(self.place), self.place, (), (), part=True,
            ).ids
            for file in self.files
            for block in file.blocks(named, 1 << 18)
        ]  # fmt: skip
        return None if parts[0] is None else np.concatenate(parts)  # type: ignore[arg-type]

    @property
    def size(self) -> int:
        scalars = 8 * self.count * len(self.read)
        return max(sum(file.size for file in self.files), scalars)

    @property
    def names(self) -> list[str]:
        return next(self.blocks()).names or []

    def blocks(self, first: int = 0, last: int | None = None) -> Iterator[FeatureColumns]:
        last = self.count if last is None else last
        rows = max(1, min(BLOCK_ROWS, BLOCK_BYTES * self.count // max(self.size, 1)))
        while first < last:
            # A block ends where a file ends, whose columns may be of other kinds.
            end = next(end for end in accumulate(map(len, self.files)) if end > first)
            count = min(rows, last - first, end - first)
            columns = table_to_arrays(self._take(first, count, rows), self.place)
            places = number_rows(self.place, first=first + 1)
            yield select_feature_columns(
                columns, places, self.place, (), self.categorical, part=True
            )
            first += count

    def _take(self, first: int, count: int, rows: int) -> pa.Table:
        """Return rows of one file. Those after the last ones are read on: no row group twice."""
        import pyarrow as pa

        if self._next != first:
            self._rest, self._stream = None, self._read_from(first, rows)
        self._next, found = first + count, list[pa.Table]()
        while count:
            table = self._rest if self._rest is not None else next(self._stream)
            found.append(table.slice(0, count))
            count -= len(found[-1])
            self._rest = table.slice(len(found[-1])) if len(table) > len(found[-1]) else None
        return pa.concat_tables(found)

    def _read_from(self, first: int, rows: int) -> Iterator[pa.Table]:
        start = 0
        for file in self.files:
            if first < start + len(file):
                yield from file.blocks(self.read, rows, max(first - start, 0))
            start += len(file)

    def sample(self, rows: np.ndarray) -> FeatureColumns:
        """Return some rows; texts that are all numbers are numbers, as in a table read at once."""
        found = super().sample(rows)
        for name, column in found.columns.items():
            if column.dtype == object and name not in self.categorical:
                found.columns[name] = numbers_if_all(column)
        return found


def open_blocks(path: str | Path, options: Mapping[str, Any], lenient: bool = False) -> BlockSource:
    """Open a file of features for reading in blocks; text tables and .npz are read as a whole.

    `options` are those of `read_feature_columns`.
    """
    path = Path(path)
    shards = expand_shards(path)
    if path.suffix.lower() == ".npy" and path.is_file() and not options:
        return MatrixFile(path)
    if all(one.name.lower().endswith((*PARQUET, *ARROW)) for one in shards):
        if options.get("key") is not None:
            raise DataError(f"{path}: key={options['key']!r} is for .npz files")
        given = {name: options[name] for name in ("drop_columns", "categorical") if name in options}
        return ArrowShards(path, shards, **given, lenient=lenient)
    return BlockSource(read_feature_columns(path, **options, lenient=lenient))


def _join(parts: Sequence[FeatureColumns]) -> FeatureColumns:
    """The rows of several blocks."""
    first = parts[0]
    columns = {}
    for name in first.columns:
        blocks = [part.columns[name] for part in parts]
        if len({block.shape[1:] for block in blocks}) > 1:
            shown = ", ".join(sorted({str(block.shape[1:]) for block in blocks}))
            called = f" column {name!r}" if name != MATRIX else ""
            raise DataError(f"{first.place}{called}: expected lists of one length, got {shown}")
        kinds = {block.dtype for block in blocks}
        if len(kinds) > 1 and np.dtype(object) in kinds:
            raise DataError(f"{first.place} column {name!r}: has numbers in some files, not in all")
        columns[name] = np.concatenate(blocks)
    ids = None if first.ids is None else np.concatenate([p.ids for p in parts if p.ids is not None])
    return FeatureColumns(columns, ids, first.place, first.header)
