"""MS COCO: 80 classes (2014), and 41 of them (COCO-41), which leaves half of the images empty."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from halftruth.bench.datasets.dataset import Contents, Dataset, classes_of, register
from halftruth.data import read_labels
from halftruth.data.errors import DataError
from halftruth.data.readers.text_table import read_text
from halftruth.labels import LabelMatrix, class_filter


@register("coco2014", "coco")
class COCO2014(Dataset):
    """Images without annotation are left out, as in the papers; crowds count as objects."""

    entry = "coco2014"

    def read(self, root: Path) -> Contents:
        folder = self.folder(root, ("", "coco", "COCO"), "annotations")
        files = [folder / "annotations" / f"instances_{part}2014.json" for part in ("train", "val")]
        self.require_files(*files)
        labels = self.join([_published_order(file) for file in files], ("train", "test"))
        places = [folder / f"{part}2014{end}" for part in ("train", "val") for end in ("", ".zip")]
        return Contents(labels, self.find_existing(*places))


def _published_order(file: Path) -> LabelMatrix:
    labels = read_labels(file, zero="absent", keep_empty=False)
    assert labels.items is not None
    return labels.select(string_order([image_number(name, file) for name in labels.items]))


def image_number(name: str, place: object) -> int:
    """The image number in a file name: 9 for COCO_train2014_000000000009.jpg."""
    digits = re.search(r"(\d+)\.\w+$", name)
    if digits is None:
        raise DataError(f"{place}: expected a COCO file name that ends in its number, got {name!r}")
    return int(digits[1])


def string_order(numbers: list[int] | np.ndarray) -> np.ndarray:
    """Sort rows by their numbers as text (10 before 9), as in the splits of Cole et al.

    >>> string_order([9, 10, 25]).tolist()
    [1, 2, 0]
    """
    return np.argsort(np.array([str(int(number)) for number in numbers]), kind="stable")


CLASSES = classes_of("coco-41")


@register("coco-41")
class COCO41(Dataset):
    """All images of COCO 2017, train and val together, split 70 / 15 / 15 as by the authors.

    Their split is stratified by the kept class of an image's first annotation (or none), with
    scikit-learn and seed 42. The paper's text drops vehicles and dining tables, but its
    Table 8 keeps boat and dining table; so does this.
    """

    entry = "coco-41"

    def read(self, root: Path) -> Contents:
        folder = self.folder(root, ("", "coco", "COCO"), "annotations")
        files = [folder / "annotations" / f"instances_{part}2017.json" for part in ("train", "val")]
        self.require_files(*files)
        labels = self.join([read_labels(file, zero="absent") for file in files], ("train", "val"))
        values, names = class_filter(labels.values, labels.classes, keep=CLASSES)
        kind = np.concatenate([_first_kept(file, names) for file in files])
        places = [folder / f"{part}2017{end}" for part in ("train", "val") for end in ("", ".zip")]
        return Contents(
            LabelMatrix(values, names, labels.items, stratified_parts(kind)),
            self.find_existing(*places),
        )


def _first_kept(file: Path, names: tuple[str, ...]) -> np.ndarray:
    """The column of the first kept annotation of each image, in the file's order; K for none."""
    content = read_annotations(file)
    column = {
        entry["id"]: names.index(entry["name"])
        for entry in content["categories"]
        if entry["name"] in names
    }
    first: dict[int, int] = {}
    for annotation in content["annotations"]:
        if annotation["category_id"] in column:
            first.setdefault(annotation["image_id"], column[annotation["category_id"]])
    return np.array([first.get(image["id"], len(names)) for image in content["images"]])


def count_annotations(root: Path) -> Counter[str]:
    """The number of annotated objects per class, in all annotation files below a folder."""
    files = sorted(root.rglob("instances_*.json"))
    if not files:
        raise DataError(f"{root}: expected COCO's annotations/instances_*.json, found none")
    found: Counter[str] = Counter()
    for content in map(read_annotations, files):
        names = {entry["id"]: str(entry["name"]) for entry in content["categories"]}
        found.update(names[entry["category_id"]] for entry in content["annotations"])
    return found


def read_annotations(file: Path) -> dict[str, Any]:
    """Read an annotation file without the outlines, which are most of it, to save memory."""
    return dict(
        json.loads(
            read_text(file),
            object_hook=lambda entry: {k: v for k, v in entry.items() if k != "segmentation"},
        )
    )


def stratified_parts(kind: np.ndarray) -> np.ndarray:
    """The part of each row: 70 % train, half of the rest val and half test, stratified by kind."""
    from sklearn.model_selection import train_test_split

    _, rest = train_test_split(np.arange(len(kind)), train_size=0.7, stratify=kind, random_state=42)
    val, test = train_test_split(rest, train_size=0.5, stratify=kind[rest], random_state=42)
    parts = np.full(len(kind), "train", dtype="<U5")
    parts[val], parts[test] = "val", "test"
    return parts
