"""Selection of epochs, settings and methods without complete labels: regret in test mAP.

    python benchmarks/selection.py --data DATA --out selection.jsonl [--sets yeast scene ...]

DATA holds tabular/, voc2012/ with weights/ and coco2014/features.npz (docs/datasets.md). Linear
heads are trained by every method with several learning rates and parameters; after each epoch
every criterion is computed on the validation rows, and mAP on the test rows. The regret of a
criterion is the difference in test mAP between the best choice and its own. Prints Markdown.
Finished cases in OUT are not repeated; several processes may share it, each with its own sets.
"""

import argparse
import itertools
import math
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from common import add_line, print_header, print_row, read_lines, start
from halftruth import losses
from halftruth.bench.run_data import frozen_features, load_benchmark
from halftruth.metrics import average_precision, mean_average_precision, roc_auc
from halftruth.train.inputs.batches import apply_in_blocks, fit_standardization
from halftruth.train.step import compute_learning_rate_factor

FROZEN = {
    "backbone": "tf_efficientnet_lite0",
    "weights": "weights/tf_efficientnet_lite0.safetensors",
    "image_size": 224,
}
VOC = {
    "reader": "table",
    "root": "voc2012/labels.csv",
    "images": ["voc2012/*.zip"],
    "reading": {"drop_columns": ["observed"]},
}
SOURCES: dict[str, dict[str, Any]] = {
    **{
        name: {"reader": name, "root": "tabular"}
        for name in ("yeast", "scene", "corel5k", "bibtex")
    },
    "voc": VOC,
    "coco": {"reader": "coco2014-features", "root": "coco2014"},
}
# The larger sets have two seeds, two rates, and at most this many rows of train, val and test.
LARGE = {"corel5k": (3000, 900, 500), "bibtex": (3000, 900, 1500), "voc": (4574, 1143, 5823),
         "coco": (8000, 2000, 6000)}  # fmt: skip
RATES = (1e-3, 3e-3, 1e-2)
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "bce": [{}],
    "wan": [{"weight": 0.03}, {"weight": 0.3}],
    "em": [{"alpha": 0.03}, {"alpha": 0.3}],
    "lasd": [{"lam_pos": 0.02}, {"lam_pos": 0.2}],
    "gr": [{"w": [0, 2], "b": [-2, -2]}, {"w": [0, 10], "b": [-2, -8]}],
    "hill": [{"lam": 1.5}, {"lam": 1.0}],
    "splc": [{"tau": 0.6}, {"tau": 0.85}],
    "ll-r": [{"delta": 0.001}, {"delta": 0.01}],
}
CRITERIA = {
    "complete": "complete labels, mAP",
    "both": "observed, √(mAP·AUC): `auto`",
    "mAP": "observed, mAP",
    "AUC": "observed, AUC",
    "log rank": "observed, log rank",
    "last": "last epoch, then √(mAP·AUC)",
}
LEVELS = {
    "epoch": "epoch",
    "settings": "epoch and settings",
    "method": "epoch, settings and method",
}


@dataclass
class Data:
    """Standardised features, observed labels and complete labels, each in three parts."""

    x: dict[str, Tensor]
    shown: dict[str, Tensor]
    truth: dict[str, Tensor]


def load(name: str, labels: str, seed: int, root: Path, cache: Path, limit: bool) -> Data:
    """A data set under a label setting; in train and val only `shown` may be used."""
    read = load_benchmark(SOURCES[name], labels, 1200 + seed, root)
    features = read.features
    if features is None:
        features = frozen_features(read, FROZEN, root, cache, "cpu")
    x = apply_in_blocks(fit_standardization(features[read.splits.train]), features).float()
    most = LARGE[name] if limit and name in LARGE else (len(x),) * 3
    order = np.random.default_rng(seed)
    rows = {
        part: np.sort(order.permutation(at)[:count])
        for (part, at), count in zip(vars(read.splits).items(), most, strict=True)
    }
    shown, truth = torch.from_numpy(read.observed.values), torch.from_numpy(read.truth)
    return Data(
        *({part: all_[at] for part, at in rows.items()} for all_ in (x, shown, truth))  # type: ignore[index]
    )


def judge(scores: Tensor, data: Data) -> dict[str, float]:
    """Return every criterion, from scores of the validation rows."""
    shown = data.shown["val"]
    present = shown == 1
    rank = scores.size(0) - scores.argsort(0).argsort(0)
    logs = (rank.double().log() * present).sum(0) / present.sum(0).double()
    return {
        "complete": mean_average_precision(scores, data.truth["val"]),
        "mAP": average_precision(scores, shown).nanmean().item(),
        "AUC": roc_auc(scores, shown).nanmean().item(),
        "log rank": -logs.nanmean().item(),
    }


def train(
    data: Data, method: str, options: dict[str, Any], lr: float, epochs: int, seed: int
) -> "Curve":
    """Return the criteria and the test mAP after each epoch."""
    torch.manual_seed(seed)
    x, labels = data.x["train"], data.shown["train"]
    size, batch = len(x), 128 if len(x) < 4000 else 256
    head = torch.nn.Linear(x.shape[1], labels.shape[1])
    mean = [p.detach().clone() for p in head.parameters()]
    optimizer = torch.optim.Adam(head.parameters(), lr=lr, fused=True)
    loss = losses.create(method, **options)
    loss.begin(labels)
    steps, found, step = math.ceil(size / batch), [], 0
    for epoch in range(epochs):
        loss.start_epoch(epoch, epochs)
        for index in torch.randperm(size).split(batch):
            optimizer.param_groups[0]["lr"] = lr * compute_learning_rate_factor(
                "one-cycle", step, steps * epochs, 0.2
            )
            value = loss(head(x[index]), labels[index], index=index if loss.needs_index else None)
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            step += 1
            decay = min(0.99, (1 + step) / (10 + step))
            for kept, now in zip(mean, head.parameters(), strict=True):
                kept.lerp_(now.detach(), 1 - decay)
        scored = {part: torch.nn.functional.linear(data.x[part], *mean) for part in ("val", "test")}
        if loss.needs_scores:
            loss.end_epoch(torch.nn.functional.linear(x, *mean))
        row = judge(scored["val"], data)
        row["test"] = mean_average_precision(scored["test"], data.truth["test"])
        found.append({"epoch": epoch, **row})
    return found


