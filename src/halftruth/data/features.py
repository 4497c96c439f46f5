"""Rows of features matched to those of the labels, by id or by position."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from halftruth.data.errors import DataError, find_twice, nearest, option, some
from halftruth.labels import PRESENT, LabelMatrix


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


def number_ids(ids: np.ndarray, place: str) -> dict[str, int]:
    """Return the row of each id; ids that occur twice are refused."""
    if twice := find_twice(ids):
        raise DataError(
            f"{place}: {len(twice):,} ids occur more than once: {some(twice)}; keep one row per id"
        )
    return {str(name): row for row, name in enumerate(ids)}


def find_rows(ids: np.ndarray, items: np.ndarray, place: str, other: str) -> np.ndarray:
    """For each item of `other`, the row of its id in `place`."""
    row_of = number_ids(ids, place)
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
    if names is None and values is not None and values.shape == labels.shape:
        positive = labels.values == PRESENT
        # Constant features are no labels.
        codes = np.isin(values, (-1, 0, 1)).all() and (values[positive] == 1).all()
        same = bool(codes and (values != values[:1]).any())
    if same:
        raise DataError(
            f"{place}: these features are labels"
            + (f" (the columns {some(sorted(shared))} are classes)" if shared else "")
            + "; give a file of features, or drop the label columns (Python: drop_columns=[...], "
            "command line: --read-features 'drop_columns=[...]')"
        )
