"""Sparse labels: only the codes that differ from the rest are stored, for thousands of classes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from halftruth.labels.codes import ABSENT, PRESENT, UNKNOWN

Indices = np.ndarray | Sequence[int]
Rows = Indices | slice
Shape = tuple[int, int]
# With more classes, `auto` on features keeps labels sparse, and trains the model of many classes.
MANY_CLASSES = 1_000


@dataclass(frozen=True, eq=False)
class SparseLabels:
    """Labels (N, K) by row: the columns and codes of the entries that are not `rest`.

    `start` (N + 1), `columns` and `codes` are those of scipy's CSR format. `rest` is the code of
    all other entries: UNKNOWN, or ABSENT where labels are complete.

    >>> labels = SparseLabels.from_lists([[2], [0, 1]], classes=3)
    >>> labels.to_dense()
    array([[0, 0, 1],
           [1, 1, 0]], dtype=int8)
    """

    start: np.ndarray
    columns: np.ndarray
    codes: np.ndarray
    classes: int
    rest: int = UNKNOWN

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.start) - 1, self.classes

    def __len__(self) -> int:
        return len(self.start) - 1

    @classmethod
    def from_entries(
        cls,
        rows: Indices,
        columns: Indices,
        codes: Indices | int,
        shape: Shape,
        rest: int = UNKNOWN,
    ) -> Self:
        """Return the labels with these entries, in any order; of repeated ones the first counts."""
        rows, columns = np.asarray(rows, np.int64), np.asarray(columns, np.int64)
        codes = np.broadcast_to(np.asarray(codes, np.int8), rows.shape)
        _, first = np.unique(rows * shape[1] + columns, return_index=True)
        kept = first[codes[first] != rest]
        start = np.concatenate([[0], np.cumsum(np.bincount(rows[kept], minlength=shape[0]))])
        return cls(start, columns[kept].astype(np.int32), codes[kept], shape[1], rest)

    @classmethod
    def from_lists(cls, lists: Sequence[Indices], classes: int, rest: int = UNKNOWN) -> Self:
        """Return the labels of rows that list the numbers of their present classes."""
        lengths = np.fromiter(map(len, lists), dtype=np.int64, count=len(lists))
        columns = np.array([column for row in lists for column in row], dtype=np.int64)
        rows = np.repeat(np.arange(len(lists)), lengths)
        return cls.from_entries(rows, columns, PRESENT, (len(lists), classes), rest)

    @classmethod
    def from_scipy(cls, matrix: Any, rest: int = UNKNOWN) -> "SparseLabels":
        """Return the labels of a scipy sparse matrix of 1 and -1; entries of 0 are `rest`."""
        given = matrix.tocoo()
        wrong = np.flatnonzero(~np.isin(given.data, (1, 0, -1)))
        if len(wrong):
            at = wrong[0]
            raise ValueError(
                f"labels[{given.row[at]}, {given.col[at]}] is {given.data[at]}; expected 1 "
                f"(present), 0 (unknown) or -1 (absent); {len(wrong):,} such values"
            )
        known = given.data != 0
        return cls.from_entries(
            given.row[known], given.col[known], given.data[known], given.shape, rest
        )

    @classmethod
    def from_dense(cls, values: np.ndarray) -> "SparseLabels":
        """Return the same labels; the rest is UNKNOWN, or ABSENT if no label is unknown."""
        rest = UNKNOWN if (values == UNKNOWN).any() else ABSENT
        rows, columns = np.nonzero(values != rest)
        return cls.from_entries(rows, columns, values[rows, columns], values.shape, rest)

    def to_dense(self, rows: Rows | None = None, classes: slice | None = None) -> np.ndarray:
        """Return the int8 matrix of some rows (all) and a block of classes (all)."""
        low, high, _ = (classes or slice(None)).indices(self.classes)
        some = self if rows is None else self.select(rows)
        values = np.full((len(some), high - low), self.rest, dtype=np.int8)
        inside = (some.columns >= low) & (some.columns < high)
        values[some.row_of_entries()[inside], some.columns[inside] - low] = some.codes[inside]
        return values

    def select(self, rows: Rows) -> "SparseLabels":
        """Return some rows, by an index array, a mask or a slice."""
        rows = np.arange(len(self))[rows]
        first, length = self.start[rows], np.diff(self.start)[rows]
        start = np.concatenate([[0], np.cumsum(length)])
        at = np.arange(start[-1]) + np.repeat(first - start[:-1], length)
        return SparseLabels(start, self.columns[at], self.codes[at], self.classes, self.rest)

    def select_classes(self, columns: Indices) -> "SparseLabels":
        """Return the labels of some classes, in this order; one of number -1 has no entry."""
        columns = np.asarray(columns)
        place = np.full(self.classes + 1, -1)
        place[columns] = np.arange(len(columns))
        found = place[self.columns]
        kept = found >= 0
        rows = self.row_of_entries()[kept]
        shape = (len(self), len(columns))
        return self.from_entries(rows, found[kept], self.codes[kept], shape, self.rest)

    def row_of_entries(self) -> np.ndarray:
        """Return the row of each entry."""
        return np.repeat(np.arange(len(self)), np.diff(self.start))

    def count_per_class(self, code: int = PRESENT) -> np.ndarray:
        """(K,) the number of rows in which each class has this code."""
        stored = np.bincount(self.columns[self.codes == code], minlength=self.classes)
        if code == self.rest:
            stored = stored + len(self) - np.bincount(self.columns, minlength=self.classes)
        return stored

    def count_per_row(self) -> np.ndarray:
        """(N,) the number of PRESENT classes of each row."""
        return np.bincount(self.row_of_entries()[self.codes == PRESENT], minlength=len(self))
