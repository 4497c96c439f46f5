"""Columns of Arrow tables as arrays of numbers, texts and vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from halftruth.data.errors import DataError
from halftruth.data.readers.cell_codes import BLANK


def table_to_arrays(table: Any, place: str) -> dict[str, np.ndarray]:
    """Convert the columns of an Arrow table without a detour over text.

    Numbers and booleans are float64 with NaN for nulls, texts are objects with None for nulls,
    lists of numbers are a float32 matrix.
    """
    return {
        name: _arrow_array(table[name], f"{place} column {name!r}") for name in table.column_names
    }


def _arrow_array(column: Any, place: str) -> np.ndarray:
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
