"""Counts and F-scores against plain loops, scikit-learn and their definitions."""

import warnings

import numpy as np
import pytest
import torch
from metric_cases import make
from sklearn.metrics import fbeta_score, precision_recall_fscore_support
from sklearn.metrics import hamming_loss as sklearn_hamming
from slow_metrics import confusion, cost_sensitive_hamming

from halftruth.metrics import (
    SEWER_ML_WEIGHTS,
    Counts,
    UndefinedMetricWarning,
    class_and_overall,
    cost_sensitive_hamming_loss,
    count,
    f1_neg,
    f2_ciw,
    f_beta,
    hamming_loss,
    macro_f_beta,
    micro_f_beta,
    precision_at_k,
    predictive_values,
    recall_at_k,
    scores_and_labels,
)

PER_CLASS = np.linspace(0.2, 0.8, 7)


def four(counts):
    return torch.stack([counts.tp, counts.fp, counts.fn, counts.tn], 1).numpy()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("ignore", [False, True])
@pytest.mark.parametrize("threshold", [0.5, PER_CLASS])
@pytest.mark.parametrize("inclusive", [False, True])
def test_counts_equal_plain_loops(seed, ignore, threshold, inclusive):
    scores, labels = make(seed, unknown=True)
    predicted = scores >= threshold if inclusive else scores > threshold
    expected, normal = confusion(predicted, labels, ignore)
    found = count(scores, labels, threshold, inclusive=inclusive, ignore_unknown=ignore)
    np.testing.assert_array_equal(four(found), expected)
    np.testing.assert_array_equal(found.normal, normal)
    assert normal.sum() == len(labels) or ignore


def test_empty_rows_are_counted():
    scores, labels = make(1)
    labels[:, 2] = -1
    labels[:20] = -1
    scores[:8] = 0.1
    counts = count(scores, labels)
    tp, fp, fn, _ = confusion(scores > 0.5, labels)[1]
    assert tp >= 8
    assert fn > 0
    assert f1_neg(counts) == 2 * tp / (2 * tp + fp + fn)


def test_counts_of_blocks_add_up(monkeypatch):
    scores, labels = make(1, unknown=True)
    whole = count(scores, labels, ignore_unknown=True)
    monkeypatch.setitem(scores_and_labels.BLOCK_BYTES, "cpu", 16 * 7 * 11)
    blocks = count(scores, labels, ignore_unknown=True)
    halves = [count(scores[part], labels[part], ignore_unknown=True)
              for part in (slice(0, 31), slice(31, None))]  # fmt: skip
    for other in (blocks, halves[0] + halves[1]):
        np.testing.assert_array_equal(four(whole), four(other))
        assert torch.equal(whole.normal, other.normal)


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_f_scores_equal_scikit_learn(beta):
    scores, labels = make(4)
    truth, said = labels == 1, scores > 0.5
    options = {"beta": beta, "zero_division": 0}
    counts = count(scores, labels)
    each = fbeta_score(truth, said, average=None, **options)
    np.testing.assert_allclose(f_beta(scores, labels, beta), each, atol=1e-15)
    for average, value in (
        ("macro", macro_f_beta(counts, beta)),
        ("micro", micro_f_beta(counts, beta)),
    ):
        assert value == pytest.approx(fbeta_score(truth, said, average=average, **options), 1e-14)


def test_large_counts_are_not_rounded():
    tp, fp, fn = 2**25 + 1, 2**26 + 3, 2**24 + 1
    counts = Counts(*(torch.tensor([n]) for n in (tp, fp, fn, 7)), torch.zeros(4))
    for beta in (0.3, 1.0):
        expected = (1 + beta**2) * tp / ((1 + beta**2) * tp + beta**2 * fn + fp)
        assert counts.f_beta(beta).item() == pytest.approx(expected, rel=1e-15)
    assert counts.precision.item() == tp / (tp + fp)
    assert class_and_overall(counts)["OR"] == tp / (tp + fn)


