"""Replay a label budget: test mAP and OF1 over the number of answered labels, by strategy.

    python benchmarks/label_budget.py yeast.npz birds.npz voc.npz:1200 --out results/

Each file holds X_train, Y_train, X_test, Y_test (complete 0/1 labels); `:1200` takes that many
training rows, drawn per seed. One positive per row is shown; scores come from 5 folds of `wan`. The
answers to the proposed labels are verdicts, and `wan` is trained with them (`verdicts`). OF1 is
that of the best threshold over all classes. Finished runs are not repeated.
"""

import argparse
import json
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch

from halftruth.audit import calibrate
from halftruth.audit.cross_scores import cross_scores
from halftruth.data import write_labels
from halftruth.labels import UNKNOWN, LabelMatrix
from halftruth.labels.hiding import single_positive
from halftruth.metrics import evaluate
from halftruth.train.fit import train
from halftruth.train.trained_run import TrainedRun

# likely: the goal `find` of `halftruth plan`; score: cleanlab's order by self-confidence.
STRATEGIES = ("random", "uncertain", "score", "likely")


def load(spec: str, seed: int) -> dict[str, np.ndarray]:
    path, _, rows = spec.partition(":")
    with np.load(path) as file:
        data = {key: file[key] for key in ("X_train", "Y_train", "X_test", "Y_test")}
    for part in ("train", "test"):
        some = np.flatnonzero(data[f"Y_{part}"].any(axis=1))
        if rows and part == "train":
            some = some[np.random.default_rng(seed).choice(len(some), int(rows), replace=False)]
        data[f"X_{part}"] = data[f"X_{part}"][some].astype(np.float32)
        data[f"Y_{part}"] = data[f"Y_{part}"][some].astype(np.int8)
    return data


def choose(
    strategy: str, labels: np.ndarray, scores: np.ndarray, present: np.ndarray, seed: int
) -> np.ndarray:
    """(M, 2) unknown labels in the order in which they are asked."""
    unknown = labels == UNKNOWN
    cells, p = np.argwhere(unknown), present[unknown]
    if strategy == "random":
        return cells[np.random.default_rng([seed, 77]).permutation(len(cells))]
    value = {"uncertain": np.abs(p - 0.5), "score": -scores[unknown], "likely": -p}[strategy]
    return cells[np.argsort(value, kind="stable")]


def best_f1(scores: np.ndarray, truth: np.ndarray) -> float:
    """F1 over all labels, at the best threshold."""
    hits = np.cumsum(truth.ravel()[np.argsort(-scores.ravel(), kind="stable")] == 1)
    return float((2 * hits / (np.arange(1, len(hits) + 1) + hits[-1])).max())


def run(data: dict[str, np.ndarray], labels: np.ndarray, cells: np.ndarray, seed: int) -> list:
    """Test mAP, OF1 and the number of present labels among the answers."""
    truth = data["Y_train"]
    names = [f"c{k}" for k in range(truth.shape[1])]
    held_out = np.random.default_rng(seed).random(len(labels)) < 0.1
    split = np.where(held_out, "val", "train").astype("<U5")
    right = truth[tuple(cells.T)] == 1
    with tempfile.TemporaryDirectory() as temporary:
        folder, settings = Path(temporary), {}
        if len(cells):
            rows = [
                f"{row},c{column},{'present' if one else 'absent'}"
                for (row, column), one in zip(cells, right, strict=True)
            ]
            text = "\n".join(["item,class,verdict", *rows])
            (folder / "verdicts.csv").write_text(text + "\n")
            settings["verdicts"] = str(folder / "verdicts.csv")
        items = [str(row) for row in range(len(labels))]
        write_labels(LabelMatrix(labels, names, items, split), folder / "labels.parquet")
        np.save(folder / "x.npy", data["X_train"])
        reading = {"split_column": "split", "classes": names}
        train(
            {"labels": str(folder / "labels.parquet"), "features": [str(folder / "x.npy")],
             "reading": reading, "method": "wan", "seed": seed, "device": "cpu",
             "report": False, "out": str(folder / "run"), **settings},
            quiet=True,
        )  # fmt: skip
        scored = TrainedRun(folder / "run", device="cpu", quiet=True).score(features=data["X_test"])
    scores = np.asarray(scored.probabilities)
    complete = np.where(data["Y_test"] == 1, 1, -1)
    mean = evaluate(torch.as_tensor(scores), torch.as_tensor(complete))["mAP"]
    return [100 * float(mean), 100 * best_f1(scores, data["Y_test"]), int(right.sum())]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--shares", nargs="+", type=float, default=[0.01, 0.03, 0.1])
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    log = options.out / "label_budget.jsonl"
    done = [json.loads(line) for line in log.open()] if log.exists() else []
    finished = {tuple(one[:4]) for one in done}
    for spec in options.data:
        for seed in options.seeds:
            data = load(spec, seed)
            labels = single_positive(data["Y_train"], seed)
            matrix = LabelMatrix(labels, [f"c{k}" for k in range(labels.shape[1])])
            with tempfile.TemporaryDirectory() as folder:
                scores, _ = cross_scores(
                    matrix, Path(folder), features=data["X_train"], seed=seed, method="wan"
                )
            present = calibrate(labels, scores, draws=2, seed=seed).present
            budgets = [round(share * (labels == UNKNOWN).sum()) for share in options.shares]
            jobs = [("none", 0), *((one, budget) for budget in budgets for one in STRATEGIES)]
            for strategy, budget in jobs:
                if (spec, seed, strategy, budget) in finished:
                    continue
                order = choose(strategy if budget else "likely", labels, scores, present, seed)
                done.append(
                    [spec, seed, strategy, budget, *run(data, labels, order[:budget], seed)]
                )
                with log.open("a") as file:
                    file.write(json.dumps(done[-1]) + "\n")
    table = defaultdict(list)
    for spec, _, strategy, budget, *values in done:
        table[spec, budget, strategy].append(values)
    for (spec, budget, strategy), values in sorted(table.items()):
        mean, spread = np.mean(values, axis=0), np.std(values, axis=0)
        print(
            f"{spec} {budget:,} {strategy}: mAP {mean[0]:.2f} ± {spread[0]:.2f}, "
            f"OF1 {mean[1]:.2f} ± {spread[1]:.2f}, {mean[2]:,.0f} present"
        )


if __name__ == "__main__":
    main()
