"""Label matrices in .npy and .npz files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from halftruth.data.errors import DataError, class_names, nearest
from halftruth.data.readers.array_file import find_matrix, load_arrays
from halftruth.data.readers.cell_codes import Coding, which_is_unknown
from halftruth.data.readers.duplicates import Duplicates, resolve_duplicates
from halftruth.labels import LabelMatrix

LABEL_KEYS = ("labels", "Y", "targets")
CLASS_KEYS = ("label_names", "class_names", "classes", "target_names")
ITEM_KEYS = ("items", "images", "image", "files", "file_names", "filenames", "paths")


def read_matrix(
    path: Path,
    coding: Coding,
    *,
    key: str | None = None,
    classes: Sequence[str] | None = None,
    split_column: str | None = None,
    duplicates: Duplicates = "error",
) -> LabelMatrix:
    """Labels of a matrix of 1 / 0 / -1 / NaN (or booleans).

    In a .npz, class names, items and splits are read from the keys with those names where they are
    texts; without class names the classes are called class0, class1, ...
    """
    arrays = load_arrays(path)
    matrix, split = find_matrix(arrays, LABEL_KEYS, key, path)
    rows, width = matrix.shape
    names = list(classes) if classes is not None else _texts(arrays, CLASS_KEYS, width)
    if names is None:
        names = [f"class{k}" for k in range(width)]
    if len(names) != width:
        raise DataError(
            f"{path}: the label matrix has {width} columns, but {len(names)} class names were given"
        )
    if split_column is not None and split_column not in arrays:
        raise DataError(
            f"{path}: split_column={split_column!r} is not a key{nearest(split_column, arrays)}"
        )
    if split_column is not None or split is None:
        given = _texts(arrays, [split_column or "split"], rows, numbers=split_column is not None)
        split = None if given is None else np.array(given, dtype=str)
    items = _texts(arrays, ITEM_KEYS, rows)
    labels = LabelMatrix(
        _decode(matrix, coding, names, path),
        class_names(names, path),
        None if items is None else np.array(items, dtype=str),
        split,
    )
    return resolve_duplicates(
        labels, duplicates, where=lambda row: f"{path} row {row}", listed=False
    )


def _decode(matrix: np.ndarray, coding: Coding, names: Sequence[str], path: Path) -> np.ndarray:
    blank = np.isnan(matrix) if matrix.dtype.kind == "f" else np.zeros(matrix.shape, dtype=bool)
    wrong = np.argwhere(~(blank | np.isin(matrix, (1, 0, -1))))
    if len(wrong):
        row, column = wrong[0]
        raise DataError(
            f"{path} row {row}, column {column} ({names[column]!r}): expected a label of 1, 0, -1 "
            f"or NaN, got {matrix[row, column]} ({len(wrong):,} such values)"
        )
    if coding.zero == coding.minus_one and (matrix == 0).any() and (matrix == -1).any():
        raise DataError(
            f"{path}: holds both 0 and -1, and both would mean {coding.zero}; {which_is_unknown()}"
        )
    meanings = coding.meanings()
    values = np.full(matrix.shape, meanings["blank"], dtype=np.int8)
    for code in (1, 0, -1):
        values[matrix == code] = meanings[str(code)]
    return values


def _texts(
    arrays: dict[str, np.ndarray], keys: Sequence[str], length: int, numbers: bool = False
) -> list[str] | None:
    """The first of `keys` that holds texts, one for each of `length` entries."""
    kinds = "Uiub" if numbers else "U"
    for key in keys:
        array = arrays.get(key)
        if array is not None and array.dtype.kind in kinds and array.shape == (length,):
            return [str(entry) for entry in array]
    return None
