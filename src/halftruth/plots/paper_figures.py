"""The figures of the papers (`halftruth bench paper --figure`), by their folders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from halftruth.bench.paper_items import BEFORE, Item, read_data, source_of, train_recipes
from halftruth.data import read_labels
from halftruth.plots.annotation_figures import draw_annotations
from halftruth.plots.example_figures import draw_examples
from halftruth.plots.label_figures import draw_data
from halftruth.plots.loss_figures import draw_losses, draw_means, draw_surface
from halftruth.plots.run_figures import draw_runs
from halftruth.plots.run_records import Record, read_runs
from halftruth.plots.style import Drawing
from halftruth.train.records import count_class_histograms
from halftruth.train.results.trained_run import TrainedRun


def draw_item(
    item: Item, data: Path, out: Path, settings: dict[str, object], limit: int | None,
    say: Callable[[str], None], form: str | None = None, only: str | None = None,
) -> Iterator[tuple[Path, list[Drawing], dict[str, list[Path]]]]:  # fmt: skip
    """Yield folders with their figures, and the run folders that they show by data set."""
    if item.kind == "losses":
        what, *names = item.values["losses"]
        if what == "surface":
            yield out, [draw_surface(*names), draw_means()], {}
        else:
            yield out, [draw_losses(names, item.values.get("at", [0.0]))], {}
    elif item.kind == "labels":
        for about in item.values["labels"]:
            name, labels = about["data"], about["labels"]
            read = read_data(data, name, labels)
            drawings = draw_data(read.observed, read.truth if labels != "complete" else None)
            if item.values.get("annotations"):
                drawings += draw_annotations(data / source_of(data, name)["root"], read.observed)
            yield out / name, drawings, {}
    else:
        trained = train_recipes(item, data, out, settings, limit, say, form, only)
        for name, folders in trained.items():
            drawings = []
            if "examples" in item.values:
                skip = item.values.get("skip", 0)
                drawings.append(draw_examples(folders, out / "labels" / name, skip=skip))
            figures = dict(item.values.get("figures", {}))
            if "parts" in (wanted := figures.get("class-distributions", {})):
                counts = [count_training_rows(folder) for folder in folders]
                figures["class-distributions"] = {"train": counts} if wanted["parts"] else {}
            if figures:
                drawings += draw_runs(_join_starts(read_runs(folders)), figures)[0]
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


def count_training_rows(folder: Path) -> np.ndarray:
    """The (K, groups, bins) counts of the training rows of a run, whose images are scored."""
    run = TrainedRun(folder)
    config = run.config
    shown = read_labels(Path(str(config.labels)), **config.reading)
    truth = read_labels(Path(str(config.truth)), **config.reading_truth)
    assert shown.items is not None
    rows = np.flatnonzero(shown.split == "train")
    items = [str(shown.items[row]) for row in rows]
    raw = run.score(images=config.images, items=items, bad_images="fail", workers=1).raw
    return count_class_histograms(raw, shown.values[rows], truth.values[rows])
