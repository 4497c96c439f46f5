"""What does not fit into memory is refused with advice before the work starts."""

import numpy as np
import pytest

from halftruth.data import DataError, memory, read_labels
from halftruth.data.splits import Splits
from halftruth.labels import LabelMatrix
from halftruth.models import build_feature_model
from halftruth.train import memory_use
from halftruth.train.config import Config
from halftruth.train.memory_use import describe_memory, estimate_memory
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
