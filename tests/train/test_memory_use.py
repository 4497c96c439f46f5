"""What a run will cost is said before it starts; what cannot fit is refused with advice."""

import numpy as np
import pytest
import torch

from halftruth.data import DataError, memory, read_labels
from halftruth.data.splits import Splits
from halftruth.labels import LabelMatrix
from halftruth.models import build_feature_model, build_image_model
from halftruth.train import memory_use, run_logger
from halftruth.train.config import Config
from halftruth.train.memory_use import describe_memory, estimate_memory
from halftruth.train.run_logger import StageClock
from halftruth.train.settings import DEFAULTS_ON_FEATURES
from halftruth.train.task import Task


def make_task(features):
    labels = LabelMatrix(np.eye(20, 5, dtype=np.int8), tuple("abcde"))
    rows = np.arange(20)
    return Task(labels, Splits(rows[:15], rows[15:], rows[:0]), features=features)


def test_many_classes_of_a_list_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "get_free_memory", lambda: 5.0)
    path = tmp_path / "l.csv"
    path.write_text("image,labels\na,x|y\nb,z\nc,x\n")
    message = r"a matrix of 3 rows x 3 classes would take .* classes= \(--read"
    with pytest.raises(DataError, match=message):
        read_labels(path)


def test_the_large_parts_of_a_run_are_listed(monkeypatch):
    task = make_task(np.zeros((20, 4), np.float32))
    model = build_feature_model(4, 5)
    parts = estimate_memory(Config(features="x"), task, model)
    assert parts["features"] == 20 * 4 * 4
    assert parts["labels"] == 20 * 5
    assert parts["model"] >= 6 * 4 * (4 * 5 + 5)
    assert describe_memory(Config(features="x"), task, model) is None, "little needs no line"
    monkeypatch.setattr(memory_use, "_WORTH_SAYING", 0)
    assert describe_memory(Config(features="x"), task, model).startswith("memory: about")


def test_features_on_disk_take_no_memory(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((20, 4), np.float32))
    task = make_task(np.load(tmp_path / "x.npy", mmap_mode="c"))
    assert estimate_memory(Config(features="x"), task, build_feature_model(4, 5))["features"] == 0


def test_a_run_that_cannot_fit_is_refused(monkeypatch):
    monkeypatch.setattr(memory, "get_free_memory", lambda: 100.0)
    task = make_task(np.zeros((20, 4), np.float32))
    with pytest.raises(DataError, match=r"training on 20 rows x 5 classes would take .* are free"):
        describe_memory(Config(features="x"), task, build_feature_model(4, 5))


def image_task(rows=20):
    labels = LabelMatrix(np.eye(rows, 5, dtype=np.int8), tuple("abcde"))
    every = np.arange(rows)
    return Task(labels, Splits(every[:15], every[15:], every[:0]))


def test_a_network_needs_memory_for_its_steps():
    model = build_image_model("test_efficientnet", 5, weights="none", image_size=32)
    small, large = (
        estimate_memory(Config(images="x", batch_size=size), image_task(), model)["a step"]
        for size in (1, 8)
    )
    assert large == 8 * small
    assert small > 4 * 3 * 32 * 32, "at least as much as the image"
    assert model.training
    kept = estimate_memory(Config(images="x", cache="memory"), image_task(), model)
    assert kept["images"] == 20 * 32 * 32 * 3
    assert "images" not in estimate_memory(Config(images="x", cache="disk"), image_task(), model)


@pytest.mark.parametrize(
    ("settings", "size", "advice"),
    [
        ({"cache": "memory", "tune": "head"}, 256, r"\(--cache disk\)"),
        ({"batch_size": 4096}, 64, r"smaller --batch-size or --image-size"),
    ],
)
def test_images_that_cannot_fit_are_refused_before_they_are_read(
    monkeypatch, settings, size, advice
):
    monkeypatch.setattr(memory, "get_free_memory", lambda: 1e6)
    model = build_image_model("test_efficientnet", 5, weights="none", image_size=size)
    with pytest.raises(DataError, match=advice):
        describe_memory(Config(images="x", **settings), image_task(), model)


def test_an_ensemble_that_cannot_fit_is_refused_with_a_method_that_can(monkeypatch):
    monkeypatch.setattr(memory, "get_free_memory", lambda: 2e4)
    task = make_task(np.zeros((20, 100), np.float32))
    with pytest.raises(DataError, match="--method swan"):
        describe_memory(
            Config(**DEFAULTS_ON_FEATURES, features="x"), task, build_feature_model(100, 5)
        )


def test_the_time_of_an_epoch_is_said_once(monkeypatch):
    now, lines = [0.0], []
    monkeypatch.setattr(run_logger.time, "perf_counter", lambda: now[0])
    clock = StageClock("all", 100, 4, validation=0.3, device=torch.device("cpu"), log=lines.append)
    for _ in range(50):
        now[0] += 0.5
        clock.count_step()
    assert lines == ["time: about 56 seconds per epoch of stage all, 4 minutes for 4 epochs"]


def test_a_short_stage_needs_no_line(monkeypatch):
    now, lines = [0.0], []
    monkeypatch.setattr(run_logger.time, "perf_counter", lambda: now[0])
    clock = StageClock("all", 10, 2, validation=0, device=torch.device("cpu"), log=lines.append)
    for _ in range(20):
        now[0] += 0.5
        clock.count_step()
    assert not lines
