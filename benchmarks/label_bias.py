"""Methods under labels that are not missing at random: one label per row, shown by a bias.

    python benchmarks/label_bias.py DIR --sets voc,coco,yeast --voc VOC --out bias.jsonl --jobs 2
    python benchmarks/label_bias.py --images DATA --out images.jsonl --jobs 4
    python benchmarks/label_bias.py --table bias.jsonl
    python benchmarks/label_bias.py DIR --sets yeast --detect --seeds 0,1,2,3,4 --out detect.jsonl
    python benchmarks/label_bias.py DIR --sets voc --audit --fits FITS --out audit.jsonl

Features: DIR holds one NAME.npz per data set with X_train, Y_train, X_test, Y_test (complete 0/1
labels). For voc, `--voc FOLDER` has labels.csv and boxes.npz (area and distance from the centre of
each class, per row of labels.csv); its training rows are those of voc.npz. The rows of the table
are trained as in benchmarks/ensemble.py: `auto` and `complete` are the ensemble; published methods
are linear heads with the best of three learning rates *on test*; assume-negative is `bce`.

Images, end to end: DATA holds labels.csv, boxes.npz and the zips of VOC 2012, and the weights
tf_efficientnet_lite0.safetensors. Published methods have the recipe of `auto` on images: head first
(20 epochs, ridge prior 2), then everything (6 epochs), the last epoch, a fifth of the rows for
validation.

Every line of the output is one data set, setting, seed and row, with its test mAP; lines that are
there already are not computed again. The labels shown depend on the seed. Rows beside those of the
table: `auto, N complete rows` (N random training rows have all their labels), and `--rows oracles`:
the linear member alone, which is told what no method can know, to see what costs. `--most` uses
that many random training rows of each data set at most.

--detect measures instead how often labels are found to be biased: from the labels alone (frequent
classes first), and by the test of 100 random rows with complete labels. --audit measures how well
missing labels are found and counted, with and without the propensities. `--fits FOLDER` keeps the
scores of `auto` for --audit and for benchmarks/decisions.py, which measures decisions by them.
"""

import argparse
import re
import tempfile
import time
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import (
    add_image_options,
    add_task_options,
    group_by,
    image_settings,
    key_of,
    load_split,
    print_header,
    print_row,
    read_lines,
    run_tasks,
    show_mean,
    start,
)
from decisions import fit_scores, get_scores
from ensemble import predict, train_method
from halftruth.bench import datasets as benchmarks
from halftruth.bench.label_settings import hide
from halftruth.data import write_labels
from halftruth.metrics import mean_average_precision
from halftruth.presence.calibration import calibrate
from halftruth.presence.propensity import find_preference
from halftruth.presence.solvers import sigmoid
from halftruth.train.auto.shown_first import find_label_bias
from halftruth.train.ensemble.fit_ensemble import fit_ensemble
from halftruth.train.ensemble.members import RIDGE, fit_linear_path
from halftruth.train.ensemble.preparation import fit_preparation, prepare_features
from halftruth.train.inputs.batches import apply_in_blocks

# The name of the uniform draw among the label settings.
UNIFORM = {"uniform": "single"}
ON_BOXES = ("size", "largest", "centre")
SETTINGS = ("uniform", *ON_BOXES, "frequent", "most-frequent", "rare", "rarest")
METHODS = {"assume-negative": "bce", "em": "em", "role": "role", "gr": "gr", "swan": "swan"}
COMPLETE_ROWS = 100
WITH_COMPLETE_ROWS = f"auto, {COMPLETE_ROWS} complete rows"
ALONE = "labels alone"
TESTS = (ALONE, f"{COMPLETE_ROWS} complete rows")
ROWS = (*METHODS, "auto", WITH_COMPLETE_ROWS, "complete")
AUDITS = ("audit, even choice", "audit")
# The linear member, and what it is told: which unknown labels are present, so that they do not
# count as absent; complete rows; as many shown labels per class, drawn evenly from those present.
MASKED, EVENLY = "present ones left out", "as many labels, drawn evenly"
ORACLES = ("linear", "linear, 100 complete rows", f"linear, {MASKED}",
           f"linear, {MASKED}, 100 complete rows", f"linear, {EVENLY}, {MASKED}",
           "linear, complete labels")  # fmt: skip


