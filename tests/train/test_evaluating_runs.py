"""Evaluation of a trained run on a label file."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_data import CLASSES, make_data

from halftruth import evaluate, fit
from halftruth.data import DataError
from halftruth.train import CheckpointError
from halftruth.train.run_folder import write_manifest


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data with features, and a run in the folder run."""
    folder = make_data(tmp_path_factory.mktemp("evaluate"))
    options: dict[str, Any] = {"method": "bce", "epochs": 2, "device": "cpu", "quiet": True}
    fit(
        folder / "labels.csv", features=folder / "features.npy", out=folder / "run",
        report=False, **options,
    )  # fmt: skip
    return folder


def evaluate_run(data: Path, labels: Path, **options: Any) -> Any:
    return evaluate(data / "run", labels, features=data / "features.npy", **options)


def test_known_labels_are_measured_where_a_class_has_both(data: Path, tmp_path: Path) -> None:
    header, *rows = (data / "truth.csv").read_text().splitlines()
    # 0 is unknown in the last column only.
    changed = [row[:-2] + row[-2:].replace(",0", ",") for row in rows]
    path = tmp_path / "truth.csv"
    path.write_text("\n".join([header, *changed]) + "\n")
    reading = {"zero": "absent", "blank": "unknown"}
    found = evaluate_run(data, path, reading=reading)
    assert found.basis == "on known labels only"
    complete = evaluate_run(data, data / "truth.csv", reading={"zero": "absent"})
    assert complete.basis == "on complete labels"
    # The last class has no absent label: any score would be 100 %, so it is left out.
    aps = complete.classes["AP"].to_numpy()[:-1]
    assert found.metrics["mAP"] == pytest.approx(np.nanmean(aps))


def test_unknown_counts_as_absent_only_where_asked_for(data: Path) -> None:
    found = evaluate_run(data, data / "labels.csv")
    assert (found.metrics, found.basis) == ({}, "estimated")
    asked = evaluate_run(data, data / "labels.csv", unknown="absent")
    assert asked.basis == "counting unknown as absent"
    assert 0 < asked.metrics["mAP"] <= 1
    with pytest.raises(DataError, match=r"unknown: expected estimate or absent, got 'no'"):
        evaluate_run(data, data / "labels.csv", unknown="no")


def test_classes_without_training_are_reported(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "more.csv"
    header, *rows = (data / "truth.csv").read_text().splitlines()
    path.write_text("\n".join([header + ",purple,brown", *(row + ",1,0" for row in rows)]) + "\n")
    with pytest.warns(UserWarning, match="trained without the classes 'purple', 'brown'"):
        found = evaluate_run(data, path, unknown="absent")
    assert list(found.classes["class"]) == list(CLASSES)
    assert found.metrics == evaluate_run(data, data / "truth.csv", unknown="absent").metrics


@pytest.mark.parametrize("bad", [float("nan"), None, float("inf")])
def test_thresholds_that_are_not_finite_are_errors(
    data: Path, tmp_path: Path, bad: float | None
) -> None:
    run = shutil.copytree(data / "run", tmp_path / "run")
    result = json.loads((run / "result.json").read_text())
    result["thresholds"][1] = bad
    (run / "result.json").write_text(json.dumps(result))
    write_manifest(run)
    with pytest.raises(CheckpointError, match=r"result.json.*threshold|cannot read .*result.json"):
        evaluate(run, data / "truth.csv", features=data / "features.npy")
