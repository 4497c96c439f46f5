"""A plan proposes unknown labels, forecasts how many are present, and can be reviewed."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from audit_example import CLASSES, Example
from typer.testing import CliRunner

from halftruth.audit.audit_folder import open_audit
from halftruth.audit.plan import plan_labels
from halftruth.audit.review_queue import Queue
from halftruth.cli.app import app
from halftruth.data import DataError
from halftruth.data.verdicts import read_verdicts


def read_cells(folder: Any) -> np.ndarray:
    """(M, 2) rows and columns of the proposed labels."""
    table = pd.read_csv(folder / "plan.csv")
    return np.stack([table["row"] - 1, table["class"].map(CLASSES.index)], axis=1)


@pytest.mark.parametrize("goal", ["find", "rare", "learn", "evaluate"])
def test_the_forecast_holds_and_only_unknown_labels_are_proposed(
    example: Example, goal: str
) -> None:
    plan = plan_labels(example.audit(), example.folder / "plan", budget=40, goal=goal)
    cells = read_cells(plan.path)
    assert len({tuple(cell) for cell in cells}) == 40
    assert (example.observed[tuple(cells.T)] == 0).all()
    found = example.truth[tuple(cells.T)].sum()
    assert plan.present.low <= found <= plan.present.high
    if goal == "find":
        assert plan.present.estimate > plan.alternatives["labels by evaluate"]
        assert found > 15


@pytest.mark.parametrize("goal", ["find", "evaluate"])
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
    assert ids == list(range(12))
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
        ({"budget": 5, "unit": "rows", "goal": "rare"}, "chooses single labels"),
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
    bad = CliRunner().invoke(app, [*command, "--images", str(example.folder / "photos")])
    assert "no effect" in bad.output + str(bad.exception)
    done = CliRunner().invoke(app, [*command, "--export", "label-studio"])
    assert done.exit_code == 0, done.exception
    assert "20 labels in" in done.output
    assert "expected present" in done.output
    assert (out / "label-studio" / "tasks.json").exists()
