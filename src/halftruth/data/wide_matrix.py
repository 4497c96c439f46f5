"""Sparse matrices with many columns, such as all terms of a text.

A linear model takes them as they are. Models that need dense features use the columns that are most
associated with a present label.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from halftruth.labels import PRESENT

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

# Dense columns at most, and the memory that they may take for all rows.
MOST_FEATURES, FEWEST_FEATURES, MOST_BYTES = 2048, 128, 2 << 30


@dataclass(frozen=True, eq=False)
class WideMatrix:
    """A sparse matrix of features (N, D), and its columns for models that need dense features.

    As a NumPy array it is the dense matrix of those columns.
    """

    # scipy CSR, float32.
    sparse: csr_matrix
    columns: np.ndarray
    # The first so many columns are not sparse (a table next to a text); all of `columns` begin with
    # them.
    others: int = 0
    ndim: ClassVar[int] = 2

    @classmethod
    def from_sparse(cls, features: Any) -> WideMatrix | None:
        """Return a matrix of scipy with many columns as a wide one; None for anything else.

        With few columns it is made dense instead.
        """
        if isinstance(features, cls):
            return features
        if not hasattr(features, "toarray") or features.shape[1] <= MOST_FEATURES:
            return None
        return cls(features.tocsr().astype(np.float32), np.arange(0))

    @property
    def shape(self) -> tuple[int, int]:
        return tuple(self.sparse.shape)

    @property
    def nbytes(self) -> int:
        return int(sum(part.nbytes for part in self.parts))

    @property
    def parts(self) -> tuple[np.ndarray, ...]:
        """The arrays of the sparse matrix."""
        return self.sparse.indptr, self.sparse.indices, self.sparse.data

    @property
    def one_scale(self) -> np.ndarray:
        """The dense columns that keep their scales relative to each other."""
        return np.arange(self.others, len(self.columns))

    def __len__(self) -> int:
        return int(self.sparse.shape[0])

    def __getitem__(self, rows: np.ndarray | slice) -> WideMatrix:
        return WideMatrix(self.sparse[rows], self.columns, self.others)

    def __array__(self, dtype: np.dtype | None = None, copy: bool | None = None) -> np.ndarray:
        dense = np.empty((len(self), len(self.columns)), dtype=np.float32)
        for at in range(0, len(self), 4096):
            dense[at : at + 4096] = self.sparse[at : at + 4096][:, self.columns].toarray()
        return dense if dtype is None else dense.astype(dtype, copy=False)


# Features of rows: a dense matrix, or a sparse one with many columns.
Matrix = np.ndarray | WideMatrix


def choose_columns(
    matrix: csr_matrix, labels: np.ndarray | None, rows: int | None = None
) -> np.ndarray:
    """Return the columns of a sparse matrix that become dense, in their order.

    They are those most associated with a present label; without labels, those with the largest
    variance. `rows`: how many rows will be made dense, if others than these.
    """
    count = matrix.shape[0] if rows is None else rows
    size = min(MOST_FEATURES, max(MOST_BYTES // (4 * max(count, 1)), FEWEST_FEATURES))
    if labels is None:
        strength = np.asarray(matrix.multiply(matrix).mean(axis=0)).ravel()
        strength -= np.asarray(matrix.mean(axis=0)).ravel() ** 2
    else:
        strength = measure_association(matrix, labels)
    return np.sort(np.argsort(-strength, kind="stable")[:size])


def measure_association(matrix: csr_matrix, labels: np.ndarray) -> np.ndarray:
    """(V,) how much more a term occurs where a class is present: the largest z over the classes.

    Unknown labels are not counted as absent: the mean of a term over the rows of a class is
    compared with its mean over all rows.
    """
    rows = matrix.shape[0]
    mean = np.asarray(matrix.mean(axis=0)).ravel()
    squares = np.asarray(matrix.multiply(matrix).mean(axis=0)).ravel()
    spread = np.sqrt(np.maximum(squares - mean**2, 1e-12))
    present = labels == PRESENT
    strongest = np.full(matrix.shape[1], -np.inf)
    # In blocks, since terms x classes may not fit into memory.
    for at in range(0, labels.shape[1], 64):
        some = present[:, at : at + 64].astype(np.float32)
        count = some.sum(axis=0)
        some, count = some[:, count > 0], count[count > 0]
        if not len(count):
            continue
        # A class with few rows is judged as if it had some more rows like all the others.
        inside = (matrix.T @ some + mean[:, None]) / (count + 1)
        z = (inside - mean[:, None]) / spread[:, None] * np.sqrt(count * (1 - count / (rows + 1)))
        strongest = np.maximum(strongest, z.max(axis=1))
    return strongest
