"""Feature sources as columns: numbers, texts (categories) and vectors, with the ids of the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from halftruth.data.errors import DataError, nearest, refuse_twice, some
from halftruth.data.features import align_features, check_features
from halftruth.data.readers.arff import read_arff_features
from halftruth.data.readers.arrow_file import ArrowFile, table_to_arrays
from halftruth.data.readers.cell_codes import BLANK, TRUTH_WORDS
from halftruth.data.readers.cells import number_rows
from halftruth.data.readers.label_table import SPLIT_COLUMNS
from halftruth.data.readers.numpy_file import find_items, find_matrix, load_arrays
from halftruth.data.readers.text_table import (
    INDEX_COLUMNS,
    ITEM_COLUMNS,
    SUFFIXES,
    Table,
    find_item_column,
    index_ids,
    plain,
    read_table,
)
from halftruth.data.remote import is_remote, local_file
from halftruth.data.shards import ARROW, PARQUET, expand_shards
from halftruth.labels import LabelMatrix
from halftruth.labels.checks import row_blocks
from halftruth.reading import ArffLabels

if TYPE_CHECKING:
    import pandas as pd

FEATURE_KEYS = ("X", "features", "feats", "embeddings")
# The name of the only column of a file that is a bare matrix.
MATRIX = ""


@dataclass(frozen=True)
class FeatureColumns:
    """The columns of one source of features, one entry per row.

    A column is an array (N,) of float64 with NaN where a value is missing, an array (N,) of texts
    with None where a value is missing, or a matrix (N, D) of float32 (a vector per row).
    """

    columns: dict[str, np.ndarray]
    ids: np.ndarray | None
    place: str
    # The names of all columns of the file.
    header: tuple[str, ...] = ()
    # The place of each row, for messages.
    places: Sequence[str] | None = None

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @property
    def names(self) -> list[str] | None:
        """The names of the columns; None for a bare matrix."""
        return None if MATRIX in self.columns else list(self.columns)

    def select(self, rows: np.ndarray) -> FeatureColumns:
        """Select rows by number."""
        ids = None if self.ids is None else self.ids[rows]
        columns = {name: column[rows] for name, column in self.columns.items()}
        return FeatureColumns(columns, ids, self.place, self.header)

    def to_matrix(self) -> np.ndarray:
        """Return the columns as a float32 matrix (N, D); every value must be a finite number."""
        for name, column in self.columns.items():
            is_text = column.dtype == object
            if is_text or (name != MATRIX and np.isnan(column).any()):
                wrong = (k for k, cell in enumerate(column) if is_text or np.isnan(cell).any())
                row = next(wrong)
                place = f"{self.place} row {row + 1}" if self.places is None else self.places[row]
                got = repr(str(column[row])) if is_text else "no value"
                raise DataError(
                    f"{place}, column {name!r}: expected a number, got {got}; fill it in, or, if "
                    f"the column is not a feature, drop it with drop_columns=[{name!r}]"
                )
        parts = [c if c.ndim > 1 else c[:, None] for c in self.columns.values()]
        matrix = parts[0] if len(parts) == 1 else np.hstack(parts)
        check_features(matrix, place=self.place, names=self.names)
        return matrix.astype(np.float32, copy=False)


def read_features(
    source: Any,
    key: str | None = None,
    *,
    labels: LabelMatrix | None = None,
    drop_columns: Sequence[str] = (),
    arff_labels: ArffLabels = None,
) -> np.ndarray:
    """Read features as a float32 matrix (N, D), from a file or a DataFrame.

    Every value must be a finite number. With `labels`, there is one row per row of the labels: by
    id where the features have ids, otherwise in the same order. A .npz with `X_train` and `X_test`
    is joined in this order, as `read_labels` joins `Y_train` and `Y_test`.

    >>> import pandas as pd
    >>> read_features(pd.DataFrame({"f0": [0.5], "f1": [1.0]}, index=["a"]))
    array([[0.5, 1. ]], dtype=float32)
    """
    if hasattr(source, "columns"):
        found = feature_columns_from_frame(source, drop_columns=drop_columns)
    else:
        found = read_feature_columns(
            source, key, drop_columns=drop_columns, arff_labels=arff_labels
        )
    matrix = found.to_matrix()
    if labels is None:
        return matrix
    return align_features(matrix, found.ids, labels, place=found.place, names=found.names)


def read_feature_columns(
    path: str | Path,
    key: str | None = None,
    *,
    drop_columns: Sequence[str] = (),
    categorical: Sequence[str] = (),
    arff_labels: ArffLabels = None,
    lenient: bool = False,
) -> FeatureColumns:
    """Read a .npy, .npz, CSV, TSV, JSON-lines, Parquet, Arrow or ARFF file as columns of features.

    A folder of Parquet or Arrow files, or a pattern (`parts/*.parquet`), is one table.

    Columns with a usual name for items give the ids; split columns and `drop_columns` are left out.
    A column of texts has categories, and so has a column of numbers that `categorical` names. A
    Parquet or JSON-lines column of lists of numbers is a vector per row. `lenient`: names of
    columns that this file does not have are not an error.
    """
    path = Path(path)
    name = path.name.lower()
    shards = expand_shards(path)
    sharded = all(one.name.lower().endswith((*PARQUET, *ARROW)) for one in shards)
    if is_remote(path) and not sharded:
        with local_file(path) as copy:
            return read_feature_columns(
                copy, key, drop_columns=drop_columns, categorical=categorical,
                arff_labels=arff_labels, lenient=lenient,
            )  # fmt: skip
    tabular = name.endswith(SUFFIXES) or sharded
    if key is not None and not name.endswith((".npy", ".npz")):
        raise DataError(f"{path}: key={key!r} is for .npz files")
    for argument, given in (("drop_columns", drop_columns), ("categorical", categorical)):
        if given and not tabular and not lenient:
            raise DataError(f"{path}: {argument} is for tables ({', '.join(SUFFIXES)})")
    if name.endswith((".npy", ".npz")):
        arrays = load_arrays(path, mapped=True)
        matrix, _ = find_matrix(arrays, FEATURE_KEYS, key, path)
        return bare_matrix(matrix, find_items(arrays, len(matrix)), str(path))
    if name.endswith((".arff", ".arff.gz")):
        matrix = read_arff_features(path, arff_labels=arff_labels)
        return bare_matrix(matrix, None, str(path))
    if not tabular:
        raise DataError(f"{path}: expected .npy, .npz, .arff or a table ({', '.join(SUFFIXES)})")
    if sharded:
        columns = read_shards(shards)
        places: Sequence[str] = number_rows(str(path))
    else:
        table = read_table(path)
        columns, places = _arrays_of_cells(table), table.places
    if lenient:
        drop_columns = [name for name in drop_columns if name in columns]
        categorical = [name for name in categorical if name in columns]
    return select_feature_columns(columns, places, str(path), drop_columns, categorical)


def read_shards(shards: Sequence[Path]) -> dict[str, np.ndarray]:
    """Read Parquet or Arrow files with the same columns into memory, one below the other."""
    import pyarrow as pa

    files = [ArrowFile(path) for path in shards]
    refuse_other_columns(files)
    try:
        table = pa.concat_tables(
            [block for file in files for block in file.blocks(None, 1 << 20)],
            promote_options="permissive",
        )
    except pa.ArrowException as error:
        raise DataError(
            f"{shards[0]} and {len(shards) - 1:,} more: have columns of different kinds: {error}"
        ) from error
    return table_to_arrays(table, str(shards[0]))


def refuse_other_columns(files: Sequence[ArrowFile]) -> None:
    """Refuse shards that do not have the columns of the first."""
    first = files[0]
    for file in files[1:]:
        if other := set(file.schema.names) ^ set(first.schema.names):
            raise DataError(
                f"{file.path}: has other columns than {first.path}: {some(sorted(other))} are in "
                "one only"
            )


def feature_columns_from_frame(
    frame: pd.DataFrame, *, drop_columns: Sequence[str] = (), categorical: Sequence[str] = ()
) -> FeatureColumns:
    """Convert a pandas DataFrame; the ids are a column with a usual name or the index."""
    names = [str(name) for name in frame.columns]
    refuse_twice(names, "DataFrame")
    if not len(frame):
        raise DataError("DataFrame: has no rows")
    columns = {name: _array_of_series(frame.iloc[:, k], name) for k, name in enumerate(names)}
    places = number_rows("DataFrame", first=0)
    found = select_feature_columns(columns, places, "DataFrame", drop_columns, categorical)
    return found if found.ids is not None else replace(found, ids=index_ids(frame))


def select_feature_columns(
    columns: dict[str, np.ndarray],
    places: Sequence[str],
    place: str,
    drop_columns: Sequence[str],
    categorical: Sequence[str],
    part: bool = False,
) -> FeatureColumns:
    """Find the ids, leave out split and dropped columns, and check the values of the others.

    `part`: these are some of the rows; texts stay texts, since others may not be numbers.
    """
    for argument, given in (("drop_columns", drop_columns), ("categorical", categorical)):
        for name in given:
            if name not in columns:
                raise DataError(
                    f"{argument}={name!r} (--read-features): there is no such column"
                    f"{nearest(name, columns)}; the columns are {some(list(columns), 12)}"
                )
    kept = {name: column for name, column in columns.items() if name not in drop_columns}
    scalars = {name: column for name, column in kept.items() if column.ndim == 1}
    # Whether an index only counts the rows cannot be told from some of them.
    item = find_item_column(
        {name: column for name, column in scalars.items() if not (part and name in INDEX_COLUMNS)}
    )
    ids = None if item is None else _as_ids(kept[item], item, places)
    skipped = {name for name in scalars if plain(name) in ITEM_COLUMNS}
    skipped |= {name for name in kept if plain(name) in SPLIT_COLUMNS or name in INDEX_COLUMNS}
    chosen: dict[str, np.ndarray] = {}
    for name, column in kept.items():
        if name in skipped:
            continue
        if name in categorical:
            column = as_texts(column)
        elif column.dtype == object and not part:
            column = numbers_if_all(column)
        if column.dtype != object:
            _check_finite(column, name, places)
        chosen[name] = column
    if not chosen:
        raise DataError(f"{place}: expected columns of features, but none is left")
    return FeatureColumns(chosen, ids, place, tuple(columns), places)


def has_gaps(values: np.ndarray) -> bool:
    """Whether a value is missing; in blocks, since a matrix on disk may not fit into memory."""
    return any(bool(np.isnan(values[rows]).any()) for rows in row_blocks(values))


def as_texts(column: np.ndarray) -> np.ndarray:
    """The values of a column as texts; None where they are missing.

    >>> as_texts(np.array([1.0, 2.5, np.nan])).tolist()
    ['1', '2.5', None]
    """
    if column.ndim != 1:
        raise DataError("a column of vectors has no categories")
    if column.dtype == object:
        return column
    return np.array([None if np.isnan(v) else f"{v:.15g}" for v in column], dtype=object)


def as_numbers(column: np.ndarray, name: str, place: str) -> np.ndarray:
    """The values of a column that must hold numbers."""
    if column.dtype != object:
        return column
    numbers = [_number(cell) for cell in column]
    if None in numbers:
        row = numbers.index(None)
        raise DataError(
            f"{place} row {row + 1}, column {name!r}: expected a number, as in training, got "
            f"{column[row]!r}"
        )
    return np.array(numbers, dtype=np.float64)


def _number(cell: str | None) -> float | None:
    """The number of a cell, NaN where it is missing, None for any other text."""
    if cell is None:
        return float("nan")
    token = cell.strip().lower()
    if token in TRUTH_WORDS:
        return 1.0 if TRUTH_WORDS[token] == "true" else 0.0
    try:
        return float(token)
    except ValueError:
        return None


def numbers_if_all(column: np.ndarray) -> np.ndarray:
    """A column of texts as numbers if all of them are numbers, or all are true and false."""
    kinds = {cell: cell.strip().lower() in TRUTH_WORDS for cell in set(column.tolist()) - {None}}
    if not kinds or (any(kinds.values()) and not all(kinds.values())):
        return column
    numbers = {cell: _number(cell) for cell in kinds}
    if None in numbers.values():
        return column
    known: dict[object, float | None] = {**numbers, None: float("nan")}
    return np.fromiter(map(known.__getitem__, column), dtype=np.float64, count=len(column))


def _arrays_of_cells(table: Table) -> dict[str, np.ndarray]:
    """The columns of a table of texts; blank cells are missing."""
    columns = {}
    for name, cells in table.columns.items():
        if any(isinstance(cell, list) for cell in cells):
            columns[name] = _stack_lists(cells, name, table.where)
            continue
        blank = {cell: cell.strip().lower() in BLANK for cell in set(cells)}
        columns[name] = np.array([None if blank[c] else c.strip() for c in cells], dtype=object)
    return columns


def _stack_lists(cells: Sequence[object], name: str, where: Callable[[int], str]) -> np.ndarray:
    """Lists of numbers, all of one length, as a matrix."""
    size = len(cells[0]) if isinstance(cells[0], list) else 0
    for row, cell in enumerate(cells):
        if not isinstance(cell, list) or len(cell) != size or not size:
            got = f"{len(cell)} entries" if isinstance(cell, list) else repr(cell)
            raise DataError(
                f"{where(row)}, column {name!r}: expected a list of {size or 'some'} numbers as in "
                f"the first row, got {got}"
            )
    try:
        return np.array(cells, dtype=np.float32)
    except ValueError as error:
        raise DataError(
            f"{where(0)}, column {name!r}: expected lists of numbers: {error}"
        ) from None


def _array_of_series(series: pd.Series, name: str) -> np.ndarray:
    """A column of a DataFrame as numbers, texts or vectors."""
    import pandas as pd

    kinds = pd.api.types
    if kinds.is_bool_dtype(series.dtype) or kinds.is_numeric_dtype(series.dtype):
        if kinds.is_complex_dtype(series.dtype):
            raise DataError(f"DataFrame column {name!r}: expected real numbers, got complex ones")
        return np.asarray(series.to_numpy(dtype=np.float64, na_value=np.nan))
    missing = series.isna().tolist()
    values = series.tolist()
    if any(isinstance(value, list | tuple | np.ndarray) for value in values):
        lists = [list(v) if isinstance(v, list | tuple | np.ndarray) else v for v in values]
        return _stack_lists(lists, name, lambda row: f"DataFrame row {row}")
    if kinds.is_datetime64_any_dtype(series.dtype) or kinds.is_timedelta64_dtype(series.dtype):
        raise DataError(
            f"DataFrame column {name!r}: expected numbers, texts or lists of numbers, got "
            f"{series.dtype}; convert it to a number or drop it"
        )
    texts = [
        None if gone or str(value).strip().lower() in BLANK else str(value).strip()
        for value, gone in zip(values, missing, strict=True)
    ]
    return np.array(texts, dtype=object)


def _as_ids(column: np.ndarray, name: str, places: Sequence[str]) -> np.ndarray:
    texts = as_texts(column)
    blank = next((row for row, text in enumerate(texts) if text is None), None)
    if blank is not None:
        raise DataError(f"{places[blank]}: column {name!r} is blank; expected a name")
    return texts.astype(str)


def bare_matrix(
    matrix: np.ndarray, ids: np.ndarray | None, place: str, first: int = 0
) -> FeatureColumns:
    """The columns of a matrix; `first`: the number of its first row, for messages."""
    with np.errstate(over="ignore"):
        values = np.ascontiguousarray(matrix, dtype=np.float32)
    # In blocks, since a matrix on disk may not fit into memory.
    counts = [int(np.isinf(values[rows]).sum()) for rows in row_blocks(values)]
    if sum(counts):
        start = next(rows.start for rows, n in zip(row_blocks(values), counts, strict=True) if n)
        row, column = np.argwhere(np.isinf(values[start:]))[0] + (start, 0)
        raise DataError(
            f"{place} row {row + first}, column {column}: expected a finite float32 number, got "
            f"{matrix[row, column]} ({sum(counts):,} such values); fill or remove them"
        )
    return FeatureColumns({MATRIX: values}, ids, place)


def _check_finite(column: np.ndarray, name: str, places: Sequence[str]) -> None:
    """Refuse values that float32 cannot hold; NaN is a missing value."""
    with np.errstate(over="ignore"):
        wrong = np.isinf(column.astype(np.float32, copy=False))
    if wrong.any():
        row = int(wrong.any(axis=tuple(range(1, column.ndim))).argmax())
        got = column[row] if column.ndim == 1 else "an infinite entry"
        raise DataError(
            f"{places[row]}, column {name!r}: expected a finite float32 number, got {got} "
            f"({int(wrong.sum()):,} such values); fill or remove them"
        )
