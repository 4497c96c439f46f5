"""Keep or drop classes; find classes that occur together, or that some rows were not asked about.

An unknown label usually is a weak negative: a present class may have been left out, but often it
would have been named. Where the rows come from several sources, and a source does not know a class,
an unknown label says nothing at all, and must not count (`find_unannotated`).
"""

from collections.abc import Iterable

import numpy as np

from halftruth.labels.checks import Array, check_classes, class_columns, row_blocks
from halftruth.labels.codes import ABSENT, PRESENT, UNKNOWN, as_array

# A source has at least this share of the rows, and this many rows.
_LEAST_SHARE, _LEAST_ROWS = 0.05, 20


def class_filter(
    labels: Array,
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


def co_occurrence(labels: Array) -> np.ndarray:
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
    labels: Array, classes: Iterable[str], anchor: str, threshold: float = 0.5
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


def find_unannotated(labels: np.ndarray) -> np.ndarray | None:
    """Return (N, K) where a class was not asked about, by the labels alone; None if nowhere.

    Rows with the same unknown classes are a source if they are many, if each of their other
    classes is verified as absent in some of them, and if most of their known labels are absent.
    Labels that were hidden at random, or that a review has verified one by one, do not look so.

    >>> rows = np.repeat(np.array([[1, -1, 0], [0, 0, 1], [0, 0, -1], [-1, -1, 0]]), 20, axis=0)
    >>> find_unannotated(rows)[::20].astype(int)
    array([[0, 0, 1],
           [1, 1, 0],
           [1, 1, 0],
           [0, 0, 1]])
    """
    unknown = labels == UNKNOWN
    mixed = unknown.any(axis=1) & (labels == ABSENT).any(axis=1)
    least = max(_LEAST_ROWS, _LEAST_SHARE * len(labels))
    if mixed.sum() < least:
        return None
    _, source, counts = np.unique(
        np.packbits(unknown, axis=1), axis=0, return_inverse=True, return_counts=True
    )
    found = np.zeros(labels.shape, dtype=bool)
    for number in np.flatnonzero(counts >= least):
        rows = np.flatnonzero(source.ravel() == number)
        given = labels[rows][:, ~unknown[rows[0]]]
        absent = given == ABSENT
        if given.size and absent.any(axis=0).all() and 2 * absent.sum() >= absent.size:
            found[rows] = unknown[rows]
    return found if found.any() else None
