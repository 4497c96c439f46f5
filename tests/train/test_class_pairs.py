"""Rows that show one class count less as rows without classes that occur with it."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from halftruth.labels import single_positive
from halftruth.metrics import mean_average_precision
from halftruth.train.ensemble import member_fits
from halftruth.train.ensemble.fit_ensemble import fit_ensemble
from halftruth.train.ensemble.negative_weights import (
    ScoreSums,
    can_pair,
    count_as_absent,
    fit_similar,
)


def weigh_similar(labels, scores):
    return ScoreSums.of(labels, scores).weigh()


def draw_nested(rows, seed=0):
    """Grades of one hidden value: a row of the highest grade has all lower ones, too."""
    random = np.random.default_rng(seed)
    value = random.normal(size=rows)
    x = value[:, None] + 0.7 * random.normal(size=(rows, 6))
    truth = (value[:, None] > [-0.5, 0.3, 1.0]).astype(np.int8)
    return x.astype(np.float32), truth, single_positive(truth, seed=seed)


def test_nested_classes_with_one_label_per_row_are_ranked_better_with_pairs(monkeypatch):
    x, truth, shown = draw_nested(900)
    found = {}
    for name in ("pairs", "none"):
        if name == "none":
            monkeypatch.setattr(member_fits, "can_pair", lambda labels: False)
        model = fit_ensemble(x[:400], shown[:400], members=["linear", "forest"]).model
        with torch.no_grad():
            found[name] = mean_average_precision(model(torch.from_numpy(x[400:])), truth[400:])
    # Seeds 0 to 4: 3.3 to 4.5 points.
    assert found["pairs"] > found["none"] + 0.02


def test_classes_that_never_occur_together_keep_all_weights():
    random = np.random.default_rng(1)
    labels = np.eye(4, dtype=np.int8)[random.integers(4, size=600)]
    scores = torch.from_numpy(labels + random.normal(size=labels.shape)).float()
    assert weigh_similar(torch.from_numpy(labels), scores).min() == 1


def test_rows_that_show_nothing_or_several_classes_count_in_full():
    labels = torch.tensor([[1, 0, 0], [0, 0, 0], [1, 1, 0]], dtype=torch.int8)
    pairs = np.array([[1, 0.2, 0.3], [1, 1, 1], [1, 1, 1.0]])
    expected = torch.tensor([[1, 0.2, 0.3], [1, 1, 1], [1, 1, 1]])
    torch.testing.assert_close(count_as_absent(labels, pairs), expected)


def test_rows_that_show_several_labels_need_no_pairs():
    several = (np.random.default_rng(0).random((300, 5)) < 0.5).astype(np.int8)
    assert not can_pair(several)
    assert can_pair(np.eye(5, dtype=np.int8))
    assert not can_pair(np.eye(2_001, dtype=np.int8))


@given(rows=st.integers(1, 30), classes=st.integers(1, 6), seed=st.integers(0, 10**6))
def test_weights_are_between_0_and_1_for_any_labels_and_scores(rows, classes, seed):
    random = np.random.default_rng(seed)
    labels = np.zeros((rows, classes), np.int8)
    labels[np.arange(rows), random.integers(classes, size=rows)] = random.integers(2, size=rows)
    scores = torch.from_numpy(random.normal(size=labels.shape)).float()
    weights = weigh_similar(torch.from_numpy(labels), scores)
    assert np.isfinite(weights).all()
    assert (weights > 0).all()
    assert (weights <= 1).all()
    assert weights.diagonal() == pytest.approx(1)


def test_a_class_without_labels_changes_nothing():
    x, _, shown = draw_nested(300)
    labels = np.concatenate([shown, np.zeros((300, 1), np.int8)], axis=1)
    scores = torch.from_numpy(np.concatenate([x[:, :3], x[:, :1]], axis=1))
    weights = weigh_similar(torch.from_numpy(labels), scores)
    assert weights[3] == pytest.approx(1)
    known = weigh_similar(torch.from_numpy(shown), scores[:, :3])
    assert weights[:3, :3] == pytest.approx(known)


@pytest.mark.parametrize("folds", [4, 1])
def test_the_table_of_a_fold_does_not_depend_on_its_labels(folds):
    x, _, shown = draw_nested(400)
    fold = np.arange(400) % 4 if folds == 4 else np.where(np.arange(400) % 4, -1, 0)
    changed = shown.copy()
    changed[fold == 0] = np.roll(shown[fold == 0], 1, axis=1)
    first, second = (
        fit_similar(torch.from_numpy(x), torch.from_numpy(labels), fold)
        for labels in (shown, changed)
    )
    assert np.array_equal(first[0], second[0])
    assert first[0].min() < 0.5
    if folds == 4:
        assert not np.array_equal(first[1], second[1])
        assert not np.array_equal(first[None], second[None])


def test_each_row_counts_once_in_the_table_of_all_rows():
    labels = torch.eye(3, dtype=torch.int8).repeat(4, 1)
    scores = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
    one = ScoreSums.of(labels, scores)
    assert np.allclose(ScoreSums.join([one, one, one], times=3).weigh(), one.weigh())


def test_a_run_says_that_classes_may_occur_together():
    x, _, shown = draw_nested(300)
    lines = []
    fit_ensemble(x, shown, members=["linear"], log=lines.append)
    assert any("pairs of classes may occur together" in line for line in lines)
    lines.clear()
    labels = np.eye(3, dtype=np.int8)[np.arange(300) % 3]
    far_apart = (labels + 0.1 * np.random.default_rng(0).normal(size=labels.shape)).astype("f4")
    fit_ensemble(far_apart, labels, members=["linear"], log=lines.append)
    assert not any("occur together" in line for line in lines)
