"""Estimates of the training rows' labels, and a network that leans towards them."""

from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from tiny_data import IMAGES

from halftruth import losses
from halftruth.train.auto.resolve import FEWEST_TAUGHT, choose_settings, resolve_auto
from halftruth.train.config import Config, ConfigError
from halftruth.train.devices import OneProcess
from halftruth.train.ensemble.fit_ensemble import fit_ensemble
from halftruth.train.plans import ensemble as plan
from halftruth.train.plans.plan import Work
from halftruth.train.run import train
from halftruth.train.run_logger import RunLogger
from halftruth.train.task import load_task
from halftruth.train.teacher import (
    ESTIMATES,
    estimate_labels,
    make_teacher_of_estimates,
    save_estimates,
)

ROWS, CLASSES = 240, 4


def one_label_per_row(rows: int) -> np.ndarray:
    return np.eye(CLASSES, dtype=np.int8)[np.arange(rows) % CLASSES]


@pytest.mark.parametrize(
    ("rows", "settings", "method"),
    [
        (FEWEST_TAUGHT, {}, "em-teacher"),
        (FEWEST_TAUGHT - 1, {}, "em"),
        (FEWEST_TAUGHT, {"tune": "all"}, "em"),
    ],
)
def test_auto_gives_a_network_a_teacher_where_the_rows_are_enough(rows, settings, method):
    config = Config(images=["photos"], method="auto", **settings)
    found, _ = resolve_auto(config, one_label_per_row(rows), 1280)
    assert found.method == method


def test_probabilities_as_labels_get_no_teacher():
    config = Config(images=["photos"], method="auto")
    found, _ = resolve_auto(config, one_label_per_row(ROWS), 1280, plain=False)
    assert found.method == "em"


def test_complete_labels_need_no_teacher():
    labels = np.where(one_label_per_row(ROWS) > 0, 1, -1).astype(np.int8)
    assert choose_settings(labels, 8).settings["method"] == "bce"


def test_a_loss_gets_the_estimates_of_the_file_by_row(tmp_path):
    estimates = np.random.default_rng(0).random((7, CLASSES)).astype(np.float32)
    save_estimates(tmp_path / ESTIMATES, estimates)
    loss = losses.create("em-teacher", memory_dtype="float32")
    loss.begin(torch.zeros(7, CLASSES, dtype=torch.int8))
    place = torch.arange(20)
    make_teacher_of_estimates(tmp_path / ESTIMATES, OneProcess())(loss, np.arange(7), place)
    np.testing.assert_allclose(loss.memory.values.numpy(), estimates, atol=1e-3)


def test_rows_without_an_estimate_are_trained_with_em_alone(tmp_path):
    estimates = np.full((3, CLASSES), np.nan, np.float32)
    save_estimates(tmp_path / ESTIMATES, estimates)
    loss, em = losses.create("em-teacher"), losses.create("em")
    labels, logits = torch.zeros(3, CLASSES, dtype=torch.int8), torch.randn(3, CLASSES)
    loss.begin(labels)
    make_teacher_of_estimates(tmp_path / ESTIMATES, OneProcess())(
        loss, np.arange(3), torch.arange(3)
    )
    assert (loss.memory.values == -1).all()
    torch.testing.assert_close(loss(logits, labels, torch.arange(3)), em(logits, labels))


def test_estimates_know_which_labels_are_missing(tmp_path):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(ROWS, 6)).astype(np.float32)
    present = x[:, :CLASSES] + 0.3 * rng.normal(size=(ROWS, CLASSES)) > 0.8
    shown = present & (rng.random(present.shape) < 0.5)
    np.save(tmp_path / "x.npy", x)
    lines = [",".join("1" if v else "" for v in row) for row in shown]
    body = "\n".join(f"{i},{line}" for i, line in enumerate(lines))
    (tmp_path / "labels.csv").write_text(f"id,a,b,c,d\n{body}\n")
    config = Config(
        labels=str(tmp_path / "labels.csv"), features=[str(tmp_path / "x.npy")], method="em"
    )
    task = load_task(config)
    work = Work(config, task, OneProcess("cpu"), RunLogger(None, quiet=True), tmp_path)
    _, fitted = plan.fit_ensemble_to_run(work, x)
    found = estimate_labels(config, task, fitted)
    at = task.splits.train
    assert found.shape == (len(at), CLASSES)
    assert (found[shown[at]] == 1).all()
    missing = found[present[at] & ~shown[at]].mean()
    assert missing > found[~present[at]].mean() + 0.2


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory):
    settings = {
        **IMAGES, "labels": str(data / "labels.csv"), "images": str(data / "photos"),
        "head_epochs": 1, "epochs": 1, "method": "em-teacher", "quality": "best",
        "out": str(tmp_path_factory.mktemp("taught") / "run"),
    }  # fmt: skip
    with patch.object(plan, "fit_ensemble", wraps=fit_ensemble) as fits:
        train(settings, quiet=True)
    assert fits.call_count == 1, "the teacher and the frozen ensemble are the same ensemble"
    return settings


def test_a_network_is_trained_with_the_estimates_in_its_folder(finished):
    with np.load(Path(finished["out"]) / ESTIMATES) as file:
        found = file["present"]
    # Each row shows one label; the others are not certain.
    assert ((found == 1).sum(axis=1) >= 1).all()
    assert ((found > 0) & (found < 1)).any()


def test_a_continued_run_does_not_estimate_again(finished, monkeypatch):
    def refuse(*given, **more):
        raise AssertionError("the estimates are in the run folder")

    monkeypatch.setattr("halftruth.train.plans.network.estimate_labels", refuse)
    train({**finished, "epochs": finished["epochs"] + 1}, resume=True, quiet=True)


def test_features_need_no_teacher():
    with pytest.raises(ConfigError, match="on features, auto fits the ensemble"):
        Config.of({"labels": "a.csv", "features": ["x.npy"], "method": "em-teacher"})
