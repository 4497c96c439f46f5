"""`LabelMatrix`: labels with the names of their classes and rows, as read from a file."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from halftruth.labels.checks import check_classes
from halftruth.labels.codes import ABSENT, PRESENT, UNKNOWN, as_array
from halftruth.labels.soft_labels import check_soft, check_weights
from halftruth.labels.sparse import SparseLabels

# More labels are not made dense, one byte each.
_MOST_DENSE = 2_000_000_000


@dataclass(frozen=True, eq=False)
class LabelMatrix:
    """Labels with the names of their columns and rows; `dataclasses.replace` changes a field.

    `stored` are the labels as an array (N, K), or as `SparseLabels` where there are thousands of
    classes; everything else is the same for both.

    >>> pets = LabelMatrix(np.array([[1, 0], [-1, 0]]), ("cat", "dog"), items=["a.jpg", "b.jpg"])
    >>> print(pets.describe())
    2 of 4 labels are known: 1 present, 1 absent; 2 rows x 2 classes, 0.50 present per row, \
1 row (50.0 %) without a present label; most often present: cat (1); never present: dog
    """

    stored: np.ndarray | SparseLabels
    classes: tuple[str, ...]
    items: np.ndarray | None = None
    split: np.ndarray | None = None
    notes: tuple[str, ...] = ()  # how the file was read, for `describe`
    # Probabilities of presence (N, K), NaN where unknown; `values` has the more probable code.
    soft: np.ndarray | None = None
    # How much labels count in training: per row (N, 1) or per label (N, K; not of sparse labels).
    weights: np.ndarray | None = None

    def __post_init__(self) -> None:
        classes = check_classes(self.classes)
        object.__setattr__(self, "classes", classes)
        if not isinstance(self.stored, SparseLabels):
            object.__setattr__(self, "stored", as_array(self.stored, classes=classes))
        elif len(classes) != self.stored.classes:
            raise ValueError(
                f"got {len(classes)} class names for labels of {self.stored.classes} columns"
            )
        for field in ("items", "split"):
            given = getattr(self, field)
            if given is not None:
                object.__setattr__(self, field, check_one_text_per_row(field, given, len(self)))
        if self.soft is not None:
            soft = check_soft(self.soft)
            if soft.shape != self.shape:
                raise ValueError(f"expected soft labels of shape {self.shape}, got {soft.shape}")
            object.__setattr__(self, "soft", soft)
        if self.weights is not None:
            weights = check_weights(self.weights, self.shape)
            if self.is_sparse and weights.shape[1] > 1:
                raise ValueError(f"with {len(classes):,} classes, weights are one number per row")
            object.__setattr__(self, "weights", weights)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and classes."""
        return len(self.stored), len(self.classes)

    @property
    def is_sparse(self) -> bool:
        """Whether only labels that differ from the rest are stored."""
        return isinstance(self.stored, SparseLabels)

    @cached_property
    def sparse(self) -> SparseLabels:
        """The labels in sparse storage."""
        stored = self.stored
        return stored if isinstance(stored, SparseLabels) else SparseLabels.from_dense(stored)

    @cached_property
    def values(self) -> np.ndarray:
        """The labels as an array (N, K) of int8; refused where that would be too large."""
        if not isinstance(self.stored, SparseLabels):
            return self.stored
        if (cells := len(self) * len(self.classes)) > _MOST_DENSE:
            raise ValueError(
                f"this needs all {len(self):,} rows x {len(self.classes):,} classes at once, and "
                f"{cells / 1e9:.1f} billion labels are too many; use fewer classes or rows"
            )
        return self.stored.to_dense()

    def take(self, rows: np.ndarray | slice) -> np.ndarray:
        """Return the labels of some rows as an array (n, K), without those of the others."""
        stored = self.stored
        return stored.to_dense(rows) if isinstance(stored, SparseLabels) else stored[rows]

    def __len__(self) -> int:
        return len(self.stored)

    def select(self, rows: np.ndarray | slice | Sequence[int]) -> "LabelMatrix":
        """Select rows by an index array, a boolean mask or a slice, in that order."""
        rows = rows if isinstance(rows, slice) else np.asarray(rows)
        if not isinstance(rows, slice) and not rows.size:
            rows = rows.astype(np.intp)
        items = None if self.items is None else self.items[rows]
        split = None if self.split is None else self.split[rows]
        soft = None if self.soft is None else self.soft[rows]
        weights = None if self.weights is None else self.weights[rows]
        stored = self.stored
        stored = stored.select(rows) if isinstance(stored, SparseLabels) else stored[rows]
        return LabelMatrix(stored, self.classes, items, split, self.notes, soft, weights)

    def ignore_weightless(self) -> "LabelMatrix":
        """Return the labels with UNKNOWN where the weight is 0, so that nothing counts them.

        >>> pets = LabelMatrix([[1, -1]], ("cat", "dog"), weights=[[0, 1]])
        >>> pets.ignore_weightless().values
        array([[ 0, -1]], dtype=int8)
        """
        if self.weights is None or self.is_sparse:
            # Rows of weight 0 are in no part of a run.
            return self
        known = self.values != UNKNOWN if self.soft is None else ~np.isnan(self.soft)
        ignored = (self.weights <= 0) & known
        if not ignored.any():
            return self
        return replace(
            self,
            stored=np.where(ignored, np.int8(UNKNOWN), self.values),
            soft=None if self.soft is None else np.where(ignored, np.nan, self.soft),
            notes=(*self.notes, f"{ignored.sum():,} labels have the weight 0 and count as unknown"),
        )

    def positives_per_class(self) -> np.ndarray:
        """(K,) the number of rows in which each class is PRESENT."""
        return self._count_per_class(int(PRESENT))

    def positives_per_row(self) -> np.ndarray:
        """(N,) the number of PRESENT classes of each row."""
        if isinstance(self.stored, SparseLabels):
            return self.stored.count_per_row()
        return np.count_nonzero(self.stored == PRESENT, axis=1)

    def _count_per_class(self, code: int) -> np.ndarray:
        if isinstance(self.stored, SparseLabels):
            return self.stored.count_per_class(code)
        return np.count_nonzero(self.stored == code, axis=0)

    def empty_rows(self) -> np.ndarray:
        """(N,) True for rows without a PRESENT label."""
        return self.positives_per_row() == 0

    def describe(self) -> str:
        """Describe the labels in one line: counts, rare classes, how the file was read."""
        absent = int(self._count_per_class(int(ABSENT)).sum())
        counts, per_row = self.positives_per_class(), self.positives_per_row()
        return describe_labels(self.classes, counts, per_row, absent, self.notes)


