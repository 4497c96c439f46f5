"""Hiding labels: which labels stay, and that the result depends on the seed only."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from halftruth.labels import PRESENT, class_filters, hiding
from halftruth.labels import checks as label_checks

LABELS = arrays(
    np.int8,
    st.tuples(st.integers(0, 12), st.integers(1, 9)),
    elements=st.sampled_from([-1, 0, 1, 1]),
)
SEEDS = st.integers(0, 2**32 - 1)
SHARES = st.sampled_from([0, 0.1, 0.2, 0.25, 0.3, 0.5, 0.6, 0.75, 0.8, 0.9, 1])

HIDERS = {
    "single_positive": lambda labels, seed: hiding.single_positive(labels, seed),
    "published": lambda labels, seed: hiding.single_positive_published(labels, seed),
    "drop_positives": lambda labels, seed: hiding.drop_positives(labels, 0.6, seed),
    "keep_known": lambda labels, seed: hiding.keep_known(labels, 0.5, seed),
}
every_hider = pytest.mark.parametrize("hide", HIDERS.values(), ids=HIDERS.keys())


@pytest.fixture
def complete():
    return np.where(np.random.default_rng(3).random((400, 20)) < 0.2, 1, -1).astype(np.int8)


@every_hider
@given(labels=LABELS, seed=SEEDS)
def test_hiding_only_ever_turns_labels_into_unknown(hide, labels, seed):
    before = labels.copy()
    hidden = hide(labels, seed)
    assert hidden.dtype == np.int8
    assert hidden.shape == labels.shape
    assert not np.shares_memory(hidden, labels)
    assert ((hidden == labels) | (hidden == 0)).all()
    np.testing.assert_array_equal(labels, before)


@every_hider
def test_the_result_depends_on_the_seed(hide, complete):
    np.testing.assert_array_equal(hide(complete, 5), hide(complete, 5))
    assert (hide(complete, 5) != hide(complete, 6)).any()


@every_hider
def test_arrays_lists_and_tensors_give_the_same(hide, complete):
    expected = hide(complete, 1)
    for same in (
        complete.astype(float),
        np.asfortranarray(complete),
        complete.tolist(),
        torch.from_numpy(complete),
    ):
        np.testing.assert_array_equal(hide(same, 1), expected)


@every_hider
def test_bad_labels_and_seeds_are_refused(hide, complete):
    with pytest.raises(ValueError, match=r"labels\[0, 1\] is 2"):
        hide([[1, 2]], 0)
    for seed in (None, 0.5, "1", -1, 2**32):
        with pytest.raises(ValueError, match="seed: expected a whole number from 0 to"):
            hide(complete, seed)


@pytest.mark.parametrize("hide", [HIDERS["single_positive"], HIDERS["published"]])
@given(labels=LABELS, seed=SEEDS)
def test_one_positive_per_row_is_kept_and_nothing_else(hide, labels, seed):
    hidden = hide(labels, seed)
    has_one = (labels == PRESENT).any(axis=1)
    np.testing.assert_array_equal((hidden == PRESENT).sum(axis=1), has_one)
    np.testing.assert_array_equal(np.abs(hidden).sum(axis=1), has_one)


@pytest.mark.parametrize("hide", [HIDERS["single_positive"], HIDERS["published"]])
def test_absent_and_unknown_negatives_give_the_same_choice(hide, complete):
    np.testing.assert_array_equal(hide(complete, 2), hide(np.maximum(complete, 0), 2))


@pytest.mark.parametrize("hide", [HIDERS["single_positive"], HIDERS["published"]])
def test_each_positive_has_an_equal_chance(hide):
    labels = np.tile(np.array([0, 1, 1, -1, 1, 1], dtype=np.int8), (8000, 1))
    chosen = hide(labels, 1200).sum(axis=0)
    # 2000 each, standard deviation 39.
    assert chosen[[0, 3]].tolist() == [0, 0]
    assert (np.abs(chosen[[1, 2, 4, 5]] - 2000) < 4 * 39).all()


def published_in_plain_loops(labels, seed):
    stream = np.random.RandomState(seed)
    shown = np.zeros(np.shape(labels), dtype=np.int8)
    for row, values in enumerate(labels):
        positives = [k for k, value in enumerate(values) if value == 1]
        negatives = [k for k, value in enumerate(values) if value != 1]
        stream.shuffle(positives)
        stream.shuffle(negatives)
        if positives:
            shown[row, positives[0]] = 1
    return shown


@given(labels=LABELS, seed=SEEDS)
def test_the_published_choice_follows_the_shuffled_stream(labels, seed):
    np.testing.assert_array_equal(
        hiding.single_positive_published(labels, seed), published_in_plain_loops(labels, seed)
    )


@pytest.mark.parametrize("share", [0.04, 0.5, 0.97])
@pytest.mark.parametrize("block", [1, 700, 1 << 22])
def test_published_choice_over_many_rows(monkeypatch, share, block):
    # 300 classes: bounds beyond one byte, for which the stream rejects other numbers.
    labels = (np.random.default_rng(0).random((150, 300)) < share).astype(np.int8)
    monkeypatch.setattr(label_checks, "BLOCK", block)
    np.testing.assert_array_equal(
        hiding.single_positive_published(labels), published_in_plain_loops(labels, 1200)
    )


def test_single_positive_does_not_depend_on_the_blocks(monkeypatch, complete):
    expected = hiding.single_positive(complete, 4)
    monkeypatch.setattr(label_checks, "BLOCK", 90)
    np.testing.assert_array_equal(hiding.single_positive(complete, 4), expected)


def left(n, r):
    return min(n, int(n * (1 - Fraction(str(r)))) + 1)


@pytest.mark.parametrize("block", [30, 1 << 22])
@given(labels=LABELS, r=SHARES, seed=SEEDS)
def test_drop_positives_leaves_the_papers_number_in_each_row(block, labels, r, seed):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_checks, "BLOCK", block)
        hidden = hiding.drop_positives(labels, r, seed)
    assert (hidden >= 0).all()
    expected = [left(int(n), r) for n in (labels == PRESENT).sum(axis=1)]
    assert hidden.sum(axis=1).tolist() == expected


def test_drop_positives_chooses_all_labels_equally_often():
    labels = np.ones((6000, 5), dtype=np.int8)
    # Two of five stay: 2400 times each, standard deviation 38.
    assert (np.abs(hiding.drop_positives(labels, 0.8, 0).sum(axis=0) - 2400) < 4 * 38).all()


@pytest.mark.parametrize(
    ("r", "expected"), [(0, 241_035), (0.5, 181_422), (0.8, 96_251), (1, 82_081)]
)
def test_drop_positives_leaves_the_totals_of_table_2_on_coco(r, expected):
    # How many of COCO's 82,081 training images hold 1, 2, 3, ... classes.
    images = [
        16813,
        25053,
        16837,
        9830,
        5910,
        3364,
        1988,
        1076,
        598,
        315,
        164,
        75,
        36,
        12,
        7,
        2,
        0,
        1,
    ]
    counts = np.repeat(np.arange(1, 19), images)
    labels = (np.arange(18) < counts[:, None]).astype(np.int8)
    assert hiding.drop_positives(labels, r).sum() == expected


@pytest.mark.parametrize("block", [30, 1 << 22])
@given(labels=LABELS, fraction=SHARES, seed=SEEDS)
def test_keep_known_keeps_the_exact_share(block, labels, fraction, seed):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_checks, "BLOCK", block)
        kept = hiding.keep_known(labels, fraction, seed)
    known = np.count_nonzero(labels)
    assert np.count_nonzero(kept) == round(fraction * known)
    assert ((kept == labels) | (kept == 0)).all()


def test_keep_known_takes_present_and_absent_alike(complete):
    kept = hiding.keep_known(complete, 0.25, 0)
    present = (complete == PRESENT).sum()
    # Hypergeometric: a quarter of the present ones, standard deviation below 17.3.
    assert abs((kept == PRESENT).sum() - present / 4) < 4 * 17.3


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_shares_lie_between_0_and_1(share, complete):
    with pytest.raises(ValueError, match="between 0 and 1"):
        hiding.drop_positives(complete, share)
    with pytest.raises(ValueError, match="between 0 and 1"):
        hiding.keep_known(complete, share)


ROWS = np.array([[0, 1]] * 4 + [[0, -1]] * 9 + [[1, 1]] * 2, dtype=np.int8)


@pytest.mark.parametrize("ratio", [0, 0.5, 1, 1.5])
def test_subsample_negatives_keeps_all_positives_and_the_ratio(ratio):
    rows = hiding.subsample_negatives(ROWS, ratio, seed=0)
    assert (np.diff(rows) > 0).all()
    assert set(rows) >= {0, 1, 2, 3, 13, 14}
    assert len(rows) == 6 + round(ratio * 6)


def test_subsample_negatives_needs_enough_of_them():
    with pytest.raises(ValueError, match=r"1:2 with 6 .* needs 12 .* there are 9; .*at most 1\.5"):
        hiding.subsample_negatives(ROWS, 2)
    assert hiding.subsample_negatives(ROWS, 2, allow_fewer=True).tolist() == list(range(15))


def test_subsample_negatives_depends_on_the_seed():
    draws = {tuple(hiding.subsample_negatives(ROWS, 1, seed)) for seed in range(20)}
    assert len(draws) > 10
    assert tuple(hiding.subsample_negatives(ROWS, 1, 7)) in draws


@pytest.mark.parametrize("ratio", [-1, float("nan"), float("inf")])
def test_subsample_negatives_refuses_an_invalid_ratio(ratio):
    with pytest.raises(ValueError, match="expected ratio"):
        hiding.subsample_negatives(ROWS, ratio)
    with pytest.raises(ValueError, match="none of 3 rows has a PRESENT label"):
        hiding.subsample_negatives(np.zeros((3, 2)), 1)


SCENES = np.array(
    [[1, 1, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 1, -1], [0, 1, 1, -1]], dtype=np.int8
)
NAMES = ["person", "tie", "cat", "unicorn"]


def test_class_filter_keeps_the_order_of_the_classes():
    kept, names = class_filters.class_filter(SCENES, NAMES, keep=["unicorn", "cat", "cat"])
    dropped, same_names = class_filters.class_filter(SCENES, NAMES, drop=["person", "tie"])
    assert names == same_names == ("cat", "unicorn")
    np.testing.assert_array_equal(kept, SCENES[:, 2:])
    np.testing.assert_array_equal(dropped, kept)
    assert not np.shares_memory(kept, SCENES)
    assert (~(kept == PRESENT).any(axis=1)).tolist() == [True, True, False, False, False]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, ValueError, "either keep= or drop="),
        ({"keep": ["cat"], "drop": ["tie"]}, ValueError, "either keep= or drop="),
        ({"drop": ["persn"]}, ValueError, "'persn' is not a class; did you mean 'person'"),
        ({"drop": "cat"}, TypeError, "got the text 'cat'"),
        ({"drop": NAMES}, ValueError, "no class of 4 would be left"),
        ({"keep": []}, ValueError, "no class of 4 would be left"),
    ],
)
def test_class_filter_refuses(arguments, error, message):
    with pytest.raises(error, match=message):
        class_filters.class_filter(SCENES, NAMES, **arguments)


@given(labels=LABELS)
def test_co_occurrence_counts_rows_with_both_classes(labels):
    counts = class_filters.co_occurrence(labels)
    for a in range(labels.shape[1]):
        for b in range(labels.shape[1]):
            assert counts[a, b] == ((labels[:, a] == 1) & (labels[:, b] == 1)).sum()


def test_co_occurrence_adds_up_the_blocks(monkeypatch, complete):
    expected = class_filters.co_occurrence(complete)
    monkeypatch.setattr(label_checks, "BLOCK", 50)
    np.testing.assert_array_equal(class_filters.co_occurrence(complete), expected)


def test_correlated_classes_returns_the_share_of_rows_with_the_anchor():
    # tie: 2 of its 3 rows show a person, cat: 1 of 3; the unicorn is never present.
    assert class_filters.correlated_classes(SCENES, NAMES, "person", 0.5) == {
        "tie": pytest.approx(2 / 3)
    }
    assert list(class_filters.correlated_classes(SCENES, NAMES, "person", 0)) == ["tie", "cat"]
    assert class_filters.correlated_classes(SCENES, NAMES, "unicorn", 0.1) == {}
    # The default: half of the rows. The anchor is in 10 of 20 rows of one class, in 9 of another.
    rows = np.zeros((20, 3), dtype=int)
    rows[:10, 0] = rows[:, 1] = rows[1:, 2] = 1
    assert class_filters.correlated_classes(rows, list("abc"), "a") == {"b": 0.5}
    with pytest.raises(ValueError, match="'human' is not a class; the classes are: person, tie"):
        class_filters.correlated_classes(SCENES, NAMES, "human", 0.5)
