"""Scores from incomplete labels: exact where labels are known, inside the interval where not."""

import json

import numpy as np
import pytest

from halftruth.labels import hiding
from halftruth.metrics import evaluate
from halftruth.presence.estimated_scores import (
    estimate_scores,
    score_as_if_complete,
    score_verified,
)
from halftruth.presence.labelling_model import PresenceRange

METRICS = ("mAP", "CF1", "OF1")


def make_rows(rows=600, classes=6, seed=0, share=0.25):
    """Scores and complete labels (bool) of classes that differ in frequency."""
    random = np.random.default_rng(seed)
    rate = share * np.linspace(0.4, 1.6, classes)
    truth = random.random((rows, classes)) < rate
    z = 3.2 * truth - 2 + random.normal(size=truth.shape)
    return 1 / (1 + np.exp(-z)), truth


def hide(truth, keep, seed=0):
    random = np.random.default_rng(1000 + seed)
    return (truth & (random.random(truth.shape) < keep)).astype(np.int8)


@pytest.mark.parametrize("rows", [50, 3000])
def test_certain_probabilities_give_the_metrics_of_complete_labels(rows):
    scores, truth = make_rows(rows)
    shown = hide(truth, 0.5)
    found = estimate_scores(
        scores, shown, 0.5, truth.astype(float), spread=0, selection="missing_at_random"
    )
    exact = evaluate(scores, truth.astype(np.int8), 0.5)
    # The shown half of the positives tells where all of them are ranked, up to its noise.
    for name in METRICS:
        assert getattr(found, name).value == pytest.approx(exact[name], abs=2 / np.sqrt(rows))
    assert found.labels_per_row.value == pytest.approx(truth.sum(1).mean())


def test_complete_labels_need_no_estimate():
    scores, truth = make_rows()
    labels = np.where(truth, 1, -1).astype(np.int8)
    exact = evaluate(scores, labels, 0.5)
    for found in (
        estimate_scores(scores, labels, 0.5, truth.astype(float)),
        score_verified(scores, labels, 0.5),
        score_as_if_complete(scores, labels, 0.5),
    ):
        for name in METRICS:
            one = getattr(found, name)
            assert one.value == pytest.approx(exact[name], abs=2e-3)
            assert one.low < exact[name] < one.high


@pytest.mark.parametrize("rows", [40, 1000])
def test_known_footings_equal_the_metrics(rows):
    scores, truth = make_rows(rows)
    labels = hide(truth, 0.5)
    labels[~truth & (np.random.default_rng(1).random(truth.shape) < 0.3)] = -1
    complete, known = (
        evaluate(scores, labels, 0.5, ignore_unknown=ignore) for ignore in (False, True)
    )
    as_if, verified = score_as_if_complete(scores, labels, 0.5), score_verified(scores, labels, 0.5)
    assert verified is not None
    for name in METRICS:
        assert getattr(as_if, name).value == pytest.approx(complete[name])
        assert getattr(verified, name).value == pytest.approx(known[name])


@pytest.mark.parametrize("labels", [[[1], [0]], [[-1], [0]], [[0], [0]]])
def test_nothing_is_verified_without_present_and_absent_labels(labels):
    assert score_verified([[0.9], [0.1]], labels, 0.5) is None


@pytest.mark.parametrize("setting", ["random", "one"])
def test_interval_contains_the_truth_and_unknown_is_absent_does_not(setting):
    inside, below = [], []
    for seed in range(4):
        scores, truth = make_rows(500, seed=seed)
        labels = truth.astype(np.int8)
        shown = hide(truth, 0.4, seed) if setting == "random" else hiding.single_positive(labels)
        found = estimate_scores(scores, shown, 0.5)
        as_if = score_as_if_complete(scores, shown, 0.5)
        exact = evaluate(scores, labels, 0.5)
        for name in METRICS:
            one = getattr(found, name)
            inside.append(one.low <= exact[name] <= one.high)
            below.append(getattr(as_if, name).high < exact[name])
    assert np.mean(inside) >= 0.85
    assert np.mean(below) >= 0.85


def test_one_label_per_row_stands_for_its_row():
    # Rows with several positives show each of them less often. Their scores are lower here.
    random = np.random.default_rng(0)
    truth = np.zeros((2000, 4), dtype=bool)
    truth[np.arange(2000), random.integers(4, size=2000)] = True
    truth[:600] = True
    many = truth.sum(1, keepdims=True) > 1
    scores = np.where(truth, np.where(many, 0.4, 0.8), 0.9 * (random.random(truth.shape) < 0.3))
    shown = hiding.single_positive(truth.astype(np.int8))
    sure = truth.astype(float)
    recall = (truth & (scores > 0.6)).sum() / truth.sum()
    by_row = estimate_scores(scores, shown, 0.6, PresenceRange(sure, sure, sure, "single_positive"))
    same = estimate_scores(scores, shown, 0.6, PresenceRange(sure, sure, sure, "missing_at_random"))
    assert by_row.recall[:, 0].mean() == pytest.approx(recall, abs=0.02)
    assert same.recall[:, 0].mean() > recall + 0.1


def test_decisions_may_be_thresholds_or_predictions():
    scores, truth = make_rows()
    shown = hide(truth, 0.5)
    cut = np.linspace(0.3, 0.7, scores.shape[1])
    by_cut = estimate_scores(scores, shown, cut)
    by_bool = estimate_scores(scores, shown, scores > cut)
    assert by_cut.to_dict() == by_bool.to_dict()
    assert json.loads(json.dumps(by_cut.to_dict()))["OF1"]["value"] == by_cut.OF1.value


def test_order_of_rows_does_not_decide_between_tied_scores():
    labels = np.full((4000, 1), -1, dtype=np.int8)
    labels[:400] = 1
    present = (labels == 1).astype(float)
    found = estimate_scores(
        np.full((4000, 1), 0.5), labels, 0.4, present, selection="missing_at_random"
    )
    assert found.mAP.value == pytest.approx(0.1, abs=0.03)


def test_more_doubt_gives_wider_intervals():
    scores, truth = make_rows()
    shown = hide(truth, 0.5)
    narrow, wide = (
        estimate_scores(scores, shown, 0.5, np.full(shown.shape, 0.2), spread=spread)
        for spread in (0.0, 1.0)
    )
    for name in (*METRICS, "labels_per_row"):
        assert getattr(narrow, name).width < getattr(wide, name).width


def test_fewer_rows_give_wider_intervals():
    few, many = (
        score_as_if_complete(scores, truth.astype(np.int8), 0.5)
        for scores, truth in (make_rows(100), make_rows(10_000))
    )
    for name in METRICS:
        assert getattr(few, name).width > 4 * getattr(many, name).width


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"scores": np.zeros((3, 2))}, "shape of the labels"),
        ({"scores": np.full((2, 2), np.nan)}, r"scores\[0, 0\]: expected a number"),
        ({"decisions": np.zeros(3)}, "2 thresholds"),
        ({"decisions": np.zeros((3, 2), bool)}, "expected decisions of shape"),
        ({"present": np.zeros((3, 2))}, "expected present of the shape"),
        ({"draws": 1}, "draws"),
        ({"labels": np.zeros((2, 2)), "present": None}, "no label is PRESENT"),
    ],
)
def test_errors_say_what_was_expected(change, words):
    given = {
        "scores": np.full((2, 2), 0.5),
        "labels": np.eye(2, dtype=np.int8),
        "decisions": 0.5,
        "present": np.full((2, 2), 0.5),
        **change,
    }
    with pytest.raises(ValueError, match=words):
        estimate_scores(**given)
