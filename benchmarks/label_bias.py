"""Labels that are shown by a bias: how often it is found, and missing labels counted with it.

    python benchmarks/label_bias.py DATA --sets yeast,coco --rows labels-alone --out tests.jsonl
    python benchmarks/label_bias.py DATA --sets yeast --rows missing,missing-even --fits FITS

One label per training row is shown, by a label setting of `halftruth bench`. Rows:

- `labels-alone`: the test of `auto` on the labels alone (are frequent classes shown first?);
- `complete-rows`: the test that compares 100 random rows with complete labels with the shown ones;
- `missing`: missing labels of the training rows, counted and ranked by `calibrate` (the audit) with
  the propensities of `auto`; `missing-even`: as if the choice were even.

Test mAP under these settings: compare.py; decisions: decisions.py; images end to end:
grids/voc-bias.yaml. `--fits` is the folder of scores that compare.py or decisions.py kept.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

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
from decisions import get_scores
from halftruth.presence.calibration import calibrate
from halftruth.presence.propensity import find_preference
from halftruth.presence.solvers import sigmoid
from halftruth.train.auto.frequency_bias import find_frequency_bias
from halftruth.train.ensemble.preparation import prepare_features

TESTS, COUNTS = ("labels-alone", "complete-rows"), ("missing", "missing-even")


def test_for_bias(given: Any, name: str, setting: str, seed: int, row: str) -> dict:
    """Test whether the labels of one draw are biased."""
    data = load_rows(given.folder, name, seed, given.most_rows)
    shown = hide(data.y, setting, seed)
    if row == "labels-alone":
        test = find_frequency_bias(prepare_features(data.x), shown, seed)
        if test is None:
            return {"found": None}
        # None: it cannot be told from these labels, which is no alarm.
        found = test.found if test.tells else None
        return {"found": found, "z": test.z, "even": test.even, "explained": test.explained}
    rows = np.random.default_rng([seed, 100]).choice(len(shown), min(100, len(shown)), False)
    known = shown.copy()
    known[rows] = hide(data.y, "complete", seed)[rows]
    test = find_preference(shown, known, seed=seed)
    return {"found": test.found, "p": test.p_value, "exponent": test.exponent}


def count_missing(given: Any, name: str, setting: str, seed: int, row: str) -> dict:
    """Count and rank the missing labels of the training rows, by the scores of `auto`."""
    got = get_scores(given, name, setting, seed)
    names = ("propensity", "possible") if row == "missing" else ()
    chosen = {key: got[key] for key in names if len(got[key])}
    found = calibrate(got["shown"], sigmoid(got["logits"]), **chosen)
    unknown = got["shown"] <= 0
    missing, p = got["y"][unknown], found.present[unknown]
    order, count = np.argsort(-p, kind="stable"), int(missing.sum())
    total = found.missing_total
    return {"missing": count, "estimated": [total.value, total.low, total.high],
            "precision": [float(missing[order[:n]].mean()) for n in (200, count)]}  # fmt: skip


def run(given: Any, *task: Any) -> dict:
    return (test_for_bias if task[-1] in TESTS else count_missing)(given, *task)


def print_tables(lines: list[dict]) -> None:
    """Print in how many draws a bias was found, and the means of the counts."""
    tests = [line for line in lines if line["row"] in TESTS]
    print_header("data", "test", "found biased", "cannot be told", "draws")
    for case, some in group_by(tests, "set", "setting", "row").items():
        found = [line["found"] for line in some]
        print_row(f"{case[0]}, {case[1]}", case[2], found.count(True), found.count(None), len(some))
    print()
    print_header("data", "row", "missing", "estimated", "interval", "inside",
                 "precision of the first 200", "of the first n, n missing")  # fmt: skip
    counts = [line for line in lines if line["row"] in COUNTS]
    for case, some in group_by(counts, "set", "setting", "row").items():
        value, low, high = np.mean([one["estimated"] for one in some], axis=0)
        inside = sum(one["estimated"][1] <= one["missing"] <= one["estimated"][2] for one in some)
        precision = 100 * np.mean([one["precision"] for one in some], axis=0)
        print_row(
            f"{case[0]}, {case[1]}", case[2], f"{np.mean([one['missing'] for one in some]):,.0f}",
            f"{value:,.0f}", f"{low:,.0f} to {high:,.0f}", f"{inside} of {len(some)}",
            *(f"{part:.1f}" for part in precision),
        )  # fmt: skip


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    settings = "one,frequent,most-frequent"
    add_task_options(parser, sets="yeast,emotions", settings=settings, rows=(*TESTS, *COUNTS))
    parser.add_argument("--most-rows", type=int, default=10**9, help="training rows of the tests")
    parser.add_argument("--fits", type=Path, help="folder of the scores of auto")
    given = parser.parse_args(argv)
    print_tables(run_grid(run, given, "found"))


if __name__ == "__main__":
    start(main, "DATA/tabular --sets yeast --settings frequent --seeds 0 --out OUT/lines.jsonl")
