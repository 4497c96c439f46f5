"""Shared by the benchmarks: their start, `--tiny`, data sets, files of results, processes, tables.

Every script ends in `start(main, "arguments", ...)`. With `--tiny` as its only argument, it runs
with these small arguments instead, on data made on the spot: DATA is a folder in the layout of
docs/datasets.md, OUT an empty one. The tests run this form.
"""

import gzip
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
import zipfile
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd

Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def is_tiny() -> bool:
    return sys.argv[1:] == ["--tiny"]


def start(main: Callable[[list[str]], Any], *tiny: str) -> None:
    """Run a script with its arguments, or with `--tiny` with small ones, one line after another."""
    if not is_tiny():
        sys.exit(main(sys.argv[1:]))
    with tempfile.TemporaryDirectory() as folder:
        make_tiny_data(data := Path(folder) / "data")
        (out := Path(folder) / "out").mkdir()
        for line in tiny:
            print(f"\n> {line}")
            main([w.replace("DATA", str(data)).replace("OUT", str(out)) for w in shlex.split(line)])


# ---------------------------------------------------------------------- data


def load_split(path: Path | str) -> Split:
    """Features (float32) and complete labels (0, 1) of training rows and of test rows."""
    with np.load(path) as file:
        x, y, test, truth = (file[key] for key in ("X_train", "Y_train", "X_test", "Y_test"))
    return x.astype(np.float32), (y > 0) * 1, test.astype(np.float32), (truth > 0) * 1


def make_tiny_data(folder: Path) -> None:
    """A few rows of everything that the scripts read, in the layout of docs/datasets.md."""
    random, names = np.random.default_rng(0), ["cat", "dog", "horse", "sheep"]
    y = random.random((100, 4)) < (0.5, 0.4, 0.3, 0.2)
    y[~y.any(axis=1), 0] = True
    x = (y @ random.normal(size=(4, 6)) + random.normal(size=(100, 6))).astype(np.float32)
    parts = {"X_train": x[:60], "Y_train": y[:60] * 1, "X_test": x[60:], "Y_test": y[60:] * 1}
    for name in ("tabular", "goemotions", "voc2012", "photos"):
        (folder / name).mkdir(parents=True)
    for name in ("yeast", "voc"):
        np.savez(folder / "tabular" / f"{name}.npz", **parts)
    np.savez(folder / "pool.npz", X=x, Y=y * 1)
    np.save(folder / "features.npy", x)
    table = pd.DataFrame(y * 1, columns=names)
    table.insert(0, "observed", [names[row.argmax()] for row in y])
    table.insert(0, "split", ["train"] * 60 + ["test"] * 40)
    table.insert(0, "image", [f"{row:05d}.jpg" for row in range(100)])
    table.to_csv(folder / "voc2012" / "labels.csv", index=False)
    sizes = {name: random.random(y.shape) for name in ("area", "centre_distance")}
    np.savez(folder / "voc2012" / "boxes.npz", classes=np.array(names), **sizes)
    make_photographs(folder / "photos", 100, (40, 32))
    with zipfile.ZipFile(folder / "voc2012" / "images.zip", "w") as images:
        for path in (folder / "photos").iterdir():
            images.write(path, path.name)
    for part, count in (("train", 84), ("dev", 28), ("test", 28)):
        with gzip.open(folder / "goemotions" / f"{part}.tsv.gz", "wt") as file:
            for at in range(count):
                both = {at % 28, at * 5 % 28}
                words = " ".join(f"word{k}" for k in both)
                print(words, ",".join(map(str, both)), f"{part}{at}", sep="\t", file=file)
    classes = "\n".join(f"class{k}" for k in range(27))
    (folder / "goemotions" / "labels.txt").write_text(f"{classes}\njoy\n")


def make_photographs(folder: Path, count: int, size: tuple[int, int] = (500, 375)) -> None:
    """Write JPEG files of coloured clouds."""
    from PIL import Image

    random = np.random.default_rng(0)
    for number in range(count):
        clouds = random.integers(0, 256, (12, 16, 3), dtype=np.uint8)
        image = Image.fromarray(clouds).resize(size, Image.Resampling.BICUBIC)
        image.save(folder / f"{number:05d}.jpg", quality=90)


def add_image_options(parser: ArgumentParser) -> None:
    """Add the options of benchmarks that train on the images of VOC 2012."""
    parser.add_argument("--backbone", default="tf_efficientnet_lite0")
    parser.add_argument("--weights", help="default: BACKBONE.safetensors in the data folder")
    parser.add_argument("--size", type=int, default=224)


def image_settings(given: Any, data: Path, cache: Path | str) -> dict[str, Any]:
    """Return the settings of a run that say which images and which network."""
    return {
        "images": [str(path) for path in sorted(data.glob("*.zip"))],
        "backbone": given.backbone, "image_size": given.size, "cache": "disk",
        "weights": given.weights or str(data / f"{given.backbone}.safetensors"),
        "cache_dir": str(cache),
    }  # fmt: skip


# ---------------------------------------------------------------------- results, one line per task


def add_task_options(parser: ArgumentParser, seeds: str = "0,1,2") -> None:
    """Add the options of benchmarks that use `run_tasks`."""
    parser.add_argument("--seeds", default=seeds)
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--minutes", type=float, default=1e9, help="start nothing after this time")
    parser.add_argument("--out", type=Path, help="file of results; lines in it are not repeated")