Curve = list[dict[str, float]]
Runs = dict[str, list[Curve]]
Case = tuple[str, str]
Regrets = dict[tuple[str, str, str], float]


def train_all(data: Data, rates: tuple[float, ...], epochs: int, seed: int) -> Runs:
    """Train every method with every setting; return the records of their epochs."""
    runs = Runs()
    for method, settings in SETTINGS.items():
        runs[method] = [
            train(data, method, options, lr, epochs, seed)
            for options, lr in itertools.product(settings, rates)
        ]
    return runs


def select_test_map(pool: list[Curve], criterion: str) -> float:
    """The test mAP of the run and epoch that a criterion selects."""
    rows = [row for run in pool for row in (run[-1:] if criterion == "last" else run)]
    if criterion in ("both", "last"):
        return max(rows, key=lambda row: row["mAP"] * row["AUC"])["test"]
    return max(rows, key=lambda row: row[criterion])["test"]


def compute_regrets(runs: Runs) -> Regrets:
    """Mean regret in points by (criterion, level of selection, method)."""
    found: Regrets = {}
    every = [run for own in runs.values() for run in own]
    # One selection among all runs is too noisy: average over random subsets, as a search has.
    draw = np.random.default_rng(0)
    parts = [draw.choice(len(every), len(every) // 3, replace=False) for _ in range(200)]
    pools = [("method", "all", [[every[at] for at in part] for part in parts])]
    for method, own in runs.items():
        pools += [("epoch", method, [[run] for run in own]), ("settings", method, [own])]
    for criterion in CRITERIA:
        for what, method, several in pools:
            lost = [
                max(row["test"] for run in pool for row in run) - select_test_map(pool, criterion)
                for pool in several
            ]
            found[criterion, what, method] = 100 * float(np.mean(lost))
    return found


def print_table(words: str, header: Iterable[str], rows: list[list[str]]) -> None:
    print(f"\n{words}\n")
    print_header("by", *header)
    for row in rows:
        print_row(*row)


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="file of all runs")
    parser.add_argument("--sets", nargs="+", default=list(SOURCES), choices=list(SOURCES))
    parser.add_argument("--labels", nargs="+", default=["single", "left-40"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--cache", type=Path, default=Path("cache"), help="for frozen features")
    parser.add_argument("--whole", action="store_true", help="large sets with all rows and seeds")
    given = parser.parse_args(argv)
    warnings.filterwarnings("ignore", message="No class")

    found: dict[Case, list[Regrets]] = defaultdict(list)
    done = {(one["set"], one["setting"], one["seed"]): one["runs"] for one in read_lines(given.out)}
    for name, labels in itertools.product(given.sets, given.labels):
        large = name in LARGE and not given.whole
        for seed in given.seeds[:2] if large else given.seeds:
            if (name, labels, seed) not in done:
                started = time.perf_counter()
                data = load(name, labels, seed, given.data, given.cache, large)
                rates = RATES[::2] if large else RATES
                done[name, labels, seed] = runs = train_all(data, rates, given.epochs, seed)
                line = {"set": name, "setting": labels, "seed": seed, "runs": runs}
                add_line(given.out, line)
                spent = time.perf_counter() - started
                print(f"{name} {labels} seed {seed}: {spent:.0f} s", file=sys.stderr, flush=True)
            found[name, labels].append(compute_regrets(done[name, labels, seed]))
    report(found)


def report(found: dict[Case, list[Regrets]]) -> None:
    """The tables: over all, by data set, by method."""

    def mean(case: Case, criterion: str, what: str, methods: list[str]) -> float:
        each = [one[criterion, what, method] for one in found[case] for method in methods]
        return float(np.mean(each))

    def by_case(criterion: str, what: str) -> np.ndarray:
        methods = ["all"] if what == "method" else list(SETTINGS)
        return np.array([mean(case, criterion, what, methods) for case in found])

    rows = []
    for criterion, words in CRITERIA.items():
        values = [by_case(criterion, what) for what in LEVELS]
        more = [by_case(criterion, what) - by_case("complete", what) for what in LEVELS]
        error = [m.std(ddof=1) / math.sqrt(len(m)) if len(m) > 1 else math.nan for m in more]
        shown = zip(values, error, strict=True)
        rows.append([words, *(f"{v.mean():.2f} ± {e:.2f}" for v, e in shown)])
    words = "Mean regret; ±: standard error, over cases, of the distance to complete labels"
    print_table(words, LEVELS.values(), rows)
    for what, words in LEVELS.items():
        rows = [[w, *(f"{v:.2f}" for v in by_case(c, what))] for c, w in CRITERIA.items()]
        print_table(f"Regret of the {words}", (" ".join(case) for case in found), rows)
    for what in ("epoch", "settings"):
        rows = [
            [w, *(f"{np.mean([mean(k, c, what, [m]) for k in found]):.2f}" for m in SETTINGS)]
            for c, w in CRITERIA.items()
        ]
        print_table(f"Regret of the {LEVELS[what]}, by method", SETTINGS, rows)


if __name__ == "__main__":
    start(
        main,
        "--data DATA --out OUT/lines.jsonl --sets yeast --labels single --seeds 0 --epochs 2",
    )
