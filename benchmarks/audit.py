"""What an audit promises beside the truth: rankings, counts and wrong labels, before and after
the decisions of a review.

    python benchmarks/audit.py DATA --sets voc:1200,coco:4000 --out audit.jsonl --cleanlab PYTHON
    python benchmarks/audit.py DATA --sets scene,wine --rows wrong-10 --method linear --out w.jsonl
    python benchmarks/audit.py DATA --rows made --sets bag,linear --settings 80,40-listed,one
    python benchmarks/audit.py DATA --rows made --sets start:200,start:400 --settings 50

The labels of the training rows are hidden; scores come from 5 folds of `--method`
(a method, or `linear`: ridge 2, in a second). Rows:

- `missing`: precision of the most likely missing labels beside the order of the scores and, with
  `--cleanlab` (a Python that has it), its multi-label filter on the same scores; then again after
  100 and 400 decisions of a perfect reviewer on the most likely candidates, 20 at a time, each time
  in the current order; the estimated number of missing labels with its interval;
- `wrong-P`: P % of the shown labels move to a class that is absent. Expected and true precision of
  the 50, 150 and 400 labels that are most probably wrong, with the range that `audit` and the
  review page show, and of the next 50 after 20 and 50 decisions. `told`: the same model, given the
  true share of wrong labels;
- `made`: audits that are made up (made_sets.py), with the probabilities of a model of scikit-learn,
  or of the data of docs/get-started.md with the scores of `auto` (start:ROWS). Precision of the
  first 20 and 100 candidates, in the plain order of the scores, and as expected; and what `repair`
  accepts.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from common import (
    add_task_options,
    group_by,
    hide,
    load_rows,
    predict,
    print_header,
    print_row,
    run_grid,
    show_mean,
    start,
)
from halftruth.audit import calibrate
from halftruth.audit.audit_state import expect_right, find_safe_precision
from halftruth.audit.candidates import count_at_precision
from halftruth.audit.cross_scores import align_folds, cross_scores
from halftruth.data.splits import fold_of_rows
from halftruth.labels import PRESENT, UNKNOWN, LabelMatrix
from halftruth.presence import calibration
from halftruth.presence.ranking import NoRankingError
from halftruth.presence.review_update import ReviewPosterior
from halftruth.presence.solvers import sigmoid
from halftruth.presence.uncertainty import WRONG_SPREADS, Estimate
from halftruth.train.ensemble.fit_ensemble import fit_ensemble
from halftruth.train.ensemble.members import fit_linear_path
from halftruth.train.inputs.batches import fit_standardization
from made_sets import make_audit

FIRST, REVIEWED, STEP, LEAST = (50, 100, 200, 400), (100, 400), 20, 0.01
# Wrong labels: lists longer than this share of the labels are not judged; labels on which a
# reviewer decides are the first ones, and all with the probability LEAST of being wrong.
WRONG_FIRST, LONGEST, LISTED, DECIDED, NEXT, NEAR = (50, 150, 400), 0.6, 20, (20, 50), 50, 15
MADE_FIRST, WANTED = (20, 100), (0.5, 0.6, 0.7, 0.8, 0.9)
# Expected and true precision in percent, and the range of the expected one.
Found = tuple[float, float, float, float]

_CLEANLAB = """
import json, sys
import numpy as np
from cleanlab.multilabel_classification.filter import find_multilabel_issues_per_class as find
labels, scores = json.load(open(sys.argv[1])), np.load(sys.argv[2])
masks = find(labels, scores)
masks = masks[0] if isinstance(masks, tuple) else masks
np.save(sys.argv[3], np.asarray(masks).reshape(len(labels), -1))
"""


def flag_by_cleanlab(python: str, labels: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Return (N, K) what the multi-label filter of cleanlab flags, in a Python that has it."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [f"{folder}/{name}" for name in ("labels.json", "scores.npy", "flags.npy")]
        lists = [np.flatnonzero(row > 0).tolist() for row in labels]
        Path(paths[0]).write_text(json.dumps(lists))
        np.save(paths[1], scores)
        subprocess.run([python, "-c", _CLEANLAB, *paths], check=True)
        return np.load(paths[2]).astype(bool)


def move_labels(labels: np.ndarray, truth: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Move a share of the shown labels to an absent class of their row."""
    random, labels = np.random.default_rng([seed, 9]), labels.copy()
    shown = np.argwhere(labels == PRESENT)
    for row, column in shown[random.random(len(shown)) < share] if share else ():
        absent = np.flatnonzero(truth[row] == 0)
        if len(absent):
            labels[row, column], labels[row, random.choice(absent)] = UNKNOWN, PRESENT
    return labels


