"""Example images with the probabilities that several runs predict for their classes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from halftruth.data import DataError, ImageStore, read_labels
from halftruth.labels import PRESENT
from halftruth.plots.style import Drawing, panels, shorten, styled
from halftruth.train.results.trained_run import TrainedRun


@styled
def draw_examples(folders: Sequence[Path], labels: Path, count: int = 4) -> Drawing:
    """Draw test images with the probabilities of their classes, by run (paper 003, Fig. 6 and 9).

    folders: run folders, also copies after an early epoch. labels: a folder with truth.csv, the
    complete labels. The images with most classes are shown.
    """
    truth = read_labels(labels / "truth.csv", zero="unknown", split_column="split")
    assert truth.items is not None
    assert truth.split is not None
    part = "test" if (truth.split == "test").any() else "val"
    rows = np.flatnonzero(truth.split == part)
    present = (truth.values[rows] == PRESENT).sum(axis=1)
    rows = rows[np.argsort(-present, kind="stable")][:count]
    if not len(rows):
        raise DataError(f"{labels}: there are no test or validation rows to show")
    items = [str(truth.items[row]) for row in rows]
    images = TrainedRun(folders[0]).config.images
    tables = []
    for folder in folders:
        run = TrainedRun(folder)
        found = run.score(images=images, items=items, bad_images="fail", workers=1)
        for place, row in enumerate(rows):
            for k in np.flatnonzero(truth.values[row] == PRESENT):
                p = float(found.raw[place, k])
                tables.append((items[place], truth.classes[k], folder.name, p))
    numbers = pd.DataFrame(tables, columns=["image", "class", "run", "probability"])
    wide = numbers.pivot_table(index=["image", "class"], columns="run", values="probability")
    wide = wide[[folder.name for folder in folders]]
    figure, grid = panels(2, len(items), width=2.6, height=2.4)
    store = ImageStore(images)
    for place, item in enumerate(items):
        top, bottom = grid[0, place], grid[1, place]
        top.imshow(np.asarray(store.read(item)))
        for axes in (top, bottom):
            axes.set_axis_off()
        lines: pd.DataFrame = wide.loc[[item]].droplevel("image")
        lines = lines.sort_values(wide.columns[-1], ascending=False)
        text = ["  ".join(["", *(shorten(str(name), 12) for name in wide.columns)])]
        for name, values in lines.head(8).iterrows():
            shown = " ".join(f"{value:.2f}" for value in values)
            text.append(f"{shorten(str(name), 12):<13}{shown}")
        bottom.text(0, 1, "\n".join(text), va="top", family="monospace", fontsize=6.5)
    return Drawing("examples", figure, numbers)
