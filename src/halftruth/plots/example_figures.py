"""Example images with the scores that several runs predict for their classes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from halftruth.data import DataError, ImageStore, read_labels
from halftruth.labels import PRESENT, drop_positives
from halftruth.plots.style import Drawing, panels, shorten, styled
from halftruth.train.results.trained_run import TrainedRun

_GREEN, _RED = "#1a7f37", "#c0392b"
# The share of positives that is dropped where 40 % of the labels are left.
_DROPPED = 0.8


@styled
def draw_examples(folders: Sequence[Path], count: int = 4, skip: int = 0) -> Drawing:
    """Draw test images with the scores of their classes, by run (paper 003, Fig. 6 and 9).

    folders: run folders with complete labels, also copies after an early epoch. The images with
    most classes are shown, after the first `skip`. Green classes are those that the labels of
    training would show, red ones are missing; ✓: the score is above 0.5.
    """
    config = TrainedRun(folders[0]).config
    truth = read_labels(Path(str(config.truth)), **config.reading_truth)
    assert truth.items is not None
    assert truth.split is not None
    part = "test" if (truth.split == "test").any() else "val"
    rows = np.flatnonzero(truth.split == part)
    shown = drop_positives(truth.values[rows], _DROPPED, seed=1200) == PRESENT
    present = truth.values[rows] == PRESENT
    order = np.argsort(-present.sum(axis=1), kind="stable")[skip : skip + count]
    if not len(order):
        raise DataError(f"{config.truth}: there are no test or validation rows to show")
    rows, shown, present = rows[order], shown[order], present[order]
    items = [str(truth.items[row]) for row in rows]
    images = config.images
    tables = []
    for folder in folders:
        run = TrainedRun(folder)
        found = run.score(images=images, items=items, bad_images="fail", workers=1).raw
        for place, k in np.argwhere(present):
            about = {"image": items[place], "class": truth.classes[k], "shown": shown[place, k]}
            tables.append({**about, "run": folder.name, "score": float(found[place, k])})
    numbers = pd.DataFrame(tables)
    names = [folder.name.replace("-epoch-", " ") for folder in folders]
    figure, grid = panels(2, len(items), width=1.1 + 0.55 * len(names), height=2.4)
    store, columns = ImageStore(images), np.linspace(0.46, 0.94, len(names))
    look = {"va": "top", "ha": "right", "fontsize": 6.5}
    for item, (top, bottom) in zip(items, grid.T, strict=True):
        top.imshow(np.asarray(store.read(item)))
        top.set_axis_off()
        bottom.set_axis_off()
        for at, name in zip(columns, names, strict=True):
            bottom.text(at, 1, shorten(name, 9), **look)
        mine = numbers[numbers["image"] == item].sort_values(
            "shown", ascending=False, kind="stable"
        )
        for number, (title, scores) in enumerate(list(mine.groupby("class", sort=False))[:8]):
            y, colour = 0.88 - 0.1 * number, _GREEN if scores["shown"].any() else _RED
            bottom.text(0, y, shorten(str(title), 12), **{**look, "ha": "left"}, color=colour)
            for at, value in zip(columns, scores["score"], strict=True):
                mark = "✓" if value > 0.5 else "✗"
                bottom.text(at, y, f"{value:.2f} {mark}", **look, color=colour)
    return Drawing("examples", figure, numbers)
