"""Two processes (gloo) train the same model as one, with the same metrics."""

import signal
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from real_processes import Command, ranks
from tiny_data import arguments, outcome, records, tensors, with_tune

from halftruth.train.inputs import Features
from halftruth.train.run_folder import load_checkpoint
from halftruth.train.scoring import score_rows


@pytest.fixture
def train(tmp_path):
    """Start a run in one or several processes; return their commands."""

    def start(settings, out, *more, count=1):
        options = {name: value for name, value in settings.items() if name != "labels"}
        line = ["train", settings["labels"], *arguments(options), "--out", tmp_path / out, *more]
        places = ranks(count) if count > 1 else [{}]
        return [
            Command(*line, log=tmp_path / f"{out}{rank}.log", **environment)
            for rank, environment in enumerate(places)
        ]

    return start


def finish(commands):
    for command in commands:
        assert command.wait() == 0, command.output()


def assert_close(one, other, tolerance=2e-5):
    ours, theirs = tensors(one), tensors(other)
    assert ours.keys() == theirs.keys()
    for path, tensor in ours.items():
        torch.testing.assert_close(
            tensor.double(), theirs[path].double(), rtol=tolerance, atol=tolerance, msg=path
        )


@pytest.fixture
def without_batch_norm(on_images):
    return {**on_images, "backbone": "test_efficientnet_ln", "optimizer": "sgd"}


@pytest.mark.parametrize(
    "batch", [{"batch_size": 27}, {"batch_size": 26}, {"batch_size": 7}], ids=str
)
def test_two_processes_train_the_same_weights(without_batch_norm, tmp_path, train, batch):
    """One step on all 27 rows; 26 rows and 1, fewer than processes; 7, 7, 7 and 6 rows."""
    settings = with_tune(without_batch_norm, "all") | batch
    settings |= {"epochs": 1, "schedule": "constant", "lr": 0.1}
    settings |= {"ema": 0, "l1": 1e-4, "weight_decay": 0.01, "clip": 0.5}
    finish(train(settings, "one"))
    finish(train(settings, "two", count=2))
    one, two = (load_checkpoint(tmp_path / run / "last.safetensors") for run in ("one", "two"))
    assert_close(one["model"], two["model"])
    assert_close(one["optimizer"], two["optimizer"])
    for ours, theirs in zip(records(tmp_path / "one"), records(tmp_path / "two"), strict=True):
        assert ours.pop("stage") == theirs.pop("stage")
        assert ours == pytest.approx(theirs, rel=1e-4)


def test_two_processes_get_the_same_metrics(without_batch_norm, data, tmp_path, train):
    """There are nine validation rows: one that counted twice would change the metrics."""
    settings = {**without_batch_norm, "tune": "head-first", "truth": data / "truth.csv"}
    finish(train(settings, "one"))
    commands = train(settings, "two", count=2)
    finish(commands)
    ours, theirs = outcome(tmp_path / "one"), outcome(tmp_path / "two")
    for part in ("val", "test"):
        assert ours[part] == pytest.approx(theirs[part], abs=1e-6)
    assert ours["thresholds"] == pytest.approx(theirs["thresholds"], abs=1e-3)
    # Only the main process shows messages.
    assert "everything is in" in commands[0].output()
    assert "everything is in" not in commands[1].output()


@pytest.mark.parametrize("world", [1, 2, 3, 5])
@pytest.mark.parametrize("count", [1, 2, 3, 7, 10])
def test_every_row_is_scored_once_and_in_its_place(world, count):
    rows = np.random.default_rng(0).permutation(20)[:count]
    sent = []
    for rank in range(world):
        alone = SimpleNamespace(
            num_processes=world,
            process_index=rank,
            device=torch.device("cpu"),
            gather=lambda values: sent.append(values) or torch.cat([values] * world),
        )
        result = score_rows(lambda x: 10 * x, Features(torch.arange(20.0)[:, None]), rows, alone, 2)
    if world > 1:
        alone.gather = lambda values: torch.cat(sent)
        result = score_rows(lambda x: 10 * x, Features(torch.arange(20.0)[:, None]), rows, alone, 2)
    assert result[:, 0].tolist() == [10.0 * row for row in rows]


def test_a_stop_request_stops_both_processes(on_features, tmp_path, train):
    settings = {**on_features, "epochs": 2000, "batch_size": 2}
    running = train(settings, "run", count=2)
    assert running[0].until((tmp_path / "run" / "last.safetensors").exists)
    running[1].send(signal.SIGTERM)
    assert [command.wait(30) for command in running] == [130, 130]
    assert "--resume --out" in running[0].output()


def test_an_error_is_shown_once(on_features, tmp_path, train):
    settings = {**on_features, "truth": tmp_path}
    running = train(settings, "run", count=2)
    assert [command.wait(30) for command in running] == [2, 2]
    # Accelerate may warn of the number of threads before it.
    assert [command.output().count("error: ") for command in running] == [1, 0]
