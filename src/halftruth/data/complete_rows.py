"""Rows that are labelled completely: what their labels leave out is absent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from halftruth.data.errors import DataError, nearest, some
from halftruth.data.readers.text_table import read_text
from halftruth.labels import ABSENT, UNKNOWN, LabelMatrix

# A first line with one of these words is a heading.
_HEADINGS = {"item", "items", "image", "images", "row", "rows", "id", "name", "file"}


def read_complete_rows(path: str | Path, labels: LabelMatrix) -> np.ndarray:
    """Read which rows are labelled completely; return a mask (N,).

    The file has one item of the label file per line, or row numbers, counted from 1, where the
    label file names no items.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(
            f"complete_rows (--complete-rows): there is no file {path}; expected a text file with "
            "one item of the label file per line"
        )
    lines = [line.strip().strip('"') for line in read_text(path).splitlines()]
    names = [line for line in lines if line]
    if labels.items is None:
        rows = _read_numbers(names, len(labels), path)
    else:
        place = {str(item): row for row, item in enumerate(labels.items)}
        names = _drop_heading(names, lambda name: name in place)
        lost = [name for name in names if name not in place]
        if lost:
            raise DataError(
                f"{path}: {len(lost):,} of its {len(names):,} lines are not items of the label "
                f"file: {some(lost)}{nearest(lost[0], place)}; expected one item per line"
            )
        rows = [place[name] for name in names]
    if not rows:
        raise DataError(f"{path}: names no row; expected one item of the label file per line")
    return _to_mask(rows, len(labels))


def apply_complete_rows(labels: LabelMatrix, complete: np.ndarray, source: object) -> LabelMatrix:
    """Return the labels with UNKNOWN turned into ABSENT in the complete rows (a mask).

    PRESENT and ABSENT labels stay. It is an error if nothing changes.
    """
    new = complete[:, None] & (labels.values == UNKNOWN)
    if not new.any():
        raise DataError(
            f"{source}: has no effect, since the labels of its {np.count_nonzero(complete):,} rows "
            "are all known already; leave it out"
        )
    soft = None if labels.soft is None else np.where(new, np.float32(0), labels.soft)
    values = np.where(new, np.int8(ABSENT), labels.values)
    return replace(labels, values=values, soft=soft)


def check_complete_rows(given: Any, rows: int) -> np.ndarray:
    """Return row numbers, counted from 0, or a mask, as a mask (N,)."""
    array = np.asarray(given)
    if array.ndim != 1 or (array.dtype != bool and array.dtype.kind not in "iu" and array.size):
        raise ValueError(
            f"expected complete_rows as row numbers or as a mask of {rows:,} rows, got an array of "
            f"{array.dtype} with shape {array.shape}"
        )
    if array.dtype == bool:
        if len(array) != rows:
            raise ValueError(f"expected complete_rows for {rows:,} rows, got {len(array):,}")
        return array
    if array.size and (array.min() < 0 or array.max() >= rows):
        wrong = int(array.max() if array.max() >= rows else array.min())
        raise ValueError(
            f"expected complete_rows between 0 and {rows - 1:,}, counted from 0, got {wrong}"
        )
    return _to_mask(array.astype(np.intp), rows)


def _to_mask(rows: Any, count: int) -> np.ndarray:
    mask = np.zeros(count, dtype=bool)
    mask[rows] = True
    return mask


def _drop_heading(names: list[str], is_row: Any) -> list[str]:
    heading = names and names[0].lower() in _HEADINGS and not is_row(names[0])
    return names[1:] if heading else names


def _read_numbers(names: list[str], count: int, path: Path) -> list[int]:
    names = _drop_heading(names, str.isdigit)
    wrong = [name for name in names if not (name.isdigit() and 1 <= int(name) <= count)]
    if wrong:
        raise DataError(
            f"{path}: expected row numbers from 1 to {count:,}, one per line, since the label file "
            f"names no items; got {some(wrong)}"
        )
    return [int(name) - 1 for name in names]
