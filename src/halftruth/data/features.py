"""Feature matrices: one row an item, in the order of the labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from halftruth.data.errors import DataError
from halftruth.data.readers.arff import ArffLabels, read_arff_features
from halftruth.data.readers.array_file import find_matrix, load_arrays
from halftruth.data.readers.columns import ITEM_COLUMNS, SPLIT_COLUMNS, plain
from halftruth.data.readers.text_table import (
    SUFFIXES,
    Table,
    index_ids,
    read_table,
    table_from_frame,
)

FEATURE_KEYS = ("X", "features", "feats", "embeddings")


def read_features(
    path: str | Path,
    key: str | None = None,
    *,
    rows: int | None = None,
    drop_columns: Sequence[str] = (),
    arff_labels: ArffLabels = None,
) -> np.ndarray:
    """The (N, D) float32 features of a .npy, .npz, CSV, TSV, Parquet or ARFF file.

    Every value must be finite; `rows` is the number of rows the labels have. A .npz with `X_train`
    and `X_test` is joined in this order, as `read_labels` joins `Y_train` and `Y_test`.
    """
    path = Path(path)
    name = path.name.lower()
    if key is not None and not name.endswith((".npy", ".npz")):
        raise DataError(f"{path}: key={key!r} is for .npz files")
    names: list[str] | None = None
    if name.endswith((".npy", ".npz")):
        matrix, _ = find_matrix(load_arrays(path), FEATURE_KEYS, key, path)
    elif name.endswith((".arff", ".arff.gz")):
        matrix = read_arff_features(path, arff_labels=arff_labels)
    elif name.endswith(SUFFIXES):
        names, matrix, _ = _numbers(read_table(path), drop_columns)
    else:
        raise DataError(f"{path}: expected .npy, .npz, .arff or a table ({', '.join(SUFFIXES)})")
    check_features(matrix, rows=rows, place=str(path), names=names)
    return np.ascontiguousarray(matrix, dtype=np.float32)


def features_from_frame(frame: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """Convert a pandas DataFrame of features into an (N, D) float32 array and the ids of its rows.

    The ids are a column with a usual item name (`image`, `id`, ...), otherwise the index, and None
    if the index is the default 0, 1, 2, ...

    >>> import pandas as pd
    >>> features_from_frame(pd.DataFrame({"f0": [0.5], "f1": [1.0]}, index=["a"]))
    (array([[0.5, 1. ]], dtype=float32), array(['a'], dtype='<U1'))
    """
    table = table_from_frame(frame)
    names, values, ids = _numbers(table, ())
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


def _numbers(
    table: Table, drop_columns: Sequence[str]
) -> tuple[list[str], np.ndarray, np.ndarray | None]:
    """Names and values of the number columns, and the ids if a column has a usual item name."""
    for name in drop_columns:
        table.column(name, "drop_columns")
    kept = [name for name in table.columns if name not in drop_columns]
    named = [name for name in kept if plain(name) in ITEM_COLUMNS]
    item = min(named, key=lambda name: ITEM_COLUMNS.index(plain(name)), default=None)
    ids = None if item is None else np.array(table.texts(item, "image_column"), dtype=str)
    names = [name for name in kept if plain(name) not in (*ITEM_COLUMNS, *SPLIT_COLUMNS)]
    columns = []
    for name in names:
        cells = table.columns[name]
        row = next((k for k, cell in enumerate(cells) if not _is_number(cell)), None)
        if row is not None:
            raise DataError(
                f"{table.where(row)}, column {name!r}: expected a number, got {cells[row]!r}; "
                f"if the column is not a feature, drop it with drop_columns=[{name!r}]"
            )
        columns.append(np.array([float(cell) for cell in cells]))
    if not columns:
        raise DataError(f"{table.where(0)}: expected columns of numbers, but none is left")
    return names, np.stack(columns, axis=1), ids


def _is_number(cell: object) -> bool:
    try:
        float(cell)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        return False
    return True
