"""Audit VOC 2012 with one positive per image: precision, counts, and the gain from a review.

    python benchmarks/audit.py DATA --out results/ [--seeds 0 1 2] [--cleanlab PYTHON]

DATA holds labels.csv (image, split in train/test, observed, one 0/1 column per class), the images
as zips and the weights tf_efficientnet_lite0.safetensors; `--features` is a feature matrix, if one
exists. Everything is trained on frozen features. `--cleanlab` is a Python that has cleanlab
installed: its filter then gets the same scores. Finished seeds are not repeated.
"""

import argparse
import json
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import halftruth
from common import add_image_options, flag_by_cleanlab, image_settings, show_mean, start
from halftruth.audit import calibrate, missing_labels
from halftruth.audit.cross_scores import cross_scores
from halftruth.data import read_labels, split_rows, write_labels
from halftruth.labels import ABSENT, PRESENT, UNKNOWN, LabelMatrix
from halftruth.presence.remaining import VerdictModel

METHODS: dict[str, dict[str, Any]] = {
    "assume negative": {"method": "bce"},
    "em": {"method": "em", "options": {"alpha": 0.2}},
    "wan": {"method": "wan"},
}
BEST = "wan"
FIRST, CLICKS = (100, 500, 1000), (250, 500, 1000)


def extract_features(given: argparse.Namespace) -> np.ndarray:
    """Frozen features of all images."""
    data, out = given.data, given.out
    halftruth.fit(
        data / "labels.csv", reading={"label_column": "observed", "split_column": "split"},
        method="bce", tune="head", head_epochs=1, out=out / "extract", workers=given.workers,
        **image_settings(given, data, out / "cache"),
    )  # fmt: skip
    return np.load(next((out / "cache").glob("features-*.npy")))


