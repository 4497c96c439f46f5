"""Estimates of the training rows' labels, and a network that leans towards them."""

import numpy as np
import pytest
import torch

from halftruth import losses
from halftruth.train.auto.resolve import FEWEST_TAUGHT, choose, resolve_auto
from halftruth.train.config import Config
from halftruth.train.devices import OneProcess
from halftruth.train.fit import train
from halftruth.train.teacher import ESTIMATES, make_teacher_of_estimates, save_estimates

ROWS, CLASSES = 240, 4


def one_label_per_row(rows: int) -> np.ndarray:
    return np.eye(CLASSES, dtype=np.int8)[np.arange(rows) % CLASSES]


@pytest.mark.parametrize(
    ("rows", "settings", "method"),
    [
        (FEWEST_TAUGHT, {}, "em-teacher"),
        (FEWEST_TAUGHT - 1, {}, "em"),
        (FEWEST_TAUGHT, {"tune": "all"}, "em"),
        (FEWEST_TAUGHT, {"tune": "head"}, "swan"),
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
    assert choose(labels, 8, features=False).settings["method"] == "bce"


def test_a_loss_gets_the_estimates_of_the_file_by_row(tmp_path):
    estimates = np.random.default_rng(0).random((7, CLASSES)).astype(np.float32)
    save_estimates(tmp_path / ESTIMATES, estimates)
    loss = losses.create("em-teacher", memory_dtype="float32")
    loss.begin(torch.zeros(7, CLASSES, dtype=torch.int8))
    place = torch.arange(20)
    make_teacher_of_estimates(tmp_path / ESTIMATES, OneProcess())(loss, np.arange(7), place)
    np.testing.assert_allclose(loss.memory.values.numpy(), estimates, atol=1e-3)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run on features with half of the labels hidden; class k is present at high feature k."""
    folder = tmp_path_factory.mktemp("taught")
    rng = np.random.default_rng(1)
    x = rng.normal(size=(ROWS, 6)).astype(np.float32)
    present = x[:, :CLASSES] + 0.3 * rng.normal(size=(ROWS, CLASSES)) > 0.8
    shown = present & (rng.random(present.shape) < 0.5)
    np.save(folder / "x.npy", x)
    names = ",".join("abcd"[:CLASSES])
    lines = [",".join("1" if v else "" for v in row) for row in shown]
    body = "\n".join(f"{i},{line}" for i, line in enumerate(lines))
    (folder / "labels.csv").write_text(f"id,{names}\n{body}\n")
    settings = {
        "labels": str(folder / "labels.csv"), "features": str(folder / "x.npy"),
        "method": "em-teacher", "epochs": 1, "out": str(folder / "run"), "report": False,
    }  # fmt: skip
    train(settings, quiet=True)
    return folder, present, shown, settings


def test_estimates_know_which_labels_are_missing(finished):
    folder, present, shown, _ = finished
    with np.load(folder / "run" / ESTIMATES) as file:
        found = file["present"].astype(float)
    # The run holds some rows out for validation; estimates are those of the others, in order.
    kept = np.load(folder / "run" / "out_of_sample.npz")["rows"]
    at = np.setdiff1d(np.arange(ROWS), kept)
    assert found.shape == (len(at), CLASSES)
    assert (found[shown[at]] == 1).all()
    missing = found[present[at] & ~shown[at]].mean()
    assert missing > found[~present[at]].mean() + 0.2


def test_a_continued_run_does_not_estimate_again(finished, monkeypatch):
    settings = finished[3]

    def refuse(*given, **more):
        raise AssertionError("the estimates are in the run folder")

    monkeypatch.setattr("halftruth.train.fit.estimate_labels", refuse)
    train({**settings, "epochs": 2}, resume=True, quiet=True)
