"""Average precision against plain loops and scikit-learn, and its invariances."""

import math
import tracemalloc
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from metric_cases import make
from sklearn.metrics import average_precision_score
from slow_metrics import average_precision as slow_average_precision

from halftruth.metrics import average_precision, mean_average_precision
from halftruth.metrics.ranks import rank_each, rank_together
from halftruth.metrics.scores_and_labels import read

CASES = [(seed, ties, unknown) for seed in range(4) for ties in (0, 1) for unknown in (0, 1)]


@pytest.mark.parametrize(("seed", "ties", "unknown"), CASES)
def test_equals_plain_loops(seed, ties, unknown):
    scores, labels = make(seed, ties=ties, unknown=unknown)
    for ignore in (False, True):
        expected = slow_average_precision(scores, labels, ignore)
        value = average_precision(scores, labels, ignore_unknown=ignore)
        np.testing.assert_allclose(value, expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("ties", [False, True])
def test_equals_scikit_learn(dtype, ties):
    scores, labels = make(11, samples=3000, classes=12, ties=ties, rate=0.05)
    scores = scores.astype(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = average_precision_score(labels == 1, scores, average=None)
    value = average_precision(scores, labels, empty="zero")
    np.testing.assert_allclose(value, expected, rtol=0, atol=1e-14)
    mean = mean_average_precision(scores, labels, empty="zero")
    assert mean == pytest.approx(expected.mean(), abs=1e-14)


@pytest.mark.parametrize("unknown", [False, True])
def test_gpu_ranking_equals_cpu_ranking(unknown):
    scores, labels = make(5, unknown=unknown)
    scores[3] = -np.inf
    data = read(torch.from_numpy(scores), torch.from_numpy(labels), ignore_unknown=unknown)
    for where in (slice(0, 7), slice(4, 6)):
        one, other = rank_each(data, where), rank_together(data, where)
        assert len(one.column) > 10
        for name in ("column", "score", "positives", "samples", "tied", "below"):
            mine, its = getattr(one, name), getattr(other, name)
            assert mine.dtype == its.dtype
            assert torch.equal(mine, its), name


@pytest.mark.parametrize("block_bytes", [1, 3000, 10**9])
def test_blocks_do_not_change_the_value(block_bytes):
    scores, labels = make(2, samples=50, classes=23)
    whole = average_precision(scores, labels)
    np.testing.assert_array_equal(whole, average_precision(scores, labels, block_bytes=block_bytes))


def test_working_memory_is_a_few_columns():
    rng = np.random.default_rng(0)
    scores = rng.random((100_000, 40), dtype=np.float32)
    labels = (rng.random((100_000, 40), dtype=np.float32) < 0.03).astype(np.int8)
    average_precision(scores, labels, block_bytes=1)
    tracemalloc.start()
    average_precision(scores, labels, block_bytes=1)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 * scores[:, 0].nbytes


def test_empty_policies():
    scores = [[0.9, 0.3, 0.1], [0.1, 0.2, 0.3]]
    labels = [[1, 0, 0], [0, 0, 1]]
    np.testing.assert_array_equal(average_precision(scores, labels), [1, math.nan, 1])
    np.testing.assert_array_equal(average_precision(scores, labels, empty="nan"), [1, math.nan, 1])
    np.testing.assert_array_equal(average_precision(scores, labels, empty="zero"), [1, 0, 1])
    assert mean_average_precision(scores, labels) == 1
    assert mean_average_precision(scores, labels, empty="zero") == pytest.approx(2 / 3, abs=1e-15)
    assert math.isnan(mean_average_precision(scores, labels, empty="nan"))
    with pytest.raises(ValueError, match="'drop'"):
        average_precision(scores, labels, empty="drop")


def test_no_positive_anywhere_gives_nan_and_a_warning():
    with pytest.warns(UserWarning, match="No class has a positive"):
        assert math.isnan(mean_average_precision([[0.5]], [[0]]))
    assert mean_average_precision([[0.5]], [[0]], empty="zero") == 0


def test_ignored_entries_do_not_change_the_value():
    scores, labels = make(3, unknown=True)
    value = average_precision(scores, labels, ignore_unknown=True)
    scores[labels == 0] = np.random.default_rng(0).choice([0.0, 0.125, 1.0], (labels == 0).sum())
    np.testing.assert_array_equal(value, average_precision(scores, labels, ignore_unknown=True))
    with pytest.raises(AssertionError):
        np.testing.assert_array_equal(value, average_precision(scores, labels))


def test_a_class_without_known_labels_is_empty():
    value = average_precision([[0.2, 0.3], [0.4, 0.1]], [[0, 1], [0, -1]], ignore_unknown=True)
    np.testing.assert_array_equal(value, [math.nan, 1])


def test_all_tied_scores_give_the_rate_of_positives():
    labels = np.array([[1], [0], [0], [1], [0]])
    assert average_precision(np.zeros((5, 1)), labels)[0] == 0.4
    assert average_precision(np.array([[0.0], [-0.0], [0.0], [-0.0], [0.0]]), labels)[0] == 0.4


def test_infinite_scores_are_ranked():
    scores = np.array([[np.inf], [3.0], [-np.inf], [-np.inf]])
    assert average_precision(scores, [[1], [0], [1], [0]])[0] == (1 + 2 / 4) / 2


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_precisions(dtype):
    scores, labels = make(8, ties=False)
    scores = torch.from_numpy(scores).to(dtype)
    value = average_precision(scores, torch.from_numpy(labels))
    assert value.dtype == torch.float64
    expected = slow_average_precision(scores.double().numpy(), labels)
    np.testing.assert_allclose(value.numpy(), expected, rtol=0, atol=1e-15)


columns = st.lists(
    st.tuples(st.integers(-6, 6), st.sampled_from([1, 0, -1])), min_size=1, max_size=25
)


@given(columns, st.randoms(use_true_random=False), st.booleans())
def test_order_of_samples_and_monotone_transforms_do_not_matter(pairs, random, ignore):
    scores = np.array([[s] for s, _ in pairs], dtype=np.float64)
    labels = np.array([[y] for _, y in pairs], dtype=np.int8)
    value = average_precision(scores, labels, ignore_unknown=ignore)
    order = list(range(len(pairs)))
    random.shuffle(order)
    for other in (scores[order], np.tanh(scores[order]), 3 * scores[order] ** 3 - 1):
        again = average_precision(other, labels[order], ignore_unknown=ignore)
        np.testing.assert_array_equal(value, again)


@given(columns)
def test_between_the_worst_and_one(pairs):
    scores = np.array([[s] for s, _ in pairs], dtype=np.float32)
    labels = np.array([[y] for _, y in pairs])
    positives = int((labels == 1).sum())
    value = average_precision(scores, labels)[0]
    if positives == 0:
        assert math.isnan(value)
        return
    worst = sum((i + 1) / (len(pairs) - positives + i + 1) for i in range(positives)) / positives
    assert worst - 1e-12 <= value <= 1
    assert (value == 1) == (scores[labels == 1].min() > scores[labels != 1].max(initial=-99))
