"""Soft labels, weights, votes and hierarchies."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halftruth.labels import (
    Hierarchy,
    LabelMatrix,
    check_soft,
    check_weights,
    count_votes,
    harden,
)

ANIMALS = ["animal", "cat", "dog", "poodle"]
PAIRS = [("cat", "animal"), ("dog", "animal"), ("poodle", "dog")]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[1.5]], r"soft\[0, 0\] is 1.5; expected the probability"),
        ([[0.5, -0.1]], r"soft\[0, 1\] is -0.1"),
        ([[np.inf]], "is inf"),
        ([0.5], r"shape \(rows, classes\), got \(1,\)"),
        ([["a"]], "expected soft labels to be numbers"),
    ],
)
def test_values_that_are_no_probabilities_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        check_soft(values)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1, 2, 3], "one weight for each of 2 rows"),
        ([[1, 2]], "one weight for each of 2 rows"),
        ([1, -1], r"weights\[1, 0\] is -1; expected a finite number of at least 0"),
        ([1, np.nan], "is nan"),
        (["a", "b"], "to be numbers"),
    ],
)
def test_bad_weights_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        check_weights(weights, (2, 3))


def test_selected_rows_keep_their_soft_labels_and_weights():
    soft = np.array([[0.2, np.nan], [0.9, 0.5]], np.float32)
    labels = LabelMatrix(harden(soft), ("a", "b"), soft=soft, weights=[1.0, 2.0])
    part = labels.select([1])
    np.testing.assert_array_equal(part.soft, soft[1:])
    assert part.weights.tolist() == [[2.0]]
    with pytest.raises(ValueError, match=r"expected soft labels of shape \(2, 2\)"):
        LabelMatrix(labels.values, ("a", "b"), soft=soft[:1])


@given(st.lists(st.lists(st.sampled_from([-1, 0, 1]), min_size=3, max_size=3), min_size=1))
def test_votes_are_shares_of_known_labels(votes):
    labels = np.array(votes, dtype=np.int8)
    soft, count = count_votes(labels, np.zeros(len(labels), dtype=int), 1)
    for column in range(3):
        known = labels[labels[:, column] != 0, column]
        if len(known):
            assert soft[0, column] == pytest.approx((known > 0).mean())
            assert count[0, column] == len(known)
        else:
            assert np.isnan(soft[0, column])
            assert count[0, column] == 1


def test_a_hierarchy_adds_what_follows():
    tree = Hierarchy.of(PAIRS, ANIMALS)
    assert tree.complete([[0, 0, 0, 1]]).tolist() == [[1, 0, 1, 1]]
    assert tree.complete([[0, 0, -1, 0]]).tolist() == [[0, 0, -1, -1]]
    assert tree.complete([[-1, 0, 0, 0]]).tolist() == [[-1, -1, -1, -1]]
    assert tree.complete([[0, 1, -1, 0]]).tolist() == [[1, 1, -1, -1]]


@given(st.lists(st.sampled_from([-1, 0, 1]), min_size=4, max_size=4))
def test_completed_labels_need_no_more_completion(row):
    tree = Hierarchy.of(PAIRS, ANIMALS)
    try:
        once = tree.complete([row])
    except ValueError:
        return
    assert (tree.complete(once) == once).all()
    known = np.array([row]) != 0
    assert (once[known] == np.array([row])[known]).all(), "given labels stay"


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([("cat", "animal"), ("animal", "cat")], "are their own ancestors: 'animal', 'cat'"),
        ([("cat", "cat")], "are their own ancestors: 'cat'"),
        ([("cta", "animal")], "'cta' is not a class; did you mean 'cat'"),
    ],
)
def test_bad_hierarchies_are_refused(pairs, message):
    with pytest.raises(ValueError, match=message):
        Hierarchy.of(pairs, ANIMALS)


def test_labels_against_the_hierarchy_are_refused():
    tree = Hierarchy.of(PAIRS, ANIMALS)
    message = r"row 1: 'poodle' is present, but 'animal', which it implies, is absent \(1 rows"
    with pytest.raises(ValueError, match=message):
        tree.complete([[0, 0, 0, 0], [-1, 0, 0, 1]])
