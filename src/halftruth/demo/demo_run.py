"""The demo: make images, hide labels, train three models, compare, decide, find the labels."""

from __future__ import annotations

import json
import multiprocessing
import shutil
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import indent
from typing import Any

import numpy as np
import torch
from rich import box
from rich.console import Console
from rich.table import Table

from halftruth.data import DataError, read_labels
from halftruth.demo.demo_page import (
    Album,
    Bin,
    Estimate,
    Row,
    calibration_error,
    make_bins,
    rank_unknown,
    write_page,
)
from halftruth.demo.scenes import make_scenes
from halftruth.labels import PRESENT
from halftruth.seeds import check_seed

DEPTHS = (20, 100, 500)
# Written first: a folder that holds it was made by the demo, and the demo may replace it.
MARKER = "demo.json"
MADE_BY = "halftruth demo"

SCENES: dict[str, Any] = {"count": 5000, "size": 32}
TRAINING: dict[str, Any] = {
    "backbone": "test_resnet",
    "weights": "none",
    "image_size": 32,
    "tune": "all",
    "freeze_bn": False,
    "epochs": 8,
    "batch_size": 32,
    "lr": 0.006,
    "optimizer": "adamw",
    "weight_decay": 0.01,
    "ema": 0.99,
    "augment": "none",
    "cache": "memory",
    "workers": 0,
    "device": "cpu",
    "report": False,
}
# What to type next, on one's own data.
NEXT = """\
halftruth data check labels.csv --images photos/
halftruth train labels.csv --images photos/ --out runs/first
halftruth audit labels.csv --images photos/ --out audit"""
QUICK_SCENES = {"count": 60}
QUICK_TRAINING = {"epochs": 1}


# The scores shown as the run estimates them, and their names on the page.
ESTIMATED = {"mAP": "mAP", "OF1": "F1 of the decisions"}


@dataclass(frozen=True)
class Variant:
    """One of the trainings that are compared."""

    name: str
    method: str
    note: str
    kind: str  # the colour on the page: "naive", "robust" or "complete"
    folder: str
    labels: str = "observed.csv"


