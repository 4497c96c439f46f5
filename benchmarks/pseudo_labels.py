"""Precision of pseudo-labels on real data: paper 001's Table 6 and paper 003's Fig. 7.

    python benchmarks/pseudo_labels.py LABELS FEATURES --out results/ [--seeds 0 1 2]

LABELS is a CSV with `split`, `observed` (the one positive that training may see) and one 0/1 column
per class; FEATURES has one row per row of it (`halftruth train --tune head` keeps one in the
cache). Trains a linear head with each method and prints means and deviations over the seeds.
Finished runs are not repeated.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import print_row, show_mean, start
from halftruth import fit
from halftruth.data import read_labels
from halftruth.train.results.trained_run import TrainedRun

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "em-apl": ("em-apl", {"alpha": 0.2, "beta": 0.02, "warmup": 5}),
    "bce": ("bce", {}),
    "splc": ("splc", {}),
    "ll-cp": ("ll-cp", {"delta": 0.001}),
    "mime": ("mime", {}),
    "pseudo-label 0.4": ("pseudo-label", {"tau": 0.4}),
    "pseudo-label 0.6": ("pseudo-label", {"tau": 0.6}),
}
TRUTH = {"zero": "absent", "drop_columns": ["observed"], "split_column": "split"}
OBSERVED = {"label_column": "observed", "split_column": "split"}


def run(labels: str, features: str, out: Path, name: str, seed: int) -> Path:
    """Train once, unless that is finished; return the run folder."""
    method, options = METHODS[name]
    folder = out / f"{name.replace(' ', '-')}-{seed}"
    if not (folder / "result.json").exists():
        fit(
            labels,
            features=features,
            truth=labels,
            reading=OBSERVED,
            reading_truth=TRUTH,
            method=method,
            options=options,
            epochs=10,
            head_lr=3e-4,
            seed=seed,
            device="cpu",
            report=False,
            out=folder,
            quiet=True,
            resume=folder.exists(),
        )
    return folder


def precision_of_highest(folder: Path, features: str, share: float, labels: str) -> float:
    """Precision if the highest-scored share of the unknown labels of each class became positive."""
    rows = np.asarray(read_labels(labels, **OBSERVED).split) == "train"
    seen = read_labels(labels, **OBSERVED).values[rows]
    truth = read_labels(labels, **TRUTH).values[rows]
    scores = TrainedRun(folder, device="cpu").score(features=features).probabilities[rows]
    unknown = seen == 0
    wanted = (share * unknown.sum(axis=0)).astype(int)
    ranks = np.argsort(np.argsort(-np.where(unknown, scores, -1), axis=0), axis=0)
    called = unknown & (ranks < wanted)
    return float((truth[called] > 0).mean())


def shown(values: list[float | None]) -> str:
    return "–" if None in values else show_mean((100 * v for v in values), 2)


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("labels")
    parser.add_argument("features")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    chosen = parser.parse_args(argv)
    torch.set_num_threads(1)
    series: dict[str, list[list[dict[str, Any]]]] = {}
    high = []
    for name in chosen.methods:
        for seed in chosen.seeds:
            folder = run(chosen.labels, chosen.features, chosen.out, name, seed)
            lines = (folder / "metrics.jsonl").read_text().splitlines()
            test = json.loads((folder / "result.json").read_text())["test"]["mAP"]
            records = [{**json.loads(line), "test_mAP": test} for line in lines]
            series.setdefault(name, []).append(records)
            if name == "em-apl":
                high.append(precision_of_highest(folder, chosen.features, 0.1, chosen.labels))
    print("em-apl, negative pseudo-labels after each epoch: precision, recall")
    for epoch in range(4, 9):
        keys = ("pseudo_negative_precision", "pseudo_negative_recall")
        print_row(epoch + 1, *(shown([r[epoch].get(k) for r in series["em-apl"]]) for k in keys))
    print(f"the highest 10 % of each class as positives: precision {shown(high)}")
    print_row("method", "missing labels found after epoch 2, 5, 10", "filled in or corrected",
              "test mAP")  # fmt: skip
    for name, runs in series.items():
        cells = [
            ", ".join(shown([one[e][f"train_missing_{key}"] for one in runs]) for e in (1, 4, 9))
            for key in ("precision", "recall")
        ]
        for key in ("pseudo_positive_precision", "pseudo_positive_recall", "test_mAP"):
            cells.append(shown([one[-1].get(key) for one in runs]))
        print_row(name, *cells)


if __name__ == "__main__":
    start(
        main,
        "DATA/voc2012/labels.csv DATA/features.npy --out OUT --seeds 0 --methods em-apl bce",
    )
