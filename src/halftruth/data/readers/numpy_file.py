"""Matrices in .npy and .npz files: found by key, joined where a file has train and test parts."""

from __future__ import annotations

import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from halftruth.data.errors import DataError, class_names, nearest
from halftruth.data.memory import check_memory
from halftruth.data.readers.cell_codes import Coding, which_is_unknown
from halftruth.data.readers.duplicates import resolve_duplicates
from halftruth.data.splits import SPLIT_NAMES
from halftruth.labels import (
    MANY_CLASSES,
    LabelMatrix,
    SparseLabels,
    check_soft,
    harden,
)
from halftruth.reading import Duplicates

# What NumPy raises for a damaged file; the header of an array is read as Python.
_DAMAGED = (
    OSError, ValueError, EOFError, KeyError, SyntaxError, tokenize.TokenError, zipfile.BadZipFile,
    zlib.error, NotImplementedError,
)  # fmt: skip

LABEL_KEYS = ("labels", "Y", "targets")
CLASS_KEYS = ("label_names", "class_names", "classes", "target_names")
ITEM_KEYS = ("items", "images", "image", "files", "file_names", "filenames", "paths")
ID_KEYS = ("ids", "id", "item_ids")
_ORDER = ("train", "val", "test")


def read_matrix(
    path: Path,
    coding: Coding,
    *,
    key: str | None = None,
    classes: Sequence[str] | None = None,
    split_column: str | None = None,
    soft: bool = False,
    duplicates: Duplicates = "error",
    sparse: bool = False,
) -> LabelMatrix:
    """Read a label matrix of 1 / 0 / -1 / NaN (or booleans), or a sparse one of scipy (.npz).

    In a .npz, class names, items and splits are read from keys of those names; without class names
    the classes are called class0, class1, ...
    """
    arrays = load_arrays(path)
    if {"format", "shape", "data"} <= arrays.keys():
        return _read_sparse(
            path, coding, classes, sparse, key=key, split_column=split_column, soft=soft
        )
    matrix, split = find_matrix(arrays, LABEL_KEYS, key, path)
    rows, width = matrix.shape
    names = _check_names(classes or _texts(arrays, CLASS_KEYS, width), width, path)
    if split_column is not None and split_column not in arrays:
        raise DataError(
            f"{path}: split_column={split_column!r} is not a key{nearest(split_column, arrays)}"
        )
    if split_column is not None or split is None:
        given = _texts(arrays, [split_column or "split"], rows, numbers=split_column is not None)
        split = None if given is None else np.array(given, dtype=str)
    shares = None
    if soft:
        try:
            shares = check_soft(matrix)
        except ValueError as error:
            raise DataError(f"{path}: {error}") from None
    labels = LabelMatrix(
        _decode(matrix, coding, names, path) if shares is None else harden(shares),
        names,
        find_items(arrays, rows),
        split,
        ("read as probabilities of presence",) if soft else (),
        shares,
    )
    return resolve_duplicates(
        labels, duplicates, where=lambda row: f"{path} row {row}", listed=False
    )


def _read_sparse(
    path: Path, coding: Coding, classes: Sequence[str] | None, sparse: bool, **others: object
) -> LabelMatrix:
    """The labels of a matrix that `scipy.sparse.save_npz` wrote; it takes no other options."""
    from scipy.sparse import load_npz

    if named := [name for name, value in others.items() if value]:
        raise DataError(
            f"{path}: {', '.join(named)} cannot be used with a sparse matrix of scipy, which holds "
            "nothing but labels of 1 and -1"
        )
    if coding.minus_one != "absent":
        raise DataError(f"{path}: in a sparse matrix -1 means absent; leave out minus_one=")
    try:
        found = SparseLabels.from_scipy(load_npz(path), coding.unlisted)
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: {error}") from None
    names = _check_names(classes, found.classes, path)
    if sparse and found.classes > MANY_CLASSES:
        return LabelMatrix(found, names)
    check_memory(
        len(found) * found.classes,
        f"a matrix of {len(found):,} rows x {found.classes:,} classes",
        "train on features with the default method (auto), which keeps labels sparse",
    )
    return LabelMatrix(found.to_dense(), names)


