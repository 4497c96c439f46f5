"""What the user knows of the labels: prevalences of classes, and classes labelled completely."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from halftruth.data import DataError
from halftruth.data.errors import nearest
from halftruth.data.readers.text_table import SUFFIXES, read_table
from halftruth.labels import PRESENT, UNKNOWN, SparseLabels
from halftruth.presence.probabilities import check_labels_per_row

# A level that people give is rounded.
_ROUNDED = 0.99


def read_prevalence(given: Sequence[str] | Mapping[Any, float], classes: Any) -> dict[int, float]:
    """Return the share of rows by class number.

    `given` is a mapping of class names to shares, or texts `class=0.1` and tables with the columns
    class and prevalence.

    >>> read_prevalence(["cat=0.1"], ["dog", "cat"])
    {1: 0.1}
    """
    pairs: list[tuple[Any, Any]] = list(given.items()) if isinstance(given, Mapping) else []
    for text in () if isinstance(given, Mapping) else given:
        if text.lower().endswith(SUFFIXES) and Path(text).is_file():
            table = read_table(Path(text)).columns
            if not {"class", "prevalence"} <= set(table):
                raise DataError(f"{text}: expected the columns class and prevalence")
            pairs += zip(table["class"], table["prevalence"], strict=True)
            continue
        name, equals, value = text.rpartition("=")
        if not equals:
            raise DataError(
                f"prevalence (--prevalence): expected class=0.1, or a table with the columns class "
                f"and prevalence, got {text!r}"
            )
        pairs.append((name, value))
    found: dict[int, float] = {}
    for name, value in pairs:
        share = _to_share(value)
        if share is None:
            raise DataError(
                f"prevalence (--prevalence): expected a share of the rows between 0 and 1 for "
                f"{name!r}, got {value!r}"
            )
        k = _find_class(name, classes, "prevalence (--prevalence)")
        if k in found:
            raise DataError(f"prevalence (--prevalence): {name!r} is given twice")
        found[k] = share
    return found


def find_complete_classes(
    names: Sequence[object], classes: Sequence[object] | np.ndarray, labels: np.ndarray
) -> np.ndarray | None:
    """(K,) which classes are labelled completely; None if no name is given."""
    if not len(names):
        return None
    option = "complete_classes (--complete-classes)"
    chosen = np.zeros(len(classes), dtype=bool)
    for name in names:
        k = _find_class(name, classes, option)
        chosen[k] = True
        if not (labels[:, k] == UNKNOWN).any():
            raise DataError(f"{option}: no effect, since no label of {name!r} is unknown")
    return chosen


def parse_label_priors(
    labels: Any,
    classes: Sequence[object] | np.ndarray,
    prevalence: Sequence[str] | Mapping[Any, float],
    complete_classes: Sequence[object],
    labels_per_row: float | None,
) -> tuple[dict[int, float], np.ndarray | None]:
    """Return prevalences by class number and complete classes (K,); contradictions are refused.

    `labels`: an array, or `SparseLabels` without prevalences and complete classes.
    """
    shares = read_prevalence(prevalence, classes)
    complete = find_complete_classes(complete_classes, classes, labels)
    for k in shares:
        known = not (labels[:, k] == UNKNOWN).any() or (complete is not None and complete[k])
        if known:
            raise DataError(
                f"prevalence (--prevalence): no effect for {classes[k]!r}, since its labels are "
                "complete"
            )
    try:
        check_labels_per_row(labels_per_row, len(classes), shares)
    except ValueError as error:
        raise DataError(str(error)) from error
    sparse = isinstance(labels, SparseLabels)
    per_row = labels.count_per_row() if sparse else (labels == PRESENT).sum(axis=1)
    least = float(per_row.mean()) if len(labels) else 0.0
    if labels_per_row is not None and labels_per_row < _ROUNDED * least:
        raise DataError(
            f"labels_per_row (--labels-per-row): expected at least {least:.4g}, the mean number of "
            f"labels that rows show, got {labels_per_row:g}"
        )
    for k, share in shares.items():
        if share < _ROUNDED * (own := float((labels[:, k] == PRESENT).mean())):
            raise DataError(
                f"prevalence (--prevalence): expected at least {own:.4g} for {classes[k]!r}, the "
                f"share of rows that show it, got {share:g}"
            )
    return shares, complete


def _to_share(value: str | float) -> float | None:
    try:
        share = float(value)
    except (TypeError, ValueError):
        return None
    return share if 0 < share < 1 else None


def _find_class(name: object, classes: Sequence[object] | np.ndarray, option: str) -> int:
    names = [str(one) for one in classes]
    if str(name) not in names:
        raise DataError(
            f"{option}: there is no class {str(name)!r} in the labels{nearest(str(name), names)}"
        )
    return names.index(str(name))
