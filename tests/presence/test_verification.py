"""A few verified labels: unbiased whatever the model thinks, and much narrower intervals."""

import json

import numpy as np
import pytest

from halftruth.metrics import evaluate
from halftruth.presence.estimated_scores import estimate_scores
from halftruth.presence.labelling_model import PresenceRange
from halftruth.presence.solvers import logit, sigmoid
from halftruth.presence.verification import (
    METRICS,
    VerificationPlan,
    _draw,
    plan_verification,
    score_verdicts,
)


@pytest.fixture(scope="module")
def case():
    """Rows with half of their positives shown, and the exact P(present) of every cell."""
    random = np.random.default_rng(0)
    z = random.normal(-1.5, 1.5, size=(400, 5))
    truth = np.where(random.random(z.shape) < sigmoid(z), 1, -1).astype(np.int8)
    labels = np.where((truth > 0) & (random.random(z.shape) < 0.5), 1, 0).astype(np.int8)
    p = sigmoid(z)
    return p, labels, np.where(labels == 1, 1.0, 0.5 * p / (1 - 0.5 * p)), truth


def repeat(case, present, times=60, cells=60, metric="all", answer=1.0):
    scores, labels, _, truth = case
    found = []
    for seed in range(times):
        plan = plan_verification(
            scores, labels, 0.4, present, cells=cells, metric=metric, seed=seed
        )
        verdicts = truth[plan.rows, plan.columns].copy()
        verdicts[round(answer * cells) :] = 0
        found.append(score_verdicts(plan, verdicts, scores, labels, 0.4, present, new_rows=False))
    exact = evaluate(scores, truth, 0.4)
    return found, exact


@pytest.mark.parametrize("wrong_by", [-1.5, 0.0, 1.5])
def test_estimate_is_unbiased_whatever_the_model_thinks(case, wrong_by):
    present = np.where(case[1] == 1, 1.0, sigmoid(logit(case[2]) + wrong_by))
    found, exact = repeat(case, present)
    for name in METRICS:
        values = np.array([one[name].unbiased.value for one in found])
        error = values.std(ddof=1) / np.sqrt(len(values))
        assert abs(values.mean() - exact[name]) < 3.5 * error + 0.01


# "combined" trusts the model as far as it says: up to twice its standard deviation, 0.3.
@pytest.mark.parametrize(
    ("wrong_by", "kinds"),
    [
        (-1.0, ["unbiased"]),
        (-0.6, ["combined", "unbiased"]),
        (0.0, ["combined", "unbiased"]),
        (0.6, ["combined", "unbiased"]),
        (1.0, ["combined", "unbiased"]),
    ],
)
def test_interval_contains_the_truth(case, wrong_by, kinds):
    present = np.where(case[1] == 1, 1.0, sigmoid(logit(case[2]) + wrong_by))
    found, exact = repeat(case, present, times=60, cells=100)
    for kind in kinds:
        inside = [
            getattr(one[name], kind).low <= exact[name] <= getattr(one[name], kind).high
            for one in found
            for name in METRICS
        ]
        # 90 % of 180 intervals, less twice the standard deviation of 60 independent ones.
        assert np.mean(inside) >= 0.85


def test_two_hundred_cells_halve_the_interval(case):
    scores, labels, present, truth = case
    low, high = (np.where(labels == 1, 1.0, sigmoid(logit(present) + by)) for by in (-1, 1))
    doubtful = PresenceRange(present, low, high, "missing_at_random")
    before = estimate_scores(scores, labels, 0.4, doubtful, new_rows=False)
    plan = plan_verification(scores, labels, 0.4, doubtful)
    verdicts = truth[plan.rows, plan.columns]
    after = score_verdicts(plan, verdicts, scores, labels, 0.4, doubtful, new_rows=False)
    for name in METRICS:
        assert after[name].combined.width < getattr(before, name).width / 2


def test_answers_may_stop_anywhere(case):
    found, exact = repeat(case, case[2], cells=100, answer=0.4)
    for name in METRICS:
        values = np.array([one[name].unbiased.value for one in found])
        assert abs(values.mean() - exact[name]) < 3.5 * values.std() / np.sqrt(60) + 0.01


