"""Two label files with different classes, joined, beside one file with all classes.

    python benchmarks/joined_files.py voc.npz yeast.npz --out joined.jsonl --jobs 2
    python benchmarks/joined_files.py voc.npz --oracles      # where the difference comes from

A file holds X_train, Y_train, X_test, Y_test with complete labels. A random half of the training
rows is labelled for one half of the classes, the other rows for the other half (`joined`);
`halftruth train a.csv --also b.csv --zero absent` with default settings is compared with all rows
labelled for all classes (`all`). Each class has half of its labels in the joined files, so `half`
is given too: all classes, but only half of the rows. Percent mAP on the test rows.

`--oracles` fits one linear layer (the linear member of the ensemble, ridge 2) to the same labels:
what unknown labels are taken for, and what it would gain to be told more.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import halftruth
from common import add_task_options, key_of, load_split, read_lines, run_tasks, start
from halftruth.metrics import mean_average_precision
from halftruth.train.ensemble.members import fit_linear_path

RIDGE = 2.0
RUNS = ("joined", "all", "half")
ORACLES = (
    "all labels",
    "half of the rows, all classes",
    "joined, unknown does not count",
    "joined, unknown is a weak negative",
    "joined, unknown is absent",
    "joined, told all that is absent",
)


def write_labels(path, items, labels, columns):
    """Write a table with one column per class."""
    frame = pd.DataFrame(labels[:, columns], columns=[f"class{k:03d}" for k in columns])
    frame.insert(0, "id", items)
    frame.to_csv(path, index=False)


def write_features(folder, x):
    """Write x.parquet; return the ids of its rows and the names of its columns."""
    columns = [f"f{k}" for k in range(x.shape[1])]
    table = pd.DataFrame(x, columns=columns)
    items = np.array([f"r{row}" for row in range(len(x))])
    table.insert(0, "id", items)
    table.to_parquet(folder / "x.parquet")
    return items, columns


def train_and_predict(folder, labels, test, columns, **options):
    """Train with default settings; return the probabilities and decisions of the test rows."""
    halftruth.fit(
        labels, features=folder / "x.parquet", out=folder / "run", quiet=True, report=False,
        device="cpu", **options,
    )  # fmt: skip
    run = halftruth.load(folder / "run", device="cpu")
    found = run.predict(pd.DataFrame(test, columns=columns))
    names = sorted(column for column in found if column.startswith("class"))
    probabilities = found[names].to_numpy()
    order = [run.classes.index(name) for name in names]
    return probabilities, run.decisions(probabilities[:, np.argsort(order)])[:, order]


def draw_halves(count, classes, seed):
    """Return two halves of the rows and of the classes."""
    rng = np.random.default_rng(seed)
    rows, columns = rng.permutation(count), rng.permutation(classes)
    halves = rows[: count // 2], rows[count // 2 :]
    return halves, (np.sort(columns[: classes // 2]), np.sort(columns[classes // 2 :]))


def measure_run(path, method, seed, case):
    """Return a line with the test mAP of a whole run."""
    torch.set_num_threads(1)
    started = time.monotonic()
    x, y, test, truth = load_split(path)
    (first, second), (one, other) = draw_halves(*y.shape, seed)
    every, also = np.arange(y.shape[1]), {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        items, columns = write_features(folder, x)
        labels = folder / "labels.csv"
        if case == "joined":
            write_labels(labels, items[first], y[first], one)
            write_labels(folder / "b.csv", items[second], y[second], other)
            also = {"also": [str(folder / "b.csv")]}
        else:
            some = first if case == "half" else np.arange(len(y))
            write_labels(labels, items[some], y[some], every)
        scores, _ = train_and_predict(
            folder, labels, test, columns, zero="absent", seed=seed, method=method, **also
        )
    value = 100 * mean_average_precision(scores, truth)
    seconds = round(time.monotonic() - started)
    return {"set": Path(path).stem, "setting": method, "seed": seed, "row": case, "mAP": value,
            "seconds": seconds}  # fmt: skip


def measure_oracle(path, method, seed, case):
    """Return a line with the test mAP of a linear layer that is told different things."""
    torch.set_num_threads(1)
    started = time.monotonic()
    x, y, test, truth = load_split(path)
    mean, std = x.mean(axis=0), np.maximum(x.std(axis=0), 1e-6)
    inputs, test = (torch.from_numpy((part - mean) / std) for part in (x, test))
    complete = torch.from_numpy(np.where(y > 0, 1, -1).astype(np.int8))
    halves, columns = draw_halves(*y.shape, seed)
    known = torch.zeros(y.shape, dtype=torch.bool)
    for rows, some in zip(halves, columns, strict=True):
        known[np.ix_(rows, some)] = True
    labels, weights = torch.where(known, complete, 0), None
    if case == "all labels":
        labels = complete
    elif case == "half of the rows, all classes":
        some = torch.from_numpy(halves[0])
        inputs, labels = inputs[some], complete[some]
    elif case == "joined, unknown does not count":
        weights = known.float()
    elif case == "joined, unknown is absent":
        labels = torch.where(known, complete, -1)
    elif case == "joined, told all that is absent":
        labels = torch.where(complete < 0, complete, labels)
        weights = (labels != 0).float()
    layer = fit_linear_path(inputs, labels, (RIDGE,), weights)[RIDGE]
    value = 100 * mean_average_precision(layer(test).numpy(), truth)
    seconds = round(time.monotonic() - started)
    return {"set": Path(path).stem, "setting": "linear", "seed": seed, "row": case, "mAP": value,
            "seconds": seconds}  # fmt: skip


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--method", default="auto")
    parser.add_argument("--oracles", action="store_true")
    add_task_options(parser)
    given = parser.parse_args(argv)
    run, cases = (measure_oracle, ORACLES) if given.oracles else (measure_run, RUNS)
    setting = "linear" if given.oracles else given.method
    done = {key_of(line) for line in read_lines(given.out)}
    tasks = [
        (str(path), given.method, seed, case)
        for seed in map(int, given.seeds.split(","))
        for path in given.data
        for case in cases
        if (path.stem, setting, seed, case) not in done
    ]
    run_tasks(run, tasks, given, lambda line: f"mAP {line['mAP']:.2f}")


if __name__ == "__main__":
    start(
        main,
        "DATA/tabular/yeast.npz --method em --seeds 0",
        "DATA/tabular/yeast.npz --oracles --seeds 0",
    )
