"""Labels from several sources: files with different classes, and votes of annotators.

    python benchmarks/label_sources.py DATA --sets voc --settings joined --out sources.jsonl
    python benchmarks/label_sources.py DATA --sets yeast,scene --settings good,poor,mixed

`joined`: a random half of the training rows is labelled for one half of the classes, the other rows
for the other half. `joined` is `halftruth train a.csv --also b.csv --zero absent` with default
settings, `complete` all rows labelled for all classes, and `half`, which has as many labels per
class, half of the rows labelled for all classes.

good, poor, mixed: three annotators find a part of the present labels and add wrong ones. `soft`:
the share of the votes (`--duplicates vote --zero absent`). `vote`: present where most of the votes
say so. `any`: present where one of them does.

Test mAP, CF1 and OF1 on complete labels.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import halftruth
from common import add_task_options, load_rows, print_means, run_grid, start
from halftruth.metrics import class_and_overall, count, mean_average_precision

# Per annotator: the share of present labels that are found, and of absent ones called present.
ANNOTATORS = {
    "good": ((0.9, 0.8, 0.7), (0.01, 0.02, 0.04)),
    "poor": ((0.7, 0.6, 0.5), (0.01, 0.02, 0.04)),
    "mixed": ((0.95, 0.6, 0.5), (0.01, 0.05, 0.1)),
}
ROWS = {"joined": ("joined", "half"), **dict.fromkeys(ANNOTATORS, ("soft", "vote", "any"))}


def draw_votes(y: np.ndarray, setting: str, seed: int) -> np.ndarray:
    """Return the votes (3, N, K), 1 or 0."""
    rng = np.random.default_rng(seed)
    chance = [np.where(y > 0, f, w) for f, w in zip(*ANNOTATORS[setting], strict=True)]
    return np.stack([rng.random(y.shape) < one for one in chance]).astype(int)


def draw_halves(rows: int, classes: int, seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return two halves of the rows and of the classes."""
    rng = np.random.default_rng(seed)
    at, some = rng.permutation(rows), rng.permutation(classes)
    halves = [np.sort(some[: classes // 2]), np.sort(some[classes // 2 :])]
    return [at[: rows // 2], at[rows // 2 :]], halves


def write_labels(folder: Path, row: str, setting: str, y: np.ndarray, seed: int) -> dict[str, Any]:
    """Write the label files of a run; return its options."""
    rows, columns = np.arange(len(y)), np.arange(y.shape[1])
    # Rows, columns, labels of these rows.
    parts = [(rows, columns, y)]
    if row == "soft":
        parts = [(rows, columns, votes) for votes in draw_votes(y, setting, seed)]
    elif row in ("vote", "any"):
        total = draw_votes(y, setting, seed).sum(axis=0)
        parts = [(rows, columns, (total > (1 if row == "vote" else 0)).astype(int))]
    elif row != "complete":
        halves, classes = draw_halves(*y.shape, seed)
        parts = [(at, some, y[at]) for at, some in zip(halves, classes, strict=True)]
        if row == "half":
            parts = [(halves[0], columns, y[halves[0]])]
    paths = [str(folder / f"{number}.csv") for number in range(len(parts))]
    for path, (at, some, labels) in zip(paths, parts, strict=True):
        frame = pd.DataFrame(labels[:, some], columns=[f"class{k:03d}" for k in some])
        frame.insert(0, "id", [f"r{k}" for k in at])
        frame.to_csv(path, index=False)
    options: dict[str, Any] = {"also": paths[1:]} if paths[1:] else {}
    vote = {"duplicates": "vote"} if row == "soft" else {}
    return {"labels": paths[0], **options, **vote, "zero": "absent"}


def run(given: Any, name: str, setting: str, seed: int, row: str) -> dict:
    """Train with default settings; return scores on the test rows."""
    data = load_rows(given.folder, name, 0)
    columns = [f"f{k}" for k in range(data.x.shape[1])]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        table = pd.DataFrame(data.x, columns=columns)
        table.insert(0, "id", [f"r{k}" for k in range(len(data.x))])
        table.to_parquet(folder / "x.parquet")
        halftruth.fit(
            **write_labels(folder, row, setting, data.y, seed), features=folder / "x.parquet",
            out=folder / "run", quiet=True, report=False, device="cpu", seed=seed,
            method=given.method,
        )  # fmt: skip
        trained = halftruth.load(folder / "run", device="cpu")
        found = trained.predict(pd.DataFrame(data.test, columns=columns))
    names = sorted(column for column in found if column.startswith("class"))
    p = found[list(trained.classes)].to_numpy()
    order = [trained.classes.index(name) for name in names]
    decided = trained.decisions(p)[:, order].astype(float)
    f1 = class_and_overall(count(decided, data.truth, 0.5))
    score = mean_average_precision(p[:, order], data.truth)
    return {"mAP": score, "CF1": f1["CF1"], "OF1": f1["OF1"]}


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    rows = ("joined", "half", "soft", "vote", "any", "complete")
    settings = ",".join(ROWS)
    add_task_options(parser, sets="emotions,yeast,scene", settings=settings, rows=rows)
    parser.add_argument("--method", default="auto")
    lines = run_grid(run, parser.parse_args(argv), "mAP", once=("complete",), rows_of=ROWS)
    print_means(lines, "mAP", "CF1", "OF1", rows=rows)


if __name__ == "__main__":
    start(main, "DATA/tabular --sets yeast --settings joined,poor --method em --seeds 0")