def draw_complete_rows(count: int, seed: int, rows: int = COMPLETE_ROWS) -> np.ndarray:
    """Return the rows whose labels are all known."""
    return np.sort(np.random.default_rng([seed, 100]).choice(count, min(rows, count), False))


def count_complete_rows(row: str) -> int:
    """Return how many rows have complete labels in a row of the table.

    >>> count_complete_rows("auto, 100 complete rows")
    100
    """
    found = re.search(r"(\d+) complete rows", row)
    return int(found[1]) if found else 0


# ---------------------------------------------------------------------- features


def load_measures(voc: Path, labels: np.ndarray) -> dict[str, np.ndarray]:
    """Return area and distance of the training rows of VOC 2012, in the order of labels.csv."""
    read = benchmarks.load(
        "table", voc / "labels.csv", val=0, reading={"drop_columns": ["observed"]}
    )
    rows = read.splits.train
    if not np.array_equal(read.truth[rows] > 0, labels > 0):
        raise SystemExit("the training rows of voc.npz are not those of labels.csv")
    with np.load(voc / "boxes.npz") as file:
        if tuple(file["classes"]) != read.classes:
            raise SystemExit("the classes of boxes.npz are not those of labels.csv")
        return {name: file[name][rows].astype(float) for name in ("area", "centre_distance")}


def load_features(given: dict[str, Any], name: str, setting: str) -> tuple[np.ndarray, ...]:
    """Return features and complete labels of training rows, of test rows, and measures."""
    x, y, test, truth = load_split(Path(given["folder"]) / f"{name}.npz")
    measures = load_measures(Path(given["voc"]), y) if setting in ON_BOXES else {}
    complete = np.where(y > 0, 1, -1).astype(np.int8)
    if len(x) > (most := given["most"]):
        rows = np.sort(np.random.default_rng(0).choice(len(x), most, replace=False))
        x, complete = x[rows], complete[rows]
        measures = {key: value[rows] for key, value in measures.items()}
    return x, complete, test, truth, measures


