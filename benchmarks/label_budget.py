"""Replay a label budget: test mAP and OF1 over the number of answered labels, by strategy.

    python benchmarks/label_budget.py yeast.npz birds.npz voc.npz:1200 --out results/

Each file holds X_train, Y_train, X_test, Y_test (complete 0/1 labels); `:1200` takes that many
training rows, drawn per seed. One positive per row is shown. The ensemble of auto is fitted, and
its out-of-sample scores choose the labels to ask: "plan" is `halftruth plan` (goal gain), "score"
the order of cleanlab by self-confidence. It is fitted again with the answers. OF1 is that of the
best threshold over all classes on its probabilities; "decided" is OF1 of its own decisions. The
forecast of the plan is printed beside the outcome. Finished fits are not repeated.

`--quick` is 20 times as fast: only linear layers are fitted with the answers, once instead of by
folds. Of four ridges the one with the best test score counts, for every strategy; OF1 is that of
the best threshold on its logits.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import start
from halftruth.audit.forecast import Forecast, measure_rate
from halftruth.audit.plan import discount, raise_to
from halftruth.labels import PRESENT, UNKNOWN
from halftruth.labels.hiding import single_positive
from halftruth.metrics import mean_average_precision
from halftruth.presence.calibration import calibrate
from halftruth.presence.decisions import decide
from halftruth.presence.probabilities import fit_probabilities
from halftruth.presence.solvers import sigmoid
from halftruth.presence.uncertainty import Estimate
from halftruth.train.ensemble.fit_ensemble import fit_ensemble
from halftruth.train.ensemble.members import fit_linear_path
from halftruth.train.ensemble.preparation import fit_preparation
from halftruth.train.inputs.batches import apply_in_blocks

STRATEGIES = ("random", "uncertain", "score", "plan")


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
    count = (labels == PRESENT).sum(axis=0)
    value = {
        "uncertain": -np.abs(p - 0.5),
        "score": scores[unknown],
        "likely": p,
        "plan": discount(p, p, cells[:, 1], count),
    }[strategy]
    return cells[np.argsort(-value, kind="stable")]


def best_f1(scores: np.ndarray, truth: np.ndarray) -> float:
    """F1 over all labels, at the best threshold."""
    hits = np.cumsum(truth.ravel()[np.argsort(-scores.ravel(), kind="stable")] == 1)
    return float((2 * hits / (np.arange(1, len(hits) + 1) + hits[-1])).max())


def fit(
    data: dict[str, np.ndarray], labels: np.ndarray, cells: np.ndarray, seed: int, members: Any
) -> tuple[dict[str, float], np.ndarray]:
    """Test scores of the ensemble fitted with the answers, and its out-of-sample scores."""
    verified = np.zeros_like(labels)
    right = data["Y_train"][tuple(cells.T)] == 1
    verified[tuple(cells.T)] = np.where(right, 1, -1)
    merged = np.where(verified == 0, labels, verified).astype(np.int8)
    fitted = fit_ensemble(data["X_train"], merged, seed=seed, members=members)
    known = fit_probabilities(labels[fitted.rows], fitted.logits, verified=verified[fitted.rows])
    with torch.no_grad():
        parts = torch.from_numpy(data["X_test"]).split(2000)
        logits = torch.cat([fitted.model(part) for part in parts]).double().numpy()
    probabilities, truth = known(logits), data["Y_test"]
    complete = torch.as_tensor(np.where(truth == 1, 1, -1))
    decided = decide(known(fitted.logits), (merged == PRESENT).sum(axis=0))(probabilities)
    found = {
        "mAP": 100 * float(mean_average_precision(torch.as_tensor(logits), complete)),
        "OF1": 100 * best_f1(probabilities, truth),
        "decided": 200 * float((decided & (truth == 1)).sum() / (decided.sum() + truth.sum())),
        "present": int(right.sum()),
    }
    return found, sigmoid(fitted.logits)


def fit_quickly(
    data: dict[str, np.ndarray], labels: np.ndarray, cells: np.ndarray
) -> dict[str, float]:
    """Test scores of the best of four linear layers fitted with the answers."""
    steps = torch.nn.Sequential(*fit_preparation(data["X_train"]))
    x, test = (apply_in_blocks(steps, data[f"X_{part}"]).float() for part in ("train", "test"))
    right = data["Y_train"][tuple(cells.T)] == 1
    merged, truth = labels.copy(), data["Y_test"]
    merged[tuple(cells.T)] = np.where(right, 1, -1)
    complete = torch.as_tensor(np.where(truth == 1, 1, -1))
    found = []
    for layer in fit_linear_path(x, torch.from_numpy(merged)).values():
        with torch.no_grad():
            logits = layer(test).double()
        best = 100 * best_f1(logits.numpy(), truth)
        found.append((100 * float(mean_average_precision(logits, complete)), best))
    mean_ap, f1 = (max(values) for values in zip(*found, strict=True))
    return {"mAP": mean_ap, "OF1": f1, "decided": np.nan, "present": int(right.sum())}


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--shares", nargs="+", type=float, default=[0.01, 0.03, 0.1])
    parser.add_argument("--strategies", nargs="+", default=list(STRATEGIES))
    parser.add_argument("--members", nargs="+", help="members of the ensemble (default: auto)")
    parser.add_argument("--quick", action="store_true", help="refit linear layers only")
    options = parser.parse_args(argv)
    if options.quick:
        options.members = ["linear"]
    options.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    log = options.out / "label_budget.jsonl"
    done = [json.loads(line) for line in log.open()] if log.exists() else []
    finished = {tuple(one[:4]) for one in done}

    def keep(*values: Any) -> None:
        done.append([*values])
        with log.open("a") as file:
            file.write(json.dumps(done[-1]) + "\n")

    for spec in options.data:
        for seed in options.seeds:
            data = load(spec, seed)
            labels = single_positive(data["Y_train"], seed)
            shares = [round(share * (labels == UNKNOWN).sum()) for share in options.shares]
            jobs = [(one, budget) for budget in shares for one in options.strategies]
            if all((spec, seed, *job) in finished for job in jobs):
                continue
            none = np.empty((0, 2), dtype=int)
            first, scores = fit(data, labels, none, seed, options.members)
            if options.quick:
                first = fit_quickly(data, labels, none)
            if (spec, seed, "none", 0) not in finished:
                keep(spec, seed, "none", 0, first, {})
            known = calibrate(labels, scores, seed=seed)
            rate = measure_rate(data["X_train"], labels, seed=seed)
            forecast = Forecast(labels, scores, known.present, rate, seed=seed)
            total = known.missing_total
            p = np.zeros(labels.shape)
            p[labels == UNKNOWN] = raise_to(known.present[labels == UNKNOWN], total.value)
            for strategy, budget in jobs:
                if (spec, seed, strategy, budget) in finished:
                    continue
                cells = choose(strategy, labels, scores, known.present, seed)[:budget]
                expected = p[tuple(cells.T)]
                per_class = np.bincount(cells[:, 1], expected, minlength=labels.shape[1])
                ends = (expected.sum() * end / total.value for end in (total.low, total.high))
                count = Estimate(float(expected.sum()), *ends)
                gains = {
                    name: vars(forecast.gain(name, per_class, count)) for name in ("mAP", "OF1")
                }
                if options.quick:
                    found = fit_quickly(data, labels, cells)
                else:
                    found, _ = fit(data, labels, cells, seed, options.members)
                keep(spec, seed, strategy, budget, found, {**gains, "present": vars(count)})
    show(done)


def show(done: list[list[Any]]) -> None:
    """Print means over seeds, and how often the forecast of the plan holds."""
    table: dict[Any, list[Any]] = defaultdict(list)
    first = {(one[0], one[1]): one[4] for one in done if one[2] == "none"}
    for spec, seed, strategy, budget, found, forecast in done:
        gains = {
            name: (forecast[name], found[name] - first[spec, seed][name])
            for name in ("mAP", "OF1")
            if forecast
        }
        table[spec, budget, strategy].append((found, gains))
    for (spec, budget, strategy), runs in sorted(table.items()):
        names = ("mAP", "OF1", "decided", "present")
        parts = [
            f"{name} {np.mean([one[name] for one, _ in runs]):.2f} ± "
            f"{np.std([one[name] for one, _ in runs]):.2f}"
            for name in names
        ]
        for name in ("mAP", "OF1"):
            pairs = [gains[name] for _, gains in runs if gains]
            if pairs:
                inside = sum(one["low"] <= true <= one["high"] for one, true in pairs)
                parts.append(
                    f"{name} forecast {np.mean([one['value'] for one, _ in pairs]):+.2f}, outcome "
                    f"{np.mean([true for _, true in pairs]):+.2f}, inside {inside}/{len(pairs)}"
                )
        print(f"{spec} {budget:,} {strategy}: {'; '.join(parts)}")


if __name__ == "__main__":
    quick = "DATA/tabular/yeast.npz --out OUT --seeds 0 --quick"
    start(main, f"{quick} --shares 0.1 --strategies random plan")
