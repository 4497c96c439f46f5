"""A run's folder is all that predict and evaluate need."""

import json

import numpy as np
import pandas as pd
import pytest
from real_processes import Command
from tiny_data import CLASSES, PICTURES, arguments, command, outcome

import halftruth
from halftruth import fit
from halftruth.data import DataError
from halftruth.train import CheckpointError, ConfigError
from halftruth.train.trained_run import TrainedRun


@pytest.fixture(scope="module")
def pictures_run(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("pictures") / "run"
    settings = {**PICTURES, "labels": data / "labels.csv", "truth": data / "truth.csv"}
    settings |= {"head_lr": 0.05, "head_epochs": 3, "epochs": 1, "method": "hill"}
    fit(**settings, images=data / "photos", out=out, quiet=True)
    return out


@pytest.fixture(scope="module")
def features_run(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("features") / "run"
    settings = {"features": data / "features.npy", "hidden": 5, "dropout": 0.2, "head_lr": 0.05}
    settings |= {"report": False}
    fit(data / "labels.csv", **settings, device="cpu", batch_size=6, epochs=4, out=out, quiet=True)
    return out


@pytest.mark.parametrize("part", ["val", "test"])
def test_a_new_process_measures_what_training_did(pictures_run, data, tmp_path, part):
    out = tmp_path / "found.json"
    # The truth has no split column of its own.
    truth = pd.read_csv(data / "truth.csv")
    truth.insert(1, "split", pd.read_csv(data / "labels.csv")["split"])
    truth.to_csv(tmp_path / "truth.csv", index=False)
    options = {"images": data / "photos", "split": part, "out": out, "device": "cpu"}
    line = ("evaluate", pictures_run, tmp_path / "truth.csv", *arguments(options))
    running = Command(*line, log=tmp_path / "log")
    assert running.wait() == 0, running.output()
    found = json.loads(out.read_text())
    assert found["metrics"] == pytest.approx(outcome(pictures_run)[part], abs=1e-6)
    assert [row["class"] for row in found["classes"]] == list(CLASSES)
    assert np.mean([row["AP"] for row in found["classes"]]) == pytest.approx(
        found["metrics"]["mAP"]
    )
    assert "mAP" in running.output()


@pytest.mark.parametrize("part", ["val", "test"])
def test_features_measure_what_training_did(features_run, data, part):
    metrics, table, bad = halftruth.evaluate(
        features_run, data / "labels.csv", features=data / "features.npy", split=part
    )
    assert metrics == pytest.approx(outcome(features_run)[part], abs=1e-6)
    assert table["present"].sum() == (9 if part == "val" else 8)
    assert bad == []


def test_the_file_of_training_is_read_and_split_as_in_training(data, tmp_path):
    """Zero means absent there, and the parts are drawn by the run's seed."""
    labels = pd.read_csv(data / "truth.csv")
    labels.to_csv(tmp_path / "labels.csv", index=False)
    settings = {"features": data / "features.npy", "zero": "absent", "seed": 5, "val": 0.3}
    settings |= {"report": False}
    run = tmp_path / "run"
    fit(tmp_path / "labels.csv", **settings, device="cpu", epochs=1, out=run, quiet=True)
    found = halftruth.evaluate(
        run, tmp_path / "labels.csv", features=data / "features.npy", split="val"
    )
    assert found.metrics == pytest.approx(outcome(run)["val"], abs=1e-6)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_predictions_use_the_fitted_thresholds(pictures_run, data, tmp_path, ending):
    out = tmp_path / f"predictions.{ending}"
    line = ("predict", pictures_run, "--images", data / "photos", "--out", out, "--device", "cpu")
    assert command(*line) == 0
    table = pd.read_csv(out) if ending == "csv" else pd.read_parquet(out)
    assert list(table.columns) == ["item", "labels", *CLASSES]
    assert sorted(table["item"]) == sorted(f"p{row}.png" for row in range(44))
    cuts = outcome(pictures_run)["thresholds"]
    for _, row in table.iterrows():
        chosen = [name for name, cut in zip(CLASSES, cuts, strict=True) if row[name] > cut]
        listed = row["labels"] if isinstance(row["labels"], str) else ""
        assert listed == "|".join(chosen)


def test_a_formula_in_a_name_is_only_text(features_run, data, tmp_path):
    names = ["=HYPERLINK(1)", "+1", "-1", "@x", "\tx", "plain"]
    items = [names[row % 6] + str(row) for row in range(44)]
    run = TrainedRun(features_run, device="cpu")
    from halftruth.train.trained_run import write_predictions

    for ending in ("csv", "parquet"):
        path = tmp_path / f"p.{ending}"
        write_predictions(run, path, features=data / "features.npy", items=items)
    safe = pd.read_csv(tmp_path / "p.csv")["item"]
    assert not safe.str.startswith(("=", "+", "-", "@", "\t")).any()
    assert [name.removeprefix("'") for name in safe] == items
    assert pd.read_parquet(tmp_path / "p.parquet")["item"].tolist() == items


def test_what_a_run_was_not_trained_on(features_run, pictures_run, data, tmp_path):
    np.save(tmp_path / "wide.npy", np.zeros((4, 7), np.float32))
    with pytest.raises(DataError, match=r"trained on 3 features a row, got .*\(4, 7\)"):
        halftruth.predict(features_run, features=tmp_path / "wide.npy")
    with pytest.raises(DataError, match="was trained on features"):
        halftruth.predict(features_run, images=data / "photos")
    with pytest.raises(DataError, match="was trained on images"):
        halftruth.predict(pictures_run, features=data / "features.npy")
    with pytest.raises(DataError, match=r"on images; expected them \(--images\).*got neither"):
        halftruth.predict(pictures_run)
    with pytest.raises(DataError, match=r"on features; expected them \(--features\).*got both"):
        halftruth.predict(features_run, images=data / "photos", features=data / "features.npy")
    (tmp_path / "other.csv").write_text("image,red,green\np0.png,1,0\n")
    with pytest.raises(DataError, match="classes that the labels lack: 'blue'"):
        halftruth.evaluate(pictures_run, tmp_path / "other.csv", images=data / "photos")
    with pytest.raises(DataError, match="no part 'test'"):
        halftruth.evaluate(pictures_run, data / "truth.csv", images=data / "photos", split="test")
    with pytest.raises(DataError, match="expected train, val or test"):
        halftruth.evaluate(pictures_run, data / "labels.csv", images=data / "photos", split="tset")
    with pytest.raises(ConfigError, match="holds no run"):
        TrainedRun(tmp_path)
    with pytest.raises(ConfigError, match="device: expected one of"):
        TrainedRun(features_run, device="gpu")
    assert command("predict", pictures_run, "--images", data / "photos", "--out", "p.txt") == 2


def test_a_run_that_has_not_finished(features_run, data, tmp_path, capsys):
    half = tmp_path / "half"
    half.mkdir()
    for name in ("config.yaml", "best.safetensors"):
        (half / name).write_bytes((features_run / name).read_bytes())
    out = tmp_path / "p.csv"
    assert command("predict", half, "--features", data / "features.npy", "--out", out) == 0
    assert "training is not finished" in capsys.readouterr().out
    (half / "best.safetensors").unlink()
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        TrainedRun(half)
    (half / "config.yaml").write_text("labels: a\nwarp: 9\n")
    with pytest.raises(CheckpointError, match="does not know: warp"):
        TrainedRun(half)
