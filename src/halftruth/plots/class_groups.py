"""Classes joined into categories: person, car and bus become people and vehicles."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import yaml

from halftruth.data import DataError
from halftruth.labels import LabelMatrix


def read_groups(path: Path) -> dict[str, list[str]]:
    """Categories and their classes from a YAML file, `vehicles: [car, bus]`."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise DataError(f"{path}: cannot be read as YAML: {error}") from error
    right = isinstance(values, dict) and all(isinstance(v, list) and v for v in values.values())
    if not right or not values:
        raise DataError(f"{path}: expected lines such as `vehicles: [car, bus]`")
    return {str(name): [str(one) for one in classes] for name, classes in values.items()}


def grouped(
    labels: LabelMatrix, truth: np.ndarray | None, groups: dict[str, list[str]]
) -> tuple[LabelMatrix, np.ndarray | None]:
    """A column a category: present where one of its classes is, absent where all are.

    Classes that no category names stay by themselves.

    >>> pets = LabelMatrix(np.array([[1, 0, -1], [-1, -1, 0]]), ("cat", "dog", "car"))
    >>> joined, _ = grouped(pets, None, {"pets": ["cat", "dog"]})
    >>> joined.classes, joined.values.tolist()
    (('pets', 'car'), [[1, -1], [-1, 0]])
    """
    named = [one for classes in groups.values() for one in classes]
    strange = sorted(set(named) - set(labels.classes))
    twice = sorted({one for one in named if named.count(one) > 1})
    if strange or twice:
        what = f"there is no class {strange[0]!r}" if strange else f"{twice[0]!r} is named twice"
        raise DataError(f"groups: {what}; the classes are {', '.join(labels.classes)}")
    every = {**groups, **{one: [one] for one in labels.classes if one not in named}}
    place = {name: column for column, name in enumerate(labels.classes)}
    columns = [[place[one] for one in classes] for classes in every.values()]

    def joined(values: np.ndarray) -> np.ndarray:
        # PRESENT > UNKNOWN > ABSENT, so the largest is what is known of them together.
        return np.stack([values[:, some].max(axis=1) for some in columns], axis=1)

    matrix = replace(labels, values=joined(labels.values), classes=tuple(every))
    return matrix, None if truth is None else joined(truth)
