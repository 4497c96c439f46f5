"""Hide labels that are known, as the papers do to make incomplete data from complete data.

Every function takes (N, K) labels in the library's coding (complete ones as 0/1 or as -1/+1),
returns new int8 arrays, and depends on nothing but its arguments: same seed, same result.
"""

import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from halftruth.labels import PRESENT, check, check_classes, unknown_class

# Rows are worked on in blocks of about this many labels, so that memory stays small.
_BLOCK = 1 << 22


def single_positive(labels: Any, seed: int = 0) -> np.ndarray:
    """Keep one PRESENT label a row, each with equal chance; all else, ABSENT too, is UNKNOWN.

    The single-positive setting of Cole et al. 2021; rows without a PRESENT label come out empty.
    For the very labels of their experiments see :func:`single_positive_published`.

    >>> single_positive([[1, 1, -1], [-1, 1, -1], [-1, -1, -1]], seed=0).tolist()
    [[0, 1, 0], [0, 1, 0], [0, 0, 0]]
    """
    values = _array(labels)
    counts = _positives(values)
    rank = _rng(seed).integers(0, np.maximum(counts, 1))
    return _keep_nth(values, rank)


def single_positive_published(labels: Any, seed: int = 1200) -> np.ndarray:
    """The one PRESENT label a row that the published experiments show, bit for bit; else UNKNOWN.

    Cole et al. 2021 and its followers draw from one RandomState(1200) stream over the rows of a
    whole official split, before anything is set aside for validation: in each row the columns
    of the positives are shuffled and the first is kept, then the columns of the negatives are
    shuffled, too (none is kept, but the stream moves on). So rows and classes must come in the
    published order and with complete labels; whatever is not PRESENT counts as negative.

    >>> single_positive_published([[1, 1, 0], [0, 1, 1]]).tolist()
    [[1, 0, 0], [0, 1, 0]]
    """
    values = _array(labels)
    width = values.shape[1]
    stream = np.random.RandomState(_seed(seed))
    rank = np.zeros(len(values), dtype=np.int64)
    column = np.arange(width)
    for rows in _blocks(values):
        counts = _positives(values[rows])
        # A legacy shuffle of n entries draws one number up to i for i = n-1, ..., 1, by the same
        # rejections as randint with an array of bounds; a bound of 0 draws nothing in either.
        bounds = np.where(column < counts[:, None], counts[:, None], width) - 1 - column
        drawn = stream.randint(0, bounds + 1)
        # Entry i swaps with entry drawn[i]: followed backwards, this is what ended up in front.
        front = rank[rows]
        for i in range(1, int(counts.max(initial=0))):
            longer = np.flatnonzero(counts > i)
            swapped = drawn[longer, counts[longer] - 1 - i] == front[longer]
            front[longer[swapped]] = i
    return _keep_nth(values, rank)


def drop_positives(labels: Any, r: float, seed: int = 0) -> np.ndarray:
    """Keep n_r = floor(n (1 - r)) + 1 of a row's n PRESENT labels, at most all; else UNKNOWN.

    Zhang et al. (Hill and SPLC): r = 0.5 is their "75 % labels left", r = 0.8 "40 %", r = 1
    a single positive. ABSENT becomes UNKNOWN, too, or the gaps would give away what was dropped.

    >>> int(drop_positives([[1, 1, 1, 1, 1]], r=0.8).sum())  # floor(5 x 0.2) + 1
    2
    """
    if not 0 <= r <= 1:
        raise ValueError(f"expected r, the share to drop, between 0 and 1, got {r!r}")
    values = _array(labels)
    rng = _rng(seed)
    kept = np.zeros_like(values)
    for rows in _blocks(values):
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


