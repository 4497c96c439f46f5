"""CUB-200-2011: 312 binary attributes of birds as labels, official train_test_split."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from halftruth.bench.datasets.dataset import (
    Contents,
    Dataset,
    complete,
    read_source_lines,
    register,
)
from halftruth.data.errors import DataError
from halftruth.labels import LabelMatrix

FIELDS = ["image", "attribute", "present"]


@register("cub", "cub-200-2011")
class CUB(Dataset):
    """Attributes as annotated, at any certainty, as in the papers.

    A few lines of image_attribute_labels.txt have more than five fields; only the first three
    (image, attribute, present) are read.
    """

    entry = "cub"

    def read(self, root: Path) -> Contents:
        places = ("CUB_200_2011", "CUB_200_2011/CUB_200_2011", "")
        folder = self.folder(root, places, "images.txt")
        table = folder / "attributes" / "image_attribute_labels.txt"
        named = (folder / "attributes" / "attributes.txt", folder / "attributes.txt")
        names = next((file for file in named if file.is_file()), folder.parent / "attributes.txt")
        self.require_files(names, folder / "train_test_split.txt", table)
        images = _read_numbered(folder / "images.txt")
        classes = _read_numbered(names)
        training = _read_numbered(folder / "train_test_split.txt")
        if len(training) != len(images) or not set(training) <= {"0", "1"}:
            raise DataError(
                f"{folder / 'train_test_split.txt'}: expected 0 or 1 for each of "
                f"{len(images):,} images"
            )
        values = self._attributes(table, len(images), len(classes))
        split = np.where(np.array(training) == "1", "train", "test")
        labels = LabelMatrix(values, tuple(classes), np.array(images, dtype=str), split)
        return Contents(labels, self.find_existing(folder / "images"))

    def _attributes(self, table: Path, images: int, classes: int) -> np.ndarray:
        import pandas as pd

        # With usecols, pandas accepts lines of any length.
        frame = pd.read_csv(
            table,
            sep=r"\s+",
            header=None,
            names=FIELDS,
            usecols=FIELDS,
            index_col=False,
            low_memory=False,
        )
        numbers = frame.apply(pd.to_numeric, errors="coerce").to_numpy(dtype=float)
        upper = (images, classes, 1)
        fine = (numbers >= (1, 1, 0)) & (numbers <= upper) & (numbers % 1 == 0)
        wrong = np.flatnonzero(~fine.all(axis=1))
        if len(wrong):
            raise DataError(
                f"{table} entry {wrong[0] + 1}: expected an image of 1 to {images:,}, an attribute "
                f"of 1 to {classes} and 0 or 1, got {list(frame.iloc[wrong[0]])} ({len(wrong):,} "
                "such lines)"
            )
        image, attribute, present = numbers.astype(np.int64).T
        counts = np.bincount((image - 1) * classes + attribute - 1, minlength=images * classes)
        if (counts != 1).any():
            first = int((counts != 1).argmax())
            times = "no line" if counts[first] == 0 else f"{counts[first]} lines"
            raise self.incomplete(
                f"{table}: image {first // classes + 1} has {times} for attribute "
                f"{first % classes + 1} ({int((counts != 1).sum()):,} such pairs)"
            )
        present_at = np.zeros((images, classes), dtype=bool)
        present_at[image - 1, attribute - 1] = present == 1
        return complete(present_at)


def _read_numbered(file: Path) -> list[str]:
    """The values of lines `number value`, numbered 1, 2, 3, ..."""
    values: list[str] = []
    for number, text in read_source_lines(file):
        words = text.split()
        if len(words) != 2 or words[0] != str(len(values) + 1):
            raise DataError(
                f"{file} line {number}: expected {len(values) + 1} and one word, got {text[:60]!r}"
            )
        values.append(words[1])
    return values
