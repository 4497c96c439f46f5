"""Shared by the benchmarks: start, `--tiny`, data sets, hidden labels, files of results, tables.

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
import traceback
import warnings
import zipfile
from argparse import ArgumentParser
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd

from halftruth.bench.label_settings import hide as hide_as_in_bench
from made_sets import SETS, make_set


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


@dataclass
class Rows:
    """Features (float32) and complete 0/1 labels of training rows and of test rows."""

    x: np.ndarray
    y: np.ndarray
    test: np.ndarray
    truth: np.ndarray
    # Training rows that belong together (of one patient), where the file says so.
    groups: np.ndarray | None = None
    # The places of the training rows in the file.
    places: np.ndarray | None = None


def load_rows(folder: str, name: str, seed: int, most: int = 10**9, most_test: int = 10**9) -> Rows:
    """Read FOLDER/NAME.npz, or make a set of made_sets.py; of more rows, the seed draws some.

    A file has X_train, Y_train, X_test, Y_test and perhaps groups. NAME:1200 draws 1,200 training
    rows.
    """
    name, _, own = name.partition(":")
    path = Path(folder) / f"{name}.npz"
    if path.exists():
        with np.load(path) as file:
            keys = ("X_train", "Y_train", "X_test", "Y_test")
            parts, groups = [file[key] for key in keys], file.get("groups")
    elif name in SETS:
        parts, groups = make_set(name), None
    else:
        raise SystemExit(f"{path} does not exist, and {name} is none of: {', '.join(SETS)}")
    random, places = np.random.default_rng(100 + seed), np.arange(len(parts[0]))
    for at, limit in ((0, int(own or most)), (2, most_test)):
        if len(parts[at]) > limit:
            rows = np.sort(random.choice(len(parts[at]), limit, replace=False))
            parts[at : at + 2] = [values[rows] for values in parts[at : at + 2]]
            if at == 0:
                places, groups = rows, None if groups is None else groups[rows]
    x, y, test, truth = parts
    return Rows(
        x.astype(np.float32), (y > 0) * 1, test.astype(np.float32), (truth > 0) * 1, groups, places
    )


def hide(
    truth: np.ndarray, setting: str, seed: int, measures: dict[str, np.ndarray] | None = None
) -> np.ndarray:
    """Return incomplete labels: 1 shown, 0 unknown (complete: 1 and -1).

    one: one present label per row; 40: each present label with probability 0.4; others: the label
    settings of `halftruth bench`, such as `frequent` or `size` (which needs measures).
    """
    random = np.random.default_rng(1000 + seed)
    if setting == "40":
        return ((truth > 0) & (random.random(truth.shape) < 0.4)).astype(np.int8)
    if setting != "one":
        return hide_as_in_bench(np.where(truth > 0, 1, -1).astype(np.int8), setting, seed, measures)
    shown = np.zeros(truth.shape, np.int8)
    order = np.where(truth > 0, random.random(truth.shape), -1.0)
    rows = np.flatnonzero((truth > 0).any(axis=1))
    shown[rows, order.argmax(axis=1)[rows]] = 1
    return shown


def predict(model: Any, x: np.ndarray) -> np.ndarray:
    """Return the logits of rows."""
    import torch

    with torch.no_grad():
        parts = torch.from_numpy(x).float().split(512)
        return torch.cat([model(part) for part in parts]).double().numpy()


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


# ---------------------------------------------------------------------- results, one line per task


def add_task_options(
    parser: ArgumentParser, *, sets: str, settings: str, rows: Iterable[str] = ()
) -> None:
    """Add the options of benchmarks that use `run_grid`."""
    parser.add_argument("folder", help="a file NAME.npz for each data set, see load_rows")
    parser.add_argument("--sets", default=sets, help=f"data sets ({sets})")
    parser.add_argument("--settings", default=settings, help=f"which labels are shown ({settings})")
    parser.add_argument("--rows", default=",".join(rows), help="rows of the table")
    parser.add_argument("--seeds", default="0,1,2", help="of the rows, the shown labels, the fit")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--minutes", type=float, default=1e9, help="start nothing after this time")
    parser.add_argument("--out", type=Path, help="file of results; lines in it are not repeated")


def run_grid(
    run: Callable[..., dict],
    given: Any,
    shown: str,
    *,
    once: Container[str] = (),
    rows_of: Mapping[str, Container[str]] | None = None,
) -> list[dict]:
    """Compute `run(given, set, setting, seed, row)` for all; return the lines, old and new.

    `shown`: the key that is printed after each. `once`: rows that do not depend on the setting,
    which is "complete" for them. `rows_of`: the rows of a setting (default: all).
    """
    lines = read_lines(given.out)
    done = {key_of(line) for line in lines}
    tasks = [
        (name, setting, int(seed), row)
        for seed in given.seeds.split(",")
        for name in given.sets.split(",")
        for row in given.rows.split(",")
        for setting in (["complete"] if row in once else given.settings.split(","))
        if row in once or rows_of is None or row in rows_of[setting]
    ]
    tasks = [task for task in tasks if task not in done]
    return lines + run_tasks(partial(_run_task, run, given), tasks, given, shown)


def _run_task(run: Callable[..., dict], given: Any, *task: Any) -> dict:
    """Run a task with one thread; add what it is, and its seconds."""
    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    started = time.perf_counter()
    line = dict(zip(("set", "setting", "seed", "row"), task, strict=True))
    line |= run(given, *task)
    return {**line, "seconds": round(time.perf_counter() - started, 1)}


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


def run_tasks(run: Callable[..., dict], tasks: list[tuple], given: Any, shown: str) -> list[dict]:
    """Compute `run(*task)` in several processes; append each line to `given.out` when it is there.

    No task starts after `given.minutes`. A task that fails is printed, and the others go on; the
    script then ends with an error.
    """
    from joblib import Parallel, delayed

    started = time.time()
    ends = started + 60 * given.minutes
    jobs = Parallel(given.jobs, return_as="generator_unordered")
    lines, failed = [], 0
    for line in jobs(delayed(_try)(run, task, ends) for task in tasks):
        if line is None or "error" in line:
            failed += line is not None
            print(line["error"] if line else "no time left", flush=True)
            continue
        lines.append(line)
        add_line(given.out, line)
        words = " ".join(map(str, key_of(line)))
        print(f"[{len(lines)}/{len(tasks)}] {words}: {line.get(shown)}, {line['seconds']} s",
              flush=True)  # fmt: skip
    print(f"{len(lines)} of {len(tasks)} lines done in {time.time() - started:.0f} s\n")
    if failed:
        sys.exit(f"{failed} tasks failed")
    return lines


def _try(run: Callable[..., dict], task: tuple, ends: float) -> dict | None:
    if time.time() > ends:
        return None
    try:
        return run(*task)
    except Exception:
        return {"error": f"failed: {task}\n{traceback.format_exc()}"}


# ---------------------------------------------------------------------- processes and tables


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


def print_means(lines: list[dict], *keys: str, rows: Iterable[str] = ()) -> None:
    """Print data sets with their settings by rows; mean ± standard deviation over seeds, in %."""
    there = [line["row"] for line in lines]
    names = [row for row in dict.fromkeys([*rows, *there]) if row in there]
    cases = group_by(lines, "set", "setting", "row")
    for key in keys:
        print()
        print_header(f"{key} of", *names)
        # What does not depend on the setting stands in every line of its data set.
        own = group_by([line for line in lines if line["row"] != "complete"], "set", "setting")
        for name, setting in own or group_by(lines, "set", "setting"):
            cells = []
            for row in names:
                some = cases.get((name, setting, row)) or cases.get((name, "complete", row), [])
                cells.append(show_mean(100 * line[key] for line in some if key in line))
            print_row(f"{name}, {setting}", *cells)
