"""The figures of the papers (`halftruth bench paper --figure`), by their folders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from halftruth.bench.datasets.coco import count_annotations
from halftruth.bench.paper_items import (
    BEFORE,
    Item,
    count_training_rows,
    label_sources,
    train_rows,
)
from halftruth.bench.run_data import load_benchmark
from halftruth.labels import PRESENT
from halftruth.plots.example_figures import draw_examples
from halftruth.plots.label_figures import draw_annotations, draw_data
from halftruth.plots.loss_figures import draw_losses, draw_means, draw_surface
from halftruth.plots.run_figures import draw_runs
from halftruth.plots.run_records import Record, read_runs
from halftruth.plots.style import Drawing


def draw_item(
    item: Item, data: Path, out: Path, settings: dict[str, object], limit: int | None,
    say: Callable[[str], None], form: str | None = None, only: str | None = None,
    device: str = "auto",
) -> Iterator[tuple[Path, list[Drawing], dict[str, list[Path]]]]:  # fmt: skip
    """Yield folders with their figures, and the run folders that they show by data set."""
    if item.kind == "losses":
        kinds: dict[str, Callable[..., Drawing]]
        kinds = {"losses": draw_losses, "surface": draw_surface, "means": draw_means}
        yield out, [kinds[kind](**about) for kind, about in item.values["losses"]], {}
    elif item.kind == "labels":
        for name, source, labels in label_sources(item, data, form):
            read = load_benchmark(source, labels, 1200, data)
            # Labels are hidden in the official training part alone.
            parts = [read.splits.train, read.splits.val] + [read.splits.test] * (
                labels == "complete"
            )
            rows = np.sort(np.concatenate(parts))
            drawings = draw_data(read.observed.select(rows), read.truth[rows])
            if "annotations" in item.values["figures"]:
                # A small form has no annotated objects.
                images = dict(zip(read.classes, (read.truth == PRESENT).sum(axis=0), strict=True))
                counts = images if form else count_annotations(data / source["root"])
                text = "images with the class" if form else "annotated objects"
                drawings += draw_annotations(read.observed, counts, text)
            yield out / name, [one for one in drawings if one.name in item.values["figures"]], {}
    else:
        trained = train_rows(item, data, out, settings, limit, say, form, only, device)
        for name, folders in trained.items():
            drawings = []
            if "examples" in item.values:
                drawings = [draw_examples(folders, skip=item.values.get("skip", 0))]
            figures = dict(item.values.get("figures", {}))
            if "class-distributions" in figures:
                shown = [count_training_rows(folder) for folder in folders]
                figures["class-distributions"] = {"train": shown}
            if figures:
                runs = _join_starts(read_runs(folders))
                for run in runs:
                    run.name = item.names.get(run.name, run.name)
                drawings += draw_runs(runs, figures)[0]
                if item.values.get("test_rows"):
                    _name_rows(drawings, "validation rows", "test rows")
            yield out / name / "figures", drawings, {name: folders}


def _join_starts(runs: list[Record]) -> list[Record]:
    """The runs, each with the state before training as its epoch 0 where that was recorded."""
    before = {run.name.removesuffix(BEFORE): run for run in runs if run.name.endswith(BEFORE)}
    rest = [run for run in runs if not run.name.endswith(BEFORE)]
    return [run.start_with(before[run.name]) if run.name in before else run for run in rest]


def _name_rows(drawings: list[Drawing], old: str, new: str) -> None:
    """Call the rows of the records per epoch what they are."""
    for axes in (axes for drawing in drawings for axes in drawing.figure.axes):
        axes.set_xlabel(axes.get_xlabel().replace(old, new))
        axes.set_ylabel(axes.get_ylabel().replace(old, new))
