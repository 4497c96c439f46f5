"""Decisions, probabilities and estimated scores without complete labels, beside the truth.

    python benchmarks/decisions.py DIR --sets yeast,voc --seeds 0,1,2 --jobs 8 --out lines.jsonl
    python benchmarks/decisions.py --tables lines.jsonl

DIR holds one NAME.npz per data set with X_train, Y_train, X_test, Y_test (complete 0/1 labels), and
optionally groups: training rows that belong together (of one patient) stay in one fold.
Labels of the training rows are hidden: "one" shows one present label per row, "40" shows each
present label with probability 0.4. The ensemble of auto is fitted to what is left. Rows and labels
are those of benchmarks/ensemble.py, so its row `auto` is the same fit. Each line has, on the
complete labels of the test rows:

- CF1, OF1, predicted labels per row and macro F1 (the mean F1 of the classes) with thresholds
  fitted to incomplete labels as if they were complete ("naive"), with ours, with thresholds fitted
  to complete labels ("complete"), and with our rule if it is told the complete labels ("told"), all
  on the same out-of-sample scores of the training rows;
- labels per row: true, sum of the probabilities, interval; expected calibration error (15 bins);
- mAP, CF1 and OF1 estimated from the incomplete labels, with 90 % intervals, beside the truth;
- the width of the interval of each before and after 200 verified cells, and if it holds.

`--fits FOLDER` keeps the scores (16 bit), so that another measurement does not fit again.
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
import torch

from common import (
    add_task_options,
    group_by,
    print_header,
    print_row,
    read_lines,
    run_tasks,
    start,
)
from ensemble import hide, load_rows, predict
from halftruth.bench.label_settings import BIASES, needs_measure
from halftruth.bench.label_settings import hide as show_by_bias
from halftruth.metrics import evaluate, thresholds
from halftruth.presence.decisions import decide
from halftruth.presence.estimated_scores import estimate_scores, infer_range
from halftruth.presence.probabilities import fit_probabilities
from halftruth.presence.propensity import choose_possible, choose_propensity
from halftruth.presence.verification import METRICS, plan_verification, score_verdicts
from halftruth.train.ensemble.fit_ensemble import fit_ensemble

RULES = ("naive", "ours", "complete", "told")


def calibration_error(p: np.ndarray, truth: np.ndarray) -> float:
    """Expected calibration error over 15 bins of equal width."""
    p, y = p.ravel(), (truth > 0).ravel()
    bins = np.clip((p * 15).astype(int), 0, 14)
    return float(sum(abs((p - y)[bins == b].sum()) for b in range(15)) / len(p))


def get_scores(folder: str, name: str, setting: str, seed: int, fits: str | None) -> dict:
    """Return labels and out-of-sample logits of training rows, and logits of test rows."""
    kept = Path(fits) / f"{name}-{setting}-{seed}.npz" if fits else None
    if kept is not None and kept.exists():
        with np.load(kept) as file:
            found = dict(file)
        return {**found, **{key: found[key].astype(np.float32) for key in ("logits", "test")}}
    x, y, test, truth, groups = load_rows(folder, name, seed)
    complete, shown = np.where(y > 0, 1, -1).astype(np.int8), show(y, setting, seed)
    found = fit_scores(x, complete, shown, test, truth, seed, groups)
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(kept, **found)
    return {**found, **{key: found[key].astype(np.float32) for key in ("logits", "test")}}


def show(truth: np.ndarray, setting: str, seed: int) -> np.ndarray:
    """Hide labels as the setting says; those of benchmarks/label_bias.py are drawn as there.

    The sizes of objects are not known here: labels of such a setting are drawn evenly.
    """
    if setting in BIASES and not needs_measure(setting):
        return show_by_bias(np.where(truth > 0, 1, -1).astype(np.int8), setting, seed)
    return hide(truth, "40" if setting == "40" else "one", seed)


def fit_scores(
    x: np.ndarray,
    complete: np.ndarray,
    shown: np.ndarray,
    test: np.ndarray,
    truth: np.ndarray,
    seed: int,
    groups: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Fit the ensemble to shown labels; return labels, scores, and propensities ([]: none)."""
    started = time.perf_counter()
    fitted = fit_ensemble(x, shown, seed=seed, groups=groups)
    propensity = choose_propensity(shown, fitted.bias)
    possible = choose_possible(shown, fitted.bias)
    return {
        "y": (complete > 0)[fitted.rows], "shown": shown[fitted.rows], "truth": truth > 0,
        "logits": fitted.logits.astype(np.float16),
        "test": predict(fitted.model, test.astype(np.float32)).astype(np.float16),
        "propensity": np.zeros(0) if propensity is None else propensity,
        "possible": np.zeros(0) if possible is None else possible,
        "counts": (shown > 0).sum(axis=0), "seconds": np.array(time.perf_counter() - started),
    }  # fmt: skip


def measure(folder: str, name: str, setting: str, seed: int, fits: str | None) -> dict:
    """Measure one data set, setting and seed."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    got = get_scores(folder, name, setting, seed, fits)
    truth, logits, test = got["truth"], got["logits"], got["test"]
    started = time.perf_counter()
    propensity, possible = (
        got[key] if len(got.get(key, ())) else None for key in ("propensity", "possible")
    )
    fitted = fit_probabilities(got["shown"], logits, propensity=propensity, possible=possible)
    p = fitted(test)
    rule = decide(fitted(logits), got["counts"])
    complete = np.where(got["y"], 1, -1).astype(np.int8)
    told = fit_probabilities(complete, logits)
    line: dict = {"set": name, "setting": setting, "seed": seed}
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
    line["verified"] = verify(p, truth, setting, seed, rule)
    line["seconds"] = round(time.perf_counter() - started, 1)
    return line


def verify(p: np.ndarray, truth: np.ndarray, setting: str, seed: int, rule) -> dict:
    """Per metric: width before, width after 200 cells (for all metrics), and if it holds."""
    shown, chosen = show(truth, setting, 100 + seed), rule(p)
    exact = evaluate(chosen.astype(float), truth, 0.5)
    exact["mAP"] = evaluate(p, truth)["mAP"]
    present = infer_range(shown, p)
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
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--sets", default="birds,medical,emotions,scene,yeast")
    parser.add_argument("--settings", default="one,40")
    parser.add_argument("--fits", help="folder that keeps the scores of each fit")
    parser.add_argument("--tables", type=Path, nargs="+", help="only print the tables of files")
    add_task_options(parser)
    given = parser.parse_args(argv)
    if given.tables:
        return print_tables(read_lines(*given.tables))
    done = read_lines(given.out)
    there = {(line["set"], line["setting"], line["seed"]) for line in done}
    tasks = [
        (given.folder, name, setting, int(seed), given.fits)
        for seed in given.seeds.split(",")
        for name in given.sets.split(",")
        for setting in given.settings.split(",")
        if (name, setting, int(seed)) not in there
    ]
    lines = run_tasks(measure, tasks, given, lambda line: f"ours {line['ours']}")
    print_tables([*done, *lines])


if __name__ == "__main__":
    data = "DATA/tabular --sets yeast --settings one --seeds 0 --fits OUT/fits"
    start(main, f"{data} --out OUT/lines.jsonl", "--tables OUT/lines.jsonl")
