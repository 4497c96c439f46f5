"""NUS-WIDE: 81 concepts of Flickr photos, in the splits that the papers use."""

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
from halftruth.data.readers.cell_codes import Coding
from halftruth.data.readers.label_lists import matrix_of_lists
from halftruth.data.readers.numpy_file import load_arrays
from halftruth.data.readers.text_table import read_csv
from halftruth.labels import ABSENT, PRESENT, LabelMatrix
from halftruth.seeds import check_seed

CONCEPTS = (
    "airport", "animal", "beach", "bear", "birds", "boats", "book", "bridge", "buildings", "cars",
    "castle", "cat", "cityscape", "clouds", "computer", "coral", "cow", "dancing", "dog",
    "earthquake", "elk", "fire", "fish", "flags", "flowers", "food", "fox", "frost", "garden",
    "glacier", "grass", "harbor", "horses", "house", "lake", "leaf", "map", "military", "moon",
    "mountain", "nighttime", "ocean", "person", "plane", "plants", "police", "protest", "railroad",
    "rainbow", "reflection", "road", "rocks", "running", "sand", "sign", "sky", "snow", "soccer",
    "sports", "statue", "street", "sun", "sunset", "surf", "swimmers", "tattoo", "temple", "tiger",
    "tower", "town", "toy", "train", "tree", "valley", "vehicle", "water", "waterfall", "wedding",
    "whales", "window", "zebra",
)  # fmt: skip
NusSplit = Literal["cole", "drawn", "asl", "official"]
EM = "Zhou et al. 2022 (EM), Table 4"
LASD = "LASD, Table 1"
HILL = "Zhang et al. (Hill, SPLC), Table II"
SIZES = (150_000, 60_260)
COMMON = (
    Published("classes", "81", EM),
    Published("images_train_and_val", "150,000", LASD),
    Published("images_train", "120000", EM, val=0.2),
    Published("images_val", "30000", EM, val=0.2),
    Published("images_test", "60,260", LASD),
    Published("positives_per_image", "1.89", EM),
)
PUBLISHED: dict[str, tuple[Published, ...]] = {
    "cole": COMMON,
    "drawn": COMMON,
    "asl": (
        Published("classes", "81", HILL),
        Published("images_train_and_val", "119,103", HILL),
        Published("images_test", "50,720", "Zhang et al. (Hill, SPLC), section V-A"),
        Published("observed_labels", "289,460", HILL, setting="complete"),
        Published("observed_labels", "119,103", HILL, setting="single"),
    ),
    "official": (
        Published("classes", "81", "Chua et al. 2009"),
        Published("images", "269,648", "Chua et al. 2009"),
        Published("images_train_and_val", "161,789", "Chua et al. 2009"),
        Published("images_test", "107,859", "Chua et al. 2009"),
    ),
}


@register("nuswide", "nus-wide", "nus")
class NusWide(Dataset):
    """NUS-WIDE in one of four splits; the papers do not share one.

    split "cole": 150,000 / 60,260 from the arrays that Cole et al. publish for their re-crawled
        copy. "drawn": as many images drawn from the official lists with `draw_seed`; EM, GR and
        LASD do so, but name neither seed nor list. "asl": 119,103 / 50,720, every image with a
        label, from ASL's CSV file; Hill and SPLC use it. "official": the lists of NUS-WIDE itself.
    """

    title = "NUS-WIDE"
    homepage = "the NUS-WIDE page of the Lab for Media Search, National University of Singapore \
(lms.comp.nus.edu.sg), Groundtruth.zip, ImageList.zip, ConceptsList.zip, images on request; for \
split='cole' the arrays linked from data/README.md of elijahcole/single-positive-multi-label; for \
split='asl' the file linked from MODEL_ZOO.md of Alibaba-MIIL/ASL"
    tree = """
        ImageList/TrainImagelist.txt, TestImagelist.txt          (split "official" and "drawn")
        Groundtruth/TrainTestLabels/Labels_airport_Train.txt, Labels_airport_Test.txt, ... (81 x 2)
        formatted_train_images.npy, formatted_train_labels.npy   (split "cole")
        formatted_val_images.npy, formatted_val_labels.npy
        nus_wid_data.csv                                         (split "asl")
        Flickr/actor/0001_2124494179.jpg, ... (or Flickr.zip); images/*.jpg for split "asl"
    """

    def __init__(self, split: NusSplit = "cole", draw_seed: int = 1200) -> None:
        if split not in get_args(NusSplit):
            raise DataError(f"split must be one of {get_args(NusSplit)}, got {split!r}")
        self.split: NusSplit = split
        self.draw_seed = check_seed(draw_seed, "draw_seed")

    def read(self, root: Path) -> Contents:
        if not root.exists():
            raise self.incomplete(f"{root}: there is no such folder")
        if self.split == "asl":
            return Contents(self._asl(root / "nus_wid_data.csv"), find_existing(root / "images"))
        images = find_existing(root / "Flickr", root / "Flickr.zip")
        if self.split == "cole":
            parts = [self._arrays(root, part) for part in ("train", "val")]
        else:
            parts = [self._lists(root, part) for part in ("Train", "Test")]
        labels = join(parts, ("train", "test"))
        return Contents(self._draw(labels) if self.split == "drawn" else labels, images)

    def published(self) -> tuple[Published, ...]:
        return PUBLISHED[self.split]

    def _lists(self, root: Path, part: str) -> LabelMatrix:
        """One image per line, as actor\\0001_2124494179.jpg; 81 files with 0 or 1 per line."""
        listed = root / "ImageList" / f"{part}Imagelist.txt"
        folder = root / "Groundtruth" / "TrainTestLabels"
        files = [folder / f"Labels_{concept}_{part}.txt" for concept in CONCEPTS]
        self.require_files(listed, *files)
        items = [text.replace("\\", "/") for _, text in read_lines(listed)]
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
        return LabelMatrix(np.where(values == 1, PRESENT, ABSENT).astype(np.int8), CONCEPTS, items)

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
    marks = [text for _, text in read_lines(file)]
    wrong = next((row for row, mark in enumerate(marks) if mark not in ("0", "1")), None)
    if wrong is not None or len(marks) != rows:
        found = f"{len(marks):,} lines" if wrong is None else f"{marks[wrong]!r}"
        raise DataError(
            f"{file}: expected {rows:,} lines of 0 or 1, one per image of the list, got {found}"
        )
    return np.where(np.array(marks) == "1", PRESENT, ABSENT).astype(np.int8)