def train_head(
    labels: LabelMatrix, folder: Path, seed: int, matrix: Path, **settings: Any
) -> float:
    """Test mAP of a head trained on these labels; they also select the epoch."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "labels.parquet"
    write_labels(labels, file)
    result = halftruth.fit(
        file, features=matrix, reading={"split_column": "split", "classes": list(labels.classes)},
        truth=file.with_name("truth.parquet"), select="observed", seed=seed, quiet=True,
        report=False,
        reading_truth={"split_column": "split", "classes": list(labels.classes)},
        out=folder / "run", **settings,
    )  # fmt: skip
    return 100 * result.test["mAP"]


def precision(order: np.ndarray, present: np.ndarray, counts: Any) -> dict[str, float]:
    """The share of present labels among the first `counts` of a ranking."""
    return {str(n): float(present[order[:n, 0], order[:n, 1]].mean()) for n in counts}


def by_score(scores: np.ndarray, among: np.ndarray) -> np.ndarray:
    places = np.argwhere(among)
    return places[np.argsort(-scores[among], kind="stable")]


def run(seed: int, data: Path, out: Path, matrix: Path, cleanlab: str | None) -> dict[str, Any]:
    """Audit and review with one seed."""
    torch.set_num_threads(1)
    complete = read_labels(data / "labels.csv", zero="absent", drop_columns=["observed"])
    observed = read_labels(data / "labels.csv", label_column="observed", classes=complete.classes)
    split = np.array(complete.split, dtype="<U5")
    taught = np.flatnonzero(split == "train")
    _, held_out = split_rows(len(taught), seed=1200)
    split[taught[held_out]] = "val"
    present = complete.values[taught] == PRESENT
    part = LabelMatrix(observed.values[taught], complete.classes, complete.items[taught])
    hidden = int((present & (part.values == UNKNOWN)).sum())
    found: dict[str, Any] = {"seed": seed, "hidden": hidden, "audit": {}, "loop": {}}
    held = np.load(matrix)
    rankings = {}
    for name, settings in METHODS.items():
        started = time.time()
        folder = out / f"seed{seed}" / name.replace(" ", "-")
        scores, _ = cross_scores(part, folder, features=held[taught], seed=seed, **settings)
        known = calibrate(part.values, scores, seed=seed)
        table = missing_labels(part.values, scores, calibration=known, classes=part.classes)
        place = {label: k for k, label in enumerate(part.classes)}
        order = np.stack([table["row"], table["class"].map(place)], axis=1).astype(int)
        total = known.missing_total
        firsts = [n for n in (*FIRST, round(total.value)) if n <= len(table)]
        expected = {str(n): float(table["expected_precision"][n - 1]) for n in firsts}
        truth = (present & (part.values == UNKNOWN)).sum(axis=0)
        inside = [c.low <= t <= c.high for c, t in zip(known.missing, truth, strict=True)]
        record = {
            "estimate": [total.value, total.low, total.high],
            "expected": expected,
            "halftruth": precision(order, present, firsts),
            "by score": precision(by_score(scores, part.values == UNKNOWN), present, firsts),
            "classes covered": float(np.mean(inside)),
            "seconds": round(time.time() - started),
        }
        if cleanlab:
            flagged = flag_by_cleanlab(cleanlab, part.values, scores) & (part.values == UNKNOWN)
            ranked = by_score(scores, flagged)
            counts = [n for n in firsts if n <= len(ranked)]
            record["cleanlab"] = precision(ranked, present, [*counts, len(ranked)])
            record["cleanlab flags"] = len(ranked)
        found["audit"][name] = record
        rankings[name] = (order, table["probability"].to_numpy(), known)
        print(seed, name, json.dumps(record), flush=True)
    base = LabelMatrix(observed.values, complete.classes, complete.items, split)
    folder = out / f"seed{seed}" / "loop"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    full = LabelMatrix(complete.values, complete.classes, complete.items, split)

    def test(name: str, labels: LabelMatrix, **settings: Any) -> float:
        place = folder / name.replace(" ", "-")
        place.mkdir()
        write_labels(full, place / "truth.parquet")
        value = train_head(labels, place, seed, matrix, **settings)
        print(seed, "loop", name, round(value, 2), flush=True)
        return value

    loop = found["loop"]
    loop["complete labels"] = test("complete", full, **METHODS["assume negative"])

    def reviewed(ranking: np.ndarray, clicks: int, absent: int = UNKNOWN) -> LabelMatrix:
        """The labels after a perfect reviewer has decided on the first `clicks` candidates."""
        at = ranking[:clicks]
        values = base.values.copy()
        right = present[at[:, 0], at[:, 1]]
        values[taught[at[:, 0]], at[:, 1]] = np.where(right, PRESENT, absent)
        return LabelMatrix(values, base.classes, base.items, split)

    for name, settings in METHODS.items():
        order, probability, known = rankings[name]
        loop[f"{name}, 0 clicks"] = test(f"{name}-0", base, **settings)
        for clicks in CLICKS:
            labels = reviewed(order, clicks)
            loop[f"{name}, {clicks} clicks"] = test(f"{name}-{clicks}", labels, **settings)
            right = present[order[:clicks, 0], order[:clicks, 1]]
            loop[f"{name}, {clicks} clicks, found"] = int(right.sum())
            verdicts = np.zeros(len(order), dtype=np.int8)
            verdicts[:clicks] = np.where(right, 1, -1)
            model = VerdictModel(probability, order[:, 1], known.missing, known.missing_total)
            left = model.update(verdicts).total
            loop[f"{name}, {clicks} clicks, estimated left"] = [left.value, left.low, left.high]
            loop[f"{name}, {clicks} clicks, truly left"] = hidden - int(right.sum())
    last = CLICKS[-1]
    refused = reviewed(rankings[BEST][0], last, ABSENT)
    loop[f"{BEST}, {last}, rejected as absent"] = test("refused", refused, **METHODS[BEST])
    anywhere = np.random.default_rng(seed).permutation(np.argwhere(part.values == UNKNOWN))
    loop[f"{BEST}, {last} random clicks"] = test(
        "random", reviewed(anywhere, last), **METHODS[BEST]
    )
    return found


def run_dropped(seed: int, data: Path, out: Path, matrix: Path) -> dict[str, Any]:
    """Audit labels in which each positive is hidden with probability 0.5."""
    torch.set_num_threads(1)
    complete = read_labels(data / "labels.csv", zero="absent", drop_columns=["observed"])
    rows = np.flatnonzero(complete.split == "train")
    present = complete.values[rows] == PRESENT
    kept = present & (np.random.default_rng(seed).random(present.shape) < 0.5)
    part = LabelMatrix(kept.astype(np.int8), complete.classes)
    folder = out / f"seed{seed}" / "dropped"
    held = np.load(matrix)[rows]
    scores, _ = cross_scores(part, folder, features=held, seed=seed, **METHODS[BEST])
    known = calibrate(part.values, scores, seed=seed)
    total = known.missing_total
    table = missing_labels(part.values, scores, calibration=known, classes=part.classes)
    place = {label: k for k, label in enumerate(part.classes)}
    order = np.stack([table["row"], table["class"].map(place)], axis=1).astype(int)
    firsts = [n for n in (*FIRST, round(total.value)) if n <= len(table)]
    return {
        "hidden": int((present & ~kept).sum()),
        "estimate": [total.value, total.low, total.high],
        "expected": {str(n): float(table["expected_precision"][n - 1]) for n in firsts},
        "halftruth": precision(order, present, firsts),
    }


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--features", type=Path)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--cleanlab", help="Python executable with cleanlab installed.")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, help="of every fit (default: that of halftruth)")
    add_image_options(parser)
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    for settings in METHODS.values() if options.epochs else ():
        settings["epochs"] = options.epochs
    matrix = options.features or options.out / "features.npy"
    if not matrix.exists():
        np.save(matrix, extract_features(options))
    for seed in options.seeds:
        path = options.out / f"seed{seed}.json"
        if not path.exists():
            found = run(seed, options.data, options.out, matrix, options.cleanlab)
            path.write_text(json.dumps(found, indent=1))
        path = options.out / f"dropped{seed}.json"
        if not path.exists():
            found = run_dropped(seed, options.data, options.out, matrix)
            path.write_text(json.dumps(found, indent=1))
    for path in sorted(options.out.glob("dropped?.json")):
        print("half dropped at random:", json.dumps(json.loads(path.read_text())))
    table([json.loads(path.read_text()) for path in sorted(options.out.glob("seed?.json"))])


def table(records: list[dict[str, Any]]) -> None:
    """Means over seeds, with standard deviations."""

    print("| scores of | ranking | 100 | 500 | 1,000 | all estimated (or flagged) |")
    print("|---|---|---|---|---|---|")
    for name in METHODS:
        for way in ("halftruth", "by score", "cleanlab", "expected"):
            rows = [r["audit"][name].get(way) for r in records]
            if any(row is None for row in rows):
                continue
            cells = [
                show_mean([100 * list(row.values())[k] for row in rows])
                for k in range(min(4, *(len(row) for row in rows)))
            ]
            print(f"| {name} | {way} | {' | '.join(cells)} |")
    for name in METHODS:
        parts = [r["audit"][name] for r in records]
        ends = [show_mean([p["estimate"][k] for p in parts], 0) for k in range(3)]
        flags = [p.get("cleanlab flags", np.nan) for p in parts]
        print(
            f"{name}: estimated missing {ends[0]} ({ends[1]} to {ends[2]}), "
            f"true {records[0]['hidden']:,}; cleanlab flags {show_mean(flags, 0)}; classes whose "
            f"interval holds: {show_mean([100 * p['classes covered'] for p in parts])} %"
        )
    for key in records[0]["loop"]:
        values = [r["loop"][key] for r in records]
        several = np.ndim(values) > 1
        shown = (
            [show_mean(list(v), 0) for v in np.transpose(values)]
            if several
            else show_mean(values, 2)
        )
        print(f"{key}: {shown}")


if __name__ == "__main__":
    network = "--backbone test_resnet --weights none --size 32 --workers 0 --epochs 1"
    start(main, f"DATA/voc2012 --out OUT --seeds 0 {network}")