def score(given: Any, x: np.ndarray, labels: np.ndarray, seed: int) -> np.ndarray:
    """Return out-of-sample probabilities of 5 folds."""
    if given.method != "linear":
        matrix = LabelMatrix(labels, [f"c{k}" for k in range(labels.shape[1])])
        settings = {"method": given.method, **({"epochs": given.epochs} if given.epochs else {})}
        with tempfile.TemporaryDirectory() as folder:
            found, _ = cross_scores(matrix, Path(folder), features=x, seed=seed, **settings)
        return found.astype(np.float64)
    rows = fit_standardization(x)(torch.as_tensor(x)).float()
    fold, logits = fold_of_rows(len(labels), 5, seed), np.zeros(labels.shape)
    for one in range(5):
        inside = torch.from_numpy(fold != one)
        layer = fit_linear_path(rows[inside], torch.from_numpy(labels)[inside], (2.0,))[2.0]
        logits[fold == one] = predict(layer, rows[~inside].numpy())
    return align_folds(1 / (1 + np.exp(-logits)), fold)


def run(given: Any, name: str, setting: str, seed: int, row: str) -> dict:
    """Audit one draw of labels."""
    if row == "made":
        return audit_made(name, setting, seed)
    data = load_rows(given.folder, name, seed, most_test=0)
    some = data.y.any(axis=1)
    x, truth = data.x[some], data.y[some].astype(np.int8)
    labels = hide(truth, setting, seed)
    if row != "missing":
        labels = move_labels(labels, truth, int(row.removeprefix("wrong-")) / 100, seed)
    scores = score(given, x, labels, seed)
    if row != "missing":
        return find_wrong(labels, truth, scores)
    return find_missing(labels, truth, scores, seed, given.cleanlab)


# ---------------------------------------------------------------------- missing labels


def describe(order: np.ndarray, right: np.ndarray) -> list[float]:
    """Precision of the first candidates, and average precision, in percent."""
    hits = right[order]
    precision = np.cumsum(hits)[hits] / (np.flatnonzero(hits) + 1)
    firsts = [100 * right[order[:count]].mean() for count in FIRST]
    return [*firsts, 100 * float(precision.sum() / max(hits.sum(), 1))]


def decide_on_most_likely(
    model: ReviewPosterior, right: np.ndarray, verdicts: np.ndarray, count: int, step: int
) -> None:
    """Let a perfect reviewer decide until there are `count` verdicts, in the current order."""
    while np.count_nonzero(verdicts) < min(count, len(right) - step):
        now = np.where(verdicts == 0, model.update(verdicts).probability, -1)
        some = np.argsort(-now, kind="stable")[:step]
        verdicts[some] = np.where(right[some], 1, -1)


def find_missing(
    labels: np.ndarray, truth: np.ndarray, scores: np.ndarray, seed: int, cleanlab: str | None
) -> dict:
    """Rank and count the missing labels, before and after decisions."""
    known = calibrate(labels, scores, seed=seed)
    row, column = np.nonzero(labels == UNKNOWN)
    right = truth[row, column] == 1
    p, given = known.present[row, column], scores[row, column]
    orders = {
        "halftruth": np.argsort(-p, kind="stable"),
        "score": np.argsort(-given, kind="stable"),
    }
    if cleanlab:
        flags = flag_by_cleanlab(cleanlab, labels, scores)[row, column]
        orders["cleanlab"] = np.lexsort((-given, ~flags))
    rankings = {f"before: {name}": describe(order, right) for name, order in orders.items()}
    total = known.missing_total
    left = [[total.value, total.low, total.high, int(right.sum())]]
    hidden, per_class = int(right.sum()), np.bincount(column[right], minlength=labels.shape[1])
    listed = np.flatnonzero(p >= LEAST)
    p, column, right, given = p[listed], column[listed], right[listed], given[listed]
    model = ReviewPosterior(p, column, known.missing, known.missing_total)
    verdicts, classes = np.zeros(len(p), dtype=np.int8), []
    for count in REVIEWED:
        decide_on_most_likely(model, right, verdicts, count, STEP)
        open_, after = verdicts == 0, model.update(verdicts)
        now, rest = after.probability[open_], right[open_]
        order = np.argsort(-now, kind="stable")
        rankings |= {
            f"after {count}: updated": describe(order, rest),
            f"after {count}: fixed order": describe(np.argsort(-p[open_], kind="stable"), rest),
            f"after {count}: by score": describe(np.argsort(-given[open_], kind="stable"), rest),
            f"after {count}: expected": [100 * float(now[order[:n]].mean()) for n in FIRST],
        }
        true = per_class - np.bincount(column[verdicts > 0], minlength=len(per_class))
        pairs = zip(after.per_class, true, strict=True)
        classes.append(float(np.mean([one.low <= n <= one.high for one, n in pairs])))
        total = after.total
        left.append([total.value, total.low, total.high, hidden - int((verdicts > 0).sum())])
    return {"rankings": rankings, "left": left, "classes": classes}