def test_class_and_overall():
    scores, labels = make(4)
    report = class_and_overall(count(scores, labels))
    truth, said = labels == 1, scores > 0.5
    for letter, average in (("C", "macro"), ("O", "micro")):
        precision, recall, _, _ = precision_recall_fscore_support(
            truth, said, average=average, zero_division=0
        )
        assert report[f"{letter}P"] == pytest.approx(precision, 1e-14)
        assert report[f"{letter}R"] == pytest.approx(recall, 1e-14)
        harmonic = 2 * precision * recall / (precision + recall)
        assert report[f"{letter}F1"] == pytest.approx(harmonic, 1e-14)


def test_top_k_predicts_exactly_k_and_breaks_ties_by_class():
    scores = [[0.5, 0.5, 0.5, 0.1], [0.1, 0.9, 0.9, 0.9], [0.4, 0.3, 0.2, 0.1]]
    counts = count(scores, np.ones((3, 4)), top_k=2)
    assert counts.tp.tolist() == [2, 3, 1, 0]
    with pytest.raises(ValueError, match="between 1 and 4"):
        count(scores, np.ones((3, 4)), top_k=5)


@pytest.mark.parametrize("k", [1, 3, 7])
def test_top_k_without_ties(k):
    scores, labels = make(9, ties=False)
    said = np.argsort(np.argsort(-scores, 1), 1) < k
    np.testing.assert_array_equal(four(count(scores, labels, top_k=k)), confusion(said, labels)[0])
    hits = (said & (labels == 1)).sum(1)
    assert precision_at_k(scores, labels, k) == pytest.approx((hits / k).mean(), 1e-14)
    present = (labels == 1).sum(1)
    assert recall_at_k(scores, labels, k) == pytest.approx((hits / present).mean(), 1e-14)


def test_recall_of_a_row_without_labels_is_zero():
    assert recall_at_k([[0.9, 0.1], [0.9, 0.1]], [[1, 0], [0, 0]], k=1) == 0.5


def test_predictive_values():
    scores, labels = make(6)
    counts = confusion(scores > 0.25, labels)[0].astype(float)
    tp, fp, fn, tn = counts.T
    ppv, npv = predictive_values(scores, labels, 0.25)
    np.testing.assert_allclose(ppv, tp / (tp + fp), atol=1e-15)
    np.testing.assert_allclose(npv, tn / (tn + fn), atol=1e-15)


@pytest.mark.parametrize("ignore", [False, True])
def test_hamming_losses(ignore):
    scores, labels = make(6, unknown=True)
    labels[7] = -1
    labels[8] = 1
    labels[9] = 0
    said = scores > 0.5
    known = labels != 0 if ignore else np.ones_like(said)
    expected = sklearn_hamming((labels == 1)[known], said[known])
    assert hamming_loss(scores, labels, ignore_unknown=ignore) == pytest.approx(expected, 1e-14)
    expected = cost_sensitive_hamming(said, labels, ignore)
    value = cost_sensitive_hamming_loss(scores, labels, ignore_unknown=ignore)
    assert value == pytest.approx(expected, 1e-14)


def test_cost_sensitive_hamming_is_two_if_all_is_wrong_at_any_imbalance():
    labels = np.array([[1, -1, -1, -1, -1]])
    assert cost_sensitive_hamming_loss(labels < 0, labels) == 2
    assert cost_sensitive_hamming_loss(labels > 0, labels) == 0
    assert cost_sensitive_hamming_loss(np.zeros((1, 5)), labels) == 1
    assert cost_sensitive_hamming_loss(np.ones((1, 5)), labels) == 1


