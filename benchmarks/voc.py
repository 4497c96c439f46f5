"""VOC 2012 with one positive per image: every method, one recipe, several seeds, one table.

    python benchmarks/voc.py DATA --out results/ [--methods wan em ...] [--seeds 0,1,2] [--jobs 8]
    python benchmarks/voc.py DATA --out results/ --table        # print the finished runs

DATA holds labels.csv (image, split in train/val/test, observed, one 0/1 column per class), the
images as zips, and the weights tf_efficientnet_lite0.safetensors. One untuned recipe for all:
head first on frozen features (12 epochs, 3e-4), then all layers (6 epochs, 1e-4, one-cycle,
batch 32, batch norm frozen, EMA 0.999, random crop and flip); the epoch with the best validation
mAP on complete labels is kept. Finished runs are not repeated.
"""

import argparse
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import halftruth
from common import (
    add_image_options,
    add_task_options,
    group_by,
    image_settings,
    key_of,
    print_header,
    print_row,
    read_lines,
    run_tasks,
    show_mean,
    start,
)

# Arguments of the papers for VOC, where published; otherwise the defaults of the library.
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "complete": ("bce", {}),
    "an": ("bce", {}),
    "an-ls": ("an-ls", {}),
    "wan": ("wan", {}),
    "dw": ("wan", {"weight": 0.1}),
    "focal": ("focal", {"alpha": 0.75}),
    "asl": ("asl", {"gamma_neg": 2, "margin": 0.2}),
    "entmin": ("entmin", {"weight": 0.01}),
    "epr": ("epr", {"expected_positives": 1.5}),
    "role": ("role", {"expected_positives": 1.5}),
    "em": ("em", {"alpha": 0.2}),
    "em-apl": ("em-apl", {"alpha": 0.2, "beta": 0.02, "warmup": 3}),
    "hill": ("hill", {}),
    "splc": ("splc", {}),
    "gr": ("gr", {}),
    "lasd": ("lasd", {"expected_positives": 1.46}),
    "ll-r": ("ll-r", {"delta": 0.002}),
    "ll-ct": ("ll-ct", {"delta": 0.002}),
    "ll-cp": ("ll-cp", {"delta": 0.001}),
}


def run(given: argparse.Namespace, name: str, seed: int) -> dict[str, Any]:
    """Train once."""
    torch.set_num_threads(given.threads)
    method, options = METHODS[name]
    observed = {"label_column": "observed"}
    complete = {"zero": "absent", "drop_columns": ["observed"]}
    started = time.time()
    result = halftruth.fit(
        given.data / "labels.csv", truth=given.data / "labels.csv",
        reading={"split_column": "split", **(complete if name == "complete" else observed)},
        reading_truth={"split_column": "split", **complete}, method=method, options=options,
        epochs=given.epochs, seed=seed, workers=0, out=given.folder / f"{name}-{seed}", quiet=True,
        **image_settings(given, given.data, given.folder / "cache"),
    )  # fmt: skip
    return {
        "set": "voc", "setting": "one", "seed": seed, "row": name, "val": result.val,
        "test": result.test, "stage": result.best_stage, "epoch": result.best_epoch,
        "seconds": round(time.time() - started, 1),
    }  # fmt: skip


def print_table(lines: list[dict[str, Any]]) -> None:
    """Print mean and standard deviation over seeds, best first."""
    rows = group_by(lines, "row").items()
    print_header("method", "test mAP", "CF1", "OF1", "seeds")
    for (name,), some in sorted(rows, key=lambda r: -np.mean([one["test"]["mAP"] for one in r[1]])):
        cells = [show_mean((100 * x["test"][k] for x in some), 2) for k in ("mAP", "CF1", "OF1")]
        print_row(name, *cells, len(some))


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--table", action="store_true")
    add_image_options(parser)
    add_task_options(parser)
    given = parser.parse_args(argv)
    given.folder, given.out = given.out, given.out / "results.jsonl"
    given.folder.mkdir(parents=True, exist_ok=True)
    done = {key_of(line) for line in read_lines(given.out)}
    tasks = [(name, int(s)) for s in given.seeds.split(",") for name in given.methods]
    tasks = [(n, s) for n, s in tasks if ("voc", "one", s, n) not in done and not given.table]
    # The first run decodes the images and extracts the features for all.
    run_tasks(
        partial(run, given), tasks, given, lambda line: f"{100 * line['test']['mAP']:.2f}",
        first_alone=True,
    )  # fmt: skip
    print_table(read_lines(given.out))


if __name__ == "__main__":
    start(
        main,
        "DATA/voc2012 --out OUT --methods wan --seeds 0 --backbone test_resnet --weights none "
        "--size 32 --epochs 1 --threads 1",
    )
