"""Hide known labels, as the papers do to make incomplete data from complete data.

Every function takes (N, K) labels in the library's coding (complete ones as 0/1 or as -1/+1),
returns new int8 arrays, and depends only on its arguments: same seed, same result.
"""

# Annotations stay text: evaluating np.random.Generator would load numpy.random with the core.
from __future__ import annotations

import numpy as np

from halftruth.labels.checks import Array, row_blocks
from halftruth.labels.codes import PRESENT, as_array
from halftruth.seeds import check_seed


def single_positive(labels: Array, seed: int = 0) -> np.ndarray:
    """Keep one PRESENT label per row, chosen at random; all others, also ABSENT, are UNKNOWN.

    The single-positive setting of Cole et al. 2021; rows without a PRESENT label become empty.
    For the exact labels of their experiments see :func:`single_positive_published`.

    >>> single_positive([[1, 1, -1], [-1, 1, -1], [-1, -1, -1]], seed=0).tolist()
    [[0, 1, 0], [0, 1, 0], [0, 0, 0]]
    """
    values = _table(labels)
    counts = _positives(values)
    rank = _rng(seed).integers(0, np.maximum(counts, 1))
    return _keep_nth(values, rank)


def single_positive_published(labels: Array, seed: int = 1200) -> np.ndarray:
    """Keep exactly the one PRESENT label per row of the published experiments; others UNKNOWN.

    Cole et al. 2021 and its followers draw from one RandomState(1200) stream over the rows of a
    whole official split, before anything is set aside for validation: in each row the columns
    of the positives are shuffled and the first is kept, then the columns of the negatives are
    shuffled, too (none is kept, but the stream moves on). So rows and classes must have the
    published order and complete labels; every label that is not PRESENT counts as negative.

    >>> single_positive_published([[1, 1, 0], [0, 1, 1]]).tolist()
    [[1, 0, 0], [0, 1, 0]]
    """
    values = _table(labels)
    width = values.shape[1]
    stream = np.random.RandomState(check_seed(seed))
    rank = np.zeros(len(values), dtype=np.int64)
    column = np.arange(width)
    for rows in row_blocks(values):
        counts = _positives(values[rows])
        # A legacy shuffle of n entries draws one number up to i for i = n-1, ..., 1, by the same
        # rejections as randint with an array of bounds; a bound of 0 draws nothing in either.
        bounds = np.where(column < counts[:, None], counts[:, None], width) - 1 - column
        drawn = stream.randint(0, bounds + 1)
        # Entry i swaps with entry drawn[i]: followed backwards, this gives the first entry.
        front = rank[rows]
        for i in range(1, int(counts.max(initial=0))):
            longer = np.flatnonzero(counts > i)
            swapped = drawn[longer, counts[longer] - 1 - i] == front[longer]
            front[longer[swapped]] = i
    return _keep_nth(values, rank)


def drop_positives(labels: Array, r: float, seed: int = 0) -> np.ndarray:
    """Keep n_r = floor(n (1 - r)) + 1 of the n PRESENT labels of a row, at most n; others UNKNOWN.

    Zhang et al. (Hill and SPLC): r = 0.5 is their "75 % labels left", r = 0.8 "40 %", r = 1
    a single positive. ABSENT also becomes UNKNOWN, or the gaps would reveal the dropped labels.

    >>> int(drop_positives([[1, 1, 1, 1, 1]], r=0.8).sum())  # floor(5 x 0.2) + 1
    2
    """
    if not 0 <= r <= 1:
        raise ValueError(f"expected r, the share to drop, between 0 and 1, got {r!r}")
    values = _table(labels)
    rng = _rng(seed)
    kept = np.zeros_like(values)
    for rows in row_blocks(values):
        counts = _positives(values[rows])
        # Rounded first: 5 x (1 - 0.8) is 0.9999999999999998 in floating point.
        quota = np.floor(np.round(counts * (1 - r), 9)).astype(np.int64) + 1
        row, column = np.nonzero(values[rows] == PRESENT)
        keys = rng.integers(1 << 32, size=len(row), dtype=np.uint64)
        shuffled = np.argsort((row.astype(np.uint64) << np.uint64(32)) | keys)
        place = np.arange(len(row)) - (np.cumsum(counts) - counts)[row]
        chosen = shuffled[place < quota[row]]
        kept[rows][row[chosen], column[chosen]] = PRESENT
    return kept


