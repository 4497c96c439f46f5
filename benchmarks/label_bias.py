"""Methods under labels that are not missing at random: one label per row, shown by a bias.

    python benchmarks/label_bias.py DIR --sets voc,coco,yeast --voc VOC --out bias.jsonl --jobs 2
    python benchmarks/label_bias.py --images DATA --out images.jsonl --jobs 4
    python benchmarks/label_bias.py --table bias.jsonl
    python benchmarks/label_bias.py DIR --sets yeast --detect --seeds 0,1,2,3,4 --out detect.jsonl

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
there already are not computed again. --detect measures instead how often labels are found to be
biased: from the labels alone (frequent classes first), and by the test of 100 random rows with
complete labels. `auto, 100 complete rows`: 100 random training rows have all
their labels. The labels shown depend on the seed.
"""

import argparse
import os
import tempfile
import time
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from ensemble import predict, train_method
from halftruth.bench import datasets as benchmarks
from halftruth.bench.label_settings import hide
from halftruth.data import write_labels
from halftruth.metrics import mean_average_precision
from halftruth.presence.preference import find_preference
from halftruth.train.auto.label_bias import LEVEL
from halftruth.train.auto.shown_first import find_label_bias
from halftruth.train.ensemble.fit_ensemble import fit_ensemble, prepare_features
from result_lines import key_of, read_lines, run_tasks

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


def draw_complete_rows(count: int, seed: int) -> np.ndarray:
    """Return the rows whose labels are all known."""
    chosen = np.random.default_rng([seed, 100]).choice(count, min(COMPLETE_ROWS, count), False)
    return np.sort(chosen)


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


