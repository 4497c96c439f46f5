"""Keep or drop classes, and find classes that occur together."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from halftruth.labels.checks import check_classes, class_columns, row_blocks
from halftruth.labels.codes import PRESENT, as_array


def class_filter(
    labels: Any,
    classes: Iterable[str],
    *,
    keep: Iterable[str] | None = None,
    drop: Iterable[str] | None = None,
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Keep the columns of some classes, or drop them; the order stays.

    Rows stay, even those without a PRESENT label left: the any-class presence paper (section 6.7)
    makes its empty rows from COCO in this way.

    >>> class_filter([[1, 0, -1]], ["person", "tie", "cat"], drop=["person", "tie"])
    (array([[-1]], dtype=int8), ('cat',))
    """
    if (keep is None) == (drop is None):
        raise ValueError("expected either keep= or drop=, a list of class names")
    names = check_classes(classes)
    values = as_array(labels, classes=names)
    if keep is not None:
        columns = np.unique(class_columns(keep, names))
    else:
        columns = np.setdiff1d(np.arange(len(names)), class_columns(drop or (), names))
    if not len(columns):
        raise ValueError(f"no class of {len(names)} would be left")
    return np.ascontiguousarray(values[:, columns]), tuple(names[k] for k in columns)


def co_occurrence(labels: Any) -> np.ndarray:
    """(K, K) the number of rows in which both classes are PRESENT; the diagonal counts each class.

    >>> co_occurrence([[1, 1], [1, 0], [1, -1]]).tolist()
    [[3, 1], [1, 1]]
    """
    values = as_array(labels)
    counts = np.zeros((values.shape[1], values.shape[1]), dtype=np.int64)
    for rows in row_blocks(values):
        present = (values[rows] == PRESENT).astype(np.float32)
        counts += (present.T @ present).astype(np.int64)  # exact: a block has under 2^24 rows
    return counts


def correlated_classes(
    labels: Any, classes: Iterable[str], anchor: str, threshold: float = 0.5
) -> dict[str, float]:
    """Find classes that occur with the anchor in at least `threshold` of their rows.

    Returns share(c) = rows with c and anchor / rows with c, from high to low. Given to drop= of
    :func:`class_filter` with the anchor, they leave empty rows (any-class presence, 6.7).

    >>> labels = [[1, 1, 0], [1, 1, 0], [1, 0, 1], [0, 0, 1], [0, 0, 1]]
    >>> correlated_classes(labels, ["person", "tie", "cat"], "person")
    {'tie': 1.0}
    """
    names = check_classes(classes)
    together = co_occurrence(as_array(labels, classes=names))
    anchor_column = class_columns([anchor], names)[0]
    rows = np.diagonal(together)
    share = np.divide(together[anchor_column], rows, out=np.full(len(names), -1.0), where=rows > 0)
    share[anchor_column] = -1.0
    order = np.argsort(-share, kind="stable")
    return {names[k]: float(share[k]) for k in order if share[k] >= max(threshold, 0)}
