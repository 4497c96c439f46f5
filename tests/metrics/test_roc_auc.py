"""ROC-AUC against scikit-learn, counting of pairs, and the theory of hidden labels."""

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from metric_cases import make
from sklearn.metrics import roc_auc_score

import halftruth.metrics.ranks as rank_module
from halftruth.metrics import mean_roc_auc, roc_auc


def by_pairs(scores, labels, ignore_unknown=False):
    """Every pair of a positive and a negative, one after the other."""
    positives = [s for s, y in zip(scores, labels, strict=True) if y == 1]
    others = (-1,) if ignore_unknown else (0, -1)
    negatives = [s for s, y in zip(scores, labels, strict=True) if y in others]
    won = sum((p > n) + (p == n) / 2 for p in positives for n in negatives)
    pairs = len(positives) * len(negatives)
    return won / pairs if pairs else math.nan


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("ties", [False, True])
def test_equals_scikit_learn(dtype, ties):
    scores, labels = make(11, samples=2000, classes=9, ties=ties, rate=0.05)
    scores = scores.astype(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn: classes 0 and 2 have one kind only
        expected = [roc_auc_score(y == 1, s) for s, y in zip(scores.T, labels.T, strict=True)]
    assert np.isnan(expected).tolist() == [True, False, True] + [False] * 6
    np.testing.assert_allclose(roc_auc(scores, labels), expected, rtol=0, atol=1e-14)
    assert mean_roc_auc(scores, labels) == pytest.approx(np.nanmean(expected), abs=1e-14)


@pytest.mark.parametrize("ignore", [False, True])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("way", ["cpu", "gpu"])
def test_equals_pairs_where_labels_are_unknown(monkeypatch, ties, ignore, way):
    if way == "gpu":
        monkeypatch.setattr(rank_module, "rank_each", rank_module.rank_together)
    scores, labels = make(4, ties=ties, unknown=True)
    scores[3] = -np.inf
    expected = [by_pairs(s, y, ignore) for s, y in zip(scores.T, labels.T, strict=True)]
    value = roc_auc(scores, labels, ignore_unknown=ignore)
    np.testing.assert_allclose(value, expected, rtol=0, atol=1e-15)


def test_empty_policies():
    scores, labels = [[0.9, 0.3, 0.1], [0.1, 0.2, 0.3]], [[1, 0, 1], [0, 0, 1]]
    np.testing.assert_array_equal(roc_auc(scores, labels), [1, math.nan, math.nan])
    np.testing.assert_array_equal(roc_auc(scores, labels, empty="zero"), [1, 0, 0])
    assert mean_roc_auc(scores, labels) == 1
    assert math.isnan(mean_roc_auc(scores, labels, empty="nan"))
    with pytest.raises(ValueError, match="'drop'"):
        roc_auc(scores, labels, empty="drop")
    with pytest.warns(UserWarning, match="both positive and negative"):
        assert math.isnan(mean_roc_auc([[0.5]], [[1]]))


def test_kinds_and_blocks():
    scores, labels = make(2, samples=50, classes=23)
    whole = roc_auc(scores, labels)
    np.testing.assert_array_equal(whole, roc_auc(scores, labels, block_bytes=1))
    tensor = roc_auc(torch.from_numpy(scores).half(), torch.from_numpy(labels))
    assert tensor.dtype == torch.float64
    np.testing.assert_array_equal(whole, tensor.numpy())


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="row 1, column 0 is NaN"):
        roc_auc([[0.5], [math.nan]], [[1], [0]])
    with pytest.raises(ValueError, match="shape"):
        roc_auc([[0.5], [0.1]], [[1, 0]])


columns = st.lists(
    st.tuples(st.integers(-6, 6), st.sampled_from([1, 0, -1])), min_size=1, max_size=25
)


@given(columns, st.booleans())
def test_pairs_order_and_opposite_scores(pairs, ignore):
    scores = np.array([[s] for s, _ in pairs], dtype=np.float64)
    labels = np.array([[y] for _, y in pairs], dtype=np.int8)
    value = roc_auc(scores, labels, ignore_unknown=ignore)[0]
    expected = by_pairs(scores[:, 0], labels[:, 0], ignore)
    assert value == pytest.approx(expected, abs=1e-15, nan_ok=True)
    backwards = roc_auc(-scores[::-1], labels[::-1], ignore_unknown=ignore)[0]
    assert backwards == pytest.approx(1 - expected, abs=1e-15, nan_ok=True)


def test_labels_hidden_at_random_shrink_auc_towards_half_by_one_factor():
    """In expectation AUC - 1/2 times (share of the others that are truly absent)."""
    rng = np.random.default_rng(0)
    truth = np.where(rng.random((600, 1)) < 0.3, 1, -1)
    shown = np.stack([np.where(rng.random(len(truth)) < 0.4, truth[:, 0], 0) for _ in range(400)])
    shown = np.where(shown == 1, 1, 0).T
    for strength in (0.5, 2.0):
        scores = strength * truth + rng.normal(size=truth.shape)
        observed = roc_auc(np.repeat(scores, shown.shape[1], axis=1), shown).mean()
        others = len(truth) - 0.4 * (truth == 1).sum()
        factor = (truth == -1).sum() / others
        expected = 0.5 + factor * (roc_auc(scores, truth)[0] - 0.5)
        assert observed == pytest.approx(expected, abs=2e-3)