def run_features(given: dict[str, Any], name: str, setting: str, seed: int, row: str) -> dict:
    """Measure one row of the table on the features of one data set, setting and seed."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with np.load(Path(given["folder"]) / f"{name}.npz") as file:
        x, y, test, truth = (file[k] for k in ("X_train", "Y_train", "X_test", "Y_test"))
    x, test = x.astype(np.float32), test.astype(np.float32)
    complete = np.where(y > 0, 1, -1).astype(np.int8)
    measures = load_measures(Path(given["voc"]), y) if setting in ON_BOXES else {}
    shown = complete
    if row != "complete":
        shown = hide(complete, UNIFORM.get(setting, setting), seed, measures)
    started = time.perf_counter()
    if row in METHODS:
        score = train_method(METHODS[row], x, shown, test, truth, seed)
    else:
        if row == WITH_COMPLETE_ROWS:
            rows = draw_complete_rows(len(x), seed)
            shown[rows] = complete[rows]
        fitted = fit_ensemble(x, shown, seed=seed)
        score = mean_average_precision(predict(fitted.model, test), truth)
    seconds = round(time.perf_counter() - started, 1)
    return {"set": name, "setting": setting, "seed": seed, "row": row, "mAP": score,
            "seconds": seconds}  # fmt: skip


def run_detection(given: dict[str, Any], name: str, setting: str, seed: int, row: str) -> dict:
    """Test whether the labels of one draw are biased, by one of the two tests."""
    torch.set_num_threads(1)
    with np.load(Path(given["folder"]) / f"{name}.npz") as file:
        x, y = file["X_train"].astype(np.float32), file["Y_train"]
    complete = np.where(y > 0, 1, -1).astype(np.int8)
    measures = load_measures(Path(given["voc"]), y) if setting in ON_BOXES else {}
    shown = hide(complete, UNIFORM.get(setting, setting), seed, measures)
    started = time.perf_counter()
    line: dict = {"set": name, "setting": setting, "seed": seed, "row": row}
    if row == ALONE:
        test = find_label_bias(prepare_features(x), shown, seed)
        line |= {"found": test is not None and bool(test.found)}
        line["z"] = None if test is None else float(test.z)
    else:
        rows = draw_complete_rows(len(y), seed)
        known = shown.copy()
        known[rows] = complete[rows]
        tested = find_preference(shown, known, seed=seed)
        line |= {"found": bool(tested.p_value < LEVEL), "p": tested.p_value, "rows": tested.rows}
    return {**line, "seconds": round(time.perf_counter() - started, 1)}


def make_detection_table(lines: list[dict]) -> str:
    """Return a Markdown table: in how many draws labels were found to be biased."""
    out = [f"| data | {' | '.join(TESTS)} |", "|---|---|---|"]
    counts: dict[tuple[str, str], dict[str, list[bool]]] = {}
    for line in lines:
        at = counts.setdefault((line["set"], line["setting"]), {})
        at.setdefault(line["row"], []).append(line["found"])
    order = {setting: at for at, setting in enumerate(SETTINGS)}
    for (name, setting), found in sorted(
        counts.items(), key=lambda item: (item[0][0], order.get(item[0][1], 99))
    ):
        cells = [f"{sum(v)} of {len(v)}" if v else "–" for v in (found.get(t, []) for t in TESTS)]
        out.append(f"| {name}, {setting} | {' | '.join(cells)} |")
    return "\n".join(out)


# ---------------------------------------------------------------------- images, end to end

# What auto chooses on images, for the other rows of the table.
RECIPE = {"head_epochs": 20, "epochs": 6, "head_lr": 1.1e-3, "ridge": 2.0, "select": "last"}
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
    torch.set_num_threads(2)
    data, started = Path(given["images"]), time.perf_counter()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        shown = "complete" if row == "complete" else setting
        settings: dict[str, Any] = write_files(data, folder, shown, seed, row)
        if row in METHODS or row == "complete":
            method = METHODS.get(row, "bce")
            settings |= {"method": method, "options": OPTIONS.get(row, {}), **RECIPE}
        settings |= {
            "images": [str(path) for path in sorted(data.glob("*.zip"))],
            "backbone": "tf_efficientnet_lite0",
            "weights": str(data / "tf_efficientnet_lite0.safetensors"),
            "image_size": 224,
            "seed": seed,
            "cache": "disk",
            "cache_dir": given["cache"],
            "workers": 0,
            "report": False,
            "out": str(folder / "run"),
        }
        result = train(settings, quiet=True)
    score, seconds = result.test["mAP"], round(time.perf_counter() - started, 1)
    return {"set": name, "setting": setting, "seed": seed, "row": row, "mAP": score,
            "seconds": seconds, "method": result.method}  # fmt: skip


# ---------------------------------------------------------------------- all lines


def make_table(lines: list[dict]) -> str:
    """Return a Markdown table: mean ± standard deviation over seeds; the best row of a column bold.

    `behind` is the best published method minus auto; `back` the share of what the bias costs auto
    that 100 complete rows bring back.
    """
    values: dict[tuple[str, str], dict[str, list[float]]] = {}
    for line in lines:
        at = values.setdefault((line["set"], line["setting"]), {})
        at.setdefault(line["row"], []).append(100 * line["mAP"])
    rows = [row for row in ROWS if any(line["row"] == row for line in lines)]
    out = ["| data | " + " | ".join(rows) + " | auto behind the best method | back |"]
    out.append("|" + "---|" * (len(rows) + 3))
    order = {setting: at for at, setting in enumerate(SETTINGS)}
    for name, setting in sorted(values, key=lambda key: (key[0], order.get(key[1], 99))):
        if setting == "complete":
            continue
        found = {**values.get((name, "complete"), {}), **values[name, setting]}
        mean = {row: float(np.mean(found[row])) for row in rows if row in found}
        best = max((v for row, v in mean.items() if row != "complete"), default=np.nan)
        cells = []
        for row in rows:
            if row not in found:
                cells.append("–")
                continue
            spread = np.std(found[row], ddof=1) if len(found[row]) > 1 else 0
            text = f"{mean[row]:.1f} ± {spread:.1f}"
            cells.append(f"**{text}**" if mean[row] == best else text)
        behind = back = ""
        published = [mean[row] for row in METHODS if row in mean]
        if "auto" in mean and published:
            behind = f"{max(published) - mean['auto']:+.1f}"
        uniform = values.get((name, "uniform"), {}).get("auto")
        if uniform and {"auto", WITH_COMPLETE_ROWS} <= mean.keys() and setting != "uniform":
            cost = float(np.mean(uniform)) - mean["auto"]
            back = f"{(mean[WITH_COMPLETE_ROWS] - mean['auto']) / cost:.0%} of {cost:.1f}"
        out.append(f"| {name}, {setting} | " + " | ".join(cells) + f" | {behind} | {back} |")
    return "\n".join(out)


def make_tasks(given: argparse.Namespace) -> list[tuple[str, str, int, str]]:
    """Return (data set, setting, seed, row) of every line that is not there yet."""
    sets = ["voc, end to end"] if given.images else given.sets.split(",")
    wanted = given.settings.split(",")
    every = TESTS if given.detect else ROWS
    rows = every if given.rows == "all" else [row.strip() for row in given.rows.split(";")]
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", default=".")
    parser.add_argument("--sets", default="voc,coco,corel5k,bibtex,yeast")
    parser.add_argument("--voc", default="voc2012", help="folder with labels.csv and boxes.npz")
    parser.add_argument("--images", help="folder of VOC 2012: train end to end")
    parser.add_argument("--cache", default="cache", help="folder of decoded images (--images)")
    parser.add_argument("--detect", action="store_true", help="test whether labels are biased")
    parser.add_argument("--settings", default=",".join(SETTINGS))
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--rows", default="all", help=f"some of: {'; '.join(ROWS)} (';' between)")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1e9, help="start nothing after this time")
    parser.add_argument("--out", type=Path, help="file of results; lines in it are not repeated")
    parser.add_argument("--table", type=Path, help="print the table of a file of results")
    given = parser.parse_args()
    if given.table:
        lines = read_lines(given.table)
        tests = [line for line in lines if "found" in line]
        print(make_detection_table(tests) if tests else make_table(lines))
        return
    tasks, run = make_tasks(given), run_images if given.images else run_features
    run = run_detection if given.detect else run
    run_tasks(
        partial(run, vars(given)), tasks, given.out,
        lambda line: f"{100 * line['mAP']:.2f}" if "mAP" in line else f"biased: {line['found']}",
        jobs=given.jobs, minutes=given.minutes,
        # On images the first run decodes the images for all.
        first_alone=bool(given.images),
    )  # fmt: skip


if __name__ == "__main__":
    main()
