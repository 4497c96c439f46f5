"""The demo: make images, hide labels, train three models, compare, decide, find the labels."""

from __future__ import annotations

import json
import shutil
import time
import warnings
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from textwrap import indent
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed, parallel_config
from rich import box
from rich.console import Console
from rich.table import Table

from halftruth.data import DataError, read_labels
from halftruth.demo.demo_page import (
    DEPTHS,
    EXPLAINED,
    HEAD,
    Album,
    DemoOutcome,
    ShownEstimate,
    describe_first,
    is_in,
    rank_hidden,
    write_page,
)
from halftruth.demo.scenes import make_scenes
from halftruth.labels import PRESENT
from halftruth.seeds import check_seed

# Written first: a folder that holds it was made by the demo, and the demo may replace it.
MARKER = "demo.json"
MADE_BY = "halftruth demo"

SCENES: dict[str, Any] = {"count": 5000, "size": 32}
TRAINING: dict[str, object] = {
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
ESTIMATED = {"mAP": "mAP, %", "OF1": "F1 of the decisions, %"}


class Variant(NamedTuple):
    """One of the trainings that are compared."""

    name: str
    method: str
    folder: str
    labels: str = "observed.csv"


VARIANTS = (
    Variant("assume negative", "bce", "assume-negative"),
    Variant("auto", "auto", "auto"),
    Variant("complete labels", "bce", "complete-labels", "labels.csv"),
)


def run_demo(
    out: str | Path, *, seed: int = 0, quick: bool = False, processes: int = len(VARIANTS)
) -> dict[str, object]:
    """Run the demo in a folder, write index.html there, and return the contents of demo.json.

    `quick` makes 60 images and trains for one epoch: everything runs, but nothing is learned.
    Each training uses one thread, and `processes` of them run at the same time: for a network this
    small that is faster than several threads, also on a busy machine.
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

    outcomes = []
    jobs = [delayed(train_variant)(one, out, album, training) for one in VARIANTS]
    status = console.status(f"training {len(VARIANTS)} models of {training['epochs']} epochs")
    with status, parallel_config("loky", inner_max_num_threads=1):
        for one in Parallel(processes, return_as="generator")(jobs):
            outcomes.append(one)
            _print(console, f"{one.name}: test mAP {100 * one.mAP:.1f} in {one.seconds:.0f} s")
    auto, page = outcomes[1], out / "index.html"
    _print_results(console, outcomes, auto)
    write_page(page, album, outcomes, auto, NEXT, _fit_call(out, training))
    result = {
        "made_by": MADE_BY,
        "seed": seed,
        "seconds": time.perf_counter() - started,
        "page": str(page),
        "rows": [
            {name: value for name, value in asdict(one).items() if name != "scores"}
            for one in outcomes
        ],
    }
    (out / MARKER).write_text(json.dumps(result, indent=1), encoding="utf-8")
    _print(console, f"{result['seconds']:.0f} s in total; open the page with all of this:")
    _print(console, f"  {page.resolve().as_uri()}\n")
    _print(console, "next, with your own label file and images (docs/get-started.md):")
    _print(console, indent(NEXT, "  "))
    return result


def train_variant(
    variant: Variant, out: Path, album: Album, training: dict[str, Any]
) -> DemoOutcome:
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
    test = is_in(complete, "test")
    # Only a model that was trained on the observed labels can find hidden ones.
    finds = variant.labels == "observed.csv"
    scored = test | is_in(complete, "train") if finds else test
    run = load(result.folder, device=training["device"])
    found = run.score(images=album.images, items=list(complete.items[scored]), bad_images="fail")
    scores = np.full(complete.values.shape, np.nan)
    scores[scored] = found.probabilities
    truth = complete.values[test]
    with warnings.catch_warnings():
        # A model may predict no image of a class at all; its F1 in the table shows that.
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        metrics = score_decisions(scores[test], run.decisions, truth)
        at_half = evaluate(found.raw[test[scored]], truth)
    right = album.is_present(rank_hidden(scores, album.observed)) if finds else None
    estimates = []
    for key, title in ESTIMATED.items():
        if key in result.estimated:
            value, low, high = (100 * number for number in result.estimated[key])
            estimates.append(ShownEstimate(title, value, low, high, 100 * metrics[key]))
    if "labels_per_row" in result.probabilities:
        value, low, high = result.probabilities["labels_per_row"]
        per_image = float((truth == PRESENT).sum(axis=1).mean())
        estimates.append(ShownEstimate("labels per image", value, low, high, per_image))
    return DemoOutcome(
        name=variant.name,
        method=result.method,
        mAP=metrics["mAP"],
        f1_at_half=at_half["OF1"],
        f1=metrics["OF1"],
        found={depth: None if right is None else float(right[:depth].mean()) for depth in DEPTHS},
        seconds=seconds,
        estimates=estimates,
        scores=scores,
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


def _print_results(console: Console, outcomes: list[DemoOutcome], auto: DemoOutcome) -> None:
    title = "test images with complete labels, %"
    results = Table(box=box.SIMPLE, title=title, caption=EXPLAINED)
    for number, name in enumerate(HEAD):
        results.add_column(name, justify="right" if number else "left")
    for one in outcomes:
        results.add_row(*one.cells())
    console.print(results)
    _print(console, "decisions of auto, estimated from the incomplete labels (90 % interval):")
    for estimate in auto.estimates:
        name, value, ends, true = estimate.cells()
        _print(console, f"  {name}: {value} ({ends}), true {true}")
    _print(console, f"missing labels found by auto: {describe_first(auto)}")


def _fit_call(out: Path, training: Mapping[str, object]) -> str:
    """Python code that trains the model which found the labels once more."""
    data = out / "data"
    lines = [f"{str(data / 'observed.csv')!r},", f"{str(data / 'images')!r},"]
    named = {"out": "runs/mine", **training}
    lines += [f"{name}={value!r}," for name, value in named.items()]
    return "\n    ".join(["import halftruth\n\nhalftruth.fit(", *lines]) + "\n)"


def _print(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
