"""`auto` on four kinds of synthetic data that nothing was tuned on, with hidden labels.

    python benchmarks/made_up.py [--rows 1000] [--kinds words lines bends factors] [--seeds 0 1]

words: counts of 2,000 words, a mixture of a row's topics and of uninformative words; lines:
linear functions of independent features, with noise; bends: by a small random network; factors:
labels and 200 noisy features from six hidden causes. Test mAP on 3,000 further rows, of linear
heads by published losses at the rate and average that `auto` starts from (20 epochs, nothing
tuned), of `auto` without trials, of `auto`, and of complete labels with a linear head.
"""

import argparse
import warnings
from collections.abc import Callable
from statistics import fmean
from typing import Any

import numpy as np
import torch

from common import print_header, print_row, start
from halftruth.estimator import HalftruthClassifier
from halftruth.labels import drop_positives, from_zero_absent, keep_known, single_positive
from halftruth.metrics import mean_average_precision

TEST = 3000
Made = tuple[np.ndarray, np.ndarray]


def words(rows: int, draw: np.random.Generator, count: int = 2000, classes: int = 40) -> Made:
    topics = draw.dirichlet(np.full(count, 0.02), classes)
    uninformative = draw.dirichlet(np.full(count, 0.5))
    share = np.clip(2.5 * draw.dirichlet(np.full(classes, 0.7)), 0.005, 0.8)
    there = draw.random((rows, classes)) < share
    mixed = there @ topics + 0.7 * np.maximum(there.sum(axis=1, keepdims=True), 1) * uninformative
    mixed /= mixed.sum(axis=1, keepdims=True)
    counts = np.stack([draw.multinomial(draw.poisson(60) + 5, row) for row in mixed])
    weights = np.log((1 + rows) / (1 + (counts > 0).sum(axis=0)))
    return np.log1p(counts) * weights, there


def lines(rows: int, draw: np.random.Generator, dim: int = 60, classes: int = 12) -> Made:
    x = draw.normal(size=(rows, dim))
    scores = x @ draw.normal(size=(dim, classes)) + np.sqrt(dim) * draw.normal(size=(rows, classes))
    return x, scores > 1.5 * np.sqrt(dim) + draw.normal(size=classes)


def bends(rows: int, draw: np.random.Generator, dim: int = 20, classes: int = 10) -> Made:
    x = draw.normal(size=(rows, dim))
    hidden = np.tanh(3 * x @ draw.normal(size=(dim, 64)) / np.sqrt(dim))
    scores = hidden @ draw.normal(size=(64, classes)) / np.sqrt(8)
    return x, scores + 0.3 * draw.normal(size=scores.shape) > 1.2


def factors(rows: int, draw: np.random.Generator, dim: int = 200, classes: int = 30) -> Made:
    causes = draw.normal(size=(rows, 6))
    x = causes @ draw.normal(size=(6, dim)) + 3 * draw.normal(size=(rows, dim))
    return x, causes @ draw.normal(size=(6, classes)) > 2.6


KINDS: dict[str, Callable[..., Made]] = {
    "words": words, "lines": lines, "bends": bends, "factors": factors,
}  # fmt: skip
HIDDEN: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "one positive": lambda y, seed: single_positive(y, seed=seed),
    "40 % left": lambda y, seed: drop_positives(y, 0.6, seed=seed),
    "half known": lambda y, seed: keep_known(y, 0.5, seed=seed),
}
METHODS = ("bce", "wan", "em", "swan", "auto", "complete")


def score(method: str, x: np.ndarray, shown: np.ndarray, truth: np.ndarray, seed: int) -> float:
    """Test mAP in percent."""
    usual: dict[str, Any] = {"lr": 0.04 / np.sqrt(x.shape[1]), "ema": 0.99}
    named = {"method": "bce" if method == "complete" else method, **usual}
    settings = {} if method == "auto" else named
    rows = len(shown)
    labels = truth[:rows] if method == "complete" else shown
    model = HalftruthClassifier(**settings, random_state=seed).fit(x[:rows], labels)
    return 100 * mean_average_precision(model.decision_function(x[rows:]), truth[rows:])


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1000, help="for training (1000)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    options = parser.parse_args(argv)
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="No class has")
    print_header(f"{options.rows:,} rows", *options.methods)
    for kind in options.kinds:
        for how, hide in HIDDEN.items():
            found: dict[str, list[float]] = {method: [] for method in options.methods}
            for seed in options.seeds:
                made, there = KINDS[kind](options.rows + TEST, np.random.default_rng(seed))
                x, truth = made.astype(np.float32), from_zero_absent(there.astype(np.int8))
                shown = hide(truth[: options.rows], seed)
                for method, values in found.items():
                    values.append(score(method, x, shown, truth, seed))
            print_row(f"{kind}, {how}", *(f"{fmean(values):.1f}" for values in found.values()))


if __name__ == "__main__":
    start(main, "--rows 60 --kinds lines --seeds 0 --methods bce complete")
