"""PASCAL VOC 2012, classification: 20 classes, train for training and val for test."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from halftruth.bench.datasets.dataset import (
    Contents,
    Dataset,
    classes_of,
    read_source_lines,
    register,
)
from halftruth.data.errors import DataError
from halftruth.labels import ABSENT, PRESENT, UNKNOWN, LabelMatrix

CLASSES = classes_of("voc2012")
OnlyDifficult = Literal["absent", "unknown", "present"]
_CODE = {"absent": ABSENT, "unknown": UNKNOWN, "present": PRESENT}


@register("voc2012", "voc")
class VOC2012(Dataset):
    """The class lists of the classification task, as used for the published numbers.

    difficult: the label of a class whose only objects in an image are marked difficult (0 in the
        lists). The papers use absent.
    """

    entry = "voc2012"

    def __init__(self, difficult: OnlyDifficult = "absent") -> None:
        self.check_choice("difficult", difficult, get_args(OnlyDifficult))
        self.codes = {"1": PRESENT, "-1": ABSENT, "0": _CODE[difficult]}

    def read(self, root: Path) -> Contents:
        folder = self.folder(root, ("VOCdevkit/VOC2012", "VOC2012", ""), "ImageSets/Main")
        lists = folder / "ImageSets" / "Main"
        parts = [self._part(lists, part) for part in ("train", "val")]
        return Contents(
            self.join(parts, ("train", "test")), self.find_existing(folder / "JPEGImages")
        )

    def read_measures(self, root: Path, labels: LabelMatrix) -> Mapping[str, np.ndarray]:
        """Read area and distance from the centre of each class from the boxes in Annotations."""
        folder = self.folder(root, ("VOCdevkit/VOC2012", "VOC2012", ""), "ImageSets/Main")
        area = np.zeros(labels.values.shape)
        distance = np.full(labels.values.shape, np.nan)
        assert labels.items is not None
        for row, item in enumerate(labels.items):
            for name, box in _read_boxes(folder / "Annotations" / f"{Path(str(item)).stem}.xml"):
                k = labels.classes.index(name)
                x0, y0, x1, y1 = box
                area[row, k] += (x1 - x0) * (y1 - y0)
                away = float(np.hypot((x0 + x1) / 2 - 0.5, (y0 + y1) / 2 - 0.5))
                distance[row, k] = np.fmin(distance[row, k], away)
        return {"area": area, "centre_distance": distance}

    def _part(self, lists: Path, part: str) -> LabelMatrix:
        files = [lists / f"{name}_{part}.txt" for name in CLASSES]
        self.require_files(lists / f"{part}.txt", *files)
        stems = sorted(text for _, text in read_source_lines(lists / f"{part}.txt"))
        values = np.stack([self._column(file, stems) for file in files], axis=1)
        return LabelMatrix(values, CLASSES, np.array([f"{stem}.jpg" for stem in stems], dtype=str))

    def _column(self, file: Path, stems: list[str]) -> np.ndarray:
        """One class: lines of an image name and 1, -1 or 0.

        Every image must have a line: an incomplete list would look like absent objects.
        """
        marks: dict[str, int] = {}
        for number, text in read_source_lines(file):
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


Box = tuple[float, float, float, float]


def _read_boxes(file: Path) -> list[tuple[str, Box]]:
    """Read the class and the box of each object that is not difficult, as shares of the image."""
    try:
        tree = ElementTree.parse(file).getroot()
        size = [float(tree.findtext(f"size/{side}", "")) for side in ("width", "height")]
        found = []
        for entry in tree.iter("object"):
            if entry.findtext("difficult", "0").strip() == "1":
                continue
            ends = [
                float(entry.findtext(f"bndbox/{end}", "")) / size[at % 2]
                for at, end in enumerate(("xmin", "ymin", "xmax", "ymax"))
            ]
            found.append((entry.findtext("name", "").strip(), (ends[0], ends[1], ends[2], ends[3])))
    except FileNotFoundError:
        raise DataError(
            f"{file}: is missing; it has the boxes that the labels are shown by"
        ) from None
    except (ElementTree.ParseError, ValueError, ZeroDivisionError) as error:
        raise DataError(f"{file}: expected a size and objects with a box ({error})") from None
    if unknown := [name for name, _ in found if name not in CLASSES]:
        raise DataError(f"{file}: {unknown[0]!r} is not a class of VOC 2012")
    return found