def run_features(given: dict[str, Any], name: str, setting: str, seed: int, row: str) -> dict:
    """Measure one row of the table on the features of one data set, setting and seed."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    x, complete, test, truth, measures = load_features(given, name, setting)
    shown = complete
    if row != "complete":
        shown = hide(complete, UNIFORM.get(setting, setting), seed, measures)
    started = time.perf_counter()
    line: dict = {"set": name, "setting": setting, "seed": seed, "row": row}
    if row in METHODS:
        line["mAP"] = train_method(METHODS[row], x, shown, test, truth, seed)
    elif row in ORACLES:
        line["mAP"] = score_oracle(row, x, complete, shown, test, truth, seed)
    elif row == "auto":
        found = fit_scores(x, complete, shown, test, truth, seed)
        line["mAP"] = mean_average_precision(found["test"].astype(float), truth)
        line["biased"] = bool(len(found["propensity"]))
        if given["fits"]:
            Path(given["fits"]).mkdir(parents=True, exist_ok=True)
            np.savez_compressed(Path(given["fits"]) / f"{name}-{setting}-{seed}.npz", **found)
    else:
        rows = draw_complete_rows(len(x), seed, count_complete_rows(row))
        shown[rows] = complete[rows]
        fitted = fit_ensemble(x, shown, seed=seed)
        line["mAP"] = mean_average_precision(predict(fitted.model, test), truth)
    return {**line, "seconds": round(time.perf_counter() - started, 1)}


def score_oracle(
    row: str,
    x: np.ndarray,
    complete: np.ndarray,
    shown: np.ndarray,
    test: np.ndarray,
    truth: np.ndarray,
    seed: int,
) -> float:
    """Return the test mAP of the linear member, which is told what the row says."""
    given = complete if "complete labels" in row else shown.copy()
    if EVENLY in row:
        random = np.random.default_rng([seed, 200])
        given = np.zeros_like(shown)
        for k, count in enumerate((shown > 0).sum(axis=0)):
            given[random.choice(np.flatnonzero(complete[:, k] > 0), count, False), k] = 1
    if rows := count_complete_rows(row):
        at = draw_complete_rows(len(x), seed, rows)
        given[at] = complete[at]
    weights = None
    if MASKED in row:
        missing = (complete > 0) & (given <= 0)
        weights = torch.from_numpy(~missing * np.float32(1))
        given = np.where(given > 0, 1, np.where(missing, 0, -1)).astype(np.int8)
    prepare = torch.nn.Sequential(*fit_preparation(x))
    inside, outside = (apply_in_blocks(prepare, part).float() for part in (x, test))
    layer = fit_linear_path(inside, torch.from_numpy(given), (RIDGE,), weights)[RIDGE]
    with torch.no_grad():
        return mean_average_precision(layer(outside).numpy(), truth)


def run_audit(given: dict[str, Any], name: str, setting: str, seed: int, row: str) -> dict:
    """Count and rank the missing labels of the training rows, by the scores of `auto`."""
    torch.set_num_threads(1)
    started = time.perf_counter()
    got = get_scores(given["folder"], name, setting, seed, given["fits"])
    names = ("propensity", "possible") if row == "audit" else ()
    chosen = {key: got[key] for key in names if len(got[key])}
    found = calibrate(got["shown"], sigmoid(got["logits"]), **chosen)
    unknown = got["shown"] <= 0
    missing, p = got["y"][unknown], found.present[unknown]
    order, count = np.argsort(-p, kind="stable"), int(missing.sum())
    total = found.missing_total
    return {"set": name, "setting": setting, "seed": seed, "row": row, "missing": count,
            "estimated": [total.value, total.low, total.high], "biased": len(got["propensity"]) > 0,
            "precision": [float(missing[order[:n]].mean()) for n in (200, count)],
            "seconds": round(time.perf_counter() - started, 1)}  # fmt: skip


def print_audit_table(lines: list[dict]) -> None:
    """Print a table of --audit: means over seeds, by row."""
    print_header("data", "audit", "found biased", "missing", "estimated", "interval", "inside",
                 "precision of the first 200", "of the first n, n missing")  # fmt: skip
    for (name, setting, row), some in sorted(group_by(lines, "set", "setting", "row").items()):
        value, low, high = np.mean([one["estimated"] for one in some], axis=0)
        inside = sum(one["estimated"][1] <= one["missing"] <= one["estimated"][2] for one in some)
        first, all_of_them = 100 * np.mean([one["precision"] for one in some], axis=0)
        print_row(
            f"{name}, {setting}", row, f"{sum(one['biased'] for one in some)} of {len(some)}",
            f"{np.mean([one['missing'] for one in some]):,.0f}", f"{value:,.0f}",
            f"{low:,.0f} to {high:,.0f}", f"{inside} of {len(some)}", f"{first:.1f}",
            f"{all_of_them:.1f}",
        )  # fmt: skip


def run_detection(given: dict[str, Any], name: str, setting: str, seed: int, row: str) -> dict:
    """Test whether the labels of one draw are biased, by one of the two tests."""
    torch.set_num_threads(1)
    x, complete, _, _, measures = load_features(given, name, setting)
    shown = hide(complete, UNIFORM.get(setting, setting), seed, measures)
    started = time.perf_counter()
    line: dict = {"set": name, "setting": setting, "seed": seed, "row": row}
    if row == ALONE:
        test = find_label_bias(prepare_features(x), shown, seed)
        line |= {"found": test is not None and test.found}
        if test is not None:
            line |= {"tells": test.tells, "z": test.z, "even": test.even}
            line["explained"] = test.explained
    else:
        rows = draw_complete_rows(len(complete), seed)
        known = shown.copy()
        known[rows] = complete[rows]
        tested = find_preference(shown, known, seed=seed)
        line |= {"found": tested.found, "p": tested.p_value, "rows": tested.rows}
        line["exponent"] = tested.exponent
    return {**line, "seconds": round(time.perf_counter() - started, 1)}


def print_detection_table(lines: list[dict]) -> None:
    """Print in how many draws labels were found to be biased."""
    print_header("data", *TESTS)
    cases = group_by(lines, "set", "setting")
    for name, setting in sorted(cases, key=place_of):
        cells = []
        for test in TESTS:
            some = [line for line in cases[name, setting] if line["row"] == test]
            # "cannot be told" is no alarm, and is counted beside.
            told = [line for line in some if line.get("tells", True)]
            count = f"{sum(line['found'] for line in told)} of {len(some)}"
            cells.append(f"{count} ({len(some) - len(told)} cannot be told)" if some else "–")
        print_row(f"{name}, {setting}", *cells)


def place_of(case: tuple[str, str]) -> tuple[str, int]:
    """Return the place of a data set and setting in a table."""
    return case[0], SETTINGS.index(case[1]) if case[1] in SETTINGS else 99


# ---------------------------------------------------------------------- images, end to end

# What auto chooses on images, for the other rows of the table.
RECIPE = {"head_lr": 1.1e-3, "ridge": 2.0, "select": "last"}
# VOC's number of positives per image, which role is told, as in its paper.
OPTIONS = {"role": {"expected_positives": 1.46}}


def write_files(data: Path, folder: Path, setting: str, seed: int, row: str) -> dict[str, Any]:
    """Write the label file of a run; return the settings that name its files."""
    read = benchmarks.load(
        "table", data / "labels.csv", labels=UNIFORM.get(setting, setting), seed=seed, val=0,
        reading={"drop_columns": ["observed"]}, measures=data / "boxes.npz",
    )  # fmt: skip
    observed, settings = read.observed, {"labels": str(folder / "labels.csv")}
    if row == WITH_COMPLETE_ROWS:
        train = read.splits.train
        rows = train[draw_complete_rows(len(train), seed)]
        complete = replace(observed, values=read.truth).select(rows)
        write_labels(complete, folder / "complete.csv")
        settings["complete_rows"] = str(folder / "complete.csv")
    write_labels(observed, folder / "labels.csv")
    return settings


def run_images(given: dict[str, Any], name: str, setting: str, seed: int, row: str) -> dict:
    """Train once end to end on VOC 2012, and measure one row of the table."""
    from halftruth.train.fit import train

    warnings.simplefilter("ignore")
    torch.set_num_threads(given["threads"])
    data, started = Path(given["images"]), time.perf_counter()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shown = "complete" if row == "complete" else setting
        settings: dict[str, Any] = write_files(data, folder, shown, seed, row)
        if row in METHODS or row == "complete":
            method = METHODS.get(row, "bce")
            epochs = {key: given[key] for key in ("head_epochs", "epochs")}
            settings |= {"method": method, "options": OPTIONS.get(row, {}), **RECIPE, **epochs}
        settings |= {
            **image_settings(argparse.Namespace(**given), data, given["cache"]),
            "seed": seed,
            "workers": 0,
            "report": False,
            "out": str(folder / "run"),
        }
        result = train(settings, quiet=True)
    score, seconds = result.test["mAP"], round(time.perf_counter() - started, 1)
    return {"set": name, "setting": setting, "seed": seed, "row": row, "mAP": score,
            "seconds": seconds, "method": result.method}  # fmt: skip


# ---------------------------------------------------------------------- all lines


def print_table(lines: list[dict]) -> None:
    """Print mean ± standard deviation over seeds; the best row of a column is bold.

    `behind` is the best published method minus auto; `back` the share of what the bias costs auto
    that 100 complete rows bring back.
    """
    cases = group_by(lines, "set", "setting")
    there = [line["row"] for line in lines]
    rows = [row for row in dict.fromkeys([*ROWS, *ORACLES, *there]) if row in there]

    def collect(*case: str) -> dict[str, list[float]]:
        rows = group_by(cases.get(case, []), "row").items()
        return {row: [100 * line["mAP"] for line in some] for (row,), some in rows}

    print_header("data", *rows, "auto behind the best method", "back")
    for name, setting in sorted(cases, key=place_of):
        if setting == "complete":
            continue
        found = {**collect(name, "complete"), **collect(name, setting)}
        mean = {row: float(np.mean(values)) for row, values in found.items()}
        best = max((v for row, v in mean.items() if row != "complete"), default=np.nan)
        cells = [show_mean(found.get(row, [])) for row in rows]
        cells = [f"**{c}**" if mean.get(r) == best else c for r, c in zip(rows, cells, strict=True)]
        behind = back = ""
        published = [mean[row] for row in METHODS if row in mean]
        if "auto" in mean and published:
            behind = f"{max(published) - mean['auto']:+.1f}"
        uniform = collect(name, "uniform").get("auto")
        if uniform and {"auto", WITH_COMPLETE_ROWS} <= mean.keys() and setting != "uniform":
            cost = float(np.mean(uniform)) - mean["auto"]
            back = f"{(mean[WITH_COMPLETE_ROWS] - mean['auto']) / cost:.0%} of {cost:.1f}"
        print_row(f"{name}, {setting}", *cells, behind, back)


def make_tasks(given: argparse.Namespace) -> list[tuple[str, str, int, str]]:
    """Return (data set, setting, seed, row) of every line that is not there yet."""
    sets = ["voc, end to end"] if given.images else given.sets.split(",")
    wanted = given.settings.split(",")
    every = TESTS if given.detect else AUDITS if given.audit else ROWS
    named = {"all": every, "oracles": ORACLES}
    rows = named.get(given.rows) or [row.strip() for row in given.rows.split(";")]
    done = {key_of(line) for line in read_lines(given.out)}
    tasks = [
        (name, setting, int(seed), row)
        for seed in given.seeds.split(",")
        for name in sets
        for row in rows
        for setting in (["complete"] if row == "complete" else wanted)
        if setting not in ON_BOXES or name.startswith("voc")
    ]
    return [task for task in tasks if task not in done]


def describe(line: dict) -> str:
    """Return what a line says, for the screen."""
    if "missing" in line:
        return f"{line['missing']} missing, {line['estimated'][0]:.0f} estimated"
    return f"{100 * line['mAP']:.2f}" if "mAP" in line else f"biased: {line['found']}"


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", default=".")
    parser.add_argument("--sets", default="voc,coco,corel5k,bibtex,yeast")
    parser.add_argument("--voc", default="voc2012", help="folder with labels.csv and boxes.npz")
    parser.add_argument("--images", help="folder of VOC 2012: train end to end")
    parser.add_argument("--cache", default="cache", help="folder of decoded images (--images)")
    parser.add_argument("--head-epochs", type=int, default=20, help="of published methods")
    parser.add_argument("--epochs", type=int, default=6, help="of published methods")
    parser.add_argument("--threads", type=int, default=2, help="of a run on images")
    parser.add_argument("--detect", action="store_true", help="test whether labels are biased")
    parser.add_argument("--audit", action="store_true", help="count and rank missing labels")
    parser.add_argument("--fits", help="folder that keeps the scores of auto")
    parser.add_argument("--most", type=int, default=10**9, help="the most training rows")
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--rows", default="all", help=f"some of: {'; '.join(ROWS)} (';' between)")
    parser.add_argument("--table", type=Path, help="print the table of a file of results")
    add_image_options(parser)
    add_task_options(parser)
    given = parser.parse_args(argv)
    if given.table:
        lines = read_lines(given.table)
        if any("found" in line for line in lines):
            return print_detection_table(lines)
        audits = any("missing" in line for line in lines)
        return print_audit_table(lines) if audits else print_table(lines)
    if given.audit and not given.fits:
        parser.error("--audit needs --fits, a folder")
    tasks, run = make_tasks(given), run_images if given.images else run_features
    run = run_detection if given.detect else run_audit if given.audit else run
    # On images the first run decodes the images for all.
    run_tasks(partial(run, vars(given)), tasks, given, describe, first_alone=bool(given.images))


if __name__ == "__main__":
    voc = "DATA/tabular --sets voc --voc DATA/voc2012 --seeds 0 --settings rare,size"
    images = "--images DATA/voc2012 --cache OUT/cache --backbone test_resnet --weights none"
    oracles = "linear; linear, present ones left out"
    start(
        main,
        f"{voc} --rows '{oracles}' --out OUT/maps.jsonl",
        "--table OUT/maps.jsonl",
        f"{voc} --detect --out OUT/tests.jsonl",
        "--table OUT/tests.jsonl",
        f"{images} --size 32 --seeds 0 --settings size --rows em --epochs 1 --head-epochs 1 "
        "--threads 1",
    )
