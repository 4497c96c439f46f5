"""Figures of COCO's annotations: objects per class and per category, categories that co-occur."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pandas as pd

from halftruth.bench.datasets.coco import read_annotations
from halftruth.data import DataError
from halftruth.labels import LabelMatrix
from halftruth.plots.label_figures import draw_co_occurrence, draw_per_class, join_classes
from halftruth.plots.style import Drawing

MOST = 20
_OBJECTS = "annotated objects"


def draw_annotations(root: Path, labels: LabelMatrix) -> list[Drawing]:
    """Draw the annotated objects per class and per category, and which categories co-occur.

    An image with five dogs counts five times (paper 000, Fig. 5); `draw_counts` counts images.
    """
    objects, category = count_annotations(root)
    numbers = pd.DataFrame(objects.most_common(), columns=["class", "annotations"])
    numbers["category"] = numbers["class"].map(category)
    summed = numbers.groupby("category")["annotations"].sum()
    grouped = summed.sort_values(ascending=False, kind="stable").reset_index()
    members: dict[str, list[str]] = {}
    for name in labels.classes:
        members.setdefault(category.get(name, name), []).append(name)
    joined, _ = join_classes(labels, None, members)
    together = draw_co_occurrence(joined)
    return [
        draw_per_class("annotations", numbers.head(MOST), {"annotations": "labelled"}, _OBJECTS),
        draw_per_class(
            "annotations-categories", grouped, {"annotations": "labelled"}, _OBJECTS, "category"
        ),
        replace(together, name="co-occurrence-categories"),
    ]


def count_annotations(root: Path) -> tuple[Counter[str], dict[str, str]]:
    """The number of annotated objects per class, and the category of each class."""
    files = sorted(root.rglob("instances_*.json"))
    if not files:
        raise DataError(f"{root}: expected COCO's annotations/instances_*.json, found none")
    objects: Counter[str] = Counter()
    category: dict[str, str] = {}
    for file in files:
        content = read_annotations(file)
        names = {entry["id"]: str(entry["name"]) for entry in content["categories"]}
        category |= {
            str(entry["name"]): str(entry.get("supercategory") or entry["name"])
            for entry in content["categories"]
        }
        objects.update(names[entry["category_id"]] for entry in content["annotations"])
    return objects, category
