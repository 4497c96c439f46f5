"""Feature matrices: one row per item, matched to the labels by id."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from halftruth.data.errors import DataError, nearest, option, some
from halftruth.data.readers.arff import read_arff_features
from halftruth.data.readers.duplicates import repeated_rows
from halftruth.data.readers.label_table import SPLIT_COLUMNS
from halftruth.data.readers.numpy_file import find_items, find_matrix, load_arrays
from halftruth.data.readers.text_table import (
    INDEX_COLUMNS,
    ITEM_COLUMNS,
    SUFFIXES,
    Table,
    find_item_column,
    index_ids,
    is_number,
    plain,
    read_table,
    table_from_frame,
)
from halftruth.labels import PRESENT, LabelMatrix, SparseLabelMatrix
from halftruth.reading import ArffLabels

FEATURE_KEYS = ("X", "features", "feats", "embeddings")


def read_features(
    path: str | Path,
    key: str | None = None,
    *,
    labels: LabelMatrix | None = None,
    drop_columns: Sequence[str] = (),
    arff_labels: ArffLabels = None,
) -> np.ndarray:
    """Read the (N, D) float32 features of a .npy, .npz, CSV, TSV, Parquet or ARFF file.

    Every value must be finite. With `labels`, there is one row per row of the labels: a file with
    ids is matched to the items by id, a file without ids must have the same order (see
    `align_features`). A .npz with `X_train` and `X_test` is joined in this order, as `read_labels`
    joins `Y_train` and `Y_test`.
    """
    values, ids, names = _read(Path(path), key, drop_columns, arff_labels)
    if labels is None:
        return values
    return align_features(values, ids, labels, place=str(path), names=names)


def read_features_and_ids(
    path: str | Path,
    key: str | None = None,
    *,
    drop_columns: Sequence[str] = (),
    arff_labels: ArffLabels = None,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Read features and the ids of their rows; None if the file has no column of ids."""
    return _read(Path(path), key, drop_columns, arff_labels)[:2]


def align_features(
    values: np.ndarray,
    ids: np.ndarray | None,
    labels: LabelMatrix,
    *,
    place: str = "features",
    names: Sequence[str] | None = None,
) -> np.ndarray:
    """Put the rows of features into the order of the labels: by id, without ids by position.

    Items without features and ids that occur twice are errors, ids without labels a warning.
    Features that are the labels themselves are refused.
    """
    rows = match_rows(ids, len(values), labels, place)
    if rows is None:
        check_features(values, rows=len(labels), place=place)
    aligned = values if rows is None else values[rows]
    refuse_labels(aligned, labels, place, names)
    return aligned


def match_rows(
    ids: np.ndarray | None, count: int, labels: LabelMatrix, place: str
) -> np.ndarray | None:
    """For each row of the labels, the row of the features; None if they have the same order."""
    if ids is not None and labels.items is not None:
        if np.array_equal(ids, labels.items) and len(np.unique(ids)) == len(ids):
            # Without the tables of names that millions of rows would need.
            return None
        rows = find_rows(ids, labels.items, place, "the label file")
        return None if len(rows) == count and (np.diff(rows) == 1).all() else rows
    if ids is not None and not _counts_rows(ids):
        raise DataError(
            f"{place}: names its rows ({some(list(ids), 3)}), but the label file does not, so "
            f"they cannot be matched; name the labels' items with {option('image_column')}, "
            "or drop the column of ids if both files have the same order (Python: "
            "drop_columns=[...], command line: --read-features 'drop_columns=[...]')"
        )
    if count != len(labels):
        raise DataError(
            f"{place}: has {count:,} rows, but the labels have {len(labels):,}; both must list "
            "the same items in the same order"
        )
    return None