def _check_names(given: Sequence[str] | None, width: int, path: Path) -> tuple[str, ...]:
    """The names of the columns; class0, class1, ... where none are given."""
    names = [f"class{k}" for k in range(width)] if given is None else list(given)
    if len(names) != width:
        raise DataError(
            f"{path}: the label matrix has {width} columns, but {len(names)} class names were given"
        )
    return class_names(names, path)


def load_arrays(path: Path, mapped: bool = False) -> dict[str, np.ndarray]:
    """Load the arrays of a .npz by key, that of a .npy under the key ''; never unpickles.

    `mapped`: a .npy stays on disk, and only the parts that are used are read.
    """
    if not path.is_file():
        raise DataError(f"{path}: there is no such file")
    try:
        # "c": torch warns of arrays that cannot be written to; nothing is written to the file.
        if path.suffix.lower() == ".npy" and mapped:
            return {"": np.load(path, mmap_mode="c")}
        # `np.load` of a path leaves a damaged file open.
        with path.open("rb") as file:
            loaded = np.load(file)
            if isinstance(loaded, np.ndarray):
                return {"": loaded}
            return {key: loaded[key] for key in loaded.files}
    except _DAMAGED as error:
        # A message of zipfile may hold a part of the file.
        raise DataError(
            f"{path}: cannot be read as a NumPy file of numbers and texts: {str(error)[:200]}"
        ) from error


def find_matrix(
    arrays: dict[str, np.ndarray], usual: Sequence[str], key: str | None, path: Path
) -> tuple[np.ndarray, np.ndarray | None]:
    """Find the matrix under `key` or under a usual name, and the split of its rows.

    `Y_train` and `Y_test` (and `Y_val`) are joined in this order, with the split they name.
    """
    if "" in arrays:
        if key is not None:
            raise DataError(f"{path}: a .npy file holds one matrix; leave out key={key!r}")
        return _matrix(arrays[""], path), None
    if key is not None and key in arrays:
        return _matrix(arrays[key], f"{path} [{key}]"), None
    wanted = {name.lower() for name in (usual if key is None else [key])}
    found: dict[str, dict[str, str]] = {}
    for name in arrays:
        base, part = _part_of(name)
        if base.lower() in wanted:
            found.setdefault(base, {})[part] = name
    keys = f"the keys are {', '.join(arrays) or 'none'}"
    if not found and key is not None:
        raise DataError(f"{path}: has no key {key!r}{nearest(key, arrays)}; {keys}")
    if not found:
        raise DataError(f"{path}: no key is called {' or '.join(usual)}; choose with key=: {keys}")
    if len(found) > 1 or ("" in (parts := next(iter(found.values()))) and len(parts) > 1):
        raise DataError(f"{path}: more than one key is possible; choose with key=: {keys}")
    if "" in parts:
        return _matrix(arrays[parts[""]], f"{path} [{parts['']}]"), None
    ordered = [part for part in _ORDER if part in parts]
    blocks = [_matrix(arrays[parts[part]], f"{path} [{parts[part]}]") for part in ordered]
    if len({block.shape[1] for block in blocks}) > 1:
        widths = ", ".join(
            f"{parts[part]}: {block.shape[1]}" for part, block in zip(ordered, blocks, strict=True)
        )
        raise DataError(f"{path}: matrices to be joined differ in their columns ({widths})")
    return np.concatenate(blocks), np.repeat(ordered, [len(block) for block in blocks])


def find_items(arrays: dict[str, np.ndarray], rows: int) -> np.ndarray | None:
    """The names of the rows: texts under a key such as `items`, texts or numbers under `ids`."""
    found = _texts(arrays, ITEM_KEYS, rows) or _texts(arrays, ID_KEYS, rows, numbers=True)
    return None if found is None else np.array(found, dtype=str)


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


def _part_of(key: str) -> tuple[str, str]:
    """`Y_train` -> (`Y`, `train`); `labels` -> (`labels`, '')."""
    base, mark, part = key.rpartition("_")
    if mark and part.lower() in SPLIT_NAMES:
        return base, SPLIT_NAMES[part.lower()]
    return key, ""


def _matrix(array: np.ndarray, place: object) -> np.ndarray:
    if array.ndim != 2 or not array.shape[0] or not array.shape[1]:
        raise DataError(f"{place}: expected a matrix of rows x columns, got shape {array.shape}")
    if array.dtype.kind not in "biuf":
        raise DataError(f"{place}: expected numbers, got {array.dtype}")
    return array
