"""PASCAL VOC 2012, classification: 20 classes, train for training and val for test."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

import numpy as np

from halftruth.bench.datasets.dataset import (
    Contents,
    Dataset,
    Published,
    find_existing,
    join,
    read_lines,
    register,
)
from halftruth.data.errors import DataError
from halftruth.labels import ABSENT, PRESENT, UNKNOWN, LabelMatrix

CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train",
    "tvmonitor",
)  # fmt: skip
OnlyDifficult = Literal["absent", "unknown", "present"]
_CODE = {"absent": ABSENT, "unknown": UNKNOWN, "present": PRESENT}
EM = "Zhou et al. 2022 (EM), Table 4"
LASD = "LASD, Table 1"
HILL = "Zhang et al. (Hill, SPLC), Table II"


@register("voc2012", "voc")
class VOC2012(Dataset):
    """The class lists of the classification task, as used for the published numbers.

    difficult: the label of a class whose only objects in an image are marked difficult (0 in the
        lists). The papers use absent.
    """

    title = "PASCAL VOC 2012"
    homepage = "the PASCAL VOC project page (host.robots.ox.ac.uk/pascal/VOC), the file \
VOCtrainval_11-May-2012.tar; nothing else is needed"
    tree = """
        VOCdevkit/VOC2012/ImageSets/Main/train.txt, val.txt
        VOCdevkit/VOC2012/ImageSets/Main/aeroplane_train.txt, aeroplane_val.txt, ... (20 classes)
        VOCdevkit/VOC2012/JPEGImages/*.jpg
    """

    def __init__(self, difficult: OnlyDifficult = "absent") -> None:
        if difficult not in get_args(OnlyDifficult):
            raise DataError(
                f"difficult must be one of {get_args(OnlyDifficult)}, got {difficult!r}"
            )
        self.codes = {"1": PRESENT, "-1": ABSENT, "0": _CODE[difficult]}

    def read(self, root: Path) -> Contents:
        folder = self.folder(root, ("VOCdevkit/VOC2012", "VOC2012", ""), "ImageSets/Main")
        lists = folder / "ImageSets" / "Main"
        parts = [self._part(lists, part) for part in ("train", "val")]
        return Contents(join(parts, ("train", "test")), find_existing(folder / "JPEGImages"))

    def published(self) -> tuple[Published, ...]:
        return (
            Published("classes", "20", EM),
            Published("images_train_and_val", "5,717", LASD),
            Published("images_train", "4574", EM, val=0.2),
            Published("images_val", "1143", EM, val=0.2),
            Published("images_test", "5,823", LASD),
            Published("positives_per_image", "1.46", EM),
            Published("observed_labels", "8,331", HILL, setting="complete"),
        )

    def _part(self, lists: Path, part: str) -> LabelMatrix:
        files = [lists / f"{name}_{part}.txt" for name in CLASSES]
        self.require_files(lists / f"{part}.txt", *files)
        stems = sorted(text for _, text in read_lines(lists / f"{part}.txt"))
        values = np.stack([self._column(file, stems) for file in files], axis=1)
        return LabelMatrix(values, CLASSES, np.array([f"{stem}.jpg" for stem in stems], dtype=str))

    def _column(self, file: Path, stems: list[str]) -> np.ndarray:
        """One class: lines of an image name and 1, -1 or 0.

        Every image must have a line: an incomplete list would look like absent objects.
        """
        marks: dict[str, int] = {}
        for number, text in read_lines(file):
            words = text.split()
            if len(words) != 2 or words[1] not in self.codes:
                raise DataError(
                    f"{file} line {number}: expected an image and 1, 0 or -1, got {text[:60]!r}"
                )
            marks[words[0]] = self.codes[words[1]]
        missing = [stem for stem in stems if stem not in marks]
        if missing:
            raise self.incomplete(
                f"{file}: has no line for {missing[0]!r} ({len(missing):,} images are missing)"
            )
        return np.array([marks[stem] for stem in stems], dtype=np.int8)
