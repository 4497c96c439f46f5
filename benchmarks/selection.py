"""Selection of epochs, settings and methods without complete labels: regret in test mAP.

    python benchmarks/selection.py DATA --sets yeast,scene,voc --out selection.jsonl

Linear heads are trained by every method with several learning rates and parameters; a fifth of the
training rows are validation rows. After each epoch every criterion is computed on them, and mAP on
the test rows. The regret of a criterion is the difference in test mAP between the best choice and
its own. At most 10,000 training and 6,000 test rows.
"""

import argparse
import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from common import (
    add_task_options,
    group_by,
    hide,
    load_rows,
    print_header,
    print_row,
    run_grid,
    start,
)
from halftruth import losses
from halftruth.metrics import average_precision, mean_average_precision, roc_auc
from halftruth.train.inputs.batches import apply_in_blocks, fit_standardization
from halftruth.train.step import compute_learning_rate_factor

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


Curve = list[dict[str, float]]
Runs = dict[str, list[Curve]]
Regrets = dict[tuple[str, str, str], float]


@dataclass
class Data:
    """Standardised features, observed labels and complete labels, each in three parts."""

    x: dict[str, Tensor]
    shown: dict[str, Tensor]
    truth: dict[str, Tensor]


def load(folder: str, name: str, labels: str, seed: int) -> Data:
    """A data set under a label setting; in train and val only `shown` may be used."""
    data = load_rows(folder, name, seed, 10_000, 6000)
    order = np.random.default_rng(seed).permutation(len(data.x))
    parts = {"val": order[: len(order) // 5], "train": order[len(order) // 5 :]}
    standardize = fit_standardization(data.x[parts["train"]])
    x, test = (apply_in_blocks(standardize, part).float() for part in (data.x, data.test))
    shown = torch.from_numpy(hide(data.y, labels, seed))
    truth, tested = (torch.from_numpy(hide(y, "complete", 0)) for y in (data.y, data.truth))
    return Data(
        {"test": test, **{part: x[rows] for part, rows in parts.items()}},
        {part: shown[rows] for part, rows in parts.items()},
        {"test": tested, **{part: truth[rows] for part, rows in parts.items()}},
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


def run(given: Any, name: str, setting: str, seed: int, row: str) -> dict:
    """Train every method with every setting; return the records of their epochs."""
    data, runs = load(given.folder, name, setting, seed), Runs()
    rates = RATES if len(data.x["train"]) < 2500 else RATES[::2]
    for method, settings in SETTINGS.items():
        runs[method] = [
            train(data, method, options, lr, given.epochs, seed)
            for options, lr in itertools.product(settings, rates)
        ]
    return {"runs": runs}


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


def print_tables(lines: list[dict]) -> None:
    """Print the regret over all cases, and by case (data set and labels)."""
    cases = group_by(lines, "set", "setting")
    found = [[compute_regrets(line["runs"]) for line in some] for some in cases.values()]

    def by_case(criterion: str, level: str) -> np.ndarray:
        methods = ["all"] if level == "method" else list(SETTINGS)
        keys = [(criterion, level, method) for method in methods]
        return np.array([np.mean([one[key] for one in some for key in keys]) for some in found])

    rows = []
    for criterion, words in CRITERIA.items():
        cells = [words]
        for level in LEVELS:
            value = by_case(criterion, level)
            more = value - by_case("complete", level)
            error = more.std(ddof=1) / math.sqrt(len(more)) if len(more) > 1 else math.nan
            cells.append(f"{value.mean():.2f} ± {error:.2f}")
        rows.append(cells)
    words = "Mean regret; ±: standard error, over cases, of the distance to complete labels"
    print_table(words, LEVELS.values(), rows)
    for level, words in LEVELS.items():
        rows = [[w, *(f"{v:.2f}" for v in by_case(c, level))] for c, w in CRITERIA.items()]
        print_table(f"Regret of the {words}", map(", ".join, cases), rows)


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    sets = "yeast,scene,corel5k,bibtex,voc,coco"
    add_task_options(parser, sets=sets, settings="single,left-40", rows=["runs"])
    parser.add_argument("--epochs", type=int, default=15)
    print_tables(run_grid(run, parser.parse_args(argv), "set"))


if __name__ == "__main__":
    start(main, "DATA/tabular --sets yeast --settings single --seeds 0 --epochs 2")
