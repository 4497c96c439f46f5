"""Hide labels the way people leave them out: large, central, frequent or obvious ones are shown.

`keep_by_weight` chooses the shown labels by one weight per label. Weights are any (N, K) or (K,)
numbers: the area of the objects, the confidence of a model, or what the other functions here make.
Multiplied weights combine: `area * unused_class_weights(names, ["sofa"])`.
"""

# Annotations stay text: evaluating np.random.Generator would load numpy.random with the core.
from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from halftruth.labels.checks import Array, class_columns, row_blocks
from halftruth.labels.codes import PRESENT
from halftruth.labels.hiding import _positives, _rng, _table


def keep_by_weight(
    labels: Array,
    weights: Array,
    share: float | None = None,
    *,
    largest_first: bool = False,
    seed: int = 0,
) -> np.ndarray:
    """Keep PRESENT labels, chosen by weight; all others, also ABSENT, are UNKNOWN.

    weights: (N, K) or (K,), at least 0 for PRESENT labels; 0 is never kept, other cells do not
        count.
    share: None keeps one PRESENT label per row. A number r keeps exactly round(r n) of the n
        PRESENT labels of the whole table.
    largest_first: keep the labels of the largest weights, equal ones in random order. By default
        labels are drawn one after the other without replacement, each time with probabilities
        proportional to the weights that are left (the Plackett-Luce model).

    >>> area = [[0.5, 0.1, 0.0], [0.0, 0.2, 0.0]]
    >>> keep_by_weight([[1, 1, -1], [-1, 1, -1]], area, largest_first=True).tolist()
    [[1, 0, 0], [0, 1, 0]]
    """
    if share is not None and not 0 <= share <= 1:
        raise ValueError(f"expected share between 0 and 1, or None, got {share!r}")
    values, rng = _table(labels), _rng(seed)
    given = _check_weights(weights, values)
    kept = np.zeros_like(values)
    if share is None:
        for rows in row_blocks(values):
            row, column, order = _rank(values[rows], given[rows], largest_first, rng, rows.start)
            order = order[np.argsort(row[order], kind="stable")]
            first = order[np.diff(row[order], prepend=-1) > 0]
            kept[rows][row[first], column[first]] = PRESENT
        return kept
    # The order is that of the whole table.
    row, column, order = _rank(values, given, largest_first, rng)
    total = int(_positives(values).sum())
    wanted = round(share * total)
    if wanted > len(order):
        raise ValueError(
            f"share={share:g} keeps {wanted:,} of {total:,} present labels, but only "
            f"{len(order):,} have a weight above 0; expected at most share={len(order) / total:.3g}"
        )
    kept[row[order[:wanted]], column[order[:wanted]]] = PRESENT
    return kept


def frequency_weights(labels: Array, *, rare_first: bool = False) -> np.ndarray:
    """Return (K,) weights: the number of PRESENT labels per class, or one divided by it.

    >>> frequency_weights([[1, 1], [1, -1]]).tolist()
    [2.0, 1.0]
    """
    counts = np.count_nonzero(_table(labels) == PRESENT, axis=0).astype(np.float64)
    return 1 / np.maximum(counts, 1) if rare_first else counts


def centre_weights(distances: Array, scale: float = 0.1) -> np.ndarray:
    """Return (N, K) weights exp(-distance / scale) from distances to the centre of the image.

    distances: as a share of the image's width and height; NaN where a class is absent gives 0.

    >>> centre_weights([[0.0, 0.1, np.nan]]).round(3).tolist()
    [[1.0, 0.368, 0.0]]
    """
    if not 0 < scale < np.inf:
        raise ValueError(f"expected scale above 0, got {scale!r}")
    found = np.exp(np.asarray(distances, dtype=np.float64) / -scale)
    return np.nan_to_num(found, nan=0.0, posinf=np.inf)


def class_order_weights(classes: Sequence[str], order: Iterable[str]) -> np.ndarray:
    """Return (K,) weights that fall along the order in which an annotator thinks of the classes.

    For `keep_by_weight(..., largest_first=True)`. Classes that are not in `order` come last.

    >>> class_order_weights(["cat", "dog", "cow"], ["dog", "cat"]).tolist()
    [2.0, 3.0, 1.0]
    """
    columns = class_columns(order, classes)
    if len(set(columns)) < len(columns):
        raise ValueError(f"a class occurs twice in the order {[classes[k] for k in columns]}")
    found = np.ones(len(classes))
    found[columns] = np.arange(len(columns), 0, -1) + 1.0
    return found


def unused_class_weights(classes: Sequence[str], unused: Iterable[str]) -> np.ndarray:
    """Return (K,) weights: 0 for the classes that an annotator never uses, 1 for the others.

    >>> unused_class_weights(["cat", "dog", "cow"], ["cow"]).tolist()
    [1.0, 1.0, 0.0]
    """
    found = np.ones(len(classes))
    found[class_columns(unused, classes)] = 0.0
    return found


def _check_weights(weights: Array, values: np.ndarray) -> np.ndarray:
    """Return the weights as (N, K)."""
    given = np.asarray(weights)
    if given.dtype.kind not in "biuf":
        raise TypeError(f"expected weights to be numbers, got an array of {given.dtype}")
    rows, width = values.shape
    if given.shape not in ((rows, width), (width,)):
        raise ValueError(
            f"expected weights of shape {(rows, width)}, like the labels, or ({width},), one per "
            f"class, got {given.shape}"
        )
    return np.broadcast_to(given, values.shape)


def _rank(
    values: np.ndarray,
    weights: np.ndarray,
    largest_first: bool,
    rng: np.random.Generator,
    start: int = 0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows and columns of the PRESENT labels with a weight, and their order of choice.

    `start` is the number of the first row, for an error about a weight.
    """
    row, column = np.nonzero(values == PRESENT)
    weight = weights[row, column].astype(np.float64)
    # Also False for NaN.
    if not (fine := (weight >= 0) & (weight < np.inf)).all():
        at = int(fine.argmin())
        raise ValueError(
            f"weights[{row[at] + start}, {column[at]}] is {weight[at]:g}, and this label is "
            "present; expected a finite number of at least 0"
        )
    # One waiting time per label, also where the weight is 0: the draw of a row does not depend on
    # the weights of other rows. The first of exponential waiting times with rates w is label k
    # with probability w_k / sum of w, and so on along the order (Plackett-Luce).
    waiting = rng.standard_exponential(len(row))
    usable = np.flatnonzero(weight > 0)
    row, column, weight, waiting = row[usable], column[usable], weight[usable], waiting[usable]
    if largest_first:
        return row, column, np.lexsort((waiting, -weight))
    # The logarithm covers every ratio of weights without overflow.
    return row, column, np.argsort(np.log(waiting) - np.log(weight), kind="stable")
