"""Parquet and Arrow files that are read in parts, and their columns as arrays."""

from __future__ import annotations

import bisect
import json
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from halftruth.data.errors import DataError, refuse_twice, some
from halftruth.data.readers.cell_codes import BLANK
from halftruth.data.remote import is_remote, open_remote
from halftruth.data.shards import PARQUET

if TYPE_CHECKING:
    import pyarrow as pa


class ArrowFile:
    """One Parquet, Arrow or Feather file; only the asked columns of the asked part are read."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa

        self.path = path
        if not is_remote(path) and not path.is_file():
            raise DataError(f"{path}: there is no such file")
        self._errors = (pa.ArrowException, OSError)
        self._process = os.getpid()
        self._file = self._open()
        refuse_twice(self.schema.names, path)
        if not len(self):
            raise DataError(f"{path}: has columns but no rows")

    @property
    def _is_parquet(self) -> bool:
        return self.path.name.lower().endswith(PARQUET)

    def _open(self) -> pa.Table:
        import pyarrow as pa
        import pyarrow.parquet as pq

        kind = "Parquet" if self._is_parquet else "Arrow"
        try:
            place = open_remote(self.path) if is_remote(self.path) else self.path
            if self._is_parquet:
                # A buffer would hold all row groups that are going to be read.
                return pq.ParquetFile(place, pre_buffer=False)
            source = pa.memory_map(str(place)) if place is self.path else pa.PythonFile(place)
            try:
                # The table stays on disk: it points into the memory map.
                return pa.ipc.open_file(source).read_all()
            except pa.ArrowInvalid:
                source.seek(0)
                return pa.ipc.open_stream(source).read_all()
        except self._errors as error:
            raise DataError(f"{self.path}: cannot be read as {kind}: {error}") from error

    @property
    def file(self) -> Any:
        """The open file; a process that was forked opens it again."""
        if self._process != os.getpid():
            self._process, self._file = os.getpid(), self._open()
        return self._file

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema."""
        return self._file.schema_arrow if self._is_parquet else self._file.schema

    def __len__(self) -> int:
        return int(self._file.metadata.num_rows if self._is_parquet else self._file.num_rows)

    @cached_property
    def starts(self) -> list[int]:
        """The first row of each part, and the number of rows."""
        if self._is_parquet:
            found = self._file.metadata
            sizes = [found.row_group(k).num_rows for k in range(found.num_row_groups)]
        else:
            sizes = [len(batch) for batch in self._file.to_batches()]
        starts = [0]
        for size in sizes:
            starts.append(starts[-1] + size)
        return starts

    def locate(self, row: int) -> tuple[int, int]:
        """Return the part of a row, and its place in the part."""
        part = bisect.bisect_right(self.starts, row) - 1
        return part, row - self.starts[part]

    def read_part(self, part: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Return columns of one part as an Arrow table."""
        try:
            if self._is_parquet:
                return self.file.read_row_group(part, columns=columns)
            rows = self.starts[part + 1] - self.starts[part]
            found = self.file.slice(self.starts[part], rows)
            return found if columns is None else found.select(list(columns))
        except self._errors as error:
            raise DataError(f"{self.path}: cannot be read: {error}") from error

    def blocks(
        self, columns: Sequence[str] | None, rows: int, first: int = 0
    ) -> Iterator[pa.Table]:
        """Yield Arrow tables of at most `rows` rows, in order, from row `first` on."""
        import pyarrow as pa

        if not self._is_parquet:
            table = self.file if columns is None else self.file.select(list(columns))
            for at in range(first, len(self), rows):
                yield table.slice(at, rows)
            return
        part, skip = self.locate(first)
        groups = list(range(part, len(self.starts) - 1))
        try:
            for batch in self.file.iter_batches(rows, row_groups=groups, columns=columns):
                if skip < len(batch):
                    yield pa.Table.from_batches([batch.slice(skip)])
                skip = max(skip - len(batch), 0)
        except self._errors as error:
            raise DataError(f"{self.path}: cannot be read: {error}") from error

    @property
    def size(self) -> int:
        """The bytes of all values in memory, about."""
        if not self._is_parquet:
            return int(self._file.nbytes)
        found = self._file.metadata
        return sum(found.row_group(k).total_byte_size for k in range(found.num_row_groups))


def read_class_names(file: ArrowFile) -> dict[str, list[str]]:
    """Return the names of classes by column, where Hugging Face datasets has stored them."""
    text = (file.schema.metadata or {}).get(b"huggingface")
    try:
        return find_class_names(json.loads(text)["info"]["features"]) if text else {}
    except (ValueError, KeyError, TypeError):
        return {}


def find_class_names(features: dict[str, Any]) -> dict[str, list[str]]:
    """Return the names of classes by column: of `ClassLabel`, or of lists of them."""
    found = {}
    for name, kind in features.items():
        inner = kind.get("feature", kind) if isinstance(kind, dict) else kind[0]
        if isinstance(inner, dict) and inner.get("_type") == "ClassLabel" and "names" in inner:
            found[name] = list(inner["names"])
    return found


def is_image_type(kind: pa.DataType) -> bool:
    """Return whether a column holds images: bytes, or the struct of Hugging Face datasets."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        names = [kind.field(k).name for k in range(kind.num_fields)]
        return {"bytes", "path"} <= set(names)
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def get_image_names(file: ArrowFile) -> tuple[str, list[str]]:
    """Return the column of images of a file, and a name per row.

    The name is the path that is stored with an image. Without one it is the name of the file with
    the number of the row, such as train-0000012.
    """
    import pyarrow as pa

    found = [field.name for field in file.schema if is_image_type(field.type)]
    if len(found) != 1:
        got = f"the columns {some(found)}" if found else "none"
        raise DataError(
            f"{file.path}: expected one column of images (bytes, or a struct of bytes and path), "
            f"got {got}"
        )
    [column] = found
    paths: list[str | None] = [None] * len(file)
    if pa.types.is_struct(file.schema.field(column).type):
        # Of a Parquet file the paths are read without the images.
        wanted = f"{column}.path" if file._is_parquet else column
        chunks = [chunk for block in file.blocks([wanted], 8192) for chunk in block[column].chunks]
        paths = [path for chunk in chunks for path in chunk.field("path").to_pylist()]
    named = all(paths) and len(set(paths)) == len(paths)
    stem = file.path.name.partition(".")[0]
    return column, [str(path) if named else f"{stem}-{row:07d}" for row, path in enumerate(paths)]


def table_to_arrays(table: pa.Table, place: str) -> dict[str, np.ndarray]:
    """Convert the columns of an Arrow table without a detour over text.

    Numbers and booleans are float64 with NaN for nulls, texts are objects with None for nulls,
    lists of numbers are a float32 matrix.
    """
    return {
        name: _arrow_array(table[name], f"{place} column {name!r}") for name in table.column_names
    }


def _arrow_array(column: pa.ChunkedArray, place: str) -> np.ndarray:
    import pyarrow as pa

    kind, types = column.type, pa.types
    if types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if types.is_boolean(kind):
        column, kind = column.cast(pa.uint8()), pa.uint8()
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return np.asarray(column.cast(pa.float64(), safe=False).fill_null(np.nan).to_numpy())
    if types.is_string(kind) or types.is_large_string(kind) or types.is_null(kind):
        texts = column.cast(pa.string()).to_pylist()
        blank = {text: text is None or text.strip().lower() in BLANK for text in set(texts)}
        return np.array([None if blank[t] else t.strip() for t in texts], dtype=object)
    listed = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    inner = kind.value_type if listed else None
    if not listed or not (types.is_floating(inner) or types.is_integer(inner)):
        raise DataError(
            f"{place}: expected numbers, texts or lists of numbers, got {kind}; drop it with "
            "drop_columns, or convert it"
        )
    sizes = set(column.combine_chunks().value_lengths().to_pylist())
    if len(sizes) > 1 or None in sizes or 0 in sizes:
        shown = ", ".join(sorted(str(size) for size in sizes)[:5])
        raise DataError(f"{place}: expected lists of one length, got lengths {shown}")
    flat = pa.concat_arrays([chunk.flatten() for chunk in column.chunks])
    numbers = flat.cast(pa.float32(), safe=False).fill_null(np.nan).to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(numbers.reshape(len(column), -1))
