"""A plan proposes unknown labels, forecasts what they bring, and can be reviewed."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from audit_example import CLASSES, Example
from typer.testing import CliRunner

from halftruth.audit.audit_folder import open_audit
from halftruth.audit.forecast import Forecast, Rate, measure_rate
from halftruth.audit.formats import export_audit, import_verdicts
from halftruth.audit.make_audit import make_audit
from halftruth.audit.plan import GOALS, discount, plan_labels
from halftruth.audit.review_queue import Queue
from halftruth.audit.rows import find_features
from halftruth.cli.app import app
from halftruth.data import DataError
from halftruth.data.verdicts import read_verdicts
from halftruth.presence.uncertainty import Estimate


def read_cells(folder: Any) -> np.ndarray:
    """(M, 2) rows and columns of the proposed labels."""
    table = pd.read_csv(folder / "plan.csv")
    return np.stack([table["row"] - 1, table["class"].map(CLASSES.index)], axis=1)


@pytest.mark.parametrize("goal", GOALS)
def test_the_forecast_holds_and_only_unknown_labels_are_proposed(
    example: Example, goal: str
) -> None:
    plan = plan_labels(example.audit(), example.folder / "plan", budget=40, goal=goal)
    cells = read_cells(plan.path)
    assert len({tuple(cell) for cell in cells}) == 40
    assert (example.observed[tuple(cells.T)] == 0).all()
    found = example.truth[tuple(cells.T)].sum()
    assert plan.forecast.present.low <= found <= plan.forecast.present.high
    for gain in plan.forecast.gains.values():
        assert gain.low <= gain.value <= gain.high
    if goal in ("gain", "find"):
        random = plan.alternatives["labels at random"]
        assert plan.forecast.present.value > random.present.value
        assert plan.forecast.gains["mAP"].value > random.gains["mAP"].value > 0
        assert found > 15


@pytest.mark.parametrize("goal", GOALS)
def test_rows_are_asked_completely(example: Example, goal: str) -> None:
    plan = plan_labels(example.audit(), example.folder / "p", budget=10, unit="rows", goal=goal)
    cells = read_cells(plan.path)
    assert plan.forecast.rows == len(np.unique(cells[:, 0])) == 10
    asked = np.zeros(example.observed.shape, dtype=bool)
    asked[tuple(cells.T)] = True
    assert np.array_equal(asked.any(axis=1)[:, None] & (example.observed == 0), asked)


def test_a_plan_is_reviewed_and_the_next_one_leaves_out_what_is_known(example: Example) -> None:
    audit = example.audit()
    plan = plan_labels(audit, example.folder / "plan", budget=12)
    queue = Queue(open_audit(plan.path))
    ids = [item["id"] for item in queue.page()["items"]]
    assert sorted(ids) == list(range(12))
    queue.decisions.decide(ids, "reject")
    queue.decisions.close()
    assert len(read_verdicts(plan.path)) == 12
    again = plan_labels(open_audit(plan.path), example.folder / "next", budget=12)
    first = {tuple(cell) for cell in read_cells(plan.path)}
    assert not first & {tuple(cell) for cell in read_cells(again.path)}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 0}, "at least 1"),
        ({"budget": 5, "unit": "cells"}, "a unit in"),
        ({"budget": 5, "goal": "best"}, "a goal in gain, find, evaluate, got"),
    ],
)
def test_bad_options_are_errors(example: Example, options: dict, message: str) -> None:
    audit = example.audit()
    with pytest.raises(DataError, match=message):
        plan_labels(audit, example.folder / "plan", **options)
    with pytest.raises(DataError, match="is not empty"):
        plan_labels(audit, audit.path, budget=5)


def test_the_command_plans_exports_and_refuses_options_without_effect(example: Example) -> None:
    audit, out = example.audit(), example.folder / "plan"
    command = ["plan", str(audit.path), "--budget", "20", "--out", str(out)]
    for unused in (["--images", str(example.folder / "photos")], ["--zero", "absent"]):
        bad = CliRunner().invoke(app, [*command, *unused])
        assert "no effect" in bad.output + str(bad.exception)
    done = CliRunner().invoke(app, [*command, "--export", "label-studio"])
    assert done.exit_code == 0, done.exception
    assert "20 answers in" in done.output
    assert "whole rows: 20 answers in " in done.output
    assert "most mAP: " in done.output
    assert (out / "label-studio" / "tasks.json").exists()


def test_label_studio_gets_the_proposed_rows_and_answers_all_that_was_asked(
    example: Example,
) -> None:
    plan = plan_labels(example.audit(), example.folder / "plan", budget=20)
    folder = export_audit(plan.path, "label-studio")
    tasks = json.loads((folder / "tasks.json").read_text())
    cells = read_cells(plan.path)
    asked = sorted(task["data"]["halftruth_row"] - 1 for task in tasks)
    assert asked == sorted({*cells[:, 0]})
    assert "$question" in (folder / "config.xml").read_text()
    for task in tasks:
        row = task["data"]["halftruth_row"] - 1
        names = [CLASSES[k] for k in np.flatnonzero(example.truth[row])]
        result = [{"type": "choices", "value": {"choices": names}}] if names else []
        task["annotations"] = [{"result": result}]
    (folder / "done.json").write_text(json.dumps(tasks))
    found = import_verdicts(plan.path, folder / "done.json")
    answered = found.set_index(["row", "class"])["verdict"]
    for row, column in cells:
        assert answered[row, CLASSES[column]] == (1 if example.truth[row, column] else -1)


def test_labels_of_a_class_count_less_the_more_of_it_were_chosen() -> None:
    p, group = np.array([0.5, 0.9, 0.4, 0.8]), np.array([0, 0, 0, 1])
    expected = p / (1 + np.array([0.9, 0.0, 1.4, 0.0]))
    assert discount(p, group, np.zeros(2), 1) == pytest.approx(expected)


def test_the_goal_gain_asks_for_more_labels_of_rare_classes(example: Example) -> None:
    audit = example.audit()
    count = (example.observed == 1).sum(axis=0)
    means = [
        count[
            read_cells(plan_labels(audit, example.folder / goal, budget=12, goal=goal).path)[:, 1]
        ]
        for goal in ("find", "gain")
    ]
    assert means[0].mean() > means[1].mean()


def test_a_forecast_grows_with_labels_and_with_the_rate() -> None:
    random = np.random.default_rng(0)
    truth = (random.random((200, 3)) < 0.3).astype(np.int8)
    labels = np.where(random.random(truth.shape) < 0.5, truth, 0)
    scores = 1 / (1 + np.exp(1 - 2 * truth - random.normal(size=truth.shape)))
    few, many, count = np.full(3, 5.0), np.full(3, 20.0), Estimate(30, 20, 40)
    slow, fast = (Forecast(labels, scores, scores, Rate(rate, 0.05)) for rate in (0.05, 0.3))
    assert 0 < slow.gain("mAP", few, count).value < slow.gain("mAP", many, count).value
    assert slow.gain("OF1", many, count).value < fast.gain("OF1", many, count).value


def test_a_forecast_is_the_learning_curve_computed_by_hand() -> None:
    """One class with 40 labels, 20 more, β = 0.2: errors fall by the factor (61 / 41)^−0.2."""
    random = np.random.default_rng(0)
    truth = random.random((300, 1)) < 0.3
    labels = (truth & (random.random(truth.shape) < 0.6)).astype(np.int8)
    labels[np.flatnonzero(labels)[40:]] = 0
    assert labels.sum() == 40
    # The model is not sure, so that the estimated scores now have wide intervals.
    scores = 1 / (1 + np.exp(1.5 - 2 * truth - random.normal(size=truth.shape)))
    forecast = Forecast(labels, scores, scores, Rate(0.2, 0.05))
    found, count = np.array([20.0]), Estimate(20, 15, 26)
    for metric, rate in (("mAP", 0.2), ("OF1", 0.3)):
        now = forecast.scores[metric]
        assert now.high - now.value > 0.02 < now.value - now.low
        expected = 100 * (1 - now.value) * (1 - (61 / 41) ** -rate)
        gain = forecast.gain(metric, found, count)
        assert gain.value == pytest.approx(expected, rel=1e-3)
        assert gain.low < gain.value < gain.high
        half = forecast.gain(metric, found / 2, Estimate(10, 7.5, 13))
        assert half.value == pytest.approx(
            100 * (1 - now.value) * (1 - (51 / 41) ** -rate), rel=1e-3
        )


def test_the_learning_curve_is_measured_where_the_audit_has_features(tmp_path: Any) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(240, 12)).astype(np.float32)
    truth = (x @ random.normal(size=(12, 4)) > 1.5).astype(np.int8)
    labels = np.where(random.random(truth.shape) < 0.6, truth, 0)
    scores = np.clip(0.6 * truth + 0.2 + 0.1 * random.normal(size=truth.shape), 0.01, 0.99)
    names = [f"c{k}" for k in range(4)]
    pd.DataFrame(labels, columns=names).to_csv(tmp_path / "labels.csv", index=False)
    pd.DataFrame(scores, columns=names).to_csv(tmp_path / "probs.csv", index=False)
    np.save(tmp_path / "x.npy", x)
    audit = make_audit(
        tmp_path / "probs.csv", tmp_path / "labels.csv", out=tmp_path / "audit",
        features=tmp_path / "x.npy",
    )  # fmt: skip
    assert np.array_equal(find_features(audit), x)
    learnable = measure_rate(x, labels).value
    shuffled = measure_rate(random.permutation(x), labels).value
    assert learnable > shuffled
    plan = plan_labels(audit, tmp_path / "plan", budget=30)
    assert plan.measured
    assert "measured on these rows" in plan.describe()
