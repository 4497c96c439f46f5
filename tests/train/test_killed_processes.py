"""`halftruth train` in a separate process: SIGKILL, Ctrl-C, SIGTERM."""

import multiprocessing
import os
import re
import signal
import time

import numpy as np
import pytest
from real_processes import Command
from tiny_data import arguments, assert_same_run

from halftruth.train.ensemble.kept_members import KeptMembers
from halftruth.train.inputs.image_inputs import _end_with_parent
from halftruth.train.run_folder import load_checkpoint
from halftruth.train.trainer import Trainer


@pytest.fixture
def train(tmp_path):
    def start(settings, out, *more, before=None):
        options = {name: value for name, value in settings.items() if name != "labels"}
        return Command(
            *("train", settings["labels"], *arguments(options), "--out", tmp_path / out, *more),
            log=tmp_path / f"{out}.log",
            before=before,
        )

    return start


def test_a_run_killed_at_random_moments_ends_like_a_whole_run(on_images, tmp_path, train):
    settings = {**on_images, "dropout": 0.2, "checkpoint_every": 1, "cache": "none"}
    settings |= {"ema": 0.9, "head_epochs": 3, "epochs": 3, "cache_dir": tmp_path / "cache"}
    assert train(settings, "whole").wait() == 0
    random = np.random.default_rng(0)
    killed = 0
    for _ in range(5):
        running = train(settings, "killed", "--resume")
        checkpoints = Replaced(tmp_path / "killed" / "last.safetensors")
        more = int(random.integers(1, 6))
        # After a few more checkpoints, at a random moment.
        if not running.until(lambda: checkpoints.seen() >= more):  # noqa: B023
            break
        running.process.join(float(random.uniform(0, 0.05)))
        if running.process.exitcode is not None:
            break
        running.kill()
        killed += 1
    assert killed >= 3
    assert train(settings, "killed", "--resume").wait() == 0
    assert_same_run(tmp_path / "whole", tmp_path / "killed")


@pytest.mark.parametrize(("stranger", "code"), [(0, 0), (1, 1)])
def test_a_decoding_worker_without_its_parent_ends(stranger, code):
    """If the parent was killed right after the fork, the parent of the worker is init."""
    worker = multiprocessing.get_context("fork").Process(
        target=_end_with_parent, args=(os.getpid() + stranger, 0)
    )
    worker.start()
    worker.join(30)
    assert worker.exitcode == code


class Replaced:
    """Counts how often a file was replaced between calls of `seen`."""

    def __init__(self, path):
        self.path, self.count, self.last = path, 0, self.number(path)

    @staticmethod
    def number(path):
        return path.stat().st_ino if path.exists() else None

    def seen(self):
        now = self.number(self.path)
        self.count += now != self.last
        self.last = now
        return self.count


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_is_saved_and_shows_how_to_resume(on_features, tmp_path, train, number):
    settings = {**on_features, "dropout": 0.2, "epochs": 40, "batch_size": 2}
    assert train(settings, "whole").wait() == 0
    running = train(settings, "stopped")
    assert running.until((tmp_path / "stopped" / "last.safetensors").exists)
    running.send(number)
    assert running.wait() == 130
    assert f"halftruth train --resume --out {tmp_path / 'stopped'}" in running.output()
    assert "Traceback" not in running.output()
    progress = load_checkpoint(tmp_path / "stopped" / "last.safetensors")["progress"]
    assert progress["epoch"] < 40
    again = Command("train", "--resume", "--out", tmp_path / "stopped", log=tmp_path / "again.log")
    assert again.wait() == 0
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")


def wait_after_a_member():
    """Wait for a minute after the first member of an ensemble is saved."""
    save = KeptMembers.save

    def save_and_wait(self, *given):
        save(self, *given)
        time.sleep(60)

    KeptMembers.save = save_and_wait


def tell_members():
    """Print the members that are fitted, not read from a file."""
    save = KeptMembers.save

    def tell(self, file, *given):
        print(f"fitted: {file}", flush=True)
        save(self, file, *given)

    KeptMembers.save = tell


def test_a_killed_ensemble_continues_after_its_last_member(tmp_path, train):
    random = np.random.default_rng(0)
    x = random.normal(size=(40, 4)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    rows = [f"i{row},{x[row, 0] > 0:d},{x[row, 1] > 0:d}" for row in range(40)]
    (tmp_path / "l.csv").write_text("\n".join(["image,cat,dog", *rows]))
    settings = {"labels": tmp_path / "l.csv", "features": tmp_path / "x.npy", "report": False}
    settings |= {"zero": "unknown", "device": "cpu", "seed": 3}
    whole = train(settings, "whole", before=tell_members)
    assert whole.wait() == 0
    fitted = re.findall("fitted: (.*)", whole.output())
    assert len(fitted) >= 3
    running = train(settings, "killed", before=wait_after_a_member)
    assert running.until((tmp_path / "killed" / "members" / f"{fitted[0]}.safetensors").exists)
    running.kill()
    assert running.wait() == -signal.SIGKILL
    again = train(settings, "killed", before=tell_members)
    assert again.wait() == 0
    assert re.findall("fitted: (.*)", again.output()) == fitted[1:]
    tables = [(tmp_path / name / "classes.csv").read_bytes() for name in ("whole", "killed")]
    assert tables[0] == tables[1]
    assert not (tmp_path / "killed" / "members").exists()


def step_for_a_minute():
    """Make every step take a minute."""

    def step(self, raw, rows):
        print("stepping", flush=True)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            time.sleep(0.01)

    Trainer._step = step


def test_a_second_ctrl_c_stops_at_once(on_features, train):
    running = train(on_features, "run", before=step_for_a_minute)
    assert running.until(lambda: "stepping" in running.output())
    running.send(signal.SIGINT)
    time.sleep(0.3)
    assert running.process.is_alive()
    running.send(signal.SIGINT)
    assert running.wait(20) == 130
    assert "Traceback" not in running.output()
