"""Rankings, counts and wrong labels of an audit, before and after the verdicts of a review.

    python benchmarks/verdicts.py voc.npz:1200 voc.npz coco.npz:4000 --out scores/ --cleanlab PY

Each file holds features `X` and complete 0/1 labels `Y`; `:1200` takes that many rows, drawn anew
per seed. One positive per row is shown; scores come from 5 folds of `wan`. A perfect reviewer
decides on the most likely candidates, 20 at a time, each time in the current order. For wrong
labels, 0, 2 and 10 % of the shown labels move to a class that is absent. Scores are kept in --out.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import flag_by_cleanlab, show_mean, start
from halftruth.audit import calibrate
from halftruth.audit.cross_scores import cross_scores
from halftruth.labels import PRESENT, UNKNOWN, LabelMatrix
from halftruth.labels.hiding import single_positive
from halftruth.presence.remaining import VerdictModel

FIRST, REVIEWED, STEP = (50, 100, 200, 400), (0, 100, 400), 20
FLIPPED, WRONG_FIRST = (0.0, 0.02, 0.1), (50, 150, 400)
LEAST = 0.01
FIT: dict[str, Any] = {"method": "wan"}


def load(spec: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Features and complete labels of the rows that have a label."""
    path, _, rows = spec.partition(":")
    with np.load(path) as file:
        x, y = file["X"].astype(np.float32), file["Y"].astype(np.int8)
    some = np.flatnonzero(y.any(axis=1))
    if rows:
        some = some[np.random.default_rng(seed).choice(len(some), int(rows), replace=False)]
    return x[some], y[some]