VARIANTS = (
    Variant(
        "assume negative", "bce", "an unknown label counts as absent", "naive", "assume-negative"
    ),
    Variant("auto", "auto", "halftruth's default", "robust", "auto"),
    Variant(
        "complete labels", "bce", "no label is hidden: the upper limit", "complete",
        "complete-labels", "labels.csv",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What one training gave: its row, its scores (N, K), and what it says of itself.

    Rows that are not scored, because the page does not need them, have NaN.
    """

    row: Row
    scores: np.ndarray
    estimates: list[Estimate]
    bins: list[Bin]
    calibration: str


def run_demo(
    out: str | Path, *, seed: int = 0, quick: bool = False, processes: int = len(VARIANTS)
) -> dict[str, Any]:
    """Run the demo in a folder, write index.html there, and return the contents of demo.json.

    `quick` makes 60 images and trains for one epoch: everything runs, but nothing is learned.
    Each training uses one thread, and `processes` of them run at the same time: for a network this
    small that is faster than several threads, also on a busy machine. A script calls this under
    `if __name__ == "__main__":`, because the processes import it.
    """
    check_seed(seed)
    started, out, console = time.perf_counter(), Path(out), Console()
    _prepare_folder(out)
    training = {**TRAINING, **(QUICK_TRAINING if quick else {}), "seed": seed}
    with console.status("making images"):
        paths = make_scenes(out / "data", **SCENES | (QUICK_SCENES if quick else {}), seed=seed)
    album = Album(out / "data" / "images", *(read_labels(path) for path in paths))
    _print(console, f"{len(album.observed):,} images in {out / 'data'}")
    _print(console, album.observed.describe())

    found = {}
    with console.status(f"training {len(VARIANTS)} models of {training['epochs']} epochs"):
        for outcome in _train_all(out, album, training, processes):
            row = outcome.row
            found[row.kind] = outcome
            _print(console, f"{row.name}: test mAP {100 * row.mAP:.1f} in {row.seconds:.0f} s")
    rows, auto = [outcome.row for outcome in found.values()], found["robust"]
    console.print(_table(rows))
    _print(console, _describe(auto))

    page = write_page(
        out / "index.html",
        rows=rows,
        estimates=auto.estimates,
        bins=auto.bins,
        calibration=auto.calibration,
        scenes=album.scenes(),
        findings=album.findings(auto.scores),
        mistakes=album.mistakes(auto.scores),
        found_by=auto.row.name,
        first=f"Of the first {DEPTHS[0]} of all classes, {_count_first(auto)} are present.",
        numbers=album.facts(),
        commands=NEXT,
        code=_fit_call(out, training),
    )
    result = {
        "made_by": MADE_BY,
        "seed": seed,
        "seconds": time.perf_counter() - started,
        "page": str(page),
        "rows": [asdict(row) for row in rows],
        "estimates": [asdict(one) for one in auto.estimates],
        "calibration": auto.calibration,
        "bins": [asdict(one) for one in auto.bins],
    }
    (out / MARKER).write_text(json.dumps(result, indent=1), encoding="utf-8")
    _print(console, f"{result['seconds']:.0f} s in total; open the page with all of this:")
    _print(console, f"  {page.resolve().as_uri()}\n")
    _print(console, "next, with your own label file and images (docs/get-started.md):")
    _print(console, indent(NEXT, "  "))
    return result


def _train_all(
    out: Path, album: Album, training: dict[str, Any], processes: int
) -> Iterator[Outcome]:
    """Train the variants, several at the same time, and yield their results in order."""
    # A forked process could wait forever for the threads of this one.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, torch.set_num_threads, (1,)) as pool:
        jobs = [pool.submit(train_variant, one, out, album, training) for one in VARIANTS]
        for job in jobs:
            yield job.result()


def train_variant(variant: Variant, out: Path, album: Album, training: dict[str, Any]) -> Outcome:
    """Train one variant, as a user would, and measure it on the test images."""
    from halftruth.api import fit, load
    from halftruth.metrics import evaluate
    from halftruth.metrics.counts import UndefinedMetricWarning
    from halftruth.train.results.run_result import score_decisions

    started, complete = time.perf_counter(), album.complete
    result = fit(
        out / "data" / variant.labels,
        album.images,
        method=variant.method,
        out=out / variant.folder,
        quiet=True,
        **training,
    )
    seconds = time.perf_counter() - started

    assert complete.items is not None
    assert complete.split is not None
    test = complete.split == "test"
    # Only a model that was trained on the observed labels can find hidden ones.
    finds = variant.kind != "complete"
    scored = test | (complete.split == "train") if finds else test
    run = load(result.folder, device=training["device"])
    found = run.score(images=album.images, items=list(complete.items[scored]), bad_images="fail")
    scores = np.full(complete.values.shape, np.nan)
    scores[scored] = found.probabilities
    truth, raw = complete.values[test], found.raw[test[scored]]
    present = truth == PRESENT
    with warnings.catch_warnings():
        # A model may predict no image of a class at all; its F1 in the table shows that.
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        metrics = score_decisions(scores[test], run.decisions, truth)
        at_half = evaluate(raw, truth)
    right = album.is_present(rank_unknown(scores, album.observed)) if finds else None
    chosen = variant.method == "auto"
    row = Row(
        name=variant.name,
        method=result.method,
        note=f"{variant.note}; it chose {result.method}" if chosen else variant.note,
        kind=variant.kind,
        mAP=metrics["mAP"],
        f1_at_half=at_half["OF1"],
        f1=metrics["OF1"],
        precision={
            depth: None if right is None else float(right[:depth].mean()) for depth in DEPTHS
        },
        seconds=seconds,
    )
    estimates = []
    for name, title in ESTIMATED.items():
        if name in result.estimated:
            value, low, high = result.estimated[name]
            estimates.append(Estimate(title, value, low, high, metrics[name]))
    if "labels_per_row" in result.probabilities:
        value, low, high = result.probabilities["labels_per_row"]
        true = float(present.sum(axis=1).mean())
        estimates.append(Estimate("labels per image", value, low, high, true, is_share=False))
    bins = make_bins(scores[test], present)
    return Outcome(row, scores, estimates, bins, _compare(raw, scores[test], present, bins))


def _compare(
    raw: np.ndarray, probabilities: np.ndarray, present: np.ndarray, bins: list[Bin]
) -> str:
    """What scores and probabilities of the test images say, and what is true."""
    before, after, true = (
        float(values.sum(axis=1).mean()) for values in (raw, probabilities, present)
    )
    errors = [100 * calibration_error(one) for one in (make_bins(raw, present), bins)]
    return (
        f"the scores of the network add up to {before:.2f} labels per image, the probabilities to "
        f"{after:.2f}; the images have {true:.2f}. Between a probability and the share present "
        f"there are {errors[1]:.1f} points in the mean ({errors[0]:.1f} with the scores)"
    )


def _prepare_folder(out: Path) -> None:
    """Make an empty folder for the demo; refuse one that holds anything else."""
    if out.exists() and not out.is_dir():
        raise DataError(f"{out} is a file; expected a folder for the demo (--out)")
    if out.is_dir() and any(out.iterdir()):
        marker = out / MARKER
        if not marker.is_file() or f'"{MADE_BY}"' not in marker.read_text(encoding="utf-8"):
            raise DataError(
                f"{out} holds files that the demo did not write; choose another folder (--out)"
            )
        for folder in ("data", *(variant.folder for variant in VARIANTS)):
            shutil.rmtree(out / folder, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    (out / MARKER).write_text(json.dumps({"made_by": MADE_BY}), encoding="utf-8")


def _table(rows: list[Row]) -> Table:
    table = Table(
        box=box.SIMPLE,
        title="test images with complete labels, %",
        caption="F1@0.5: of scores above 0.5; decided: F1 of the run's decisions;\n"
        "found: hidden labels among the first unknown labels of the training images",
    )
    table.add_column("trained with")
    # Short names: the table has to fit into 80 columns.
    depths = (f"found@{DEPTHS[0]}", *(f"@{depth}" for depth in DEPTHS[1:]))
    for name in ("mAP", "F1@0.5", "decided", *depths, "time"):
        table.add_column(name, justify="right")
    for row in rows:
        shares = row.precision.values()
        found = ("-" if share is None else f"{100 * share:.0f}" for share in shares)
        numbers = (f"{100 * share:.1f}" for share in (row.mAP, row.f1_at_half, row.f1))
        table.add_row(row.name, *numbers, *found, f"{row.seconds:.0f} s")
    return table


def _describe(auto: Outcome) -> str:
    """Lines on decisions and labels found; each number beside its true value."""
    lines = ["decisions of auto, estimated from the incomplete labels (90 % interval), and true:"]
    for one in auto.estimates:
        scale, digits = (100, 1) if one.is_share else (1, 2)
        value, low, high, true = (
            f"{scale * number:.{digits}f}" for number in (one.value, one.low, one.high, one.true)
        )
        lines.append(f"  {one.name}: {value} ({low} to {high}), true {true}")
    lines.append(f"calibration: {auto.calibration}")
    lines.append(
        f"missing labels found by auto: {_count_first(auto)} of the first {DEPTHS[0]} are present"
    )
    return "\n".join(lines)


def _count_first(auto: Outcome) -> int:
    """How many of the first unknown labels of the ranking are present."""
    share = auto.row.precision[DEPTHS[0]]
    assert share is not None
    return round(share * DEPTHS[0])


def _fit_call(out: Path, training: dict[str, Any]) -> str:
    """Python code that trains the model which found the labels once more."""
    data = out / "data"
    lines = [f"{str(data / 'observed.csv')!r},", f"{str(data / 'images')!r},"]
    named = {"out": "runs/mine", **training}
    lines += [f"{name}={value!r}," for name, value in named.items()]
    return "\n    ".join(["import halftruth\n\nhalftruth.fit(", *lines]) + "\n)"


def _print(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
