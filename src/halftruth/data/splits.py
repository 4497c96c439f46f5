"""Rows for training, validation and test: from a column or at random, with whole groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from halftruth.data.errors import DataError, nearest, some
from halftruth.seeds import check_seed

SPLIT_NAMES = {
    "train": "train", "training": "train", "trn": "train", "trainval": "train",
    "val": "val", "valid": "val", "validation": "val", "dev": "val",
    "test": "test", "testing": "test", "tst": "test", "holdout": "test",
}  # fmt: skip


@dataclass(frozen=True)
class Splits:
    """The sorted row numbers of each part; a missing part is empty."""

    train: np.ndarray
    val: np.ndarray
    test: np.ndarray


def split_rows(
    n: int, *, val: float = 0.2, seed: int = 0, groups: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Draw (train, val) rows: the last rows of a permutation by RandomState(seed) are validation.

    `split_rows(5717, seed=1200)` is the published split of VOC 2012 (Cole et al. 2021), and
    likewise for COCO, NUS-WIDE and CUB. With `groups` (one entry per row: a patient, a site) whole
    groups are drawn, and the share of rows is only close to `val`.

    >>> split_rows(5, val=0.4, seed=0)
    (array([0, 1, 2]), array([3, 4]))
    """
    if not 0.0 < val < 1.0:
        raise DataError(f"val must be a fraction between 0 and 1, got {val}")
    random = np.random.RandomState(check_seed(seed))
    wanted = round(val * n)
    if groups is None:
        order = random.permutation(n)
        train, held_out = np.sort(order[: n - wanted]), np.sort(order[n - wanted :])
    else:
        chosen = _whole_groups(check_groups(groups, n), wanted, random)
        train, held_out = np.flatnonzero(~chosen), np.flatnonzero(chosen)
    if not len(train) or not len(held_out):
        unit = "rows" if groups is None else f"rows in {len(np.unique(groups)):,} groups"
        raise DataError(
            f"{n:,} {unit} cannot be split with val={val}: the training part would have "
            f"{len(train):,} rows and the validation part {len(held_out):,}"
        )
    return train, held_out


def fold_of_rows(n: int, folds: int, seed: int = 0, groups: np.ndarray | None = None) -> np.ndarray:
    """(N,) the fold of each row; folds are of equal size, rows of one group stay together.

    >>> np.bincount(fold_of_rows(10, 3))
    array([4, 3, 3])
    """
    random = np.random.default_rng(check_seed(seed))
    which = np.arange(n) if groups is None else np.unique(groups, return_inverse=True)[1].ravel()
    units = int(which.max(initial=-1)) + 1
    if units == 1 and n > 1:
        raise DataError(
            f"groups: expected at least 2, got one group of all {n:,} rows, so no row can be "
            "scored by a model that was not fitted to its group; leave the groups out"
        )
    if not 2 <= folds <= units:
        raise DataError(f"folds: expected 2 to {units:,} (the rows or groups), got {folds}")
    fold = np.empty(units, dtype=np.intp)
    fold[random.permutation(units)] = np.arange(units) % folds
    return fold[which]


def named_splits(column: np.ndarray, names: Mapping[str, str] | None = None) -> Splits:
    """Assign rows by a column of split names: train / val / test and their usual spellings.

    `names` maps further spellings, e.g. `{"fold0": "test"}`.

    >>> named_splits(np.array(["train", "valid", "train"])).train
    array([0, 2])
    """
    known = {**SPLIT_NAMES, **{key.lower(): part for key, part in (names or {}).items()}}
    found, which = np.unique(np.asarray(column, dtype=str), return_inverse=True)
    strange = [str(name) for name in found if name.strip().lower() not in known]
    if strange:
        row = int(np.flatnonzero(which == list(found).index(strange[0]))[0])
        raise DataError(
            f"row {row} of the split column: expected train, val or test, got "
            f"{strange[0]!r}{nearest(strange[0].strip().lower(), known)}; correct it, or in Python "
            f"map the names with names={{{strange[0]!r}: 'train'}}"
        )
    parts = np.array([known[name.strip().lower()] for name in found], dtype=str)[which.ravel()]
    return Splits(*(np.flatnonzero(parts == part) for part in ("train", "val", "test")))


def choose_splits(
    n: int,
    *,
    column: np.ndarray | None = None,
    val: float = 0.2,
    seed: int = 0,
    groups: np.ndarray | None = None,
    names: Mapping[str, str] | None = None,
) -> Splits:
    """Split the rows for training: by the split column, without one a random validation part.

    If a column has no validation rows, they are drawn from its training rows; with `val` 0 there
    are none.
    """
    nothing = np.empty(0, dtype=np.intp)
    if groups is not None:
        groups = check_groups(groups, n)
    if column is None:
        parts = Splits(np.arange(n), nothing, nothing)
    elif len(column) != n:
        raise DataError(f"the split column has {len(column):,} entries for {n:,} rows")
    else:
        parts = named_splits(column, names)
    if not len(parts.train):
        raise DataError("the split column has no training rows: no row is called 'train'")
    if not len(parts.val) and val:
        inside = None if groups is None else groups[parts.train]
        train, held_out = split_rows(len(parts.train), val=val, seed=seed, groups=inside)
        parts = Splits(parts.train[train], parts.train[held_out], parts.test)
    if groups is not None:
        check_leakage(parts, groups)
    return parts


def check_leakage(parts: Splits, groups: np.ndarray) -> None:
    """Refuse a split in which a group is in the training part and in another part."""
    named = np.asarray(groups, dtype=str)
    for part, rows in (("val", parts.val), ("test", parts.test)):
        shared = np.intersect1d(named[parts.train], named[rows])
        if len(shared):
            raise DataError(
                f"{len(shared):,} groups are in both the training and the {part} part: "
                f"{some(list(shared))}; leave the split column out to split by group"
            )


def check_groups(groups: object, n: int, place: str = "groups") -> np.ndarray:
    """Return the group of each of `n` rows as text; a row without a group is an error."""
    given = np.asarray(groups)
    if given.shape != (n,):
        raise DataError(
            f"{place}: expected one entry per row, {n:,}, got shape {given.shape}; combined rows "
            "of an item and joined files cannot have groups"
        )
    blank = [
        row
        for row, group in enumerate(given.tolist())
        if group is None or group != group or not str(group).strip()
    ]
    if blank:
        raise DataError(
            f"{place}: {len(blank):,} rows have no group (the first: row {blank[0] + 1}); give "
            "each row one"
        )
    return given.astype(str)


def question_groups(groups: np.ndarray) -> list[str]:
    """What to ask about groups: labels, or names of the rows, in their place."""
    found = set(groups.tolist())
    if found <= {"0", "1"}:
        return ["is 0 or 1 in every row, as labels are; if it is a class, leave the option out"]
    if len(found) == len(groups):
        return ["has no effect, since every row has a group of its own; leave it out"]
    return []


def _whole_groups(groups: np.ndarray, wanted: int, random: np.random.RandomState) -> np.ndarray:
    """Mask of the last groups of a permutation whose number of rows is closest to `wanted`."""
    found, which, counts = np.unique(groups, return_inverse=True, return_counts=True)
    order = random.permutation(len(found))[::-1]
    rows_so_far = np.concatenate([[0], np.cumsum(counts[order])])
    take = int(np.argmin(np.abs(rows_so_far - wanted)))
    return np.isin(which.ravel(), order[: max(take, 1)])