# ---------------------------------------------------------------------- made-up audits


def make_start(rows: int, share: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The data of docs/get-started.md: complete and shown labels, scores of `auto`."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(rows, 12))
    truth = x @ random.normal(size=(12, 4)) + 0.3 * random.normal(size=(rows, 4)) > 2
    shown = (truth & (random.random(truth.shape) < share / 100)).astype(np.int8)
    fitted = fit_ensemble(x.astype(np.float32), shown, seed=seed)
    return truth[fitted.rows], shown[fitted.rows], sigmoid(fitted.logits.astype(float))


def audit_made(name: str, setting: str, seed: int) -> dict:
    """Audit made-up labels; the precisions are of ours, of the plain order, and as expected."""
    kind, _, rows = name.partition(":")
    made = make_start(int(rows), int(setting), seed) if rows else make_audit(kind, setting, seed)
    truth, labels, scores = made
    try:
        known = calibrate(labels, scores, seed=seed)
    except NoRankingError:
        return {"refused": True}
    unknown = labels == UNKNOWN
    right, p, given = truth[unknown], known.present[unknown], scores[unknown]
    order, plain, total = np.lexsort((-given, -p)), np.argsort(-given), known.missing_total
    line: dict = {"missing": [total.value, total.low, total.high, int(right.sum())]}
    for n in MADE_FIRST:
        line[f"first {n}"] = [
            float(one[:n].mean()) for one in (right[order], right[plain], p[order])
        ]
    safe = find_safe_precision(p[order], total)
    for wanted in WANTED:
        taken = count_at_precision(safe, wanted)
        line[f"repair {wanted}"] = [taken, int(right[order[:taken]].sum())]
    return line | {"highest": float(safe.max())}


def print_made(lines: list[dict]) -> None:
    """How often the order is as good as the plain one, and the promises hold."""
    what = "at least the plain order - 0.02, mean difference, expected within 0.15, mean"
    print_header("audits", *(f"first {n}: {what}" for n in MADE_FIRST), "number inside",
                 *(f"repair {p}: nothing, kept" for p in WANTED))  # fmt: skip
    lines = [line for line in lines if "missing" in line]
    cases = {**group_by(lines, "set"), **group_by(lines, "setting"), ("all",): lines}
    for case, some in cases.items():
        cells = []
        for n in MADE_FIRST:
            ours, plain, expected = np.array([one[f"first {n}"] for one in some]).T
            ahead, near = ours - plain, expected - ours
            shares = [100 * one.mean() for one in (ahead >= -0.0201, abs(near) <= 0.15)]
            cells.append(f"{shares[0]:.0f} %, {ahead.mean():+.3f}, {shares[1]:.0f} %, ")
            cells[-1] += f"{near.mean():+.2f}"
        counts = [one["missing"] for one in some]
        cells.append(f"{100 * np.mean([a <= n <= b for _, a, b, n in counts]):.0f} %")
        for p in WANTED:
            taken, right = np.array([one[f"repair {p}"] for one in some]).T
            kept = (right >= (p - 0.03) * taken).mean()
            cells.append(f"{100 * (taken == 0).mean():.0f} %, {100 * kept:.0f} %")
        print_row(f"{case[0]} ({len(some)})", *cells)


# ---------------------------------------------------------------------- wrong labels


def compare(found: list[np.ndarray], mistaken: np.ndarray, counts: Any) -> list[Found]:
    """Expected and true precision of the first labels, and the range of the expected one."""
    order, result = np.argsort(-found[0], kind="stable"), []
    for some in (order[:n] for n in counts if n <= len(order)):
        expected, count = expect_right(*(one[some] for one in found)), len(some)
        ends = np.floor(expected.low), np.ceil(expected.high)
        result.append((100 * expected.value / count, 100 * float(mistaken[some].mean()),
                       *(100 * float(e) / count for e in ends)))  # fmt: skip
    return result


def review_wrong(
    found: list[np.ndarray], columns: np.ndarray, mistaken: np.ndarray, total: Estimate
) -> dict[str, list[Found]]:
    """Expected and true precision of the next labels after decisions on the first ones."""
    listed = np.argsort(-found[0], kind="stable")
    listed = listed[(np.arange(len(listed)) < LISTED) | (found[0][listed] >= LEAST)]
    p, least, most = (one[listed] for one in found)
    p, columns, mistaken = np.clip(p, 1e-4, 0.9999), columns[listed], mistaken[listed]
    sums = np.bincount(columns, p)
    per_class = [Estimate(float(x), 0.0, float(x) * total.high / total.value) for x in sums]
    model = ReviewPosterior(p, columns, per_class, total, ends=(least, most), spreads=WRONG_SPREADS)
    verdicts, after = np.zeros(len(p), dtype=np.int8), {}
    for count in DECIDED:
        decide_on_most_likely(model, mistaken, verdicts, count, 10)
        left, updated = verdicts == 0, model.update(verdicts)
        now = [one[left] for one in (updated.probability, updated.least, updated.most)]
        after[f"after {count}"] = compare(now, mistaken[left], [NEXT])
    return after


def find_wrong(labels: np.ndarray, truth: np.ndarray, scores: np.ndarray) -> dict:
    """Rank and count the wrong labels, before and after decisions."""
    at = labels == PRESENT
    mistaken = truth[at] == 0
    find = calibration.find_wrong
    with patch.object(calibration, "find_wrong", side_effect=find) as asked:
        known = calibrate(labels, scores)
    share = np.array([max(float(mistaken.mean()), 1e-6)])
    with patch.multiple(calibration, _SHARES=share, _HARD=0.0, _HARD_LEAST=0.0):
        told = find(*asked.call_args.args).probability[at]
    total, counts = known.wrong_total, [n for n in WRONG_FIRST if n <= LONGEST * len(mistaken)]
    found = [one[at] for one in (known.wrong_probability, known.wrong_least, known.wrong_most)]
    ways = {
        "found": compare(found, mistaken, counts),
        "told": compare([told] * 3, mistaken, counts),
    }
    ways |= review_wrong(found, np.nonzero(at)[1], mistaken, total)
    return {"wrong": [int(mistaken.sum()), total.low, total.high], "ways": ways}


# ---------------------------------------------------------------------- tables


def print_tables(lines: list[dict]) -> None:
    """Print means over seeds of the rankings, and how often the promises of wrong labels hold."""
    if made := [line for line in lines if line["row"] == "made"]:
        return print_made(made)
    print_header("data", "order", *(f"first {n}" for n in FIRST), "AP")
    missing = [line for line in lines if line["row"] == "missing"]
    for case, some in group_by(missing, "set", "setting").items():
        for name in some[0]["rankings"]:
            columns = zip(*(one["rankings"][name] for one in some), strict=True)
            print_row(", ".join(case), name, *map(show_mean, columns))
    print()
    print_header("data", "seed", "after decisions", "missing: estimated", "true", "classes inside")
    for line in missing:
        shares = [""] + [f"{share:.0%}" for share in line["classes"]]
        for count, left, share in zip((0, *REVIEWED), line["left"], shares, strict=True):
            value, low, high, true = (f"{number:,.0f}" for number in left)
            estimate = f"{value} ({low} to {high})"
            print_row(line["set"], line["seed"], count, estimate, true, share)
    print()
    print_header("wrong labels", "way", "inside the range", "median width", f"within {NEAR} points")
    wrong = group_by((line for line in lines if "ways" in line), "row")
    for (row,), some in sorted(wrong.items()):
        for way in some[0]["ways"]:
            all_ = [one for line in some for one in line["ways"][way]]
            inside = sum(low <= b <= high for _, b, low, high in all_)
            near = sum(abs(a - b) <= NEAR for a, b, _, _ in all_)
            width = np.median([high - low for *_, low, high in all_] or [np.nan])
            print_row(row, way, f"{inside} of {len(all_)}", f"{width:.0f}", f"{near}")
        holds = sum(low <= n <= high for n, low, high in (line["wrong"] for line in some))
        print_row(row, "number of wrong labels", f"{holds} of {len(some)}", "", "")


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    rows = ("missing", "wrong-0", "wrong-2", "wrong-10")
    add_task_options(parser, sets="voc:1200,voc,coco:4000", settings="one", rows=rows)
    parser.add_argument("--method", default="wan", help="of the folds (wan), or linear")
    parser.add_argument("--epochs", type=int, help="of every fit (default: that of halftruth)")
    parser.add_argument("--cleanlab", help="Python executable with cleanlab installed")
    print_tables(run_grid(run, parser.parse_args(argv), "left"))


if __name__ == "__main__":
    sets = "DATA/tabular --sets yeast,digits:100 --seeds 0"
    made = "DATA --rows made --seeds 0 --sets"
    start(main, f"{sets} --rows missing --epochs 20", f"{sets} --rows wrong-10 --method linear",
          f"{made} bag --settings 80-listed", f"{made} start:200 --settings 50")  # fmt: skip