def keep_known(labels: Any, fraction: float, seed: int = 0) -> np.ndarray:
    """Keep that share of all known labels, PRESENT and ABSENT alike; the others are UNKNOWN.

    Not a coin for each: exactly round(fraction x known) labels of the matrix stay, any of them
    with equal chance. In 0/1 labels only the ones are known.

    >>> int(np.count_nonzero(keep_known([[1, -1, -1, 0], [1, 1, -1, -1]], fraction=0.4)))
    3
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"expected fraction between 0 and 1, got {fraction!r}")
    values = _array(labels)
    rng = _rng(seed)
    kept = np.zeros_like(values)
    blocks = list(_blocks(values))
    known = np.array([np.count_nonzero(values[rows]) for rows in blocks], dtype=np.int64)
    quota = round(fraction * int(known.sum()))
    for rows, share in zip(blocks, rng.multivariate_hypergeometric(known, quota), strict=True):
        where = np.flatnonzero(values[rows])
        chosen = where[rng.choice(len(where), share, replace=False, shuffle=False)]
        kept[rows].reshape(-1)[chosen] = values[rows].reshape(-1)[chosen]
    return kept


def subsample_negatives(
    labels: Any, ratio: float, seed: int = 0, *, allow_fewer: bool = False
) -> np.ndarray:
    """Rows, in order, such that those with a PRESENT label to those without are as 1 to `ratio`.

    All rows with a PRESENT label stay; of the others (UNKNOWN and ABSENT alike) a random part
    does: 1:1, 1:2 and 1:5 in the any-class presence paper, section 6.5.

    >>> subsample_negatives([[0, 1], [0, 0], [0, 0], [0, 0]], ratio=2).tolist()
    [0, 2, 3]
    """
    if not (ratio >= 0 and np.isfinite(ratio)):
        raise ValueError(f"expected ratio, negative rows for each positive one, got {ratio!r}")
    counts = _positives(_array(labels))
    positive, negative = np.flatnonzero(counts), np.flatnonzero(counts == 0)
    if not len(positive):
        raise ValueError(
            f"no row of {len(counts):,} has a PRESENT label: there is no ratio to keep"
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


def class_filter(
    labels: Any,
    classes: Iterable[str],
    *,
    keep: Iterable[str] | None = None,
    drop: Iterable[str] | None = None,
) -> tuple[np.ndarray, tuple[str, ...]]:
    """The columns of the classes to keep, or of all but those to drop, in their old order.

    Rows stay, even those left without a PRESENT label: they are what the any-class presence
    paper (section 6.7) makes from COCO so. Labels of the kept classes stay as they are.

    >>> class_filter([[1, 0, -1]], ["person", "tie", "cat"], drop=["person", "tie"])
    (array([[-1]], dtype=int8), ('cat',))
    """
    if (keep is None) == (drop is None):
        raise ValueError("expected either keep= or drop=, a list of class names")
    names = check_classes(classes)
    values = _array(labels, names)
    if keep is not None:
        columns = np.unique(_columns(keep, names))
    else:
        columns = np.setdiff1d(np.arange(len(names)), _columns(drop or (), names))
    if not len(columns):
        raise ValueError(f"no class of {len(names)} would be left")
    return np.ascontiguousarray(values[:, columns]), tuple(names[k] for k in columns)


def co_occurrence(labels: Any) -> np.ndarray:
    """(K, K) how many rows hold both classes as PRESENT; the diagonal counts each class.

    >>> co_occurrence([[1, 1], [1, 0], [1, -1]]).tolist()
    [[3, 1], [1, 1]]
    """
    values = _array(labels)
    counts = np.zeros((values.shape[1], values.shape[1]), dtype=np.int64)
    for rows in _blocks(values):
        present = (values[rows] == PRESENT).astype(np.float32)
        counts += (present.T @ present).astype(np.int64)  # exact: a block has under 2^24 rows
    return counts


def correlated_classes(
    labels: Any, classes: Iterable[str], anchor: str, threshold: float = 0.5
) -> dict[str, float]:
    """Classes of whose rows at least `threshold` also hold the anchor, and that share, falling.

    share(c) = rows with c and anchor / rows with c; a class never PRESENT has none. As drop= of
    :func:`class_filter`, with the anchor, these leave rows empty (any-class presence, 6.7).

    >>> labels = [[1, 1, 0], [1, 1, 0], [1, 0, 1], [0, 0, 1], [0, 0, 1]]
    >>> correlated_classes(labels, ["person", "tie", "cat"], "person")
    {'tie': 1.0}
    """
    names = check_classes(classes)
    together = co_occurrence(_array(labels, names))
    anchor_column = _columns([anchor], names)[0]
    rows = np.diagonal(together)
    share = np.divide(together[anchor_column], rows, out=np.full(len(names), -1.0), where=rows > 0)
    share[anchor_column] = -1.0
    order = np.argsort(-share, kind="stable")
    return {names[k]: float(share[k]) for k in order if share[k] >= max(threshold, 0)}


def _array(labels: Any, classes: Sequence[str] | None = None) -> np.ndarray:
    checked = check(labels, classes=classes)
    if isinstance(checked, torch.Tensor):
        checked = checked.numpy(force=True)
    return np.ascontiguousarray(checked)


def _positives(values: np.ndarray) -> np.ndarray:
    return np.count_nonzero(values == PRESENT, axis=1)


def _blocks(values: np.ndarray) -> Iterator[slice]:
    step = max(1, _BLOCK // max(1, values.shape[1]))
    return (slice(start, start + step) for start in range(0, len(values), step))


def _keep_nth(values: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """Only the PRESENT label number rank[i] of row i, counted from 0."""
    kept = np.zeros_like(values)
    for rows in _blocks(values):
        where = np.flatnonzero(values[rows] == PRESENT)
        counts = _positives(values[rows])
        nth = np.cumsum(counts) - counts + rank[rows]
        kept[rows].reshape(-1)[where[nth[counts > 0]]] = PRESENT
    return kept


def _columns(wanted: Iterable[str], names: Sequence[str]) -> list[int]:
    if isinstance(wanted, str):
        raise TypeError(f"expected a list of class names, got the text {wanted!r}")
    position = {name: k for k, name in enumerate(names)}
    columns = []
    for name in wanted:
        if name not in position:
            raise ValueError(unknown_class(name, names))
        columns.append(position[name])
    return columns


def _seed(seed: int) -> int:
    try:
        return operator.index(seed)
    except TypeError:
        raise TypeError(f"expected seed to be a whole number, got {seed!r}") from None


def _rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(_seed(seed))
