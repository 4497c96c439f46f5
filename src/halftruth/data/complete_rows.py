"""Rows that are labelled completely: what their labels leave out is absent.

A file names such rows in one of two ways: a list of items, whose labels in the label file are
complete; or a second label file with the complete labels of some items. The second way keeps what
the label file showed at first, which tells how its labels were chosen.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from halftruth.data.errors import DataError, nearest, some
from halftruth.data.label_files import read_labels
from halftruth.data.readers.text_table import TEXT_SUFFIXES, read_text
from halftruth.labels import ABSENT, PRESENT, UNKNOWN, LabelMatrix
from halftruth.labels.soft_labels import give_weight

# A first line with one of these words is a heading.
_HEADINGS = {"item", "items", "image", "images", "row", "rows", "id", "name", "file"}


def add_complete_rows(
    labels: LabelMatrix, path: str | Path, reading: dict[str, object] | None = None
) -> tuple[LabelMatrix, np.ndarray | None]:
    """Return the labels with their complete rows, and the labels (N, K) that were shown at first.

    These are None where the file only names the rows. Complete labels that contradict the label
    file are refused. `reading`: how a second label file is read, if not as its format says.
    """
    header = _read_header(Path(path))
    if len(header) < 2:
        return apply_complete_rows(labels, read_complete_rows(path, labels), path), None
    given = _read_labels(Path(path), header, labels, reading or {})
    assert given.items is not None
    place = _place_items(labels, path)
    rows = np.array([place[str(item)] for item in given.items], dtype=np.intp)
    columns = np.array([labels.classes.index(name) for name in given.classes], dtype=np.intp)
    whole = np.full(labels.values.shape, ABSENT, dtype=np.int8)
    whole[np.ix_(rows, columns)] = np.where(given.values == PRESENT, PRESENT, ABSENT)
    named = _to_mask(rows, len(labels))
    _refuse_contradictions(labels, named, whole, path)
    filled, new = _fill(labels, named, whole, path)
    weights = None if labels.weights is None else give_weight(labels.weights, new)
    return replace(filled, weights=weights), labels.values


def _read_header(path: Path) -> list[str]:
    """The columns of the first line; one for a list of items, or for a file that is not text."""
    if not path.is_file():
        raise DataError(
            f"complete_rows (--complete-rows): there is no file {path}; expected a text file with "
            "one item of the label file per line, or a label file with the complete labels of some "
            "items"
        )
    if not path.read_bytes().strip():
        raise DataError(f"complete_rows (--complete-rows): {path} is empty; name the complete rows")
    if path.suffix.lower() == ".txt":
        return [""]
    if not path.name.lower().endswith(TEXT_SUFFIXES):
        return ["", ""]
    first = read_text(path).strip().splitlines()[0]
    return next(csv.reader([first.replace("\t", ",").replace(";", ",")]))


def _read_labels(
    path: Path, header: list[str], labels: LabelMatrix, reading: dict[str, Any]
) -> LabelMatrix:
    # Whatever is not present is absent, so the coding of the others does not matter here.
    own = {"split_column", "drop_columns", "duplicates", "zero", "blank"}
    kept = {name: value for name, value in reading.items() if name not in own}
    dropped = [name for name in reading.get("drop_columns", ()) if name in header]
    if split := [name for name in (reading.get("split_column"), "split") if name in header]:
        dropped.append(str(split[0]))
    given = read_labels(path, **kept, drop_columns=dropped)
    if labels.items is None or given.items is None:
        raise DataError(
            f"{path}: the items of both label files must be named, to match their rows; otherwise "
            "list the numbers of the complete rows in a .txt file"
        )
    if foreign := [name for name in given.classes if name not in labels.classes]:
        hint = nearest(foreign[0], labels.classes)
        raise DataError(f"{path}: the label file has no class {some(foreign)}{hint}")
    lost = [name for name in labels.classes if name not in given.classes]
    # A list names only the classes that are present; a table has a column for each.
    if lost and any(name in labels.classes for name in header):
        raise DataError(
            f"{path}: has no column {some(lost)}, so its labels are not complete; add the column"
        )
    place = _place_items(labels, path)
    if missing := [str(item) for item in given.items if str(item) not in place]:
        raise DataError(
            f"{path}: {len(missing):,} of its {len(given):,} items are not in the label file: "
            f"{some(missing)}{nearest(missing[0], place)}"
        )
    return given


def _place_items(labels: LabelMatrix, path: object) -> dict[str, int]:
    assert labels.items is not None
    place = {str(item): row for row, item in enumerate(labels.items)}
    if len(place) < len(labels):
        raise DataError(f"{path}: cannot be matched, since items of the label file occur twice")
    return place


def read_complete_rows(path: str | Path, labels: LabelMatrix) -> np.ndarray:
    """Read which rows are labelled completely; return a mask (N,).

    The file has one item of the label file per line, or row numbers, counted from 1, where the
    label file names no items.
    """
    path = Path(path)
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
    return _fill(labels, complete, np.full((1, 1), ABSENT, dtype=np.int8), source)[0]


def _fill(
    labels: LabelMatrix, rows: np.ndarray, whole: np.ndarray, source: object
) -> tuple[LabelMatrix, np.ndarray]:
    """The labels with those of `whole` where they are UNKNOWN in some rows, and which are new."""
    new = rows[:, None] & (labels.values == UNKNOWN)
    if not new.any():
        raise DataError(
            f"{source}: has no effect, since the labels of its {np.count_nonzero(rows):,} rows are "
            "all known already; leave it out"
        )
    soft = labels.soft
    if soft is not None:
        soft = np.where(new, (whole == PRESENT).astype(np.float32), soft)
    return replace(labels, stored=np.where(new, whole, labels.values), soft=soft), new


def _refuse_contradictions(
    labels: LabelMatrix, rows: np.ndarray, whole: np.ndarray, source: object
) -> None:
    """Refuse complete labels that say another thing than the label file shows."""
    wrong = rows[:, None] & (labels.values != UNKNOWN) & (labels.values != whole)
    if labels.soft is None and wrong.any():
        row, k = np.argwhere(wrong)[0]
        assert labels.items is not None
        names = {PRESENT: "present", ABSENT: "absent"}
        raise DataError(
            f"complete_rows (--complete-rows): {source} contradicts the label file in "
            f"{np.count_nonzero(wrong):,} labels: {labels.classes[k]!r} of {labels.items[row]}, "
            f"for instance, is {names[labels.values[row, k]]} in the label file and "
            f"{names[whole[row, k]]} in the complete labels; correct one of the two"
        )


def check_complete_rows(given: object, rows: int) -> np.ndarray:
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
    if array.size > len(np.unique(array)):
        raise ValueError(
            "expected the number of each complete row once; a mask of 0 and 1 must be of bool"
        )
    return _to_mask(array.astype(np.intp), rows)


def _to_mask(rows: np.ndarray | Sequence[int], count: int) -> np.ndarray:
    mask = np.zeros(count, dtype=bool)
    mask[rows] = True
    return mask


def _drop_heading(names: list[str], is_row: Callable[[str], bool]) -> list[str]:
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
