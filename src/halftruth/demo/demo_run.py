"""The demo: make images, hide labels, train three models, compare them, show the labels found."""

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
from typing import Any

import numpy as np
import torch
from rich import box
from rich.console import Console
from rich.table import Table

from halftruth.data import DataError, read_labels
from halftruth.demo.demo_page import Album, Row, rank_unknown, write_page
from halftruth.demo.scenes import make_scenes

DEPTHS = (50, 100, 500)
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
QUICK_SCENES = {"count": 60}
QUICK_TRAINING = {"epochs": 1}


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


def run_demo(
    out: str | Path, *, seed: int = 0, quick: bool = False, processes: int = len(VARIANTS)
) -> dict[str, Any]:
    """Run the demo in a folder, write index.html there, and return the contents of demo.json.

    `quick` makes 60 images and trains for one epoch: everything runs, but nothing is learned.
    Each training uses one thread, and `processes` of them run at the same time: for a network this
    small that is faster than several threads, also on a busy machine. A script calls this under
    `if __name__ == "__main__":`, because the processes import it.
    """
    started, out, console = time.perf_counter(), Path(out), Console()
    _prepare_folder(out)
    training = {**TRAINING, **(QUICK_TRAINING if quick else {}), "seed": seed}
    with console.status("making images"):
        paths = make_scenes(out / "data", **SCENES | (QUICK_SCENES if quick else {}), seed=seed)
    album = Album(out / "data" / "images", *(read_labels(path) for path in paths))
    _print(console, f"{len(album.observed):,} images in {out / 'data'}")
    _print(console, album.observed.describe())

    rows, scores = [], {}
    with console.status(f"training {len(VARIANTS)} models of {training['epochs']} epochs"):
        for row, found in _train_all(out, album, training, processes):
            rows.append(row)
            scores[row.name] = found
            _print(console, f"{row.name}: test mAP {100 * row.mAP:.1f} in {row.seconds:.0f} s")
    console.print(_table(rows))

    auto = next(row for row in rows if row.kind == "robust")
    page = write_page(
        out / "index.html",
        rows=rows,
        scenes=album.scenes(),
        findings=album.findings(scores[auto.name]),
        mistakes=album.mistakes(scores[auto.name]),
        found_by=auto.name,
        numbers=album.facts(),
        code=_fit_call(out, training),
    )
    result = {
        "made_by": MADE_BY,
        "seed": seed,
        "seconds": time.perf_counter() - started,
        "page": str(page),
        "rows": [asdict(row) for row in rows],
    }
    (out / MARKER).write_text(json.dumps(result, indent=1), encoding="utf-8")
    _print(console, f"{result['seconds']:.0f} s in total; images with the labels found: {page}")
    return result


def _train_all(
    out: Path, album: Album, training: dict[str, Any], processes: int
) -> Iterator[tuple[Row, np.ndarray]]:
    """Train the variants, several at the same time, and yield their results in order."""
    # A forked process could wait forever for the threads of this one.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, torch.set_num_threads, (1,)) as pool:
        jobs = [pool.submit(train_variant, one, out, album, training) for one in VARIANTS]
        for job in jobs:
            yield job.result()


def train_variant(
    variant: Variant, out: Path, album: Album, training: dict[str, Any]
) -> tuple[Row, np.ndarray]:
    """Train one variant, as a user would, and evaluate it: its row, and the scores (N, K).

    Rows that are not scored, because the page does not need them, have NaN.
    """
    from halftruth.api import fit, load
    from halftruth.metrics import evaluate
    from halftruth.metrics.counts import UndefinedMetricWarning

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
    scores = np.full(complete.values.shape, np.nan)
    scores[scored] = (
        load(result.folder, device=training["device"])
        .score(images=album.images, items=list(complete.items[scored]), bad_images="fail")
        .probabilities
    )
    with warnings.catch_warnings():
        # A model may predict no image of a class at all; its F1 in the table shows that.
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        metrics = evaluate(scores[test], complete.values[test])
    right = album.is_present(rank_unknown(scores, album.observed)) if finds else None
    chosen = variant.method == "auto"
    row = Row(
        name=variant.name,
        method=result.method,
        note=f"{variant.note}; it chose {result.method}" if chosen else variant.note,
        kind=variant.kind,
        mAP=metrics["mAP"],
        f1=metrics["OF1"],
        precision={
            depth: None if right is None else float(right[:depth].mean()) for depth in DEPTHS
        },
        seconds=seconds,
    )
    return row, scores


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
    table = Table(box=box.SIMPLE, title="test images with complete labels, %")
    table.add_column("trained with")
    for name in ("mAP", "F1", *(f"found@{depth}" for depth in DEPTHS), "seconds"):
        table.add_column(name, justify="right")
    for row in rows:
        shares = row.precision.values()
        found = ("-" if share is None else f"{100 * share:.0f}" for share in shares)
        numbers = f"{100 * row.mAP:.1f}", f"{100 * row.f1:.1f}", *found, f"{row.seconds:.0f}"
        table.add_row(row.name, *numbers)
    return table


def _fit_call(out: Path, training: dict[str, Any]) -> str:
    """Python code that trains the model which found the labels once more."""
    data = out / "data"
    lines = [f"{str(data / 'observed.csv')!r},", f"{str(data / 'images')!r},"]
    named = {"out": "runs/mine", **training}
    lines += [f"{name}={value!r}," for name, value in named.items()]
    return "\n    ".join(["import halftruth\n\nhalftruth.fit(", *lines]) + "\n)"


def _print(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
