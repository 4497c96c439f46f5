"""Items with more than one row: refuse, merge or keep them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np

from halftruth.data.errors import DataError, option
from halftruth.labels import ABSENT, PRESENT, UNKNOWN, LabelMatrix

Duplicates = Literal["error", "merge", "keep"]


def repeated_rows(items: np.ndarray) -> np.ndarray:
    """The rows whose item has an earlier row.

    >>> repeated_rows(np.array(["a", "b", "a"]))
    array([2])
    """
    _, first = np.unique(items, return_index=True)
    return np.setdiff1d(np.arange(len(items)), first)


def resolve_duplicates(
    labels: LabelMatrix,
    how: Duplicates,
    *,
    where: Callable[[int], str],
    listed: bool,
) -> LabelMatrix:
    """Apply `how` to items with several rows.

    Merging combines the rows: PRESENT and ABSENT replace UNKNOWN. PRESENT against ABSENT is an
    error in class columns; in `listed` labels the lists are joined.
    """
    if how not in get_args(Duplicates):
        raise DataError(f"duplicates must be one of {get_args(Duplicates)}, got {how!r}")
    if labels.items is None or how == "keep":
        return labels
    again = repeated_rows(labels.items)
    if not len(again):
        return labels
    if how == "error":
        name = str(labels.items[again[0]])
        first = int(np.flatnonzero(labels.items == name)[0])
        raise DataError(
            f"{where(int(again[0]))}: {name!r} already has a row at {where(first)} ({len(again):,} "
            f"rows repeat an item); remove them, or pass {option('duplicates', 'merge')} to "
            "combine their labels"
        )
    return _merge(labels, listed)


def _merge(labels: LabelMatrix, listed: bool) -> LabelMatrix:
    assert labels.items is not None
    _, first, which = np.unique(labels.items, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))  # keeps the order in which items first appear
    target = rank[which.ravel()]
    kept = np.sort(first)
    present = np.zeros((len(kept), len(labels.classes)), dtype=bool)
    absent = np.zeros_like(present)
    np.logical_or.at(present, target, labels.values == PRESENT)
    np.logical_or.at(absent, target, labels.values == ABSENT)
    clash = np.argwhere(present & absent)
    if len(clash) and not listed:
        row, column = clash[0]
        raise DataError(
            f"cannot merge the rows of {str(labels.items[kept[row]])!r}: class "
            f"{labels.classes[column]!r} is present in one and absent in another"
        )
    split = labels.split
    if split is not None:
        moved = np.flatnonzero(split[kept][target] != split)
        if len(moved):
            raise DataError(
                f"cannot merge the rows of {str(labels.items[moved[0]])!r}: splits differ"
            )
        split = split[kept]
    values = np.where(present, PRESENT, np.where(absent, ABSENT, UNKNOWN)).astype(np.int8)
    return LabelMatrix(values, labels.classes, labels.items[kept], split, labels.notes)
