"""`track` writes the metrics of every epoch to experiment trackers."""

import json

import numpy as np
import pytest

import halftruth
from halftruth.train import ConfigError


def train(folder, track, **settings):
    X = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    labels = (X[:, :2] > 0).astype(int)
    halftruth.fit(
        labels, features=X, method="em", epochs=3, out=folder / "run", track=track, quiet=True,
        report=False, device="cpu", **settings,
    )  # fmt: skip
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_tensorboard_gets_every_epoch(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    records = train(tmp_path, "tensorboard")
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    found = events.Scalars("all/loss")
    assert [event.step for event in found] == [1, 2, 3]
    assert [event.value for event in found] == pytest.approx([r["loss"] for r in records])


def test_mlflow_gets_every_epoch_and_the_settings(tmp_path, monkeypatch):
    """In MLflow's local file store."""
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path / 'mlruns'}")
    # MLflow asks for a database instead of files unless this is set.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow import MlflowClient

    records = train(tmp_path, "mlflow", seed=3)
    client = MlflowClient(f"file://{tmp_path / 'mlruns'}")
    (experiment,) = client.search_experiments(filter_string="name = 'halftruth'")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == "run"
    assert run.info.status == "FINISHED"
    assert (run.data.params["method"], run.data.params["seed"]) == ("em", "3")
    history = client.get_metric_history(run.info.run_id, "all/loss")
    assert [entry.step for entry in history] == [1, 2, 3]
    assert [entry.value for entry in history] == pytest.approx([r["loss"] for r in records])


def test_a_tracker_that_cannot_start_is_an_error(tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nonsense://somewhere")
    with pytest.raises(ConfigError, match="mlflow cannot start"):
        train(tmp_path, "mlflow")


def test_several_trackers(tmp_path, monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path / 'mlruns'}")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    train(tmp_path, "tensorboard, mlflow")
    assert list((tmp_path / "run" / "tensorboard").glob("events*"))
    assert (tmp_path / "mlruns").exists()


@pytest.mark.parametrize(
    ("track", "words"),
    [
        ("tensorbord", "expected one or more of"),
        ("tensorboard,", "got ''"),
        ("clearml", "clearml is not installed: pip install clearml"),
    ],
)
def test_a_tracker_that_cannot_be_used_is_an_error_before_training(tmp_path, track, words):
    if track == "clearml":
        from importlib.util import find_spec

        if find_spec("clearml"):
            pytest.skip("clearml is installed")
    with pytest.raises(ConfigError, match=words):
        train(tmp_path, track)
    assert not (tmp_path / "run" / "last.safetensors").exists()
