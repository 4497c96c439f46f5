"""Splits: published splits, splits by column and by group."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halftruth.data import DataError, choose_splits, fold_of_rows, named_splits, split_rows


@pytest.mark.parametrize(("n", "train", "val"), [(5717, 4574, 1143), (5994, 4795, 1199)])
def test_published_sizes(n, train, val):
    parts = split_rows(n, seed=1200)
    assert (len(parts[0]), len(parts[1])) == (train, val)


def test_published_rows_of_voc():
    order = np.random.RandomState(1200).permutation(5717)
    train, val = split_rows(5717, val=0.2, seed=1200)
    assert train.tolist() == sorted(order[:4574])
    assert val.tolist() == sorted(order[-1143:])


@given(
    groups=st.lists(st.integers(0, 12), min_size=2, max_size=60).filter(lambda g: len(set(g)) > 1),
    val=st.floats(0.05, 0.6),
    seed=st.integers(0, 99),
)
def test_groups_are_never_split(groups, val, seed):
    named = np.array(groups)
    with suppress(DataError):  # a part would be empty
        train, held_out = split_rows(len(named), val=val, seed=seed, groups=named)
        assert sorted([*train, *held_out]) == list(range(len(named)))
        assert not set(named[train]) & set(named[held_out])


def test_with_many_groups_the_share_of_rows_is_close():
    groups = np.random.RandomState(0).randint(0, 500, size=5000)
    _, held_out = split_rows(5000, val=0.2, groups=groups)
    assert abs(len(held_out) - 1000) <= 10


def test_named_splits_and_their_spellings():
    parts = named_splits(np.array(["Train", "dev", "test", "validation", "trainval"]))
    assert parts.train.tolist() == [0, 4]
    assert parts.val.tolist() == [1, 3]
    assert parts.test.tolist() == [2]
    with pytest.raises(DataError, match=r"row 1 of the split column: .* got 'fold1'"):
        named_splits(np.array(["train", "fold1"]))
    assert named_splits(np.array(["train", "fold1"]), {"Fold1": "test"}).test.tolist() == [1]


def test_validation_rows_are_drawn_from_the_training_rows():
    column = np.array(["train"] * 10 + ["test"] * 5)
    parts = choose_splits(15, column=column, val=0.2, seed=3)
    assert (len(parts.train), len(parts.val), len(parts.test)) == (8, 2, 5)
    assert sorted([*parts.train, *parts.val]) == list(range(10))
    assert len(choose_splits(15, val=0.2).test) == 0


def test_groups_across_a_given_split_are_refused():
    column = np.array(["train", "train", "val", "test"])
    with pytest.raises(
        DataError, match=r"1 groups are in both the training and the test part: 'p1'"
    ):
        choose_splits(4, column=column, groups=np.array(["p1", "p2", "p3", "p1"]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 5, "val": 1.5}, "val must be a fraction between 0 and 1"),
        ({"n": 2, "val": 0.1}, "cannot be split"),
        ({"n": 3, "groups": np.array(["a", "a", "a"])}, "3 rows in 1 groups cannot be split"),
        ({"n": 3, "groups": np.array(["a", "b"])}, "one entry per row"),
        ({"n": 2, "groups": np.array(["a", " "])}, r"1 rows have no group \(the first: row 2\)"),
    ],
)
def test_impossible_splits_are_refused(arguments, message):
    with pytest.raises(DataError, match=message):
        split_rows(arguments.pop("n"), **arguments)


def test_folds_are_even_and_keep_groups_whole() -> None:
    assert np.bincount(fold_of_rows(11, 3)).tolist() == [4, 4, 3]
    groups = np.repeat(["a", "b", "c", "d"], [5, 1, 3, 2])
    folds = fold_of_rows(11, 2, seed=3, groups=groups)
    assert all(len(set(folds[groups == name])) == 1 for name in "abcd")
    assert not np.array_equal(fold_of_rows(50, 5, seed=0), fold_of_rows(50, 5, seed=1))
    for folds in (1, 12):
        with pytest.raises(DataError, match="2 to 11"):
            fold_of_rows(11, folds)
