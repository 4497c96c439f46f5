"""`pseudo-label`: a first model labels the training rows, a second one is trained on them."""

import numpy as np
import pytest
import torch
from test_resume_after_crash import crashes
from tiny_data import assert_same_run, records

from halftruth import fit, losses
from halftruth.estimator import HalftruthClassifier
from halftruth.train import CheckpointError, ConfigError
from halftruth.train.results.trained_run import TrainedRun
from halftruth.train.run_folder import load_checkpoint


@pytest.fixture
def settings(on_features):
    return {**on_features, "method": "pseudo-label", "options": {"tau": 0.38, "base": "wan"}}


def labels_of(folder) -> torch.Tensor:
    """The labels of the second training of a run."""
    state = load_checkpoint(folder / "last.safetensors")["loss"]
    loss = losses.create("pseudo-label", tau=0.38, base="wan")
    loss.load_state_dict(state)
    return loss.relabelled(torch.arange(len(loss.positive)))


def test_the_second_training_uses_the_labels_of_the_first_model(
    settings, on_features, data, tmp_path
):
    fit(**settings, out=tmp_path / "both", quiet=True)
    fit(**on_features, out=tmp_path / "alone", quiet=True)
    assert records(tmp_path / "both" / "teacher") == records(tmp_path / "alone")
    scores = TrainedRun(tmp_path / "alone", device="cpu").score(features=on_features["features"])
    rows = [row for row in range(44) if row % 5 < 3]
    table = np.genfromtxt(data / "labels.csv", delimiter=",", skip_header=1)[:, 2:]
    expected = np.where(table > 0, 1, scores.raw > 0.38)[rows]
    filled = labels_of(tmp_path / "both").numpy()
    assert (filled == expected).all()
    assert expected.sum() > table[rows].sum()
    assert records(tmp_path / "both") != records(tmp_path / "alone")


def test_a_crash_around_any_write_of_both_trainings(settings, tmp_path, monkeypatch):
    settings |= {"epochs": 1, "checkpoint_every": 3}
    fit(**settings, out=tmp_path / "whole", quiet=True)
    number = 1
    while crashes(settings, tmp_path / f"crashed{number}", monkeypatch, number, True):
        fit(out=tmp_path / f"crashed{number}", resume=True, quiet=True)
        assert_same_run(tmp_path / "whole", tmp_path / f"crashed{number}")
        assert torch.equal(labels_of(tmp_path / "whole"), labels_of(tmp_path / f"crashed{number}"))
        number += 1
    assert number > 10


def test_images_are_read_once_and_every_stage_uses_the_new_labels(
    on_images, data, tmp_path, monkeypatch
):
    from halftruth.train.plans import plan

    read = []
    original = plan.read_images
    monkeypatch.setattr(plan, "read_images", lambda *a: read.append(1) or original(*a))
    options = {"tau": 0.3, "tau_neg": 0.2, "base": {"name": "role", "expected_positives": 1.5}}
    truth = {"truth": str(data / "truth.csv"), "reading_truth": {"zero": "absent"}}
    method = {"method": "pseudo-label", "options": options}
    fit(**on_images, **truth, **method, out=tmp_path / "run", quiet=True)
    assert read == [1]
    lines = records(tmp_path / "run")
    assert [line["stage"] for line in lines] == ["head", "head", "all", "all"]
    assert len({line["pseudo_positive_precision"] for line in lines}) == 1


def test_a_killed_first_training_is_not_overwritten(settings, tmp_path, monkeypatch):
    assert crashes(settings, tmp_path / "run", monkeypatch, 5, True)
    assert not (tmp_path / "run" / "last.safetensors").exists()
    with pytest.raises(CheckpointError, match=r"run already holds a run: continue it"):
        fit(**settings, out=tmp_path / "run", quiet=True)


def test_wrong_options_are_refused_before_training(settings, tmp_path):
    for options, message in (
        ({}, "the method pseudo-label needs tau"),
        ({"tau": 2}, "expected tau in"),
        ({"tau": 0.5, "base": "wam"}, "did you mean 'wan'"),
    ):
        with pytest.raises(ConfigError, match=message):
            fit(**{**settings, "options": options}, out=tmp_path / "run", quiet=True)


def test_the_estimator_trains_twice():
    random = np.random.default_rng(0)
    truth = (random.random((60, 4)) < 0.5).astype(int)
    X = truth + random.normal(0, 0.2, truth.shape)
    y = truth * (random.random(truth.shape) < 0.4)
    y[0, 0] = -1
    once = HalftruthClassifier("wan", epochs=5, lr=0.03).fit(X, y)
    # The second training uses the scores of the first before calibration.
    raw = torch.sigmoid(once.model_(torch.from_numpy(X))).numpy()
    threshold = float(np.quantile(raw, 0.6))
    options = {"tau": threshold, "base": "wan"}
    twice = HalftruthClassifier("pseudo-label", options=options, epochs=5, lr=0.03).fit(X, y)
    filled = np.where(y == 0, raw > threshold, y)
    by_hand = HalftruthClassifier("wan", epochs=5, lr=0.03).fit(X, filled)
    found, expected = (model.model_(torch.from_numpy(X)).numpy() for model in (twice, by_hand))
    assert found == pytest.approx(expected, abs=1e-6)
    assert not np.allclose(twice.decision_function(X), once.decision_function(X), atol=1e-3)
