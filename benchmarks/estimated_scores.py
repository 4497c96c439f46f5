"""Scores estimated from incomplete labels: bias, width and coverage of their 90 % intervals.

    python benchmarks/estimated_scores.py --data DATA [--sets yeast scene ...] [--seeds 0 1]

DATA holds tabular/ and coco2014/features.npz (docs/datasets.md). Per data set, setting (one
positive per row; 40 % left) and seed, a model is trained on incomplete labels, the labels of the
test rows are hidden in the same way, and mAP, CF1 and OF1 are estimated from what is left of them.
As many rows per class are predicted as are estimated to be positive. The complete labels of the
test rows give the true values. Then 200 cells are verified, several times, also with a model that
is wrong on purpose (logit P(present) too low by 1). Prints Markdown.
"""

import argparse
import sys
import time
import warnings
from pathlib import Path

import numpy as np

from halftruth import HalftruthClassifier
from halftruth.labels import hiding
from halftruth.metrics import evaluate
from halftruth.presence.estimated_scores import estimate_scores, infer_range, score_as_if_complete
from halftruth.presence.labelling_model import logit, sigmoid
from halftruth.presence.posterior import PresenceRange
from halftruth.presence.verification import METRICS, plan_verification, score_verdicts

SETS = ("yeast", "scene", "emotions", "birds", "medical", "corel5k", "bibtex", "coco")
SETTINGS = {
    "one": hiding.single_positive,
    "left-40": lambda truth, seed: hiding.drop_positives(truth, 0.6, seed),
}


def load(root: Path, name: str) -> tuple[np.ndarray, ...]:
    """Features and complete labels (0/1) of the training and of the test rows."""
    if name != "coco":
        file = np.load(root / "tabular" / f"{name}.npz")
        x, y, x_test, y_test = (file[k] for k in ("X_train", "Y_train", "X_test", "Y_test"))
        return x.astype("float32"), (y > 0) * 1, x_test.astype("float32"), (y_test > 0) * 1
    file = np.load(root / "coco2014" / "features.npz")
    labels = np.unpackbits(file["labels"], axis=1)[:, :80].astype(int)
    x = file["features"].astype("float32") * file["scale"]
    random = np.random.default_rng(5)
    train, test = (
        random.choice(np.flatnonzero(file["split"] == part), count, replace=False)
        for part, count in ((0, 6400), (1, 8000))
    )
    return x[train], labels[train], x[test], labels[test]


def predict_counts(scores: np.ndarray, present: np.ndarray) -> np.ndarray:
    """Predict as many rows per class as are estimated to be positive."""
    rank = np.argsort(np.argsort(-scores, axis=0, kind="stable"), axis=0)
    return rank < np.round(present.sum(axis=0))


def move(present: PresenceRange, shown: np.ndarray, by: float) -> PresenceRange:
    """The same range with logit P(present) of the unknown labels moved."""
    ends = (present.middle, present.low, present.high)
    return PresenceRange(
        *(np.where(shown == 1, 1.0, sigmoid(logit(end) + by)) for end in ends), present.selection
    )


def measure(root: Path, name: str, setting: str, seed: int, repeats: int) -> dict[str, list[float]]:
    """Per metric: truth, as if complete, estimate, low, high; then what 200 cells change."""
    x, y, x_test, y_test = load(root, name)
    hide = SETTINGS[setting]
    model = HalftruthClassifier("swan", random_state=seed).fit(x, (hide(y, seed) > 0) * 1)
    scores = sigmoid(np.clip(model.decision_function(x_test), -13, 13))
    shown = np.asarray(hide(y_test, 100 + seed), dtype=np.int8)
    present = infer_range(shown, scores)
    predicted = predict_counts(scores, present.middle)
    estimated = estimate_scores(scores, shown, predicted, present)
    before = estimate_scores(scores, shown, predicted, present, new_rows=False)
    complete = score_as_if_complete(scores, shown, predicted)
    truth = evaluate(predicted.astype(float), y_test)
    truth["mAP"] = evaluate(scores, y_test)["mAP"]
    found: dict[str, list[float]] = {}
    for metric in METRICS:
        one = getattr(estimated, metric)
        found[metric] = [
            truth[metric],
            getattr(complete, metric).value,
            one.value,
            one.low,
            one.high,
        ]
        found[metric].append(getattr(before, metric).width)
        for by in (0.0, -1.0):
            moved = move(present, shown, by) if by else present
            values = []
            for repeat in range(repeats):
                plan = plan_verification(
                    scores, shown, predicted, moved, metric=metric, seed=repeat
                )
                verdicts = np.where(y_test[plan.rows, plan.columns] > 0, 1, -1)
                after = score_verdicts(
                    plan, verdicts, scores, shown, predicted, moved, new_rows=False
                )[metric]
                both = (after.combined, after.unbiased)
                values.append(
                    [one.value - truth[metric] for one in both]
                    + [one.width for one in both]
                    + [float(one.low <= truth[metric] <= one.high) for one in both]
                )
            found[metric] += np.mean(values, axis=0).tolist()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--repeats", type=int, default=8, help="verifications per case")
    given = parser.parse_args()
    warnings.filterwarnings("ignore", message="Undefined")
    warnings.filterwarnings("ignore", message="No class")
    cases: dict[tuple[str, str], list[dict[str, list[float]]]] = {}
    for name in given.sets:
        for setting in given.settings:
            for seed in given.seeds:
                started = time.perf_counter()
                found = measure(given.data, name, setting, seed, given.repeats)
                cases.setdefault((name, setting), []).append(found)
                spent = time.perf_counter() - started
                print(f"{name} {setting} seed {seed}: {spent:.0f} s", file=sys.stderr, flush=True)
    print("| set | metric | true | unknown = absent | estimate | width | inside "
          "| these rows: width | 200 cells: width, bias, inside | unbiased: width, bias, inside "
          "| wrong model: bias, inside | unbiased: bias, inside |")  # fmt: skip
    print("|" + "---|" * 12)
    total: dict[str, list[np.ndarray]] = {metric: [] for metric in METRICS}
    for (name, setting), several in cases.items():
        for metric in METRICS:
            rows = np.array([one[metric] for one in several])
            total[metric].append(rows)
            print(f"| {name} {setting} | {metric} | {line(rows)} |")
    for metric, parts in total.items():
        print(f"| **all** | {metric} | {line(np.concatenate(parts))} |")


def line(rows: np.ndarray) -> str:
    """The mean over the cases, as cells of the table."""
    inside = np.mean((rows[:, 3] <= rows[:, 0]) & (rows[:, 0] <= rows[:, 4]))
    m = 100 * rows.mean(axis=0)
    width = m[4] - m[3]
    own, wrong = m[6:12], m[12:18]
    return (
        f"{m[0]:.1f} | {m[1]:.1f} | {m[2]:.1f} | {width:.1f} | {100 * inside:.0f} % | {m[5]:.1f} "
        f"| {own[2]:.1f}, {own[0]:+.1f}, {own[4]:.0f} % "
        f"| {own[3]:.1f}, {own[1]:+.1f}, {own[5]:.0f} % "
        f"| {wrong[0]:+.1f}, {wrong[4]:.0f} % | {wrong[1]:+.1f}, {wrong[5]:.0f} %"
    )


if __name__ == "__main__":
    main()
