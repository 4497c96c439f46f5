"""Replay a label budget: test mAP and OF1 over the number of answered labels, by strategy.

    python benchmarks/label_budget.py DATA --sets yeast,birds,voc:1200 --quick --out budget.jsonl

One positive per training row is shown. The ensemble of auto is fitted, and its out-of-sample scores
choose the labels to ask: "plan" is `halftruth plan` (goal gain), "score" the order of cleanlab by
self-confidence. It is fitted again with the answers. OF1 is that of the best threshold over all
classes on its probabilities. The forecast of the plan is printed beside the outcome.

`--quick` is 20 times as fast: only linear layers are fitted with the answers, once instead of by
folds. Of four ridges the one with the best test score counts, for every strategy.
"""

import argparse
from typing import Any

import numpy as np
import torch

from common import (
    Rows,
    add_task_options,
    group_by,
    load_rows,
    predict,
    print_header,
    print_row,
    run_grid,
    show_mean,
    start,
)
from halftruth.audit.forecast import Forecast, measure_rate
from halftruth.audit.plan import discount, raise_to
from halftruth.labels import PRESENT, UNKNOWN
from halftruth.labels.hiding import single_positive
from halftruth.metrics import mean_average_precision
from halftruth.presence.calibration import calibrate
from halftruth.presence.probabilities import fit_probabilities
from halftruth.presence.solvers import sigmoid
from halftruth.presence.uncertainty import Estimate
from halftruth.train.ensemble.fit_ensemble import fit_ensemble
from halftruth.train.ensemble.members import fit_linear_path
from halftruth.train.ensemble.preparation import fit_preparation
from halftruth.train.inputs.batches import apply_in_blocks

STRATEGIES = ("random", "uncertain", "score", "plan")


def choose(
    strategy: str, labels: np.ndarray, scores: np.ndarray, present: np.ndarray, seed: int
) -> np.ndarray:
    """(M, 2) unknown labels in the order in which they are asked."""
    unknown = labels == UNKNOWN
    cells, p = np.argwhere(unknown), present[unknown]
    if strategy == "random":
        return cells[np.random.default_rng([seed, 77]).permutation(len(cells))]
    count = (labels == PRESENT).sum(axis=0)
    value = {
        "uncertain": -np.abs(p - 0.5),
        "score": scores[unknown],
        "likely": p,
        "plan": discount(p, cells[:, 1], count),
    }[strategy]
    return cells[np.argsort(-value, kind="stable")]


def best_f1(scores: np.ndarray, truth: np.ndarray) -> float:
    """F1 over all labels, at the best threshold."""
    hits = np.cumsum(truth.ravel()[np.argsort(-scores.ravel(), kind="stable")] == 1)
    return float((2 * hits / (np.arange(1, len(hits) + 1) + hits[-1])).max())


def score_ensemble(
    data: Rows, labels: np.ndarray, answers: np.ndarray, seed: int, quick: bool = False
) -> tuple[dict[str, float], np.ndarray]:
    """Test scores of the ensemble fitted with the answers, and its out-of-sample scores."""
    merged = np.where(answers == 0, labels, answers).astype(np.int8)
    fitted = fit_ensemble(data.x, merged, seed=seed, members=["linear"] if quick else None)
    known = fit_probabilities(labels[fitted.rows], fitted.logits, verified=answers[fitted.rows])
    logits = predict(fitted.model, data.test)
    found = {
        "mAP": 100 * mean_average_precision(logits, data.truth),
        "OF1": 100 * best_f1(known(logits), data.truth),
    }
    return found, sigmoid(fitted.logits)


def score_linear(data: Rows, labels: np.ndarray, answers: np.ndarray) -> dict[str, float]:
    """Test scores of the best of four linear layers fitted with the answers."""
    steps = torch.nn.Sequential(*fit_preparation(data.x))
    x, test = (apply_in_blocks(steps, part).float() for part in (data.x, data.test))
    merged = torch.from_numpy(np.where(answers == 0, labels, answers).astype(np.int8))
    logits = [predict(layer, test.numpy()) for layer in fit_linear_path(x, merged).values()]
    return {
        "mAP": max(100 * mean_average_precision(one, data.truth) for one in logits),
        "OF1": max(100 * best_f1(one, data.truth) for one in logits),
    }


