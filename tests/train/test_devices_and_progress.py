"""Threads, processes, memory and progress bars of a run."""

import contextlib
import dataclasses
import math
import platform

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_data import IMAGES

from halftruth import fit
from halftruth.data import DataError
from halftruth.train import devices
from halftruth.train.auto.resolve import resolve_auto, search_settings
from halftruth.train.config import Config
from halftruth.train.devices import (
    WORK_PER_THREAD,
    OneProcess,
    find_unused_processes,
    limit_threads,
)
from halftruth.train.run_logger import RunLogger
from halftruth.train.trainer import Trainer

CPU = torch.device("cpu")


@pytest.fixture
def four_threads():
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("work", "threads"),
    [(0, 1), (32 * 256 * 80, 1), (2.5 * WORK_PER_THREAD, 2), (1e15, 4), (float("inf"), 4)],
)
def test_the_number_of_threads_depends_on_the_work_per_step(four_threads, work, threads):
    with limit_threads(work, CPU):
        assert torch.get_num_threads() == threads
    assert torch.get_num_threads() == 4


def test_threads_are_restored_after_an_error_and_never_raised(four_threads):
    with contextlib.suppress(RuntimeError), limit_threads(1, CPU):
        raise RuntimeError
    assert torch.get_num_threads() == 4
    torch.set_num_threads(1)
    with limit_threads(1e15, CPU):
        assert torch.get_num_threads() == 1


def test_a_small_head_trains_on_one_thread(on_features, tmp_path, four_threads, monkeypatch):
    seen, step = set(), Trainer._step

    def counted(self, raw, rows):
        seen.add(torch.get_num_threads())
        return step(self, raw, rows)

    monkeypatch.setattr(Trainer, "_step", counted)
    fit(**on_features, out=tmp_path / "run", quiet=True)
    assert seen == {1}
    assert torch.get_num_threads() == 4


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is a function of glibc")
def test_glibc_keeps_freed_memory():
    assert devices.keep_freed_memory()


@pytest.mark.parametrize("name", ["WORLD_SIZE", "ACCELERATE_NUM_PROCESSES", "SLURM_NTASKS"])
def test_a_launcher_that_asked_for_more_processes_is_reported(monkeypatch, name):
    for variable in ("WORLD_SIZE", "ACCELERATE_NUM_PROCESSES", "SLURM_NTASKS"):
        monkeypatch.delenv(variable, raising=False)
    assert find_unused_processes(1) is None
    monkeypatch.setenv(name, "2")
    assert f"asked for 2 processes ({name}), and 1 takes part" in find_unused_processes(1)
    assert find_unused_processes(2) is None
    # On a CPU and on CUDA, the command that is recommended needs no option.
    assert find_unused_processes(1).endswith("-m halftruth train ...`")
    assert find_unused_processes(1, "mps").endswith("-m halftruth train ... --device cpu`")


@pytest.mark.parametrize(
    ("command", "asked"),
    [
        ("python /bin/accelerate launch --cpu --num_processes 2 -m halftruth train x.csv", True),
        ("accelerate launch --cpu --num-processes=2 -m halftruth", True),
        ("accelerate launch --cpu -m halftruth", False),
        ("bash train.sh --num_processes 2", False),
    ],
)
def test_accelerate_that_starts_fewer_processes_is_reported(monkeypatch, command, asked):
    """`accelerate launch --cpu --num_processes 2` starts one process and sets no variable."""
    for variable in ("WORLD_SIZE", "ACCELERATE_NUM_PROCESSES", "SLURM_NTASKS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(devices, "_read_parent_command", command.split)
    found = find_unused_processes(1)
    assert ("asked for 2 processes (accelerate launch" in (found or "")) is asked


def test_bars_count_every_image_and_row_once(on_images, tmp_path, monkeypatch):
    totals, counts = {}, {}

    class Counted:
        def __init__(self, text, total, done):
            self.text, totals[text] = text, total
            counts[text] = done

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def __call__(self, count=1):
            counts[self.text] += count

    monkeypatch.setattr(
        RunLogger, "progress", lambda self, text, total, done=0: Counted(text, total, done)
    )
    fit(**on_images, out=tmp_path / "run", quiet=True)
    assert totals["reading images"] == 44
    assert {"extracting features", "head epoch 1/2", "all epoch 2/2"} <= totals.keys()
    assert counts == totals


@pytest.mark.parametrize("bad_images", ["skip", "fail"])
def test_a_run_without_readable_images_reports_the_first(tmp_path, bad_images):
    (tmp_path / "photos").mkdir()
    rows = ["image,a,b", *(f"p{n}.png,{n % 2},{1 - n % 2}" for n in range(8))]
    (tmp_path / "labels.csv").write_text("\n".join(rows) + "\n")
    for n in range(8):
        Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(tmp_path / "photos" / f"p{n}.png")
        (tmp_path / "photos" / f"p{n}.png").write_bytes(b"not an image")
    given = {**IMAGES, "images": str(tmp_path / "photos"), "bad_images": bad_images}
    with pytest.raises(DataError, match="none of the 8 images can be read"):
        fit(tmp_path / "labels.csv", **given, method="wan", out=tmp_path / "run", quiet=True)


def test_trials_give_the_same_in_one_process_and_in_several(monkeypatch, four_threads):
    """A small head uses one thread in any process, so that rounding is the same."""
    draw = np.random.default_rng(0)
    x = torch.from_numpy(draw.normal(size=(120, 6)).astype(np.float32))
    labels = torch.from_numpy((draw.random((120, 3)) < 0.3).astype(np.int8))
    changes = [{"ridge": 8.0}, {"ridge": 0.5}]
    config, choice = resolve_auto(
        Config(method="auto", images=["x"], head_epochs=2), labels.numpy(), 6
    )
    choice = dataclasses.replace(choice, alternatives=changes, budget="3")
    found = []
    torch.set_num_threads(2)
    for worth in (math.inf, 0.0):
        monkeypatch.setattr("halftruth.train.devices.WORTH_PROCESSES", worth)
        rows = np.arange(120)
        found.append(search_settings(config, choice, x, labels, rows, OneProcess()))
    assert found[0] == found[1]
    assert "tried 3 settings" in found[0][1][0]
