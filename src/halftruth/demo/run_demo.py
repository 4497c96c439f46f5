"""The demo: make scenes, hide labels, train four ways, compare, show the missing labels found."""

from __future__ import annotations

import json
import shutil
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich import box
from rich.console import Console
from rich.table import Table

from halftruth.data import DataError, read_labels
from halftruth.demo.album import Album, rank_unknown
from halftruth.demo.demo_page import Report, Row, write_page
from halftruth.demo.scenes import make_scenes

DEPTHS = (50, 100, 500)
MARK = "demo.json"  # written first: a folder with it is the demo's, and may be made anew
MAKER = "halftruth demo"

SCENES: dict[str, Any] = {"count": 5000, "size": 32}
TRAINING: dict[str, Any] = {
    "backbone": "test_resnet",
    "weights": "none",
    "image_size": 32,
    "tune": "all",
    "freeze_bn": False,
    "epochs": 12,
    "batch_size": 32,
    "lr": 0.006,
    "optimizer": "adamw",
    "weight_decay": 0.01,
    "ema": 0.99,
    "augment": "none",
    "select": "observed",
    "workers": 0,
    "device": "cpu",
    "report": False,
}
QUICK_SCENES = {"count": 60}
QUICK_TRAINING = {"epochs": 1}


@dataclass(frozen=True)
class Way:
    """One of the trainings compared."""

    name: str
    method: str
    note: str
    kind: str = "robust"
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def labels(self) -> str:
        return "labels.csv" if self.kind == "oracle" else "observed.csv"

    @property
    def folder(self) -> str:
        return "complete" if self.kind == "oracle" else self.method


WAYS = (
    Way("assume negative", "bce", "a blank counts as “not there”", kind="naive"),
    Way("EM", "em", "a blank may be anything"),
    Way("GR", "gr", "a blank is weighed by what the network thinks"),
    Way("complete labels", "bce", "nothing hidden: the best to hope for", kind="oracle"),
)


@dataclass(frozen=True)
class Trained:
    """A row of the table, the scores of all pictures, and validation mAP on the labels shown."""

    row: Row
    scores: np.ndarray
    chosen_by: float


def run_demo(out: str | Path, *, seed: int = 0, quick: bool = False) -> dict[str, Any]:
    """Run the whole demo in a folder; returns what demo.json holds and writes index.html.

    `quick` makes a few pictures and trains for an epoch: everything runs, nothing is learned.
    """
    started, out, console = time.perf_counter(), Path(out), Console()
    _take_over(out)
    scenes = SCENES | (QUICK_SCENES if quick else {})
    training = TRAINING | (QUICK_TRAINING if quick else {})
    with console.status("making pictures"):
        paths = make_scenes(out / "data", **scenes, seed=seed)
    album = Album(out / "data" / "images", *(read_labels(path) for path in paths))
    _say(console, f"{len(album.observed):,} pictures in {out / 'data'}")
    _say(console, album.observed.describe())

    trained = []
    for way in WAYS:
        with console.status(f"training: {way.name}"), _few_threads():
            trained.append(_train(way, out, album, {**training, "seed": seed}))
        row = trained[-1].row
        _say(console, f"{way.name}: test mAP {100 * row.mAP:.1f} in {row.seconds:.0f} s")
    rows = [one.row for one in trained]
    console.print(_table(rows))

    # The truth has no say in which model looks for missing labels.
    best = max((one for one in trained if one.row.kind == "robust"), key=lambda one: one.chosen_by)
    page = write_page(
        Report(
            rows=rows,
            scenes=album.scenes(),
            findings=album.findings(best.scores),
            mistakes=album.mistakes(best.scores),
            found_by=best.row.name,
            facts=album.facts(),
            settings=_settings(out, {**training, "seed": seed}, best.row),
        ),
        out / "index.html",
    )
    result = {
        "made_by": MAKER,
        "seed": seed,
        "seconds": time.perf_counter() - started,
        "page": str(page),
        "found_by": best.row.name,
        "rows": [asdict(row) for row in rows],
    }
    (out / MARK).write_text(json.dumps(result, indent=1), encoding="utf-8")
    _say(console, f"{result['seconds']:.0f} s in all; pictures of the labels found: {page}")
    return result


def _train(way: Way, out: Path, album: Album, training: dict[str, Any]) -> Trained:
    """Train one way, as a user would, and measure it."""
    from halftruth.metrics import evaluate
    from halftruth.metrics.counts import UndefinedMetricWarning
    from halftruth.train import fit
    from halftruth.train.trained_run import TrainedRun

    started, complete = time.perf_counter(), album.complete
    result = fit(
        out / "data" / way.labels,
        album.images,
        method=way.method,
        options=way.options,
        out=out / way.folder,
        cache="disk",
        cache_dir=out / "data" / "cache",
        quiet=True,
        **training,
    )
    seconds = time.perf_counter() - started
    assert complete.items is not None
    assert complete.split is not None
    run, test = TrainedRun(result.folder, device=training["device"]), complete.split == "test"
    scored = run.score(images=album.images, items=list(complete.items), bad_images="fail")
    scores = scored.probabilities
    with warnings.catch_warnings():
        # Assume-negative may predict nothing of a class: the table tells, no need to warn.
        warnings.simplefilter("ignore", UndefinedMetricWarning)
        metrics = evaluate(scores[test], complete.values[test])
    right = album.right(rank_unknown(scores, album.observed))
    told = way.kind == "oracle"
    row = Row(
        name=way.name,
        method=way.method,
        note=way.note,
        kind=way.kind,
        mAP=metrics["mAP"],
        f1=metrics["OF1"],
        precision={depth: None if told else float(right[:depth].mean()) for depth in DEPTHS},
        seconds=seconds,
    )
    return Trained(row, scores, result.best_score)


@contextmanager
def _few_threads() -> Iterator[None]:
    """Half of the threads, four at most: a network this small gains little from more.

    Threads that wait for each other spin: with all cores taken and another program at work, a
    training of 22 s was seen to take seven minutes.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(min(max(before // 2, 1), 4))
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _take_over(out: Path) -> None:
    """An empty folder for the demo; one that holds something else is left alone."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        mark = out / MARK
        if not mark.is_file() or f'"{MAKER}"' not in mark.read_text(encoding="utf-8"):
            raise DataError(f"{out} holds something that is not a demo's; choose another --out")
        for folder in ("data", *(way.folder for way in WAYS)):
            shutil.rmtree(out / folder, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    (out / MARK).write_text(json.dumps({"made_by": MAKER}), encoding="utf-8")


def _table(rows: list[Row]) -> Table:
    table = Table(box=box.SIMPLE, title="test pictures with complete labels, %")
    table.add_column("trained with")
    for name in ("mAP", "F1", *(f"found@{depth}" for depth in DEPTHS), "seconds"):
        table.add_column(name, justify="right")
    for row in rows:
        shares = row.precision.values()
        found = ("-" if share is None else f"{100 * share:.0f}" for share in shares)
        numbers = f"{100 * row.mAP:.1f}", f"{100 * row.f1:.1f}", *found, f"{row.seconds:.0f}"
        table.add_row(row.name, *numbers)
    return table


def _settings(out: Path, training: dict[str, Any], row: Row) -> str:
    """The call that trains the model that found the labels."""
    data = out / "data"
    lines = [f"{str(data / 'observed.csv')!r},", f"{str(data / 'images')!r},"]
    named = {"method": row.method, "out": "runs/mine", **training}
    lines += [f"{name}={value!r}," for name, value in named.items()]
    return "\n    ".join(["import halftruth\n\nhalftruth.fit(", *lines]) + "\n)"


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
