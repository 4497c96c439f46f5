"""MS COCO 2014: 80 classes, train2014 for training and val2014 for test."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from halftruth.bench.datasets.base import Contents, Dataset, existing, join, register
from halftruth.bench.datasets.benchmark import Published
from halftruth.data.errors import DataError
from halftruth.data.readers import read_labels
from halftruth.labels import LabelMatrix

EM = "Zhou et al. 2022 (EM), Table 4"
LASD = "LASD, Table 1"
HILL = "Zhang et al. (Hill, SPLC), Table II"


@register("coco2014", "coco")
class COCO2014(Dataset):
    """Images without an annotation are left out, as in the papers; crowds count as objects."""

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
        self.need(*files)
        labels = join([_published_order(file) for file in files], ("train", "test"))
        places = [folder / f"{part}2014{end}" for part in ("train", "val") for end in ("", ".zip")]
        return Contents(labels, existing(*places))

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
    """The image's number in its file name: COCO_train2014_000000000009.jpg is 9."""
    digits = re.search(r"(\d+)\.\w+$", name)
    if digits is None:
        raise DataError(f"{place}: expected a COCO file name that ends in its number, got {name!r}")
    return int(digits[1])


def string_order(numbers: list[int] | np.ndarray) -> np.ndarray:
    """Rows sorted by their numbers as text, 10 before 9, as Cole et al. draw their splits.

    >>> string_order([9, 10, 25]).tolist()
    [1, 2, 0]
    """
    return np.argsort(np.array([str(int(number)) for number in numbers]), kind="stable")
