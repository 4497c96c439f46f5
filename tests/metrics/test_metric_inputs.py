"""Metrics accept arrays of every kind, return the same kind, and name invalid values."""

import numpy as np
import pytest
import torch
from metric_cases import make

from halftruth.metrics import (
    average_precision,
    cost_sensitive_hamming_loss,
    count,
    evaluate,
    f_beta,
    mean_average_precision,
    precision_at_k,
    predictive_values,
    propensity_scored_precision_at_k,
    thresholds,
)

ALL = {
    "average_precision": average_precision,
    "mean_average_precision": mean_average_precision,
    "count": count,
    "f_beta": f_beta,
    "cost_sensitive_hamming_loss": cost_sensitive_hamming_loss,
    "precision_at_k": lambda scores, labels: precision_at_k(scores, labels, 1),
    "propensity_scored_precision_at_k": lambda scores, labels: propensity_scored_precision_at_k(
        scores, labels, 1, np.full(np.shape(scores)[-1], 0.5)
    ),
    "thresholds.best": thresholds.best,
    "evaluate": evaluate,
}
every_metric = pytest.mark.parametrize("metric", ALL.values(), ids=ALL.keys())


@pytest.mark.filterwarnings("ignore:Undefined")
@pytest.mark.parametrize(
    "metric", [average_precision, f_beta, thresholds.best, lambda s, y: predictive_values(s, y)[1]]
)
def test_results_have_the_array_type_of_the_scores(metric):
    scores, labels = make(0)
    expected = metric(scores, labels)
    assert isinstance(expected, np.ndarray)
    assert expected.dtype == np.float64
    as_lists = metric(scores.tolist(), labels.tolist())
    assert isinstance(as_lists, np.ndarray)
    np.testing.assert_array_equal(as_lists, expected)
    tensor = metric(torch.from_numpy(scores).requires_grad_(), torch.from_numpy(labels))
    assert isinstance(tensor, torch.Tensor)
    assert tensor.dtype == torch.float64
    assert not tensor.requires_grad
    np.testing.assert_array_equal(tensor.numpy(), expected)


@pytest.mark.filterwarnings("ignore:Undefined")
def test_labels_of_any_type_and_any_layout():
    scores, labels = make(1)
    expected = evaluate(scores, labels)
    for dtype in (np.int64, np.int32, np.float16, np.float32, np.float64):
        assert evaluate(scores, labels.astype(dtype)) == expected
    assert evaluate(scores, labels == 1) == expected
    for dtype in (np.uint8, np.uint16, np.uint64):
        assert evaluate(scores, (labels == 1).astype(dtype)) == expected
    assert evaluate(torch.from_numpy(scores), torch.from_numpy(labels == 1)) == expected
    assert evaluate(np.asfortranarray(scores), np.asfortranarray(labels)) == expected
    assert evaluate(scores[::-1], labels[::-1]) == expected
    wide = torch.from_numpy(np.repeat(scores, 2, axis=1))[:, ::2]
    assert evaluate(wide, labels) == expected
    scores.setflags(write=False)
    labels.setflags(write=False)
    assert evaluate(scores, labels) == expected


@pytest.mark.filterwarnings("ignore:Undefined")
def test_inputs_are_not_changed():
    scores, labels = make(1, unknown=True)
    before = scores.copy(), labels.copy()
    for metric in ALL.values():
        metric(scores, labels)
    np.testing.assert_array_equal(scores, before[0])
    np.testing.assert_array_equal(labels, before[1])


@every_metric
def test_the_position_of_a_nan_is_named(metric):
    scores, labels = make(1)
    scores[17, 4] = np.nan
    for given in (scores, scores.astype(np.float32), torch.from_numpy(scores).bfloat16()):
        with pytest.raises(ValueError, match="row 17, column 4 is NaN"):
            metric(given, labels)


@every_metric
@pytest.mark.parametrize(
    ("wrong", "dtype"),
    [(2, np.int64), (-2, np.int8), (0.5, np.float32), (np.nan, np.float64), (300, np.int64)],
)
def test_the_position_of_an_invalid_label_is_named(metric, wrong, dtype):
    scores, labels = make(1)
    labels = labels.astype(dtype)
    labels[17, 4] = wrong
    with pytest.raises(ValueError, match=r"\b17\b.*\b4\b"):
        metric(scores, labels)


@every_metric
@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [
        (np.zeros(3), np.zeros(3), r"\(samples, classes\), but got \(3,\).*scores\[:, None\]"),
        (np.zeros((3, 2)), np.zeros((2, 3)), r"\(3, 2\), but got \(2, 3\)"),
        (np.zeros((0, 2)), np.zeros((0, 2)), "at least one sample and one class"),
        (np.zeros((2, 0)), np.zeros((2, 0)), "at least one sample and one class"),
    ],
)
def test_wrong_shapes_are_refused(metric, scores, labels, message):
    with pytest.raises(ValueError, match=message):
        metric(scores, labels)


def test_text_arrays_are_refused():
    with pytest.raises(TypeError, match="array of numbers"):
        average_precision([["a"]], [[1]])


@pytest.mark.filterwarnings("ignore:Undefined")
def test_one_class_and_one_sample():
    assert average_precision([[0.3]], [[1]]).tolist() == [1.0]
    report = evaluate([[0.9]], [[1]], top_k=1)
    assert {report[name] for name in ("mAP", "CF1", "OF1", "OF1@1", "macro_F2")} == {1.0}
    assert evaluate([[0.1], [0.2]], [[-1], [-1]], empty="zero")["F1_neg"] == 1.0