def keep_known(labels: Array, fraction: float, seed: int = 0) -> np.ndarray:
    """Keep a fraction of all known labels, PRESENT and ABSENT alike; the others are UNKNOWN.

    Exactly round(fraction x known) labels of the matrix are kept, drawn without replacement. In 0/1
    labels only the ones are known.

    >>> int(np.count_nonzero(keep_known([[1, -1, -1, 0], [1, 1, -1, -1]], fraction=0.4)))
    3
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"expected fraction between 0 and 1, got {fraction!r}")
    values = _table(labels)
    rng = _rng(seed)
    kept = np.zeros_like(values)
    blocks = list(row_blocks(values))
    known = np.array([np.count_nonzero(values[rows]) for rows in blocks], dtype=np.int64)
    quota = round(fraction * int(known.sum()))
    for rows, share in zip(blocks, rng.multivariate_hypergeometric(known, quota), strict=True):
        where = np.flatnonzero(values[rows])
        chosen = where[rng.choice(len(where), share, replace=False, shuffle=False)]
        kept[rows].reshape(-1)[chosen] = values[rows].reshape(-1)[chosen]
    return kept


def subsample_negatives(
    labels: Array, ratio: float, seed: int = 0, *, allow_fewer: bool = False
) -> np.ndarray:
    """Choose rows (sorted) with `ratio` rows without a PRESENT label per row with one.

    All rows with a PRESENT label are kept, and a random part of the others (UNKNOWN and ABSENT
    alike): 1:1, 1:2 and 1:5 in the any-class presence paper, section 6.5.

    >>> subsample_negatives([[0, 1], [0, 0], [0, 0], [0, 0]], ratio=2).tolist()
    [0, 2, 3]
    """
    if not (ratio >= 0 and np.isfinite(ratio)):
        raise ValueError(f"expected ratio, negative rows for each positive one, got {ratio!r}")
    counts = _positives(_table(labels))
    positive, negative = np.flatnonzero(counts), np.flatnonzero(counts == 0)
    if not len(positive):
        raise ValueError(
            f"none of {len(counts):,} rows has a PRESENT label, so there is no ratio to keep"
        )
    wanted = round(ratio * len(positive))
    if wanted > len(negative) and not allow_fewer:
        raise ValueError(
            f"1:{ratio:g} with {len(positive):,} positive rows needs {wanted:,} rows without a "
            f"PRESENT label, there are {len(negative):,}; lower the ratio (at most "
            f"{len(negative) / len(positive):.3g}) or pass allow_fewer=True"
        )
    chosen = _rng(seed).choice(negative, min(wanted, len(negative)), replace=False, shuffle=False)
    return np.sort(np.concatenate([positive, chosen]))


def _table(labels: Array) -> np.ndarray:
    # The callers write to flat views of it.
    return np.ascontiguousarray(as_array(labels))


def _positives(values: np.ndarray) -> np.ndarray:
    return np.count_nonzero(values == PRESENT, axis=1)


def _keep_nth(values: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """Keep only the PRESENT label number rank[i] of row i, counted from 0."""
    kept = np.zeros_like(values)
    for rows in row_blocks(values):
        where = np.flatnonzero(values[rows] == PRESENT)
        counts = _positives(values[rows])
        nth = np.cumsum(counts) - counts + rank[rows]
        kept[rows].reshape(-1)[where[nth[counts > 0]]] = PRESENT
    return kept


def _rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(check_seed(seed))
