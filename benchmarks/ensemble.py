"""auto on features beside what a user would pick instead: ranking, decisions, calibration.

    python benchmarks/ensemble.py DIR --sets yeast,birds --settings one,40 --seeds 0,1,2 --jobs 2

DIR holds one NAME.npz per data set with X_train, Y_train, X_test, Y_test (complete 0/1 labels).
Labels of the training rows are hidden: "one" shows one present label per row, "40" shows each
present label with probability 0.4. Printed per data set, setting and seed: test mAP of auto, of
scikit-learn models with unknown = absent, and of the same ensemble with complete labels; CF1, OF1
and predicted labels per row with thresholds fitted to incomplete labels as if they were complete
("naive"), with ours, and with thresholds fitted to complete labels of the training rows; the sum of
the probabilities per row with its interval; the expected calibration error (15 bins).
"""

import argparse
import json
import os
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from halftruth.metrics import evaluate, mean_average_precision, thresholds
from halftruth.presence.decisions import decide
from halftruth.presence.probabilities import fit_probabilities
from halftruth.train.fit_ensemble import fit_ensemble


def hide(truth: np.ndarray, setting: str, seed: int) -> np.ndarray:
    """Return incomplete labels: +1 shown, 0 unknown."""
    random = np.random.default_rng(1000 + seed)
    if setting == "complete":
        return np.where(truth > 0, 1, -1).astype(np.int8)
    if setting == "40":
        return ((truth > 0) & (random.random(truth.shape) < 0.4)).astype(np.int8)
    shown = np.zeros(truth.shape, np.int8)
    order = np.where(truth > 0, random.random(truth.shape), -1.0)
    rows = np.flatnonzero((truth > 0).any(axis=1))
    shown[rows, order.argmax(axis=1)[rows]] = 1
    return shown


def calibration_error(p: np.ndarray, truth: np.ndarray) -> float:
    """Expected calibration error over 15 bins of equal width."""
    p, y = p.ravel(), (truth > 0).ravel()
    bins = np.clip((p * 15).astype(int), 0, 14)
    return float(sum(abs((p - y)[bins == b].sum()) for b in range(15)) / len(p))


def fit_baselines(x: np.ndarray, shown: np.ndarray, test: np.ndarray, seed: int) -> dict:
    """Scores of test rows by scikit-learn models that count unknown as absent."""
    from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.preprocessing import StandardScaler

    y = (shown > 0).astype(int)
    found, many = {}, y.shape[1] > 60
    for name, kind in (
        ("random forest", RandomForestClassifier),
        ("extra trees", ExtraTreesClassifier),
    ):
        model = kind(100 if many else 300, random_state=seed).fit(x, y)
        parts = model.predict_proba(test)
        found[name] = np.stack([p[:, 1] if p.shape[1] > 1 else 0 * p[:, 0] for p in parts], axis=1)
    scale = StandardScaler().fit(x)
    a, b = scale.transform(x), scale.transform(test)
    parts = KNeighborsClassifier(20).fit(a, y).predict_proba(b)
    found["kNN"] = np.stack([p[:, 1] if p.shape[1] > 1 else 0 * p[:, 0] for p in parts], axis=1)
    if not many:
        held = np.random.default_rng(seed).random(len(a)) < 0.25

        def logistic(cost: float, rows: np.ndarray, at: np.ndarray) -> np.ndarray:
            out = np.full((len(at), y.shape[1]), -20.0)
            for k in range(y.shape[1]):
                if 0 < y[rows, k].sum() < rows.sum():
                    model = LogisticRegression(C=cost, max_iter=300).fit(a[rows], y[rows, k])
                    out[:, k] = model.decision_function(at)
            return out

        costs = (0.001, 0.01, 0.1, 1.0)
        scores = [mean_average_precision(logistic(c, ~held, a[held]), y[held]) for c in costs]
        best = costs[int(np.nanargmax(scores))]
        found["logistic regression"] = logistic(best, np.ones(len(a), bool), b)
    return found


def predict(model: torch.nn.Module, x: np.ndarray) -> np.ndarray:
    """Return the logits of rows."""
    with torch.no_grad():
        parts = torch.from_numpy(x).float().split(512)
        return torch.cat([model(part) for part in parts]).double().numpy()


def run(folder: str, name: str, setting: str, seed: int, quick: bool) -> dict:
    """Measure one data set, setting and seed."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with np.load(Path(folder) / f"{name}.npz") as file:
        x, y, test, truth = (file[k] for k in ("X_train", "Y_train", "X_test", "Y_test"))
    x, test = x.astype(np.float32), test.astype(np.float32)
    shown, started = hide(y, setting, seed), time.perf_counter()
    fitted = fit_ensemble(x, shown, seed=seed)
    seconds = time.perf_counter() - started
    logits = predict(fitted.model, test)
    line: dict = {"set": name, "setting": setting, "seed": seed, "seconds": seconds}
    line["members"] = {one.name: round(one.weight, 2) for one in fitted.table}
    line["mAP"] = {"auto": mean_average_precision(logits, truth)}
    curves = fit_probabilities(shown[fitted.rows], fitted.logits)
    p = curves(logits)
    ours = decide(curves(fitted.logits), (shown > 0).sum(axis=0))
    held = fitted.rows
    for rule, chosen in (
        ("naive", logits > thresholds.best(fitted.logits, shown[held])),
        ("ours", ours(p)),
        ("complete", logits > thresholds.best(fitted.logits, np.where(y[held] > 0, 1, -1))),
    ):
        metrics = evaluate(chosen.astype(float), truth, 0.5)
        line[rule] = [metrics["CF1"], metrics["OF1"], float(chosen.sum(axis=1).mean())]
    count = curves.labels_per_row
    line["labels"] = [float((truth > 0).sum(axis=1).mean()), float(p.sum(axis=1).mean())]
    line["interval"] = [count.low, count.high]
    line["ece"] = calibration_error(p, truth)
    if not quick:
        for other, scores in fit_baselines(x, shown, test, seed).items():
            line["mAP"][other] = mean_average_precision(scores, truth)
        whole = fit_ensemble(x, hide(y, "complete", 0), seed=seed)
        line["mAP"]["complete labels"] = mean_average_precision(predict(whole.model, test), truth)
    print(json.dumps(line), flush=True)
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--sets", required=True)
    parser.add_argument("--settings", default="one,40")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="auto alone, no other models")
    given = parser.parse_args()
    tasks = [
        (given.folder, name, setting, int(seed), given.quick)
        for seed in given.seeds.split(",")
        for name in given.sets.split(",")
        for setting in given.settings.split(",")
    ]
    if given.jobs == 1:
        for task in tasks:
            run(*task)
        return
    with ProcessPoolExecutor(given.jobs) as pool:
        for future in [pool.submit(run, *task) for task in tasks]:
            future.result()


if __name__ == "__main__":
    main()