def test_all_cells_verified_gives_the_exact_score(case):
    scores, labels, present, truth = (part[:60] for part in case)
    unknown = int((labels == 0).sum())
    plan = plan_verification(scores, labels, 0.4, present, cells=10 * unknown)
    assert len(plan) == unknown
    assert np.allclose(plan.inclusion, 1)
    verdicts = truth[plan.rows, plan.columns]
    found = score_verdicts(plan, verdicts, scores, labels, 0.4, present, new_rows=False)
    exact = evaluate(scores, truth, 0.4)
    assert found["OF1"].combined.value == pytest.approx(exact["OF1"], abs=2e-3)
    assert found["OF1"].combined.width < 0.01


@pytest.mark.parametrize("metric", [*METRICS, "all"])
def test_plan_draws_unknown_cells_with_the_stated_probabilities(case, metric):
    scores, labels, present, _ = (part[:40] for part in case)
    often = np.zeros(labels.shape)
    stated = np.full(labels.shape, np.nan)
    times = 400
    for seed in range(times):
        plan = plan_verification(scores, labels, 0.4, present, cells=30, metric=metric, seed=seed)
        cells = set(zip(plan.rows, plan.columns, strict=True))
        assert len(plan) == len(cells) == 30
        assert (labels[plan.rows, plan.columns] == 0).all()
        often[plan.rows, plan.columns] += 1 / times
        stated[plan.rows, plan.columns] = plan.inclusion
    drawn = ~np.isnan(stated)
    error = np.sqrt(stated * (1 - stated) / times)[drawn]
    assert (np.abs(often - stated)[drawn] < 5 * error + 0.005).all()


def test_order_of_the_plan_is_random(case):
    scores, labels, present, _ = case
    plan = plan_verification(scores, labels, 0.4, present, cells=200)
    asked = present[plan.rows, plan.columns]
    assert abs(np.corrcoef(asked, np.arange(200))[0, 1]) < 0.25


def test_plan_survives_json(case):
    scores, labels, present, _ = case
    plan = plan_verification(scores, labels, 0.4, present, cells=20, seed=3)
    assert VerificationPlan.from_dict(json.loads(json.dumps(plan.to_dict()))) == plan
    assert plan == plan_verification(scores, labels, 0.4, present, cells=20, seed=3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"metric": "AUC"}, "metric: expected mAP"),
        ({"cells": 1}, "at least 2 cells"),
        ({"labels": np.ones((4, 2), np.int8)}, "nothing to verify"),
    ],
)
def test_plan_errors(change, words):
    given = {
        "scores": np.full((4, 2), 0.5),
        "labels": np.zeros((4, 2), np.int8),
        "decisions": 0.5,
        "present": np.full((4, 2), 0.5),
        **change,
    }
    with pytest.raises(ValueError, match=words):
        plan_verification(**given)


@pytest.mark.parametrize(
    ("verdicts", "rows", "words"),
    [
        ([1, -1], 4, "expected 3 verdicts"),
        ([1, 0, 0], 4, "at least 2 verdicts"),
        ([1, -1, 1], 5, "the plan is for rows x classes"),
        ([1, -1, 7], 4, "7"),
    ],
)
def test_verdict_errors(verdicts, rows, words):
    plan = plan_verification(
        np.full((4, 2), 0.5), np.zeros((4, 2)), 0.5, np.full((4, 2), 0.5), cells=3
    )
    scores = np.full((rows, 2), 0.5)
    with pytest.raises(ValueError, match=words):
        score_verdicts(plan, verdicts, scores, np.zeros((rows, 2)), 0.5, scores)


class LastMark:
    """A generator whose marks are as far as they can be."""

    def permutation(self, count):
        return np.arange(count)

    def random(self):
        return 1 - 1e-9


def test_a_mark_beyond_the_last_cell_draws_it():
    """Rounding leaves the probabilities below the number of cells to draw."""
    assert _draw(np.array([0.5, 0.5 - 1e-6]), np.zeros(2), LastMark()).tolist() == [1]
    assert _draw(np.array([0.5, 0.5, 0.5, 0.5]), np.arange(4.0), LastMark()).tolist() == [1, 3]
