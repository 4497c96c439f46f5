"""MS COCO: 80 classes (2014), and 41 of them (COCO-41), which leaves half of the images empty."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from halftruth.bench.datasets.dataset import (
    Contents,
    Dataset,
    Published,
    find_existing,
    join,
    register,
)
from halftruth.data import read_labels
from halftruth.data.errors import DataError
from halftruth.data.readers.text_table import read_text
from halftruth.labels import LabelMatrix, class_filter

EM = "Zhou et al. 2022 (EM), Table 4"
LASD = "LASD, Table 1"
HILL = "Zhang et al. (Hill, SPLC), Table II"


@register("coco2014", "coco")
class COCO2014(Dataset):
    """Images without annotation are left out, as in the papers; crowds count as objects."""

    title = "MS COCO 2014"
    homepage = "the COCO page (cocodataset.org), 2014 train/val annotations \
(annotations_trainval2014.zip) and images (train2014.zip, val2014.zip; they may stay zipped)"
    tree = """
        annotations/instances_train2014.json, instances_val2014.json
        train2014/COCO_train2014_*.jpg (or train2014.zip)
        val2014/COCO_val2014_*.jpg (or val2014.zip)
    """

    def read(self, root: Path) -> Contents:
        folder = self.folder(root, ("", "coco", "COCO"), "annotations")
        files = [folder / "annotations" / f"instances_{part}2014.json" for part in ("train", "val")]
        self.require_files(*files)
        labels = join([_published_order(file) for file in files], ("train", "test"))
        places = [folder / f"{part}2014{end}" for part in ("train", "val") for end in ("", ".zip")]
        return Contents(labels, find_existing(*places))

    def published(self) -> tuple[Published, ...]:
        return (
            Published("classes", "80", EM),
            Published("images_train_and_val", "82,081", LASD),
            Published("images_train", "65665", EM, val=0.2),
            Published("images_val", "16416", EM, val=0.2),
            Published("images_test", "40,137", LASD),
            Published("positives_per_image", "2.94", EM),
            Published("observed_labels", "241,035", HILL, setting="complete"),
            Published("observed_labels", "181,422", HILL, setting="left-75"),
            Published("observed_labels", "96,251", HILL, setting="left-40"),
            Published("observed_labels", "82,081", HILL, setting="single"),
        )


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


CLASSES = (
    "boat", "bird", "cat", "dog", "bottle", "fork", "knife", "spoon", "banana", "apple", "sandwich",
    "orange", "broccoli", "carrot", "hot dog", "pizza", "donut", "cake", "chair", "couch", "bed",
    "dining table", "toilet", "tv", "laptop", "mouse", "remote", "keyboard", "cell phone",
    "microwave", "oven", "toaster", "sink", "refrigerator", "book", "clock", "vase", "scissors",
    "teddy bear", "hair drier", "toothbrush",
)  # fmt: skip
TABLE = "any-class presence paper, Table 7"


@register("coco-41")
class COCO41(Dataset):
    """All images of COCO 2017, train and val together, split 70 / 15 / 15 as by the authors.

    Their split is stratified by the kept class of an image's first annotation (or none), with
    scikit-learn and seed 42. The paper's text drops vehicles and dining tables, but its
    Table 8 keeps boat and dining table; so does this.
    """

    title = "MS COCO 2017, 41 classes"
    homepage = "the COCO page (cocodataset.org), 2017 train/val annotations \
(annotations_trainval2017.zip) and images (train2017.zip, val2017.zip; they may stay zipped)"
    tree = """
        annotations/instances_train2017.json, instances_val2017.json
        train2017/*.jpg (or train2017.zip)
        val2017/*.jpg (or val2017.zip)
    """

    def read(self, root: Path) -> Contents:
        folder = self.folder(root, ("", "coco", "COCO"), "annotations")
        files = [folder / "annotations" / f"instances_{part}2017.json" for part in ("train", "val")]
        self.require_files(*files)
        labels = join([read_labels(file, zero="absent") for file in files], ("train", "val"))
        values, names = class_filter(labels.values, labels.classes, keep=CLASSES)
        kind = np.concatenate([_first_kept(file, names) for file in files])
        places = [folder / f"{part}2017{end}" for part in ("train", "val") for end in ("", ".zip")]
        return Contents(
            LabelMatrix(values, names, labels.items, stratified_parts(kind)), find_existing(*places)
        )

    def published(self) -> tuple[Published, ...]:
        rows = {"train": "86,300", "val": "18,493", "test": "18,494"}
        positive = {"train": "45,658", "val": "9,784", "test": "9,784"}
        return (
            Published("classes", "41", "any-class presence paper, Table 8"),
            Published("images", "123,287", TABLE),
            Published("negative_rows", "58,061", TABLE),
            *(Published(f"images_{part}", number, TABLE) for part, number in rows.items()),
            *(Published(f"positive_rows_{part}", n, TABLE) for part, n in positive.items()),
        )


def _first_kept(file: Path, names: tuple[str, ...]) -> np.ndarray:
    """The column of the first kept annotation of each image, in the file's order; K for none."""
    # Outlines are most of the file: they are dropped while reading, to save memory.
    content = json.loads(read_text(file), object_hook=_without_outline)
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


def _without_outline(entry: dict[str, Any]) -> dict[str, Any]:
    entry.pop("segmentation", None)
    return entry


def stratified_parts(kind: np.ndarray) -> np.ndarray:
    """The part of each row: 70 % train, half of the rest val and half test, stratified by kind."""
    from sklearn.model_selection import train_test_split

    _, rest = train_test_split(np.arange(len(kind)), train_size=0.7, stratify=kind, random_state=42)
    val, test = train_test_split(rest, train_size=0.5, stratify=kind[rest], random_state=42)
    parts = np.full(len(kind), "train", dtype="<U5")
    parts[val], parts[test] = "val", "test"
    return parts