def read_lines(*paths: Path | None) -> list[dict]:
    """Return the lines of files of results; a last line that was cut off is left out."""
    found = []
    for path in paths:
        for text in path.read_text().splitlines() if path and path.exists() else ():
            try:
                found.append(json.loads(text))
            except ValueError:
                continue
    return found


def add_line(path: Path | None, line: dict) -> None:
    """Append a line to a file of results, if there is one."""
    if path:
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def key_of(line: dict) -> tuple:
    """Return what tells two lines apart: data set, setting, seed and row of the table."""
    return line["set"], line["setting"], line["seed"], line.get("row", "")


def group_by(lines: Iterable[dict], *names: str) -> dict[tuple, list[dict]]:
    """Lines by the values of some of their keys."""
    found: dict[tuple, list[dict]] = {}
    for line in lines:
        found.setdefault(tuple(line[name] for name in names), []).append(line)
    return found


def run_tasks(
    run: Callable[..., dict],
    tasks: list[tuple],
    given: Any,
    describe: Callable[[dict], str],
    *,
    first_alone: bool = False,
) -> list[dict]:
    """Compute `run(*task)` in several processes; append each line to `given.out` when it is there.

    No task starts after `given.minutes`. A task that fails is printed, and the others go on; the
    script then ends with an error. `first_alone`: the first task ends before the second starts.
    """
    started, lines, failed = time.time(), [], 0
    deadline = started + 60 * given.minutes
    for future in _finish(run, tasks, deadline, given.jobs, first_alone):
        if error := future.exception():
            failed += 1
            print(f"failed: {type(error).__name__}: {error}", flush=True)
            continue
        lines.append(line := future.result())
        add_line(given.out, line)
        print(
            f"[{time.time() - started:5.0f} s, {len(lines)}/{len(tasks)}] "
            f"{' '.join(map(str, key_of(line)))}: {describe(line)} in {line['seconds']} s",
            flush=True,
        )
    print(f"{len(lines)} of {len(tasks)} lines done in {time.time() - started:.0f} s")
    if failed:
        sys.exit(f"{failed} tasks failed")
    return lines


def _finish(
    run: Callable[..., dict], tasks: list[tuple], deadline: float, jobs: int, first_alone: bool
) -> Iterator["Future[dict]"]:
    """Yield finished tasks. At most `jobs` are waiting, so that none starts after the deadline."""
    with _Here() if jobs == 1 else ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        running: set[Future[dict]] = set()
        for number, task in enumerate(tasks):
            if time.time() > deadline:
                break
            running.add(pool.submit(run, *task))
            while len(running) >= (1 if first_alone and not number else jobs):
                future = next(as_completed(running))
                running.discard(future)
                yield future
        yield from as_completed(running)


class _Here(ProcessPoolExecutor):
    """A pool without processes: a task runs when it is submitted."""

    def __init__(self) -> None: ...

    def submit(self, run: Callable[..., dict], /, *task: Any, **_: Any) -> "Future[dict]":
        future: Future[dict] = Future()
        try:
            future.set_result(run(*task))
        except Exception as error:
            future.set_exception(error)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None: ...


# ---------------------------------------------------------------------- processes and tables

_CLEANLAB = """
import json, sys
import numpy as np
from cleanlab.multilabel_classification.filter import find_multilabel_issues_per_class as find
labels, scores = json.load(open(sys.argv[1])), np.load(sys.argv[2])
masks = find(labels, scores)
masks = masks[0] if isinstance(masks, tuple) else masks
np.save(sys.argv[3], np.asarray(masks).reshape(len(labels), -1))
"""


def flag_by_cleanlab(python: str, labels: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Return (N, K) what the multi-label filter of cleanlab flags, in a Python that has it."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [f"{folder}/{name}" for name in ("labels.json", "scores.npy", "flags.npy")]
        lists = [np.flatnonzero(row > 0).tolist() for row in labels]
        Path(paths[0]).write_text(json.dumps(lists))
        np.save(paths[1], scores)
        subprocess.run([python, "-c", _CLEANLAB, *paths], check=True)
        return np.load(paths[2]).astype(bool)


def run_case(script: str, function: Callable[..., dict], *case: Any) -> dict:
    """Return `function(*case)`, computed by `script --case` in a process with one thread.

    In its tiny form a script computes it in its own process.
    """
    if is_tiny():
        return function(*case)
    command = [sys.executable, script, "--case", json.dumps(case)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.strip().splitlines()[-1])


def print_row(*cells: Any) -> None:
    """Print a row of a Markdown table."""
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def print_header(*cells: Any) -> None:
    """Print the header of a Markdown table."""
    print_row(*cells)
    print("|" + "---|" * len(cells), flush=True)


def show_mean(values: Iterable[float], digits: int = 1, ddof: int = 1) -> str:
    """Return mean ± standard deviation; without the second for one value."""
    v = list(values)
    spread = f" ± {np.std(v, ddof=ddof):.{digits}f}" if len(v) > 1 else ""
    return f"{np.mean(v):.{digits}f}{spread}" if v else "–"
