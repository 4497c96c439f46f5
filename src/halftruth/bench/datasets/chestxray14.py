"""NIH ChestX-ray14: 14 findings; more than half of the images have none."""

from __future__ import annotations

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
from halftruth.data.readers.cell_codes import Coding
from halftruth.data.readers.label_table import labels_of_table
from halftruth.data.readers.text_table import read_table
from halftruth.labels import LabelMatrix

CLASSES = classes_of("chestxray14")
ChestSplit = Literal["any-class", "official"]
TABLES = tuple(
    f"Data_Entry_2017{version}.csv{end}" for version in ("_v2020", "") for end in ("", ".gz")
)


@register("chestxray14", "nih14")
class ChestXray14(Dataset):
    """Findings that a report does not name are absent; "No Finding" is a row without findings.

    split "any-class": 70 / 15 / 15 % of the patients, exactly the parts of the any-class presence
        paper. "official": train_val_list.txt and test_list.txt, validation patients drawn.
    """

    entry = "chestxray14"

    def __init__(self, split: ChestSplit = "any-class") -> None:
        self.variant = self.split = self.check_choice("split", split, get_args(ChestSplit))

    def read(self, root: Path) -> Contents:
        if not root.exists():
            raise self.incomplete(f"{root}: there is no such folder")
        file = next((root / name for name in TABLES if (root / name).is_file()), root / TABLES[0])
        self.require_files(file)
        table = read_table(file)
        labels = labels_of_table(
            table,
            Coding(zero="absent", blank="absent"),
            image_column="Image Index",
            label_column="Finding Labels",
            classes=CLASSES,
            sep="|",
            nothing="No Finding",
        )
        patients = np.array(table.texts("Patient ID", "patients"))
        if self.split == "any-class":
            part = patient_parts(patients)
        else:
            part = self._listed(root, labels)
        labels = LabelMatrix(labels.values, labels.classes, labels.items, part)
        return Contents(labels, self.find_existing(root / "images"), groups=patients)

    def _listed(self, root: Path, labels: LabelMatrix) -> np.ndarray:
        assert labels.items is not None
        files = {"train": root / "train_val_list.txt", "test": root / "test_list.txt"}
        self.require_files(*files.values())
        part = {text: name for name, file in files.items() for _, text in read_source_lines(file)}
        missing = [str(item) for item in labels.items if str(item) not in part]
        if missing:
            raise self.incomplete(
                f"{files['train']} and {files['test'].name}: neither lists {missing[0]!r} "
                f"({len(missing):,} images of the table)"
            )
        return np.array([part[str(item)] for item in labels.items], dtype=str)


def patient_parts(patients: np.ndarray) -> np.ndarray:
    """The part of each row: 70 % of the patients train, 15 % val, 15 % test.

    Two permutations of RandomState(42), first of all patients in file order, then of those not in
    train; the first entries of each are the smaller share, rounded up. This reproduces the six
    published counts.
    """
    _, first = np.unique(patients, return_index=True)
    everyone = patients[np.sort(first)]
    order = np.random.RandomState(42).permutation(len(everyone))
    rest = everyone[order[: _up(0.3 * len(everyone))]]
    again = np.random.RandomState(42).permutation(len(rest))
    test = rest[again[: _up(0.5 * len(rest))]]
    parts = np.full(len(patients), "train", dtype="<U5")
    parts[np.isin(patients, rest)] = "val"
    parts[np.isin(patients, test)] = "test"
    return parts


def _up(number: float) -> int:
    return int(np.ceil(number))
