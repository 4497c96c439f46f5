"""Matrices in .npy and .npz files: found by key, joined where a file keeps train and test apart."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from halftruth.data.errors import DataError, nearest
from halftruth.data.splits import SPLIT_NAMES

_ORDER = ("train", "val", "test")


def load_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a .npz by key; that of a .npy under the key ''. Never unpickles."""
    if not path.is_file():
        raise DataError(f"{path}: there is no such file")
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"": loaded}
        with loaded:
            return {key: loaded[key] for key in loaded.files}
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{path}: cannot be read as a NumPy file of numbers and texts: {error}"
        ) from error


def find_matrix(
    arrays: dict[str, np.ndarray], usual: Sequence[str], key: str | None, path: Path
) -> tuple[np.ndarray, np.ndarray | None]:
    """The matrix under `key`, or under the one usual name, and the split of its rows.

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
        raise DataError(f"{path}: no key is called {' or '.join(usual)}; say which: {keys} (key=)")
    if len(found) > 1 or ("" in (parts := next(iter(found.values()))) and len(parts) > 1):
        raise DataError(f"{path}: more than one key could be meant; say which (key=): {keys}")
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