def test_undefined_ratios_are_zero_with_one_warning():
    scores = [[0.9, 0.1, 0.1], [0.9, 0.1, 0.1]]
    labels = [[1, 0, 1], [0, 0, 1]]
    with pytest.warns(UndefinedMetricWarning, match="F of 1 of 3 classes") as caught:
        np.testing.assert_allclose(f_beta(scores, labels), [2 / 3, 0, 0])
    assert len(caught) == 1
    with pytest.warns(UndefinedMetricWarning, match="PPV of 2 of 3 classes, NPV of 1 of 3"):
        ppv, npv = predictive_values(scores, labels)
    np.testing.assert_allclose(ppv, [0.5, 0, 0])
    np.testing.assert_allclose(npv, [0, 1, 0])


def test_importance_weights():
    scores, labels = make(4, classes=17)
    counts = count(scores, labels)
    names = list(SEWER_ML_WEIGHTS)
    by_name = f2_ciw(counts, SEWER_ML_WEIGHTS, names)
    f2, weight = counts.f_beta(2.0).numpy(), np.array(list(SEWER_ML_WEIGHTS.values()))
    assert by_name == pytest.approx((f2 * weight).sum() / weight.sum(), 1e-14)
    assert f2_ciw(counts, weight) == by_name
    turned = count(scores[:, ::-1], labels[:, ::-1])
    assert f2_ciw(turned, SEWER_ML_WEIGHTS, names[::-1]) == pytest.approx(by_name, 1e-14)
    assert f2_ciw(counts, [1.0] * 17) == pytest.approx(macro_f_beta(counts, 2.0), 1e-14)


@pytest.mark.parametrize(
    ("weights", "classes", "message"),
    [
        ({"a": 1.0}, None, "classes="),
        ({"a": 1.0}, ["a", "b", "c"], r"\['b', 'c'\]"),
        ([1.0, 2.0], None, r"Expected 3 class weights, but got shape \(2,\)"),
        ([1.0, -2.0, 1.0], None, ">= 0"),
        ([0.0, 0.0, 0.0], None, "not all 0"),
        ([1.0, np.nan, 0.0], None, "finite class weights"),
        ([1.0, np.inf, 0.0], None, "finite class weights"),
    ],
)
def test_wrong_weights_are_refused(weights, classes, message):
    with pytest.raises(ValueError, match=message):
        f2_ciw(count(np.eye(3), np.eye(3)), weights, classes)


@pytest.mark.parametrize(
    "logits",
    [[[3.0, -2.0], [0.2, 0.4]], [[0.9, -2.0], [0.2, 0.4]], [[3.0, 0.1], [0.2, 0.4]]],
    ids=["both", "all below 1", "none negative"],
)
def test_logits_compared_with_a_probability_threshold_give_a_warning(logits):
    with pytest.warns(UserWarning, match="compared with the threshold 0.5.*logits"):
        count(logits, [[1, 0], [0, 1]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        count(logits, [[1, 0], [0, 1]], threshold=0.0)
        count(logits, [[1, 0], [0, 1]], threshold=[0.5, 0.5])
        count(logits, [[1, 0], [0, 1]], top_k=1)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_threshold_has_the_precision_of_the_scores(dtype):
    scores = torch.tensor([[0.1], [0.3]], dtype=dtype)
    labels = torch.ones(2, 1)
    for threshold in (0.1, [0.1], torch.tensor(0.1, dtype=torch.float64)):
        assert count(scores, labels, threshold).tp.item() == 1
        assert count(scores, labels, threshold, inclusive=True).tp.item() == 2


@pytest.mark.parametrize(
    ("threshold", "message"),
    [([0.5, 0.5], r"each of 3 classes, but got shape \(2,\)"), (float("nan"), "without NaN")],
)
def test_wrong_thresholds_are_refused(threshold, message):
    with pytest.raises(ValueError, match=message):
        count(np.eye(3), np.eye(3), threshold)


@pytest.mark.parametrize("beta", [0.0, -1.0, float("nan"), float("inf")])
def test_beta_must_be_positive_and_finite(beta):
    with pytest.raises(ValueError, match="Expected a finite beta > 0"):
        f_beta([[0.9], [0.1]], [[1], [0]], beta=beta)
