"""Hints: scores of other models, rules or people, for some items and some classes of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from halftruth.data.errors import DataError, nearest, some
from halftruth.data.feature_columns import MATRIX, read_feature_columns
from halftruth.data.features import number_ids
from halftruth.data.readers.numpy_file import find_items, find_matrix, load_arrays
from halftruth.data.readers.text_table import (
    INDEX_COLUMNS,
    ITEM_COLUMNS,
    find_item_column,
    index_ids,
    plain,
    read_table,
)

# Arrays of an .npz file that may hold the scores.
_KEYS = ("scores", "hints", "logits", "probabilities", "predictions")
# The classes that each column stands for.
Names = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Hint:
    """Scores (N, K) of the items and classes of a run, NaN where there is none."""

    scores: np.ndarray
    place: str
    note: str


def read_hint(
    source: object,
    classes: Sequence[str],
    items: Sequence[object] | np.ndarray | None,
    count: int,
    names: Names | None = None,
) -> Hint:
    """Read one hint and bring it into the order of `count` rows and of the classes.

    source: a table with one column per class and a column of ids, a DataFrame whose index or
    item column has the ids, a .npy or .npz file, or an array with the columns of `classes`. Rows
    are matched by id, without ids by position. Items and classes without a score have none (NaN).
    """
    columns, ids, place = _read(source)
    unused: list[str] = []
    if MATRIX in columns:
        found = np.asarray(columns[MATRIX], dtype=float)
        if found.ndim != 2 or found.shape[1] != len(classes):
            raise DataError(
                f"{place}: expected one column of scores per class ({len(classes)}), got an array "
                f"of shape {found.shape}; a table with the names of the classes may have fewer"
            )
    else:
        found, unused = _choose_columns(columns, classes, names or {}, place)
    if np.isinf(found).any():
        row, column = np.argwhere(np.isinf(found))[0]
        raise DataError(
            f"{place}: the score of {classes[column]!r} in row {row} is {found[row, column]}; "
            "expected a finite number, or nothing where there is no score"
        )
    scores = _match(found, ids, items, count, place)
    there = np.isfinite(scores)
    if not there.any():
        raise DataError(f"{place}: has no score at all for the rows and classes of this run")
    note = (
        f"{place}: scores of {there.any(axis=0).sum()} of {len(classes)} classes for "
        f"{there.any(axis=1).sum():,} of {count:,} rows"
    )
    constant = [
        name
        for name, column in zip(classes, scores.T, strict=True)
        if np.isfinite(column).sum() > 1 and np.ptp(column[np.isfinite(column)]) == 0
    ]
    highest = {
        name: float(np.nanmax(column))
        for name, column in zip(classes, scores.T, strict=True)
        if name not in constant and np.isfinite(column).any()
    }
    above = [name for name, value in highest.items() if value > 1]
    if np.nanmin(scores) >= 0 and 0 < len(above) < len(highest):
        note += f"; warning: above 1, unlike the other columns: {some(above)}; give one unit"
    if constant:
        note += f"; the same score in all rows, which tells nothing: {some(constant)}"
    if unused:
        note += (
            f"; not classes of this run, and left out: {some(unused)}{nearest(unused[0], classes)}"
        )
    return Hint(scores, place, note)


def read_hint_names(path: str | Path, classes: Sequence[str]) -> dict[str, list[str]]:
    """Read a table with the columns hint and class: which classes a column of a hint stands for.

    A column may stand for several classes. Where several columns stand for one class, the highest
    score counts.
    """
    table = read_table(Path(path))
    lost = [name for name in ("hint", "class") if name not in table.columns]
    if lost:
        raise DataError(
            f"{path}: expected a table with the columns hint and class, got "
            f"{some(list(table.columns))}"
        )
    found: dict[str, list[str]] = {}
    for row, (name, own) in enumerate(
        zip(table.texts("hint", "hint_names"), table.texts("class", "hint_names"), strict=True)
    ):
        if own not in classes:
            raise DataError(
                f"{table.where(row)}: there is no class {own!r}{nearest(own, classes)}; the "
                f"classes are {some(list(classes))}"
            )
        found.setdefault(name, []).append(own)
    return found


def read_hints(
    sources: Sequence[object],
    classes: Sequence[str],
    items: Sequence[object] | np.ndarray | None,
    count: int,
    names: Names | None = None,
) -> list[Hint]:
    """Read several hints with `read_hint`; every name must be a column of one of them."""
    found = [read_hint(source, classes, items, count, names) for source in sources]
    columns = {name for source in sources if names for name in _read(source)[0]}
    lost = [name for name in names or () if name not in columns]
    if lost and columns:
        raise DataError(
            f"hint_names: no hint has the column {lost[0]!r}{nearest(lost[0], sorted(columns))}; "
            f"the columns are {some(sorted(columns))}"
        )
    return found


def list_hints(hints: Any) -> list[Any]:
    """Return one hint, several or none as a list.

    >>> list_hints(None), list_hints("scores.csv"), list_hints(["a.csv", "b.csv"])
    ([], ['scores.csv'], ['a.csv', 'b.csv'])
    """
    if hints is None:
        return []
    several = isinstance(hints, list | tuple) and all(
        isinstance(one, str | Path) or hasattr(one, "columns") or np.ndim(one) == 2 for one in hints
    )
    return list(hints) if several else [hints]


def _read(source: Any) -> tuple[dict[str, object], np.ndarray | None, str]:
    """The columns by name (or one matrix), the ids of the rows, and a name for messages."""
    if isinstance(source, str | Path):
        path = Path(source)
        if not path.is_file():
            raise DataError(f"hints: there is no file {path}")
        if path.name.lower().endswith((".npy", ".npz")):
            arrays = load_arrays(path)
            matrix, _ = find_matrix(arrays, _KEYS, None, path)
            return {MATRIX: np.asarray(matrix)}, find_items(arrays, len(matrix)), str(path)
        found = read_feature_columns(path)
        return dict(found.columns), found.ids, str(path)
    if hasattr(source, "columns"):
        names = {str(name): source[name].to_numpy() for name in source.columns}
        chosen = find_item_column(names)
        ids = index_ids(source) if chosen is None else names[chosen].astype(str)
        skipped = [name for name in names if plain(name) in ITEM_COLUMNS or name in INDEX_COLUMNS]
        return {name: v for name, v in names.items() if name not in skipped}, ids, "hints"
    try:
        return {MATRIX: np.asarray(source, dtype=float)}, None, "hints"
    except (TypeError, ValueError) as error:
        raise DataError(
            f"hints: expected a file, a DataFrame or an array of numbers: {error}"
        ) from None


def _choose_columns(
    columns: dict[str, Any], classes: Sequence[str], names: Names, place: str
) -> tuple[np.ndarray, list[str]]:
    """Scores (rows, K) from named columns, and the columns that stand for no class."""
    rows = len(next(iter(columns.values())))
    out, unused = np.full((rows, len(classes)), np.nan), []
    position = {name: k for k, name in enumerate(classes)}
    for name, values in columns.items():
        own = names.get(name, [name] if name in position else [])
        if not own:
            unused.append(name)
            continue
        try:
            numbers = (
                np.array([np.nan if value is None else value for value in values], dtype=float)
                if np.asarray(values).dtype == object
                else np.asarray(values, dtype=float)
            )
        except (TypeError, ValueError) as error:
            raise DataError(f"{place}: column {name!r} does not hold numbers: {error}") from None
        for one in own:
            at = position[one]
            out[:, at] = np.fmax(out[:, at], numbers)
    if len(unused) == len(columns):
        raise DataError(
            f"{place}: none of its columns ({some(unused)}) is a class of this run "
            f"({some(list(classes))}){nearest(unused[0], classes)}; where the names differ, give a "
            "table with the columns hint and class (hint_names, --hint-names)"
        )
    return out, unused


def _match(
    scores: np.ndarray, ids: np.ndarray | None, items: Any, count: int, place: str
) -> np.ndarray:
    """Scores in the order of the rows of the run: by id, without ids by position."""
    if ids is None or items is None:
        if ids is not None and len(scores) != count:
            raise DataError(
                f"{place}: names its rows, but the rows of this run have no names to match them; "
                f"expected {count:,} rows in the same order, got {len(scores):,}"
            )
        if len(scores) != count:
            raise DataError(
                f"{place}: expected {count:,} rows in the order of the run's, got "
                f"{len(scores):,}; or name the rows in a column such as image or id"
            )
        return scores
    row_of = number_ids(ids, place)
    out = np.full((count, scores.shape[1]), np.nan)
    wanted = [str(item) for item in items]
    known = [row for row, name in enumerate(wanted) if name in row_of]
    if not known:
        raise DataError(
            f"{place}: none of its ids ({some(list(ids), 3)}) is an item of this run "
            f"({some(wanted, 3)}); rows are matched by id"
        )
    out[known] = scores[[row_of[wanted[row]] for row in known]]
    return out
