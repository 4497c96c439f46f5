"""Decisions, promises, probabilities and estimated scores without complete labels, and the truth.

    python benchmarks/decisions.py DATA --sets yeast,coco --jobs 2 --out decisions.jsonl

The ensemble of `auto` is fitted to at most 900 rows with shown labels; the complete labels of at
most 1,500 test rows tell what is right. The settings are those of compare.py (one, 40), and
"listed": 40, without the rows that show nothing. Lines of the row "decisions" have

- OF1, F1 per row, macro F1 and predicted / true labels by each rule, and the best OF1 of one cut;
- labels predicted, right and present for promised precisions and recalls, and the recall of the
  cut with that precision on the test labels themselves (the oracle);
- ten bins of the probabilities: labels, sum of P, present; labels per row with its interval.

Lines of the row "estimates" have mAP, CF1 and OF1 estimated from the incomplete labels, with 90 %
intervals, and the width of the interval before and after 200 verified cells, and if it holds.

`--fits FOLDER` keeps the scores (16 bit), so that another measurement does not fit again.
"""

import argparse
from dataclasses import replace
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
from halftruth.metrics import evaluate
from halftruth.presence.decisions import decide
from halftruth.presence.estimated_scores import estimate_scores, infer_range
from halftruth.presence.probabilities import average_over_level, fit_probabilities
from halftruth.presence.propensity import choose_possible, choose_propensity
from halftruth.presence.ranking import NoRankingError
from halftruth.presence.verification import METRICS, plan_verification, score_verdicts
from halftruth.train.ensemble.fit_ensemble import fit_ensemble

RULES = ("macro-f1", "f1")
PROMISES = [f"{name}=0.{digit}" for name in ("precision", "recall") for digit in (7, 8, 9)]
# What is known of how labels were chosen, where a bias was found.
_CHOICE = ("propensity", "possible")


def get_scores(given: Any, name: str, setting: str, seed: int) -> dict[str, np.ndarray]:
    """Return labels and out-of-sample logits of training rows, and logits of test rows."""
    kept = given.fits / f"{name}-{setting}-{seed}.npz" if given.fits else None
    if kept is not None and kept.exists():
        with np.load(kept) as file:
            found = dict(file)
    else:
        data = load_rows(given.folder, name, seed, 900, 1500)
        shown = hide(data.y, "40" if setting == "listed" else setting, seed)
        if setting == "listed":
            rows = np.flatnonzero(shown.any(axis=1))
            groups = None if data.groups is None else data.groups[rows]
            data, shown = replace(data, x=data.x[rows], y=data.y[rows], groups=groups), shown[rows]
        found = fit_scores(data, shown, seed)
        if kept is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            np.savez_compressed(kept, **found)
    return {**found, **{key: found[key].astype(np.float64) for key in ("logits", "test")}}


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
    propensity, possible = (got[key] if len(got[key]) else None for key in _CHOICE)
    fitted = fit_probabilities(
        got["shown"], got["logits"], propensity=propensity, possible=possible
    )
    fitted = average_over_level(fitted, got["logits"])
    own, p = fitted(got["logits"]), fitted(got["test"])
    if row == "estimates":
        return measure_estimates(fitted, own, p, got, setting, seed)
    truth, counts, line = got["truth"], got["counts"], {}
    order = np.argsort(-p, axis=None, kind="stable")
    right, found = np.cumsum(truth.ravel()[order]), np.arange(1, p.size + 1)
    line["best"] = float((2 * right / (found + truth.sum())).max())
    for rule in RULES:
        chosen = decide(own, counts, rule, fitted)(p)
        scores, hits = evaluate(chosen.astype(float), truth, 0.5), (chosen & truth).sum(axis=1)
        per_row = 2 * hits / np.maximum(chosen.sum(axis=1) + truth.sum(axis=1), 1)
        ratio = float(chosen.sum() / truth.sum())
        line[rule] = [scores["OF1"], float(per_row.mean()), scores["macro_F1"], ratio]
    for rule in PROMISES:
        try:
            chosen = decide(own, counts, rule, fitted)(p)
        except NoRankingError:
            continue
        enough = right[right / found >= float(rule[-3:])]
        oracle = float(enough[-1] / truth.sum()) if len(enough) else 0.0
        sums = (chosen.sum(), (chosen & truth).sum(), truth.sum())
        line[rule] = [*map(int, sums), oracle]
    at = np.minimum((10 * p).astype(int), 9).ravel()
    line["bins"] = [
        np.bincount(at, one, 10).tolist() for one in (p.ravel() >= 0, p.ravel(), truth.ravel())
    ]
    count = fitted.labels_per_row
    line["labels"] = [float(one.sum(axis=1).mean()) for one in (truth, p, got["y"])]
    line["interval"] = [count.low, count.high]
    return line


