"""Evaluation of a trained run on a label file."""

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
from tiny_data import CLASSES, make_data

from halftruth import evaluate, fit
from halftruth.data import DataError
from halftruth.train import CheckpointError


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


def test_without_negatives_ignored_unknown_labels_are_an_error(data: Path) -> None:
    with pytest.raises(DataError, match=r"no label is absent.*mAP.*100 % for any scores"):
        evaluate_run(data, data / "labels.csv", ignore_unknown=True)


def test_classes_without_negatives_are_named(data: Path, tmp_path: Path) -> None:
    header, *rows = (data / "truth.csv").read_text().splitlines()
    # 0 is unknown in the last column only.
    changed = [row[:-2] + row[-2:].replace(",0", ",") for row in rows]
    path = tmp_path / "truth.csv"
    path.write_text("\n".join([header, *changed]) + "\n")
    reading = {"zero": "absent", "blank": "unknown"}
    with pytest.warns(UserWarning, match=r"1 classes have no absent label \(-1\): 'blue'"):
        evaluate_run(data, path, reading=reading, ignore_unknown=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        complete = {"zero": "absent"}
        evaluate_run(data, data / "truth.csv", reading=complete, ignore_unknown=True)


def test_classes_without_training_are_reported(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "more.csv"
    header, *rows = (data / "truth.csv").read_text().splitlines()
    path.write_text("\n".join([header + ",purple,brown", *(row + ",1,0" for row in rows)]) + "\n")
    with pytest.warns(UserWarning, match="trained without the classes 'purple', 'brown'"):
        found = evaluate_run(data, path)
    assert list(found.classes["class"]) == list(CLASSES)
    assert found.metrics == evaluate_run(data, data / "truth.csv").metrics


@pytest.mark.parametrize("bad", [float("nan"), None, float("inf")])
def test_thresholds_that_are_not_finite_are_errors(
    data: Path, tmp_path: Path, bad: float | None
) -> None:
    run = shutil.copytree(data / "run", tmp_path / "run")
    result = json.loads((run / "result.json").read_text())
    result["thresholds"][1] = bad
    (run / "result.json").write_text(json.dumps(result))
    with pytest.raises(CheckpointError, match=r"result.json.*threshold|cannot read .*result.json"):
        evaluate(run, data / "truth.csv", features=data / "features.npy")
