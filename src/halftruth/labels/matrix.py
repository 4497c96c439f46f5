"""`LabelMatrix`: labels with the names of their classes and rows, as read from a file."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from halftruth.labels.checks import check_classes
from halftruth.labels.codes import ABSENT, PRESENT, UNKNOWN, as_array
from halftruth.labels.soft_labels import check_soft, check_weights


@dataclass(frozen=True, eq=False)
class LabelMatrix:
    """Labels with the names of their columns and rows; `dataclasses.replace` changes a field.

    >>> pets = LabelMatrix(np.array([[1, 0], [-1, 0]]), ("cat", "dog"), items=["a.jpg", "b.jpg"])
    >>> print(pets.describe())
    2 of 4 labels are known: 1 present, 1 absent; 2 rows x 2 classes, 0.50 present per row, \
1 row (50.0 %) without a present label; most often present: cat (1); never present: dog
    """

    values: np.ndarray
    classes: tuple[str, ...]
    items: np.ndarray | None = None
    split: np.ndarray | None = None
    notes: tuple[str, ...] = ()  # how the file was read, for `describe`
    # Probabilities of presence (N, K), NaN where unknown; `values` has the more probable code.
    soft: np.ndarray | None = None
    # How much labels count in training: per row (N, 1) or per label (N, K).
    weights: np.ndarray | None = None

    def __post_init__(self) -> None:
        classes = check_classes(self.classes)
        values = as_array(self.values, classes=classes)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "classes", classes)
        for field in ("items", "split"):
            given = getattr(self, field)
            if given is not None:
                object.__setattr__(self, field, check_one_text_per_row(field, given, len(values)))
        if self.soft is not None:
            soft = check_soft(self.soft)
            if soft.shape != values.shape:
                raise ValueError(f"expected soft labels of shape {values.shape}, got {soft.shape}")
            object.__setattr__(self, "soft", soft)
        if self.weights is not None:
            object.__setattr__(self, "weights", check_weights(self.weights, values.shape))

    def __len__(self) -> int:
        return len(self.values)

    def select(self, rows: Any) -> "LabelMatrix":
        """Select rows by an index array, a boolean mask or a slice, in that order."""
        rows = rows if isinstance(rows, slice) else np.asarray(rows)
        if not isinstance(rows, slice) and not rows.size:
            rows = rows.astype(np.intp)
        items = None if self.items is None else self.items[rows]
        split = None if self.split is None else self.split[rows]
        soft = None if self.soft is None else self.soft[rows]
        weights = None if self.weights is None else self.weights[rows]
        return LabelMatrix(self.values[rows], self.classes, items, split, self.notes, soft, weights)

    def ignore_weightless(self) -> "LabelMatrix":
        """Return the labels with UNKNOWN where the weight is 0, so that nothing counts them.

        >>> pets = LabelMatrix([[1, -1]], ("cat", "dog"), weights=[[0, 1]])
        >>> pets.ignore_weightless().values
        array([[ 0, -1]], dtype=int8)
        """
        if self.weights is None:
            return self
        known = self.values != UNKNOWN if self.soft is None else ~np.isnan(self.soft)
        ignored = (self.weights <= 0) & known
        if not ignored.any():
            return self
        return replace(
            self,
            values=np.where(ignored, np.int8(UNKNOWN), self.values),
            soft=None if self.soft is None else np.where(ignored, np.nan, self.soft),
            notes=(*self.notes, f"{ignored.sum():,} labels have the weight 0 and count as unknown"),
        )

    def positives_per_class(self) -> np.ndarray:
        """(K,) the number of rows in which each class is PRESENT."""
        return np.count_nonzero(self.values == PRESENT, axis=0)

    def positives_per_row(self) -> np.ndarray:
        """(N,) the number of PRESENT classes of each row."""
        return np.count_nonzero(self.values == PRESENT, axis=1)

    def empty_rows(self) -> np.ndarray:
        """(N,) True for rows without a PRESENT label."""
        return self.positives_per_row() == 0

    def describe(self) -> str:
        """Describe the labels in one line: counts, rare classes, how the file was read."""
        absent = int(np.count_nonzero(self.values == ABSENT))
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


def check_one_text_per_row(field: str, given: Any, rows: int) -> np.ndarray:
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
