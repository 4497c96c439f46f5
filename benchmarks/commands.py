"""Whole commands, from start to result: wall, user and system time, in turns with an older tree.

    python benchmarks/commands.py                              # this tree
    python benchmarks/commands.py --against OLD/src            # both, in turns
    python benchmarks/commands.py --voc voc2012/ --weights lite0.safetensors   # on a GPU

Each command is a new process, so imports and start-up count.
"""

import argparse
import os
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import print_header, print_row, start

FIT = """
import numpy as np
from halftruth import HalftruthClassifier
rng = np.random.default_rng(0)
X = rng.normal(size=(6400, 256)).astype("float32")
present = X @ rng.normal(size=(256, 80)) > 25
shown = np.zeros(present.shape, dtype=int)
for row, classes in enumerate(present):
    if classes.any():
        shown[row, rng.choice(np.flatnonzero(classes))] = 1
HalftruthClassifier("swan").fit(X, shown)
"""


def make_commands(folder: Path, given: argparse.Namespace) -> dict[str, list[str]]:
    """Return the arguments of python, by name."""
    halftruth = ["-m", "halftruth"]
    labels = folder / "labels.csv"
    labels.write_text("item,a,b\n" + "".join(f"r{i},{i % 2},{i % 3 == 0:d}\n" for i in range(40)))
    wrong = ["train", str(labels), "--images", str(folder), "--backbone", "resnet9999"]
    found = {
        "halftruth --help": [*halftruth, "--help"],
        "halftruth methods": [*halftruth, "methods"],
        "train: wrong option": [*halftruth, *wrong],
        "halftruth demo": [*halftruth, "demo", "--out", str(folder / "demo")],
        "fit 6,400 x 256 x 80": ["-c", FIT],
    }
    if given.voc:
        # The defaults, with nothing cached and with cached pixels, and a prediction.
        images = [
            part for file in sorted(given.voc.glob("*.zip")) for part in ("--images", str(file))
        ]
        train = [
            *halftruth, "train", str(given.voc / "labels.csv"), *images,
            "--label-column", "observed", "--backbone", "tf_efficientnet_lite0",
            "--weights", str(given.weights), "--cache", "disk",
            "--cache-dir", str(folder / "cache"), "--out",
        ]  # fmt: skip
        out = [str(folder / name) for name in ("cold", "warm", "p.csv")]
        found["VOC train, cold"] = [*train, out[0]]
        found["VOC train, cached pixels"] = [*train, out[1]]
        found["VOC predict"] = [*halftruth, "predict", out[1], *images, "--out", out[2]]
    return {name: words for name, words in found.items() if given.only in name}


def run(arguments: list[str], source: Path) -> tuple[float, float, float]:
    """Wall, user and system seconds of one process and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment, started = {**os.environ, "PYTHONPATH": str(source)}, time.perf_counter()
    command = [sys.executable, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
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
    given = parser.parse_args(argv)
    trees = {"before": given.against} if given.against else {}
    trees["now"] = Path(__file__).parents[1] / "src"
    times: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for number in range(given.repeat):
        for tree, source in trees.items():
            with tempfile.TemporaryDirectory() as folder:
                for name, arguments in make_commands(Path(folder), given).items():
                    if number == 0 or not name.startswith("VOC"):
                        times.setdefault((name, tree), []).append(run(arguments, source))
    print_header("command", "tree", "wall s", "user s", "system s")
    for (name, tree), found in times.items():
        middle = [statistics.median(kind) for kind in zip(*found, strict=True)]
        print_row(name, tree, *(f"{seconds:.1f}" for seconds in middle))


if __name__ == "__main__":
    start(main, "--only=--help --repeat 1")
