"""What hints gain and cost on features: a useful one, a random one, an inverted one, and parts.

    python benchmarks/hints.py DATA --sets emotions,birds,medical --out hints.jsonl

The training rows are halved: one half has complete labels and trains a random forest (the hint, a
model of other data); on the other half `auto` is fitted with incomplete labels, with and without
the hint. `best`: the combination with weights that were fitted to complete labels of those rows.
"""

import argparse
from typing import Any

import numpy as np

from common import add_task_options, hide, load_rows, predict, print_means, run_grid, start
from compare import fit_forest
from halftruth.metrics import mean_average_precision
from halftruth.train.ensemble.fit_ensemble import fit_ensemble
from halftruth.train.ensemble.hints import fit_hints

KINDS = ("useful", "random", "inverted", "half of the classes inverted", "half of the rows")


def vary(hint: np.ndarray, kind: str, seed: int) -> np.ndarray:
    """Return another hint, made from a useful one."""
    random = np.random.default_rng(100 + seed)
    if kind == "random":
        return random.normal(size=hint.shape)
    if kind == "inverted":
        return -hint
    if kind == "half of the classes inverted":
        return np.where(np.arange(hint.shape[1]) % 2 == 0, -hint, hint)
    if kind == "half of the rows":
        return np.where(random.random((len(hint), 1)) < 0.5, np.nan, hint)
    return hint


def run(given: Any, name: str, setting: str, seed: int, row: str) -> dict:
    """Measure one data set, setting and seed."""
    data = load_rows(given.folder, name, 0)
    order = np.random.default_rng(seed).permutation(len(data.x))
    own, elsewhere = order[::2], order[1::2]
    others = np.concatenate([data.x[own], data.test])
    both = fit_forest(data.x[elsewhere], data.y[elsewhere], others, seed, "RandomForestClassifier")
    hint, test_hint = both[: len(own)], both[len(own) :]
    x, y, truth = data.x[own], data.y[own], data.truth
    shown = hide(y, setting, seed)
    fitted = fit_ensemble(x, shown, seed=seed)
    rows, logits = fitted.rows, predict(fitted.model, data.test)
    complete = hide(y, "complete", seed)[rows]
    best = fit_hints(fitted.logits, complete, [hint[rows]])
    line = {
        "auto": mean_average_precision(logits, truth),
        "hint alone": mean_average_precision(test_hint, truth),
        "best": mean_average_precision(best(logits, [test_hint]), truth),
    }
    for kind in KINDS:
        ours, other = vary(hint, kind, seed)[rows], vary(test_hint, kind, seed)
        weights = fit_hints(fitted.logits, shown[rows], [ours])
        line[kind] = mean_average_precision(weights(logits, [other]), truth)
    return line


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_task_options(parser, sets="emotions,birds,medical", settings="one,40", rows=["hints"])
    lines = run_grid(run, parser.parse_args(argv), "useful")
    rows = ("auto", "hint alone", "best", *KINDS)
    print_means([{**line, "row": row, "mAP": line[row]} for row in rows for line in lines], "mAP")


if __name__ == "__main__":
    start(main, "DATA/tabular --sets yeast --settings 40 --seeds 0")
