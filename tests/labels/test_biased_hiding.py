"""Hiding by weight: what stays, how often, and that the result depends on the seed only."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from halftruth import labels as library
from halftruth.labels import PRESENT
from halftruth.labels import checks as label_checks
from halftruth.labels.biased_hiding import (
    centre_weights,
    class_order_weights,
    frequency_weights,
    keep_by_weight,
    unused_class_weights,
)

SHAPES = st.tuples(st.integers(0, 12), st.integers(1, 9))
SEEDS = st.integers(0, 2**32 - 1)
SHARES = st.sampled_from([0, 0.1, 0.25, 0.5, 0.75, 0.9, 1])
BOTH = pytest.mark.parametrize("largest_first", [False, True])


@st.composite
def tables(draw, smallest=0.0):
    shape = draw(SHAPES)
    values = draw(arrays(np.int8, shape, elements=st.sampled_from([-1, 0, 1, 1])))
    weights = draw(arrays(np.float64, shape, elements=st.floats(smallest, 5)))
    return values, weights


@BOTH
@given(table=tables(), seed=SEEDS)
def test_one_present_label_per_row_with_a_weight_is_kept_and_nothing_else(
    largest_first, table, seed
):
    values, weights = table
    before = values.copy()
    kept = keep_by_weight(values, weights, largest_first=largest_first, seed=seed)
    usable = (values == PRESENT) & (weights > 0)
    assert kept.dtype == np.int8
    np.testing.assert_array_equal(values, before)
    assert (usable | (kept == 0)).all()
    np.testing.assert_array_equal(kept.sum(axis=1), usable.any(axis=1))


@BOTH
@given(table=tables(smallest=0.1), share=SHARES, seed=SEEDS)
def test_the_exact_share_of_all_present_labels_is_kept(largest_first, table, share, seed):
    values, weights = table
    kept = keep_by_weight(values, weights, share, largest_first=largest_first, seed=seed)
    assert ((values == PRESENT) | (kept == 0)).all()
    assert kept.sum() == round(share * np.count_nonzero(values == PRESENT))


@given(table=tables(smallest=0.1), seed=SEEDS)
def test_largest_first_keeps_a_largest_weight_of_each_row(table, seed):
    values, weights = table
    kept = keep_by_weight(values, weights, largest_first=True, seed=seed)
    allowed = np.where(values == PRESENT, weights, 0)
    np.testing.assert_array_equal(
        (allowed * kept).max(axis=1, initial=0), allowed.max(axis=1, initial=0)
    )


@given(table=tables(smallest=0.1), share=SHARES, seed=SEEDS)
def test_largest_first_keeps_the_largest_weights_of_the_table(table, share, seed):
    values, weights = table
    kept = keep_by_weight(values, weights, share, largest_first=True, seed=seed)
    inside = weights[kept == PRESENT]
    outside = weights[(values == PRESENT) & (kept == 0)]
    assert not len(inside) or not len(outside) or inside.min() >= outside.max()


def within(counts, expected, trials):
    """Whether binomial counts are within 4.5 standard deviations of what is expected."""
    p = np.asarray(expected)
    return (np.abs(counts - trials * p) <= 4.5 * np.sqrt(trials * p * (1 - p)) + 1e-9).all()


def test_equal_weights_choose_each_present_label_equally_often():
    values = np.tile(np.array([0, 1, 1, -1, 1, 1], dtype=np.int8), (8000, 1))
    for weights in (np.ones(6), np.full(values.shape, 1e-300), np.full(6, 1e300)):
        chosen = keep_by_weight(values, weights, seed=3).sum(axis=0)
        assert within(chosen, [0, 0.25, 0.25, 0, 0.25, 0.25], 8000)


def test_weights_are_the_odds_of_being_chosen():
    values = np.tile(np.array([1, 1, 1, -1], dtype=np.int8), (9000, 1))
    chosen = keep_by_weight(values, np.array([1, 2, 6, 99]), seed=1).sum(axis=0)
    assert within(chosen, [1 / 9, 2 / 9, 6 / 9, 0], 9000)


def test_extreme_ratios_of_weights_do_not_overflow():
    values = np.ones((500, 2), dtype=np.int8)
    kept = keep_by_weight(values, np.array([5e-324, 1.7e308]), seed=0)
    assert kept.sum(axis=0).tolist() == [0, 500]


def test_a_share_is_drawn_one_label_after_the_other_without_replacement():
    weights, draws = np.array([1.0, 2, 3, 4]), 4000
    expected = np.zeros(4)
    for a, b in itertools.permutations(range(4), 2):
        expected[[a, b]] += weights[a] / 10 * weights[b] / (10 - weights[a])
    row = np.ones((1, 4), dtype=np.int8)
    kept = sum(keep_by_weight(row, weights, 0.5, seed=seed).astype(int) for seed in range(draws))
    assert within(kept[0], expected, draws)


def test_equal_largest_weights_are_chosen_at_random():
    values = np.ones((4000, 3), dtype=np.int8)
    chosen = keep_by_weight(values, [2, 2, 1], largest_first=True, seed=0).sum(axis=0)
    assert within(chosen, [0.5, 0.5, 0], 4000)


@BOTH
@pytest.mark.parametrize("share", [None, 0.4])
def test_the_draw_depends_on_the_seed_and_not_on_blocks_or_types(monkeypatch, largest_first, share):
    rng = np.random.default_rng(0)
    values = np.where(rng.random((300, 20)) < 0.3, 1, -1).astype(np.int8)
    weights = rng.integers(1, 4, values.shape)

    def keep(values=values, weights=weights, seed=4):
        return keep_by_weight(values, weights, share, largest_first=largest_first, seed=seed)

    expected = keep()
    assert (keep(seed=5) != expected).any()
    same = (values.astype(float), np.asfortranarray(values), torch.from_numpy(values))
    for other in (*same, np.maximum(values, 0), values.tolist()):
        np.testing.assert_array_equal(keep(other), expected)
    np.testing.assert_array_equal(keep(weights=weights.astype(np.float16)), expected)
    monkeypatch.setattr(label_checks, "BLOCK", 90)
    np.testing.assert_array_equal(keep(), expected)


def test_weights_of_other_rows_do_not_change_a_draw():
    values = np.ones((50, 4), dtype=np.int8)
    weights = np.ones((50, 4))
    other = weights.copy()
    other[:25] = [0, 1, 5, 9]
    first, second = (keep_by_weight(values, w, seed=2) for w in (weights, other))
    np.testing.assert_array_equal(first[25:], second[25:])
    assert (first[:25] != second[:25]).any()


def test_weights_of_labels_that_are_not_present_do_not_count():
    values = np.array([[1, -1, 0, 1]], dtype=np.int8)
    weights = np.array([[1, np.nan, -3, 2]])
    kept = keep_by_weight(values, weights, largest_first=True)
    assert kept.tolist() == [[0, 0, 0, 1]]


@pytest.mark.parametrize(
    ("weights", "share", "error", "message"),
    [
        ([1, np.nan], None, ValueError, r"weights\[1, 1\] is nan.*finite number of at least 0"),
        ([[1, 1], [1, -2]], None, ValueError, r"weights\[1, 1\] is -2"),
        ([np.inf, 1], None, ValueError, r"weights\[0, 0\] is inf"),
        ([1, 1, 1], None, ValueError, r"shape \(2, 2\).*or \(2,\), one per class, got \(3,\)"),
        ([[1], [1]], None, ValueError, r"got \(2, 1\)"),
        (["a", "b"], None, TypeError, "weights to be numbers"),
        ([1, 1], 1.5, ValueError, "share between 0 and 1"),
        ([1, 1], -0.1, ValueError, "share between 0 and 1"),
        ([1, 0], 0.9, ValueError, r"keeps 2 of 2 .* only 1 have a weight .* at most share=0\.5"),
    ],
)
def test_weights_and_shares_that_cannot_be_used_are_refused(weights, share, error, message):
    with pytest.raises(error, match=message):
        keep_by_weight([[1, 0], [0, 1]], weights, share)


def test_frequency_weights_count_present_labels_per_class():
    values = np.array([[1, 1, 0, -1], [1, -1, 0, -1], [1, 1, 1, -1]])
    assert frequency_weights(values).tolist() == [3, 2, 1, 0]
    assert frequency_weights(values, rare_first=True).tolist() == [1 / 3, 1 / 2, 1, 1]


def test_the_most_frequent_class_of_each_row_is_kept():
    values = np.array([[1, 1, 1], [1, 1, -1], [-1, 1, 1], [1, -1, -1]])
    # Class 0 and class 1 occur three times, class 2 twice.
    kept = keep_by_weight(values, frequency_weights(values), largest_first=True)
    assert kept[:, 2].tolist() == [0, 0, 0, 0]
    rare = frequency_weights(values, rare_first=True)
    assert keep_by_weight(values, rare, largest_first=True)[:, 2].tolist() == [1, 0, 1, 0]


def test_centre_weights_fall_with_the_distance_and_are_0_where_it_is_unknown():
    found = centre_weights([[0, 0.1, 0.3, np.nan]], scale=0.1)
    assert found == pytest.approx(np.exp([[0, -1, -3, -np.inf]]))
    for scale in (0, -1, np.nan, np.inf):
        with pytest.raises(ValueError, match="expected scale above 0"):
            centre_weights([[0.1]], scale)


def test_class_order_keeps_the_first_class_of_the_annotator():
    names = ["cat", "dog", "cow", "person"]
    weights = class_order_weights(names, ["person", "dog"])
    assert np.argsort(-weights, kind="stable").tolist() == [3, 1, 0, 2]
    kept = keep_by_weight([[1, 1, 1, 1], [1, 1, 0, 0]], weights, largest_first=True)
    assert kept.tolist() == [[0, 0, 0, 1], [0, 1, 0, 0]]
    with pytest.raises(ValueError, match="'persn' is not a class; did you mean 'person'"):
        class_order_weights(names, ["persn"])
    with pytest.raises(ValueError, match="a class occurs twice"):
        class_order_weights(names, ["cat", "dog", "cat"])


def test_unused_classes_are_never_kept_and_weights_multiply():
    names = ["cat", "dog", "cow"]
    weights = unused_class_weights(names, ["cow"]) * [5, 1, 9]
    kept = keep_by_weight([[1, 1, 1], [-1, -1, 1]], weights, largest_first=True)
    assert kept.tolist() == [[1, 0, 0], [0, 0, 0]]


def test_the_functions_are_public():
    assert library.keep_by_weight is keep_by_weight
    assert library.frequency_weights is frequency_weights
