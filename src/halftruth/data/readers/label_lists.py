"""Labels given as lists of names: a delimited column, COCO and VOC annotations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from halftruth.data.errors import DataError, nearest, option, some
from halftruth.data.readers.cell_codes import Coding
from halftruth.labels import PRESENT

SEPARATORS = ("|", ";", ",")


def matrix_of_lists(
    lists: Sequence[Sequence[str]],
    coding: Coding,
    *,
    where: Callable[[int], str],
    classes: Sequence[str] | None = None,
    blank_rows: np.ndarray | None = None,
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Lists of label names -> (N, K) int8 labels and the classes.

    A listed class is PRESENT, the others are what `coding.zero` says; rows of `blank_rows` say
    nothing at all and get `coding.blank`. Without `classes`, the names found are sorted.
    """
    if classes is None:
        classes = sort_names({name for row in lists for name in row})
    position = {name: k for k, name in enumerate(classes)}
    lengths = np.fromiter(map(len, lists), dtype=np.intp, count=len(lists))
    columns = [position.get(name, -1) for row in lists for name in row]
    which = np.repeat(np.arange(len(lists)), lengths)
    if -1 in columns:
        row = int(which[columns.index(-1)])
        strange = next(name for name in lists[row] if name not in position)
        raise DataError(
            f"{where(row)}: label {strange!r} is not among the {len(classes)} "
            f"classes{nearest(strange, classes)}"
        )
    values = np.full((len(lists), len(classes)), coding.unlisted, dtype=np.int8)
    if blank_rows is not None:
        values[blank_rows] = coding.meanings()["blank"]
    values[which, np.asarray(columns, dtype=np.intp)] = PRESENT
    return values, tuple(classes)


def sort_names(names: set[str]) -> list[str]:
    """Class names in alphabetical order; whole numbers in the order of numbers.

    >>> sort_names({"10", "9"}), sort_names({"dog", "cat"})
    (['9', '10'], ['cat', 'dog'])
    """
    if all(name.isascii() and name.isdigit() for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    return sorted(names)


def split_cells(
    cells: Sequence[str | list[str]],
    *,
    where: Callable[[int], str],
    sep: str | None = None,
    nothing: str | None = None,
) -> tuple[list[list[str]], np.ndarray]:
    """Cells such as `cat|dog` -> lists of names, and the rows whose cell is empty.

    `nothing` is the name that stands for "no label" (`No Finding`); it may not stand beside others.
    """
    if sep == "":
        raise DataError("sep must be the text between two labels, such as '|' or ' ', got ''")
    if sep is None:
        sep = detect_separator(["" if isinstance(cell, list) else cell for cell in cells], where)
    parts = (cell if isinstance(cell, list) else cell.split(sep) for cell in cells)
    lists = [[name for part in row if (name := part.strip())] for row in parts]
    blank = np.array([not row for row in lists], dtype=bool)
    if nothing is None:
        return lists, blank
    for row, names in enumerate(lists):
        if nothing in names and len(names) > 1:
            raise DataError(
                f"{where(row)}: {nothing!r} stands for no label, but is listed with others: "
                f"{some(names)}"
            )
    if not any(nothing in names for names in lists):
        hint = nearest(nothing, {name for names in lists for name in names})
        if hint:
            raise DataError(f"nothing={nothing!r} occurs in no row{hint}")
    return [[] if names == [nothing] else names for names in lists], blank


def detect_separator(cells: Sequence[str], where: Callable[[int], str]) -> str:
    """The one of | ; , that occurs; text with spaces and none of them needs `sep=`."""
    found = {}
    for mark in (*SEPARATORS, " "):
        row = next((row for row, cell in enumerate(cells) if mark in cell.strip()), None)
        if row is not None:
            found[mark] = row
    marks = [mark for mark in SEPARATORS if mark in found]
    if len(marks) > 1:
        places = " and ".join(f"{mark!r} ({where(found[mark])})" for mark in marks)
        raise DataError(f"labels could be separated by {places}; say which with {option('sep')}")
    if not marks and " " in found:
        row = found[" "]
        raise DataError(
            f"{where(row)}: is {cells[row]!r} one label or several? Pass sep=' ' (--sep ' ') if "
            "spaces separate labels, sep='|' if they belong to the names"
        )
    return marks[0] if marks else "|"