def features_from_frame(frame: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """Convert a pandas DataFrame of features into an (N, D) float32 array and the ids of its rows.

    The ids are a column with a usual item name (`image`, `id`, ...), otherwise the index, and None
    if the index is the default 0, 1, 2, ...

    >>> import pandas as pd
    >>> features_from_frame(pd.DataFrame({"f0": [0.5], "f1": [1.0]}, index=["a"]))
    (array([[0.5, 1. ]], dtype=float32), array(['a'], dtype='<U1'))
    """
    names = [str(name) for name in frame.columns]
    plain_names = [plain(name) for name in names]
    numeric = all(isinstance(kind, np.dtype) and kind.kind in "biuf" for kind in frame.dtypes)
    special = {*plain_names} & {*ITEM_COLUMNS, *SPLIT_COLUMNS} or {*names} & {*INDEX_COLUMNS}
    if len(frame) and numeric and not special:
        # Without the detour over text that a table of mixed columns takes.
        values, ids = frame.to_numpy(), None
    else:
        names, values, ids = _numbers(table_from_frame(frame), ())
    check_features(values, place="DataFrame", names=names)
    return values.astype(np.float32), index_ids(frame) if ids is None else ids


def check_features(
    features: np.ndarray,
    *,
    rows: int | None = None,
    place: str = "features",
    names: Sequence[str] | None = None,
) -> None:
    """Refuse a matrix of another length than the labels, or with values float32 cannot hold."""
    if features.ndim != 2 or 0 in features.shape:
        raise DataError(f"{place}: expected a matrix of rows x columns, got {features.shape}")
    if rows is not None and len(features) != rows:
        raise DataError(
            f"{place}: has {len(features):,} rows, but the labels have {rows:,}; both must list "
            "the same items in the same order"
        )
    if features.dtype.kind != "f":
        return
    with np.errstate(over="ignore"):
        finite = np.isfinite(features.astype(np.float32, copy=False))
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        called = "" if names is None else f" ({names[column]!r})"
        raise DataError(
            f"{place} row {row}, column {column}{called}: expected a finite float32 number, got "
            f"{features[row, column]} ({int((~finite).sum()):,} such values); fill or remove them"
        )


def _read(
    path: Path, key: str | None, drop_columns: Sequence[str], arff_labels: ArffLabels
) -> tuple[np.ndarray, np.ndarray | None, list[str] | None]:
    """Values, ids (None if there are none) and the columns' names (None for a bare matrix)."""
    name = path.name.lower()
    if key is not None and not name.endswith((".npy", ".npz")):
        raise DataError(f"{path}: key={key!r} is for .npz files")
    names: list[str] | None = None
    ids: np.ndarray | None = None
    if name.endswith((".npy", ".npz")):
        arrays = load_arrays(path)
        matrix, _ = find_matrix(arrays, FEATURE_KEYS, key, path)
        ids = find_items(arrays, len(matrix))
    elif name.endswith((".arff", ".arff.gz")):
        matrix = read_arff_features(path, arff_labels=arff_labels)
    elif name.endswith(SUFFIXES):
        names, matrix, ids = _numbers(read_table(path), drop_columns)
    else:
        raise DataError(f"{path}: expected .npy, .npz, .arff or a table ({', '.join(SUFFIXES)})")
    check_features(matrix, place=str(path), names=names)
    return np.ascontiguousarray(matrix, dtype=np.float32), ids, names


def find_rows(ids: np.ndarray, items: np.ndarray, place: str, other: str) -> np.ndarray:
    """For each item of `other`, the row of its id in `place`."""
    row_of = {str(name): row for row, name in enumerate(ids)}
    if len(row_of) < len(ids):
        twice = list(dict.fromkeys(str(name) for name in ids[repeated_rows(ids)]))
        raise DataError(
            f"{place}: {len(twice):,} ids occur more than once: {some(twice)}; keep one row per id"
        )
    wanted = [str(name) for name in items]
    missing = list(dict.fromkeys(name for name in wanted if name not in row_of))
    known = set(wanted)
    extra = [name for name in row_of if name not in known]
    if missing:
        unused = f"; ids without labels: {some(extra)}" if extra else ""
        raise DataError(
            f"{place}: {len(missing):,} of {len(known):,} items of {other} have no row: "
            f"{some(missing)}{nearest(missing[0], extra[:2000])}{unused}; rows are matched by id"
        )
    if extra:
        warnings.warn(
            f"{place}: {len(extra):,} of {len(ids):,} rows are not used, since {other} does "
            f"not have their ids: {some(extra)}",
            stacklevel=5,
        )
    return np.array([row_of[name] for name in wanted], dtype=np.intp)


def _counts_rows(ids: np.ndarray) -> bool:
    """Whether the ids are only row numbers, from 0 or from 1."""
    texts = [str(name) for name in ids]
    return any(texts == [str(n + start) for n in range(len(texts))] for start in (0, 1))


def refuse_labels(
    values: np.ndarray | None, labels: LabelMatrix, place: str, names: Sequence[str] | None
) -> None:
    """Refuse a label file given as features: a model would only have to copy its inputs."""
    shared = set(names or ()) & set(labels.classes)
    same = bool(shared) and (len(shared) == len(names or ()) or len(shared) == len(labels.classes))
    dense = not isinstance(labels, SparseLabelMatrix)
    if dense and names is None and values is not None and values.shape == labels.values.shape:
        positive = labels.values == PRESENT
        same = bool(np.isin(values, (-1, 0, 1)).all() and (values[positive] == 1).all())
    if same:
        raise DataError(
            f"{place}: these features are labels"
            + (f" (the columns {some(sorted(shared))} are classes)" if shared else "")
            + "; give a file of features, or drop the label columns (Python: drop_columns=[...], "
            "command line: --read-features 'drop_columns=[...]')"
        )


def _numbers(
    table: Table, drop_columns: Sequence[str]
) -> tuple[list[str], np.ndarray, np.ndarray | None]:
    """Names and values of the number columns, and the ids if a column has a usual item name."""
    for name in drop_columns:
        table.column(name, "drop_columns")
    kept = [name for name in table.columns if name not in drop_columns]
    item = find_item_column({name: table.columns[name] for name in kept})
    ids = None if item is None else np.array(table.texts(item, "image_column"), dtype=str)
    names = [name for name in kept if plain(name) not in (*ITEM_COLUMNS, *SPLIT_COLUMNS)]
    names = [name for name in names if name not in INDEX_COLUMNS]
    columns = []
    for name in names:
        cells = table.columns[name]
        row = next((k for k, cell in enumerate(cells) if not is_number(cell)), None)
        if row is not None:
            raise DataError(
                f"{table.where(row)}, column {name!r}: expected a number, got {cells[row]!r}; "
                f"if the column is not a feature, drop it with drop_columns=[{name!r}]"
            )
        columns.append(np.array([float(cell) for cell in cells]))
    if not columns:
        raise DataError(f"{table.where(0)}: expected columns of numbers, but none is left")
    return names, np.stack(columns, axis=1), ids
