"""Decisions, probabilities and estimated scores without complete labels, beside the truth.

    python benchmarks/decisions.py DATA --sets yeast,voc --jobs 8 --out decisions.jsonl

The ensemble of `auto` is fitted to the rows and shown labels of compare.py. Each line has, on the
complete labels of the test rows:

- CF1, OF1, predicted labels per row and macro F1 (the mean F1 of the classes) with thresholds
  fitted to incomplete labels as if they were complete ("naive"), with ours, with thresholds fitted
  to complete labels ("complete"), and with our rule if it is given the complete labels ("told"),
  all on the same out-of-sample scores of the training rows;
- labels per row: true, sum of the probabilities, interval; expected calibration error (15 bins);
- mAP, CF1 and OF1 estimated from the incomplete labels, with 90 % intervals, beside the truth;
- the width of the interval of each before and after 200 verified cells, and if it holds.

`--fits FOLDER` keeps the scores (16 bit), so that another measurement does not fit again.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from common import (
    Rows,
    add_task_options,
    group_by,
    hide,
    load_rows,
    predict,
    print_header,
    print_row,
    run_grid,
    start,
)
from halftruth.metrics import evaluate, thresholds
from halftruth.presence.decisions import decide
from halftruth.presence.estimated_scores import estimate_scores, infer_range
from halftruth.presence.probabilities import fit_probabilities
from halftruth.presence.propensity import choose_possible, choose_propensity
from halftruth.presence.verification import METRICS, plan_verification, score_verdicts
from halftruth.train.ensemble.fit_ensemble import fit_ensemble

RULES = ("naive", "ours", "complete", "told")
# What is known of how labels were chosen, where a bias was found.
_CHOICE = ("propensity", "possible")


def calibration_error(p: np.ndarray, truth: np.ndarray) -> float:
    """Expected calibration error over 15 bins of equal width."""
    p, y = p.ravel(), (truth > 0).ravel()
    bins = np.clip((p * 15).astype(int), 0, 14)
    return float(sum(abs((p - y)[bins == b].sum()) for b in range(15)) / len(p))


def get_scores(given: Any, name: str, setting: str, seed: int) -> dict[str, np.ndarray]:
    """Return labels and out-of-sample logits of training rows, and logits of test rows."""
    kept = given.fits / f"{name}-{setting}-{seed}.npz" if given.fits else None
    if kept is not None and kept.exists():
        with np.load(kept) as file:
            found = dict(file)
    else:
        data = load_rows(given.folder, name, seed, 2500, 3000)
        found = fit_scores(data, hide(data.y, setting, seed), seed)
        if kept is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            np.savez_compressed(kept, **found)
    return {**found, **{key: found[key].astype(np.float32) for key in ("logits", "test")}}


def fit_scores(data: Rows, shown: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """Fit the ensemble to shown labels; return labels, scores, and propensities ([]: none)."""
    fitted = fit_ensemble(data.x, shown, seed=seed, groups=data.groups)
    propensity = choose_propensity(shown, fitted.bias)
    possible = choose_possible(shown, fitted.bias)
    return {
        "y": (data.y > 0)[fitted.rows], "shown": shown[fitted.rows], "truth": data.truth > 0,
        "logits": fitted.logits.astype(np.float16),
        "test": predict(fitted.model, data.test).astype(np.float16),
        "propensity": np.zeros(0) if propensity is None else propensity,
        "possible": np.zeros(0) if possible is None else possible,
        "counts": (shown > 0).sum(axis=0),
    }  # fmt: skip


def measure(given: Any, name: str, setting: str, seed: int, row: str) -> dict:
    """Measure one data set, setting and seed."""
    got = get_scores(given, name, setting, seed)
    truth, logits, test = got["truth"], got["logits"], got["test"]
    propensity, possible = (got[key] if len(got[key]) else None for key in _CHOICE)
    fitted = fit_probabilities(got["shown"], logits, propensity=propensity, possible=possible)
    p = fitted(test)
    rule = decide(fitted(logits), got["counts"])
    complete = np.where(got["y"], 1, -1).astype(np.int8)
    told = fit_probabilities(complete, logits)
    line: dict = {}
    for key, chosen in (
        ("naive", test > thresholds.best(logits, got["shown"])),
        ("ours", rule(p)),
        ("complete", test > thresholds.best(logits, complete)),
        ("told", decide(told(logits), got["counts"])(told(test))),
    ):
        metrics = evaluate(chosen.astype(float), truth, 0.5)
        count = float(chosen.sum(axis=1).mean())
        line[key] = [metrics["CF1"], metrics["OF1"], count, metrics["macro_F1"]]
    count = fitted.labels_per_row
    line["labels"] = [float(truth.sum(axis=1).mean()), float(p.sum(axis=1).mean())]
    line["interval"] = [count.low, count.high]
    line["ece"] = calibration_error(p, truth)
    exact = evaluate(rule(p).astype(float), truth, 0.5)
    exact["mAP"] = evaluate(p, truth)["mAP"]
    present = fitted.infer(got["shown"], logits, propensity=propensity)
    found = estimate_scores(fitted(logits), got["shown"], rule(fitted(logits)), present)
    line["estimated"] = {
        key: [exact[key], one.value, one.low, one.high]
        for key, one in ((key, getattr(found, key)) for key in METRICS)
    }
    line["verified"] = verify(p, truth, hide(truth, setting, 100 + seed), exact, rule, seed)
    return line


def verify(
    p: np.ndarray, truth: np.ndarray, shown: np.ndarray, exact: dict, rule: Any, seed: int
) -> dict:
    """Per metric: width before, width after 200 cells (for all metrics), and if it holds."""
    chosen, present = rule(p), infer_range(shown, p)
    before = estimate_scores(p, shown, chosen, present, new_rows=False)
    plan = plan_verification(p, shown, chosen, present, cells=200, seed=seed)
    answers = np.where(truth[plan.rows, plan.columns], 1, -1)
    after = score_verdicts(plan, answers, p, shown, chosen, present, new_rows=False)
    found = {}
    for key in METRICS:
        one, two = getattr(before, key), after[key].combined
        found[key] = [one.width, two.width, two.value - exact[key]]
        found[key] += [float(x.low <= exact[key] <= x.high) for x in (one, two)]
    return found


def print_tables(lines: list[dict]) -> None:
    """Print the means over seeds as Markdown."""
    names = ", ".join(RULES)
    print_header("set", f"CF1 {names}", f"OF1 {names}", "macro F1",
                 "labels per row predicted (true)", "sum of probabilities", "inside",
                 "ECE")  # fmt: skip
    cases = [*group_by(lines, "set", "setting").items(), (("**all**", ""), lines)]
    for case, some in cases:
        got = {key: np.mean([one[key] for one in some], axis=0) for key in (*RULES, "labels")}
        inside = [one["interval"][0] <= one["labels"][0] <= one["interval"][1] for one in some]
        cells = [", ".join(f"{100 * got[rule][k]:.1f}" for rule in RULES) for k in (0, 1, 3)]
        count = ", ".join(f"{got[rule][2]:.2f}" for rule in RULES)
        print_row(
            " ".join(case), *cells, f"{count} ({got['labels'][0]:.2f})",
            f"{got['labels'][1]:.2f}", f"{sum(inside)}/{len(inside)}",
            f"{np.mean([one['ece'] for one in some]):.3f}",
        )  # fmt: skip
    what = "true, estimate, width, inside; 200 cells: width before and after, bias, inside"
    print()
    print_header("set", *(f"{key}: {what}" for key in METRICS))
    for case, some in cases:
        cells = []
        for key in METRICS:
            e = np.array([one["estimated"][key] for one in some])
            v = np.array([one["verified"][key] for one in some])
            inside = np.mean((e[:, 2] <= e[:, 0]) & (e[:, 0] <= e[:, 3]))
            cells.append(
                f"{100 * e[:, 0].mean():.1f}, {100 * e[:, 1].mean():.1f}, "
                f"{100 * (e[:, 3] - e[:, 2]).mean():.1f}, {100 * inside:.0f} %; "
                f"{100 * v[:, 0].mean():.1f} to {100 * v[:, 1].mean():.1f}, "
                f"{100 * v[:, 2].mean():+.1f}, {100 * v[:, 4].mean():.0f} %"
            )
        print_row(" ".join(case), *cells)


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    sets = "birds,medical,emotions,scene,yeast"
    add_task_options(parser, sets=sets, settings="one,40", rows=["decisions"])
    parser.add_argument("--fits", type=Path, help="folder that keeps the scores of each fit")
    given = parser.parse_args(argv)
    print_tables(run_grid(measure, given, "ours"))


if __name__ == "__main__":
    start(main, "DATA/tabular --sets yeast --settings one --seeds 0 --out OUT/lines.jsonl")
