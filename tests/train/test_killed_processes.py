"""`halftruth train` in a process of its own: kill -9, Ctrl-C, SIGTERM, several processes."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from real_processes import Command
from tiny_data import arguments, assert_same_run

from halftruth.train import checkpoint


@pytest.fixture
def train(tmp_path):
    def start(settings, out, *more, **environment):
        options = {name: value for name, value in settings.items() if name != "labels"}
        return Command(
            *("train", settings["labels"], *arguments(options), "--out", tmp_path / out, *more),
            log=tmp_path / f"{out}.log",
            **environment,
        )

    return start


def test_killed_again_and_again_at_random_moments(on_pictures, tmp_path, train):
    settings = {**on_pictures, "dropout": 0.2, "checkpoint_every": 1, "cache": "none"}
    settings |= {"ema": 0.9, "head_epochs": 3, "epochs": 3, "cache_dir": tmp_path / "cache"}
    assert train(settings, "whole").wait() == 0
    random = np.random.default_rng(0)
    killed = 0
    for _ in range(8):
        running = train(settings, "killed", "--resume")
        checkpoints = Replaced(tmp_path / "killed" / "last.safetensors")
        more = int(random.integers(1, 6))
        # After a few more checkpoints, and then wherever it happens to be.
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


class Replaced:
    """Counts how often a file is replaced, as far as it is looked at."""

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
def test_a_request_to_stop_saves_and_says_how_to_go_on(on_pictures, tmp_path, train, number):
    settings = {**on_pictures, "tune": "all", "epochs": 4, "batch_size": 2}
    assert train(settings, "whole").wait() == 0
    running = train(settings, "stopped")
    assert running.until((tmp_path / "stopped" / "last.safetensors").exists)
    running.send(number)
    assert running.wait() == 130
    assert f"halftruth train --resume --out {tmp_path / 'stopped'}" in running.output()
    assert "Traceback" not in running.output()
    progress = checkpoint.load(tmp_path / "stopped" / "last.safetensors")["progress"]
    assert progress["epoch"] < 4
    again = Command("train", "--resume", "--out", tmp_path / "stopped", log=tmp_path / "again.log")
    assert again.wait() == 0
    assert_same_run(tmp_path / "whole", tmp_path / "stopped")


def test_a_second_ctrl_c_leaves_at_once(on_pictures, tmp_path):
    """In the real command, with a step that would take a minute."""
    slow = tmp_path / "slow.py"
    slow.write_text(
        "import sys, time\n"
        "from halftruth.train.stage import Stage\n"
        "from halftruth.cli import main\n"
        "def step(self, raw, rows):\n"
        "    print('stepping', flush=True)\n"
        "    end = time.monotonic() + 60\n"
        "    while time.monotonic() < end:\n"
        "        time.sleep(0.01)\n"
        "Stage._step = step\n"
        "main()\n"
    )
    settings = {**on_pictures, "tune": "all", "out": tmp_path / "run"}
    labels = settings.pop("labels")
    command = [sys.executable, str(slow), "train", labels, *arguments(settings)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as running:
        assert running.stdout.readline() == "stepping\n"
        running.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            running.wait(0.3)
        running.send_signal(signal.SIGINT)
        assert running.wait(20) == 130
