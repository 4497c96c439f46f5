"""The figures of the papers (`halftruth bench paper --figure`), by their folders."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from halftruth.bench.paper_items import Item, read_data, source_of, train_recipes
from halftruth.plots.annotation_figures import draw_annotations
from halftruth.plots.example_figures import draw_examples
from halftruth.plots.label_figures import draw_data
from halftruth.plots.loss_figures import draw_losses, draw_means, draw_surface
from halftruth.plots.run_figures import draw_runs
from halftruth.plots.style import Drawing


def draw_item(
    item: Item, data: Path, out: Path, settings: dict[str, Any], limit: int | None,
    say: Callable[[str], None],
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
        for name, folders in train_recipes(item, data, out, settings, limit, say).items():
            drawings = []
            if "examples" in item.values:
                drawings.append(draw_examples(folders, out / "labels" / name))
            if "figures" in item.values:
                drawings += draw_runs(folders, item.values["figures"])[0]
            yield out / name / "figures", drawings, {name: folders}
