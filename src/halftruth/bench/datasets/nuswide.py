"""NUS-WIDE: 81 concepts of Flickr photos, in the splits that the papers use."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

import numpy as np

from halftruth.bench.datasets.dataset import (
    Contents,
    Dataset,
    classes_of,
    complete,
    read_source_lines,
    register,
)
from halftruth.data.errors import DataError
from halftruth.data.readers.cell_codes import Coding
from halftruth.data.readers.label_lists import matrix_of_lists
from halftruth.data.readers.numpy_file import load_arrays
from halftruth.data.readers.text_table import read_csv
from halftruth.labels import LabelMatrix
from halftruth.seeds import check_seed

CONCEPTS = classes_of("nuswide")
NusSplit = Literal["cole", "drawn", "asl", "official"]
SIZES = (150_000, 60_260)


@register("nuswide", "nus-wide", "nus")
class NusWide(Dataset):
    """NUS-WIDE in one of four splits; the papers do not share one.

    split "cole": 150,000 / 60,260 from the arrays that Cole et al. publish for their re-crawled
        copy. "drawn": as many images drawn from the official lists with `draw_seed`; EM, GR and
        LASD do so, but name neither seed nor list. "asl": 119,103 / 50,720, every image with a
        label, from ASL's CSV file; Hill and SPLC use it. "official": the lists of NUS-WIDE itself.
    """

    entry = "nuswide"

    def __init__(self, split: NusSplit = "cole", draw_seed: int = 1200) -> None:
        self.split = self.check_choice("split", split, get_args(NusSplit))
        # The drawn split has the sizes of the other.
        self.variant = "cole" if split == "drawn" else split
        self.draw_seed = check_seed(draw_seed, "draw_seed")

    def read(self, root: Path) -> Contents:
        if not root.exists():
            raise self.incomplete(f"{root}: there is no such folder")
        if self.split == "asl":
            return Contents(
                self._asl(root / "nus_wid_data.csv"), self.find_existing(root / "images")
            )
        images = self.find_existing(root / "Flickr", root / "Flickr.zip")
        if self.split == "cole":
            parts = [self._arrays(root, part) for part in ("train", "val")]
        else:
            parts = [self._lists(root, part) for part in ("Train", "Test")]
        labels = self.join(parts, ("train", "test"))
        return Contents(self._draw(labels) if self.split == "drawn" else labels, images)

    def _lists(self, root: Path, part: str) -> LabelMatrix:
        """One image per line, as actor\\0001_2124494179.jpg; 81 files with 0 or 1 per line."""
        listed = root / "ImageList" / f"{part}Imagelist.txt"
        folder = root / "Groundtruth" / "TrainTestLabels"
        files = [folder / f"Labels_{concept}_{part}.txt" for concept in CONCEPTS]
        self.require_files(listed, *files)
        items = [text.replace("\\", "/") for _, text in read_source_lines(listed)]
        columns = [_zeros_and_ones(file, len(items)) for file in files]
        return LabelMatrix(np.stack(columns, axis=1), CONCEPTS, np.array(items, dtype=str))

    def _arrays(self, root: Path, part: str) -> LabelMatrix:
        images = root / f"formatted_{part}_images.npy"
        matrix = root / f"formatted_{part}_labels.npy"
        self.require_files(images, matrix)
        items, values = load_arrays(images)[""], load_arrays(matrix)[""]
        if items.dtype.kind != "U" or values.shape != (len(items), len(CONCEPTS)):
            raise DataError(
                f"{matrix}: expected {len(CONCEPTS)} labels for each of {len(items):,} "
                f"named images, got {values.shape} labels and names of {items.dtype}"
            )
        if not np.isin(values, (0, 1)).all():
            raise DataError(f"{matrix}: expected 0 and 1, got {np.unique(values)[:5]}")
        return LabelMatrix(complete(values == 1), CONCEPTS, items)

    def _asl(self, file: Path) -> LabelMatrix:
        """Lines of a file name, "['clouds', 'sky']", and train or val (the test images)."""
        self.require_files(file)
        header, columns, lines = read_csv(file)
        if len(header) != 3:
            raise DataError(f"{file} line 1: expected three columns, got {header}")
        names, cells, parts = columns
        wrong = [row for row, part in enumerate(parts) if part not in ("train", "val")]
        if wrong:
            line, part = lines[wrong[0]], parts[wrong[0]]
            raise DataError(f"{file} line {line}: expected train or val, got {part!r}")
        lists = [[w for word in c.strip("[]").split(",") if (w := word.strip(" '"))] for c in cells]
        values, _ = matrix_of_lists(
            lists,
            Coding(zero="absent"),
            where=lambda row: f"{file} line {lines[row]}",
            classes=CONCEPTS,
        )
        split = np.where(np.array(parts) == "train", "train", "test")
        return LabelMatrix(values, CONCEPTS, np.array(names, dtype=str), split)

    def _draw(self, labels: LabelMatrix) -> LabelMatrix:
        """Draw training and test rows of the published sizes, or in their proportion.

        A smaller copy is split in the same proportion, so that `check` reports its size.
        """
        scale = min(1.0, len(labels) / sum(SIZES))
        train, test = (round(scale * size) for size in SIZES)
        order = np.random.RandomState(self.draw_seed).permutation(len(labels))
        chosen = np.concatenate([np.sort(order[:train]), np.sort(order[train : train + test])])
        drawn = labels.select(chosen)
        split = np.repeat(["train", "test"], [train, len(chosen) - train])
        return LabelMatrix(drawn.values, drawn.classes, drawn.items, split)


def _zeros_and_ones(file: Path, rows: int) -> np.ndarray:
    marks = [text for _, text in read_source_lines(file)]
    wrong = next((row for row, mark in enumerate(marks) if mark not in ("0", "1")), None)
    if wrong is not None or len(marks) != rows:
        found = f"{len(marks):,} lines" if wrong is None else f"{marks[wrong]!r}"
        raise DataError(
            f"{file}: expected {rows:,} lines of 0 or 1, one per image of the list, got {found}"
        )
    return complete(np.array(marks) == "1")