def measure_estimates(
    fitted: Any, own: np.ndarray, p: np.ndarray, got: dict, setting: str, seed: int
) -> dict:
    """Estimated scores beside the true ones, and what 200 verified cells of the test rows tell."""
    truth, shown = got["truth"], got["shown"]
    rule = decide(own, got["counts"], "f1", fitted)
    exact = evaluate(rule(p).astype(float), truth, 0.5) | {"mAP": evaluate(p, truth)["mAP"]}
    present = fitted.infer(shown, got["logits"])
    found = estimate_scores(own, shown, rule(own), present)
    line: dict = {"estimated": {}, "verified": {}}
    new = hide(truth, setting.replace("listed", "40"), 100 + seed)
    chosen, present = rule(p), infer_range(new, p)
    before = estimate_scores(p, new, chosen, present, new_rows=False)
    plan = plan_verification(p, new, chosen, present, cells=200, seed=seed)
    answers = np.where(truth[plan.rows, plan.columns], 1, -1)
    after = score_verdicts(plan, answers, p, new, chosen, present, new_rows=False)
    for key in METRICS:
        one, first, two = getattr(found, key), getattr(before, key), after[key].combined
        line["estimated"][key] = [exact[key], one.value, one.low, one.high]
        holds = [float(x.low <= exact[key] <= x.high) for x in (first, two)]
        line["verified"][key] = [first.width, two.width, two.value - exact[key], *holds]
    return line


def show_cases(lines: list[dict]) -> dict[tuple, list[dict]]:
    return {**group_by(lines, "set", "setting"), **group_by(lines, "setting"), ("all",): lines}


def print_decisions(lines: list[dict]) -> None:
    """Print rules, promises, bins and intervals as Markdown."""
    what = [f"{rule}: OF1, F1 per row, macro F1, predicted / true" for rule in RULES]
    print_header("set (fits)", *what, "OF1 of the best cut", "true labels, sum of P", "inside")
    for case, some in show_cases(lines).items():
        cells = []
        for rule in RULES:
            *scores, ratio = np.mean([one[rule] for one in some], axis=0)
            cells.append(", ".join(f"{100 * one:.1f}" for one in scores) + f", {ratio:.2f}")
        count = np.mean([one["labels"] for one in some], axis=0)
        inside = sum(one["interval"][0] <= one["labels"][2] <= one["interval"][1] for one in some)
        print_row(f"{' '.join(case)} ({len(some)})", *cells,
                  f"{100 * np.mean([one['best'] for one in some]):.1f}",
                  f"{count[0]:.2f}, {count[1]:.2f}", f"{inside}/{len(some)}")  # fmt: skip
    near = np.mean([one["f1"][0] >= 0.93 * one["best"] for one in lines])
    few = np.mean([0.6 <= one["f1"][3] <= 1.6 for one in lines])
    shares = f"{100 * near:.0f} %, 0.6 to 1.6 times the true number in {100 * few:.0f} %"
    print(f"\nf1: OF1 at least 93 % of the best cut in {shares}\n")
    cases = {**group_by(lines, "setting"), ("all",): lines}
    what = "kept, nothing predicted, recall (oracle) or predicted / true"
    print_header("promise", *(f"{case[0]}: {what}" for case in cases))
    for rule in PROMISES:
        cells, wanted, which = [], float(rule[-3:]) - 0.03, 0 if rule.startswith("p") else 2
        for some in cases.values():
            v = np.array([one[rule] for one in some if rule in one])
            kept = np.mean(v[:, 1] >= wanted * v[:, which])
            much = v[:, 1] / v[:, 2] if which == 0 else v[:, 0] / v[:, 2]
            oracle = f" ({100 * v[:, 3].mean():.0f} %)" if which == 0 else ""
            much = f"{100 * much.mean():.0f} %" if which == 0 else f"{much.mean():.1f}"
            cells.append(f"{100 * kept:.0f} %, {100 * (v[:, 0] == 0).mean():.0f} %, {much}{oracle}")
        print_row(rule, *cells)
    print()
    print_header("bins: mean P, share present", *(f"0.{k}" for k in range(10)), "ECE")
    for case, some in show_cases(lines).items():
        cells, p, right = np.sum([one["bins"] for one in some], axis=0)
        away = [np.abs(np.subtract(*v[1:])).sum() / np.sum(v[0]) for v in (x["bins"] for x in some)]
        shares = zip(cells, p / np.maximum(cells, 1), right / np.maximum(cells, 1), strict=True)
        texts = (f"{one:.2f}, {two:.2f}" if n >= 20 else "–" for n, one, two in shares)
        print_row(" ".join(case), *texts, f"{np.mean(away):.3f}")


def print_estimates(lines: list[dict]) -> None:
    what = "true, estimate, width, inside; 200 cells: width before and after, bias, inside"
    print_header("set", *(f"{key}: {what}" for key in METRICS))
    for case, some in show_cases(lines).items():
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
    sets = "birds,cal500,emotions,flags,foodtruck,medical,scene,yeast"
    add_task_options(parser, sets=sets, settings="one,40,listed", rows=["decisions", "estimates"])
    parser.add_argument("--fits", type=Path, help="folder that keeps the scores of each fit")
    given = parser.parse_args(argv)
    lines = group_by(run_grid(measure, given, "f1"), "row")
    for row, show in (("decisions", print_decisions), ("estimates", print_estimates)):
        if some := lines.get((row,)):
            show(some)


if __name__ == "__main__":
    start(main, "DATA/tabular --sets yeast --settings one --seeds 0 --out OUT/lines.jsonl")
