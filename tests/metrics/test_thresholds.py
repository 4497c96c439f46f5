"""Chosen thresholds reach the best value of an exhaustive search."""

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from metric_cases import make
from slow_metrics import best_f_beta

from halftruth.metrics import count, thresholds
from halftruth.metrics import ranks as rank_module


def reached(scores, labels, chosen, beta, **options):
    return count(scores, labels, chosen, **options).f_beta(beta).numpy()


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("ignore", [False, True])
def test_best_is_the_best(beta, ties, ignore):
    for seed in range(3):
        scores, labels = make(seed, ties=ties, unknown=True)
        chosen = thresholds.best(scores, labels, beta, ignore_unknown=ignore)
        value = reached(scores, labels, chosen, beta, ignore_unknown=ignore)
        expected = best_f_beta(scores, labels, beta, ignore)
        np.testing.assert_allclose(value, expected, rtol=0, atol=1e-14)
        assert chosen[0] == 0.5, "a class without positives"
        assert np.isfinite(chosen).all()


def test_of_equal_thresholds_the_highest_is_taken_halfway_between_scores():
    scores = np.array([[0.9], [0.7], [0.3], [0.1]])
    assert thresholds.best(scores, [[1], [1], [0], [0]])[0] == pytest.approx(0.5)
    # Predicting one of both positives alone, or both with two others: F1 = 2/3 either way.
    scores = [[0.9], [0.7], [0.5], [0.3], [0.1]]
    assert thresholds.best(scores, [[1], [0], [0], [1], [0]])[0] == pytest.approx(0.8)
    assert thresholds.best([[0.9], [0.5], [0.5], [0.2]], [[1], [1], [0], [0]])[0] == 0.35


def test_a_threshold_that_predicts_everything_lies_below_all_scores():
    for lowest in (0.0, 1.0, -7.5, 1e30, -1e30, np.inf):
        scores = np.full((3, 1), lowest, dtype=np.float32)
        chosen = thresholds.best(scores, [[1], [1], [0]])
        assert math.isfinite(chosen[0])
        assert (scores > chosen.astype(np.float32)).all()


def test_infinite_scores():
    scores = np.array([[np.inf], [1.0], [-np.inf]])
    assert thresholds.best(scores, [[1], [0], [0]])[0] == 1.0
    assert -np.inf < thresholds.best(scores, [[1], [1], [0]])[0] < 1.0
    assert thresholds.best(np.full((2, 1), -np.inf), [[1], [0]], fallback=0.25)[0] == 0.25


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_neighbouring_numbers_are_separated(dtype):
    high = torch.tensor([[0.5]], dtype=dtype)
    for step in (torch.finfo(dtype).eps / 4, torch.finfo(dtype).eps / 2):
        low = high - step
        assert low < high
        scores = torch.cat([high, low])
        chosen = thresholds.best(scores, torch.tensor([[1], [0]]))
        assert chosen.dtype == torch.float64
        assert (scores > chosen.to(dtype)).tolist() == [[True], [False]]


@given(
    st.lists(st.tuples(st.integers(-4, 4), st.booleans()), min_size=1, max_size=14),
    st.sampled_from([0.5, 1.0, 3.0]),
)
def test_best_on_small_columns(pairs, beta):
    scores = np.array([[s / 4] for s, _ in pairs])
    labels = np.array([[int(y)] for _, y in pairs])
    chosen = thresholds.best(scores, labels, beta)
    np.testing.assert_allclose(
        reached(scores, labels, chosen, beta), best_f_beta(scores, labels, beta), atol=1e-14
    )


@pytest.mark.parametrize("target", [0.2, 0.5, 0.75, 1.0])
def test_for_precision_has_the_highest_recall(target):
    scores, labels = make(13, samples=80)
    with pytest.warns(UserWarning, match="precision.*of 7 classes"):
        chosen = thresholds.for_precision(scores, labels, target)
    counts = count(scores, labels, chosen)
    for k in range(scores.shape[1]):
        recalls = [-1.0]
        for threshold in np.unique(scores[:, k]):
            predicted, present = scores[:, k] >= threshold, labels[:, k] == 1
            if predicted[present].sum() / predicted.sum() >= target and present.any():
                recalls.append(predicted[present].mean())
        if max(recalls) <= 0:
            assert chosen[k] == np.inf
        else:
            assert counts.recall[k] == pytest.approx(max(recalls), 1e-14)
            assert counts.precision[k] >= target


def test_for_precision_takes_fractions_literally():
    scores, labels = [[0.9], [0.6], [0.4], [0.1]], [[1], [0], [1], [0]]
    assert thresholds.for_precision(scores, labels, 2 / 3)[0] == 0.25
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        thresholds.for_precision(scores, labels, 1.0)
    with pytest.raises(ValueError, match=r"in \(0, 1\], but got 66"):
        thresholds.for_precision(scores, labels, 66)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beta": 0}, "finite beta > 0"),
        ({"beta": float("nan")}, "finite beta > 0"),
        ({"fallback": float("nan")}, "fallback, but got NaN"),
    ],
    ids=str,
)
def test_best_refuses_wrong_options(options, message):
    with pytest.raises(ValueError, match=message):
        thresholds.best([[0.9], [0.1]], [[1], [0]], **options)


@pytest.mark.parametrize("ignore", [False, True])
def test_gpu_ranking_gives_the_same_thresholds(monkeypatch, ignore):
    scores, labels = make(3, unknown=True)
    expected = thresholds.best(scores, labels, 2.0, ignore_unknown=ignore)
    monkeypatch.setattr(rank_module, "rank_each", rank_module.rank_together)
    value = thresholds.best(scores, labels, 2.0, ignore_unknown=ignore)
    np.testing.assert_array_equal(value, expected)