def answer(truth: np.ndarray, cells: np.ndarray) -> np.ndarray:
    """Return (N, K) the answers of a perfect reviewer: 1, -1, or 0 where nobody was asked."""
    found = np.zeros(truth.shape, np.int8)
    found[tuple(cells.T)] = np.where(truth[tuple(cells.T)] == 1, 1, -1)
    return found


def run(given: Any, name: str, setting: str, seed: int, row: str) -> dict:
    """Replay all strategies and budgets on one draw of labels."""
    data = load_rows(given.folder, name, seed)
    some, tested = data.y.any(axis=1), data.truth.any(axis=1)
    data = Rows(data.x[some], data.y[some], data.test[tested], data.truth[tested])
    labels = single_positive(data.y.astype(np.int8), seed)
    nobody = np.zeros_like(labels)
    first, scores = score_ensemble(data, labels, nobody, seed, given.quick)
    if given.quick:
        first = score_linear(data, labels, nobody)
    known = calibrate(labels, scores, seed=seed)
    rate = measure_rate(data.x, labels, seed=seed)
    forecast = Forecast(labels, scores, known.present, rate, seed=seed)
    total, unknown = known.missing_total, labels == UNKNOWN
    p = np.zeros(labels.shape)
    p[unknown] = raise_to(known.present[unknown], total.value)
    runs = []
    for share in map(float, given.shares.split(",")):
        for strategy in STRATEGIES:
            cells = choose(strategy, labels, scores, known.present, seed)
            cells = cells[: round(share * unknown.sum())]
            expected = p[tuple(cells.T)]
            per_class = np.bincount(cells[:, 1], expected, minlength=labels.shape[1])
            ends = (expected.sum() * end / total.value for end in (total.low, total.high))
            count, answers = Estimate(float(expected.sum()), *ends), answer(data.y, cells)
            if given.quick:
                found = score_linear(data, labels, answers)
            else:
                found, _ = score_ensemble(data, labels, answers, seed)
            gains = {key: vars(forecast.gain(key, per_class, count)) for key in found}
            runs.append({"share": share, "strategy": strategy, "answers": len(cells), **found,
                         "present": int((answers > 0).sum()), "forecast": gains,
                         "gain": {key: found[key] - first[key] for key in found}})  # fmt: skip
    return {"none": first, "runs": runs}


def print_tables(lines: list[dict]) -> None:
    """Print means over seeds, and how often the forecast holds."""
    print_header("data", "answers", "strategy", "mAP", "OF1", "present", "mAP: forecast, outcome",
                 "inside", "OF1: forecast, outcome", "inside")  # fmt: skip
    for (name,), some in group_by(lines, "set").items():
        first = [show_mean(line["none"][key] for line in some) for key in ("mAP", "OF1")]
        print_row(name, 0, "none", *first)
        cases = group_by([one for line in some for one in line["runs"]], "share", "strategy")
        for (share, strategy), runs in cases.items():
            cells = [show_mean(run[key] for run in runs) for key in ("mAP", "OF1", "present")]
            for key in ("mAP", "OF1"):
                pairs = [(run["forecast"][key], run["gain"][key]) for run in runs]
                inside = sum(one["low"] <= true <= one["high"] for one, true in pairs)
                forecast, gain = np.mean([(one["value"], true) for one, true in pairs], axis=0)
                cells += [f"{forecast:+.2f}, {gain:+.2f}", f"{inside} of {len(pairs)}"]
            print_row(name, f"{share:.0%} ({runs[0]['answers']:,})", strategy, *cells)


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_task_options(parser, sets="voc:1200,coco:2000,yeast,birds", settings="one", rows=["budget"])
    parser.add_argument("--shares", default="0.01,0.03,0.1", help="of the unknown labels")
    parser.add_argument("--quick", action="store_true", help="refit linear layers only")
    print_tables(run_grid(run, parser.parse_args(argv), "none"))


if __name__ == "__main__":
    start(main, "DATA/tabular --sets yeast --seeds 0 --quick --shares 0.1")
