"""Classes that nobody was asked about in some rows, as in files that were labelled separately.

An unknown label usually is a weak negative: a present class may have been left out, but often it
would have been named. Where the rows come from several sources, and a source does not know a class,
an unknown label says nothing at all, and must not count.
"""

import numpy as np

from halftruth.labels.codes import ABSENT, UNKNOWN

# A source has at least this share of the rows, and this many rows.
_LEAST_SHARE, _LEAST_ROWS = 0.05, 20


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