def describe_labels(
    classes: Sequence[str],
    counts: np.ndarray,
    per_row: np.ndarray,
    absent: int,
    notes: Sequence[str],
) -> str:
    """Describe labels in one line, by the present labels per class and per row."""
    rows, present, empty = len(per_row), int(counts.sum()), int((per_row == 0).sum())
    parts = [
        f"{present + absent:,} of {rows * len(counts):,} labels are known: {present:,} present, "
        f"{absent:,} absent",
        f"{rows:,} row{'s' * (rows != 1)} x {len(counts):,} class{'es' * (len(counts) != 1)}, "
        f"{present / max(rows, 1):.2f} present per row, {empty:,} row{'s' * (empty != 1)} "
        f"({empty / max(rows, 1):.1%}) without a present label".replace("%", " %"),
    ]
    if present:
        top = int(counts.argmax())
        parts.append(f"most often present: {classes[top]} ({counts[top]:,})")
    never = [classes[int(k)] for k in np.flatnonzero(counts == 0)]
    if never:
        more = f" and {len(never) - 5:,} more" if len(never) > 5 else ""
        parts.append(f"never present: {', '.join(never[:5])}{more}")
    return "; ".join([*parts, *notes])


def check_one_text_per_row(field: str, given: np.ndarray | Sequence[str], rows: int) -> np.ndarray:
    """Check that there is one text per row."""
    texts = np.asarray(given)
    if texts.dtype.kind == "O" and all(isinstance(text, str) for text in texts.flat):
        texts = texts.astype(str)
    if texts.size and texts.dtype.kind != "U":
        raise TypeError(f"expected {field} to be text, one for each row, got {texts.dtype}")
    if texts.shape != (rows,):
        raise ValueError(
            f"expected {field} to have one entry for each of {rows:,} rows, got shape {texts.shape}"
        )
    return texts
