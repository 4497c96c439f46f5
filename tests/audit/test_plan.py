"""A plan proposes unknown labels, forecasts what they bring, and can be reviewed."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from audit_example import CLASSES, Example
from typer.testing import CliRunner

from halftruth.audit.audit_folder import open_audit
from halftruth.audit.exports import export_audit
from halftruth.audit.forecast import Forecast, Rate, find_features, measure_rate
from halftruth.audit.imports import import_verdicts
from halftruth.audit.make_audit import make_audit
from halftruth.audit.plan import GOALS, plan_labels, sum_before
from halftruth.audit.review_queue import Queue
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
    assert plan.present.low <= found <= plan.present.high
    for gain in plan.outcome.gains.values():
        assert gain.low <= gain.value <= gain.high
    if goal in ("gain", "find"):
        random = plan.alternatives["labels at random"]
        assert plan.present.value > random.present.value
        assert plan.outcome.gains["mAP"].value > random.gains["mAP"].value > 0
        assert found > 15


@pytest.mark.parametrize("goal", GOALS)
def test_rows_are_asked_completely(example: Example, goal: str) -> None:
    plan = plan_labels(example.audit(), example.folder / "p", budget=10, unit="rows", goal=goal)
    cells = read_cells(plan.path)
    assert plan.rows == len(np.unique(cells[:, 0])) == 10
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
        ({"budget": 5, "goal": "best"}, "a goal in"),
        ({"budget": 5, "versus": 0}, "at least 1"),
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
    done = CliRunner().invoke(app, [*command, "--export", "label-studio", "--versus", "10"])
    assert done.exit_code == 0, done.exception
    assert "20 answers in" in done.output
    assert "10 rows with all labels: " in done.output
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
    assert sum_before(p, p, group) == pytest.approx([0.9, 0.0, 1.4, 0.0])


def test_rare_goals_ask_for_more_labels_of_rare_classes(example: Example) -> None:
    audit = example.audit()
    count = (example.observed == 1).sum(axis=0)
    means = [
        count[
            read_cells(plan_labels(audit, example.folder / goal, budget=30, goal=goal).path)[:, 1]
        ]
        for goal in ("find", "gain", "rare")
    ]
    assert means[0].mean() >= means[1].mean() >= means[2].mean()


def test_a_forecast_grows_with_labels_and_with_the_rate() -> None:
    random = np.random.default_rng(0)
    truth = (random.random((200, 3)) < 0.3).astype(np.int8)
    labels = np.where(random.random(truth.shape) < 0.5, truth, 0)
    scores = 1 / (1 + np.exp(1 - 2 * truth - random.normal(size=truth.shape)))
    few, many, count = np.full(3, 5.0), np.full(3, 20.0), Estimate(30, 20, 40)
    slow, fast = (Forecast(labels, scores, scores, Rate(rate, 0.05)) for rate in (0.05, 0.3))
    assert 0 < slow.gain("mAP", few, count).value < slow.gain("mAP", many, count).value
    assert slow.gain("OF1", many, count).value < fast.gain("OF1", many, count).value


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