def flip(labels: np.ndarray, truth: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Move a share of the shown labels to an absent class of their row."""
    random, labels = np.random.default_rng([seed, 9]), labels.copy()
    shown = np.argwhere(labels == PRESENT)
    for row, column in shown[random.random(len(shown)) < share] if share else ():
        absent = np.flatnonzero(truth[row] == 0)
        if len(absent):
            labels[row, column], labels[row, random.choice(absent)] = UNKNOWN, PRESENT
    return labels


def score(
    spec: str, x: np.ndarray, labels: np.ndarray, seed: int, share: float, out: Path
) -> np.ndarray:
    name = Path(spec.partition(":")[0]).stem + spec.partition(":")[2]
    path = out / f"{name}-{seed}-{share:g}.npy"
    if not path.exists():
        matrix = LabelMatrix(labels, [f"c{k}" for k in range(labels.shape[1])])
        with tempfile.TemporaryDirectory() as folder:
            found, _ = cross_scores(matrix, Path(folder), features=x, seed=seed, **FIT)
        np.save(path, found)
    return np.load(path).astype(np.float64)


def average_precision(order: np.ndarray, right: np.ndarray) -> float:
    hits = right[order]
    return float((np.cumsum(hits)[hits] / (np.flatnonzero(hits) + 1)).sum() / max(hits.sum(), 1))


def describe(order: np.ndarray, right: np.ndarray) -> list[float]:
    """Precision of the first candidates, and average precision, in percent."""
    firsts = [100 * right[order[:count]].mean() for count in FIRST]
    return [*firsts, 100 * average_precision(order, right)]


def review(spec: str, seed: int, out: Path, cleanlab: str | None) -> dict[str, Any]:
    """One audit and its review."""
    x, truth = load(spec, seed)
    labels = single_positive(truth, seed)
    scores = score(spec, x, labels, seed, 0.0, out)
    known = calibrate(labels, scores, seed=seed)
    row, column = np.nonzero(labels == UNKNOWN)
    right = truth[row, column] == 1
    p, given = known.present[row, column], scores[row, column]
    found: dict[str, Any] = {
        "rankings": {"halftruth": describe(np.argsort(-p, kind="stable"), right)}
    }
    found["rankings"]["score"] = describe(np.argsort(-given, kind="stable"), right)
    if cleanlab:
        flags = flag_by_cleanlab(cleanlab, labels, scores)[row, column]
        found["rankings"]["cleanlab"] = describe(np.lexsort((-given, ~flags)), right)
    listed = np.flatnonzero(p >= LEAST)
    p, column, right, given = p[listed], column[listed], right[listed], given[listed]
    model = VerdictModel(p, column, known.missing, known.missing_total)
    hidden = int(((truth == 1) & (labels == UNKNOWN)).sum())
    per_class = ((truth == 1) & (labels == UNKNOWN)).sum(axis=0)
    verdicts = np.zeros(len(p), dtype=np.int8)
    for count in REVIEWED:
        while np.count_nonzero(verdicts) < min(count, len(p) - STEP):
            now = model.update(verdicts).probability
            some = np.argsort(-np.where(verdicts == 0, now, -1), kind="stable")[:STEP]
            verdicts[some] = np.where(right[some], 1, -1)
        left, after = verdicts == 0, model.update(verdicts)
        now, rest = after.probability[left], right[left]
        order = np.argsort(-now, kind="stable")
        true_per_class = per_class - np.bincount(column[verdicts > 0], minlength=truth.shape[1])
        inside = [
            one.low <= true <= one.high
            for one, true in zip(after.per_class, true_per_class, strict=True)
        ]
        found[str(count)] = {
            "updated": describe(order, rest),
            "fixed order": describe(np.argsort(-p[left], kind="stable"), rest),
            "by score": describe(np.argsort(-given[left], kind="stable"), rest),
            "expected": [100 * now[order[:n]].mean() for n in FIRST],
            "left": [*vars(after.total).values(), hidden - int((verdicts > 0).sum())],
            "classes covered": float(np.mean(inside)),
        }
    return found


def find_wrong(spec: str, seed: int, share: float, out: Path) -> list[list[float]]:
    """Expected and true precision of the labels that are most probably wrong."""
    x, truth = load(spec, seed)
    labels = flip(single_positive(truth, seed), truth, share, seed)
    scores = score(spec, x, labels, seed, share, out)
    shown = labels == PRESENT
    p = calibrate(labels, scores, seed=seed).wrong_probability[shown]
    mistaken, order = truth[shown] == 0, np.argsort(-p, kind="stable")
    return [[100 * p[order[:n]].mean(), 100 * mistaken[order[:n]].mean()] for n in WRONG_FIRST]


def show(values: list[Any]) -> str:
    return " | ".join(show_mean(column) for column in zip(*values, strict=True))


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--wrong-seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--cleanlab", help="Python executable with cleanlab installed.")
    parser.add_argument("--epochs", type=int, help="of every fit (default: that of halftruth)")
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.epochs:
        FIT["epochs"] = options.epochs
    torch.set_num_threads(1)
    for spec in options.data:
        print(f"\n{spec}: precision at {FIRST}, AP", flush=True)
        runs = [review(spec, seed, options.out, options.cleanlab) for seed in options.seeds]
        for name in runs[0]["rankings"]:
            print(f"| {name} | {show([run['rankings'][name] for run in runs])} |")
        for count in map(str, REVIEWED):
            for name in ("updated", "fixed order", "by score", "expected"):
                print(f"| after {count}: {name} | {show([run[count][name] for run in runs])} |")
            for run in runs:
                estimate, low, high, true = run[count]["left"]
                print(
                    f"  left {estimate:,.0f} ({low:,.0f} to {high:,.0f}), true {true:,}; classes "
                    f"whose interval holds: {100 * run[count]['classes covered']:.0f} %"
                )
        for share in FLIPPED:
            for seed in options.wrong_seeds:
                pairs = find_wrong(spec, seed, share, options.out)
                words = ", ".join(f"{a:.0f} expected / {b:.0f} true" for a, b in pairs)
                print(f"  {share:.0%} wrong, seed {seed}, first {WRONG_FIRST}: {words}", flush=True)


if __name__ == "__main__":
    start(main, "DATA/pool.npz:60 --out OUT --seeds 0 --epochs 1")
