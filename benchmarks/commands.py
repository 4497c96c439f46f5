"""Whole commands, from start to result: wall, user and system time, in turns with an older tree.

    python benchmarks/commands.py                              # this tree
    python benchmarks/commands.py --against OLD/src            # both, in turns
    python benchmarks/commands.py --voc voc2012/ --weights lite0.safetensors   # on a GPU

Each command is a new process, so imports and start-up count. "busy": one other process computes
on every core at the same time, as on a shared machine.
"""

import argparse
import contextlib
import os
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from common import start

FIT = """
import numpy as np
from halftruth import HalftruthClassifier
rng = np.random.default_rng(0)
X = rng.normal(size=({rows}, 256)).astype("float32")
present = X @ rng.normal(size=(256, 80)) > 25
shown = np.zeros(present.shape, dtype=int)
for row, classes in enumerate(present):
    if classes.any():
        shown[row, rng.choice(np.flatnonzero(classes))] = 1
HalftruthClassifier("swan").fit(X, shown)
"""


def commands(folder: Path, args: argparse.Namespace) -> dict[str, tuple[list[str], bool]]:
    """Name -> (arguments of python, whether other processes keep the cores busy)."""
    halftruth = ["-m", "halftruth"]
    labels = folder / "labels.csv"
    labels.write_text("item,a,b\n" + "".join(f"r{i},{i % 2},{i % 3 == 0:d}\n" for i in range(40)))
    found = {
        "halftruth --help": ([*halftruth, "--help"], False),
        "halftruth methods": ([*halftruth, "methods"], False),
        "train: wrong option": (
            [*halftruth, "train", str(labels), "--images", str(folder), "--backbone", "resnet9999"],
            False,
        ),
        "fit 6,400 x 256 x 80": (["-c", FIT.format(rows=6400)], False),
        "fit 3,000 x 256 x 80, busy": (["-c", FIT.format(rows=3000)], True),
    }
    if args.voc:
        found |= _voc(folder, args.voc, args.weights)
    return {name: job for name, job in found.items() if args.only in name}


def _voc(folder: Path, data: Path, weights: Path) -> dict[str, tuple[list[str], bool]]:
    """VOC 2012 with the defaults: cold, with cached pixels, and a prediction."""
    images = [part for file in sorted(data.glob("*.zip")) for part in ("--images", str(file))]
    table, out = data / "labels.csv", folder / "voc"
    train = [
        *("-m", "halftruth", "train", str(table), *images, "--label-column", "observed"),
        *("--backbone", "tf_efficientnet_lite0", "--weights", str(weights)),
        *("--cache", "disk", "--cache-dir", str(folder / "cache")),
    ]
    return {
        "VOC train, cold": ([*train, "--out", str(out / "cold")], False),
        "VOC train, cached pixels": ([*train, "--out", str(out / "warm")], False),
        "VOC predict": (
            ["-m", "halftruth", "predict", str(out / "warm"), *images, "--out", str(out / "p.csv")],
            False,
        ),
    }


@contextlib.contextmanager
def busy_cores(wanted: bool) -> Iterator[None]:
    """Keep every core busy with another process while the command runs."""
    count = len(os.sched_getaffinity(0)) if wanted else 0
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in others:
            process.kill()
            process.wait()


def run(arguments: list[str], source: Path, busy: bool) -> tuple[float, float, float]:
    """Wall, user and system seconds of one process and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "PYTHONPATH": str(source)}
    with busy_cores(busy):
        started = time.perf_counter()
        done = subprocess.run(
            [sys.executable, *arguments], env=environment, capture_output=True, text=True
        )
        wall = time.perf_counter() - started
        # Read before the busy processes are waited for, so that their time does not count.
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode and "resnet9999" not in arguments:
        sys.exit(f"failed: {shlex.join(arguments)}\n{done.stderr[-2000:]}")
    return wall, after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--against", type=Path, help="the src folder of an older tree")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", default="", help="commands whose name contains this")
    parser.add_argument("--voc", type=Path, help="a folder with labels.csv and zips of VOC 2012")
    parser.add_argument("--weights", type=Path, help="ImageNet weights of tf_efficientnet_lite0")
    args = parser.parse_args(argv)
    trees = {"now": Path(__file__).parents[1] / "src"}
    if args.against:
        trees = {"before": args.against, **trees}
    print("| command | tree | wall s | user s | system s |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        folders = {tree: Path(temporary) / tree for tree in trees}
        for folder in folders.values():
            folder.mkdir()
        jobs = {tree: commands(folders[tree], args) for tree in trees}
        for name in jobs["now"]:
            repeats = 1 if name.startswith("VOC") else args.repeat
            times: dict[str, list[tuple[float, float, float]]] = {tree: [] for tree in trees}
            for _ in range(repeats):
                for tree, source in trees.items():
                    arguments, busy = jobs[tree][name]
                    times[tree].append(run(arguments, source, busy))
            for tree, found in times.items():
                middle = [statistics.median(kind) for kind in zip(*found, strict=True)]
                print(f"| {name} | {tree} | " + " | ".join(f"{t:.1f}" for t in middle) + " |")


if __name__ == "__main__":
    start(main, "--only=--help --repeat 1")
