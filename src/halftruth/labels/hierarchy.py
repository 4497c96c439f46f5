"""Class hierarchies: a present class implies its parents, an absent class excludes its children."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from halftruth.labels.checks import Array, check_classes, unknown_class
from halftruth.labels.codes import ABSENT, PRESENT, as_array


@dataclass(frozen=True)
class Hierarchy:
    """The ancestors of every class.

    >>> animals = Hierarchy.of([("cat", "animal"), ("dog", "animal")], ["cat", "dog", "animal"])
    >>> animals.complete([[1, 0, 0], [0, 0, -1]])
    array([[ 1,  0,  1],
           [-1, -1, -1]], dtype=int8)
    """

    classes: tuple[str, ...]
    # (K, K) True where the column is an ancestor of the row.
    ancestors: np.ndarray

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, str]], classes: Sequence[str]) -> "Hierarchy":
        """Return the hierarchy of (child, parent) pairs; a class may have several parents."""
        names = check_classes(classes)
        position = {name: k for k, name in enumerate(names)}
        ancestors = np.zeros((len(names), len(names)), dtype=bool)
        for child, parent in pairs:
            for name in (child, parent):
                if name not in position:
                    raise ValueError(f"hierarchy: {unknown_class(name, names)}")
            ancestors[position[child], position[parent]] = True
        # Parents of parents, until nothing is added.
        while True:
            more = ancestors | (ancestors.astype(np.float32) @ ancestors.astype(np.float32) > 0)
            if (more == ancestors).all():
                break
            ancestors = more
        circle = np.flatnonzero(ancestors.diagonal())
        if len(circle):
            shown = ", ".join(repr(names[k]) for k in circle[:5])
            raise ValueError(f"hierarchy: these classes are their own ancestors: {shown}")
        return cls(names, ancestors)

    def complete(self, labels: Array) -> np.ndarray:
        """Return the labels with everything that follows from them.

        A present class with an absent ancestor is an error.
        """
        values = as_array(labels, classes=self.classes).copy()
        up = self.ancestors.astype(np.float32)
        implied = (values == PRESENT).astype(np.float32) @ up > 0
        excluded = (values == ABSENT).astype(np.float32) @ up.T > 0
        clash = np.argwhere((implied & (values == ABSENT)) | (excluded & (values == PRESENT)))
        if len(clash):
            row, column = (int(number) for number in clash[0])
            raise ValueError(self._describe(values[row], row, column, len(np.unique(clash[:, 0]))))
        values[implied] = PRESENT
        values[excluded] = ABSENT
        return values

    def _describe(self, row: np.ndarray, number: int, column: int, rows: int) -> str:
        if row[column] == ABSENT:
            children = self.ancestors[:, column] & (row == PRESENT)
            child, parent = self.classes[int(children.argmax())], self.classes[column]
        else:
            parents = self.ancestors[column] & (row == ABSENT)
            child, parent = self.classes[column], self.classes[int(parents.argmax())]
        return (
            f"row {number}: {child!r} is present, but {parent!r}, which it implies, is absent "
            f"({rows:,} rows contradict the hierarchy); correct the labels or the hierarchy"
        )
