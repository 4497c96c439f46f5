"""Items with more than one row: refuse, merge or keep them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import get_args

import numpy as np

from halftruth.data.errors import DataError, check_choice, option
from halftruth.labels import (
    ABSENT,
    PRESENT,
    UNKNOWN,
    LabelMatrix,
    SparseLabels,
    count_votes,
    harden,
)
from halftruth.reading import Duplicates


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
    error in class columns; in `listed` labels the lists are joined. With "vote" the rows are labels
    of several annotators: see :func:`halftruth.labels.count_votes`.
    """
    check_choice("duplicates", how, get_args(Duplicates))
    if labels.items is None:
        if how in ("merge", "vote"):
            raise DataError(
                f"{option('duplicates', how)}: combines the rows of an item, but no column names "
                f"the items; name it with {option('image_column')}"
            )
        return labels
    if how == "vote" and labels.is_sparse:
        raise DataError(
            f"votes are soft labels, which are not available with {len(labels.classes):,} "
            f"classes; pass {option('duplicates', 'merge')} to join the lists of an item"
        )
    again = repeated_rows(labels.items)
    if not len(again):
        text = (
            f"warning: no item has more than one row, so {option('duplicates', how)} has no effect"
        )
        said = [text] if how in ("merge", "vote") else []
        return replace(labels, notes=(*labels.notes, *said))
    if how == "keep":
        return labels
    if how == "error":
        name = str(labels.items[again[0]])
        first = int(np.flatnonzero(labels.items == name)[0])
        raise DataError(
            f"{where(int(again[0]))}: {name!r} already has a row at {where(first)} ({len(again):,} "
            f"rows repeat an item); remove them, pass {option('duplicates', 'merge')} to "
            f"combine their labels, or {option('duplicates', 'vote')} if they are votes"
        )
    return _vote(labels) if how == "vote" else _merge(labels, listed)


def _vote(labels: LabelMatrix) -> LabelMatrix:
    assert labels.items is not None
    if labels.soft is not None or labels.weights is not None:
        raise DataError("duplicates='vote' is for hard labels without weights")
    target, kept = _group(labels.items)
    soft, count = count_votes(labels.values, target, len(kept))
    note = f"votes of up to {int(np.bincount(target).max()):,} annotators per item"
    return LabelMatrix(
        harden(soft), labels.classes, labels.items[kept], _split_of(labels, target, kept),
        (*labels.notes, note), soft, count,
    )  # fmt: skip


def _group(items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(N,) the number of the item of each row, and the first row of each item, in their order."""
    _, first, which = np.unique(items, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    return rank[which.ravel()], np.sort(first)


def _split_of(labels: LabelMatrix, target: np.ndarray, kept: np.ndarray) -> np.ndarray | None:
    """The split of each item; all of its rows must be in one."""
    split = labels.split
    if split is None:
        return None
    moved = np.flatnonzero(split[kept][target] != split)
    if len(moved) and labels.items is not None:
        raise DataError(f"cannot merge the rows of {str(labels.items[moved[0]])!r}: splits differ")
    return split[kept]


def _merge(labels: LabelMatrix, listed: bool) -> LabelMatrix:
    assert labels.items is not None
    if labels.soft is not None or labels.weights is not None:
        raise DataError(
            "duplicates='merge' is for hard labels without weights; keep one row per item"
        )
    target, kept = _group(labels.items)
    shape, split = (len(kept), len(labels.classes)), _split_of(labels, target, kept)
    if isinstance(given := labels.stored, SparseLabels):
        rows = target[given.row_of_entries()]
        joined = SparseLabels.from_entries(rows, given.columns, given.codes, shape, given.rest)
        return LabelMatrix(joined, labels.classes, labels.items[kept], split, labels.notes)
    present, absent = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=bool)
    np.logical_or.at(present, target, labels.values == PRESENT)
    np.logical_or.at(absent, target, labels.values == ABSENT)
    clash = np.argwhere(present & absent)
    if len(clash) and not listed:
        row, column = clash[0]
        raise DataError(
            f"cannot merge the rows of {str(labels.items[kept[row]])!r}: class "
            f"{labels.classes[column]!r} is present in one and absent in another; if the rows are "
            f"votes of several annotators, pass {option('duplicates', 'vote')}"
        )
    values = np.where(present, PRESENT, np.where(absent, ABSENT, UNKNOWN)).astype(np.int8)
    return LabelMatrix(values, labels.classes, labels.items[kept], split, labels.notes)
