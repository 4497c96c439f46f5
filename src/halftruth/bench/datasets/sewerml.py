"""Sewer-ML: 17 defects of sewer pipes; a normal pipe has none of them."""

from __future__ import annotations

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
from halftruth.data.errors import DataError
from halftruth.labels import ABSENT, PRESENT, LabelMatrix

CODES = (
    "RB", "OB", "PF", "DE", "FS", "IS", "RO", "IN", "AF", "BE", "FO", "GR", "PH", "PB", "OS", "OP",
    "OK",
)  # fmt: skip
TABLE = "any-class presence paper, Table 7"


@register("sewer-ml", "sewerml")
class SewerML(Dataset):
    """SewerML_Train for training and SewerML_Val for test: the official test labels are not public.

    The columns VA (water level) and ND (no defect) are not defects; in the rows of normal pipes
    all 17 are absent.
    """

    title = "Sewer-ML"
    homepage = "the Sewer-ML page of Aalborg University's VAP lab (vap.aau.dk/sewer-ml), a form \
gives access; annotations and images"
    tree = """
        SewerML_Train.csv, SewerML_Val.csv (or in a folder annotations/)
        train00.zip ... train13.zip, valid00.zip, valid01.zip (or unpacked in images/, train/, val/)
    """

    def read(self, root: Path) -> Contents:
        folder = self.folder(root, ("", "annotations", "Annotations"), "SewerML_Train.csv")
        files = [folder / "SewerML_Train.csv", folder / "SewerML_Val.csv"]
        self.require_files(*files)
        parts, notes = zip(*(_labels(file) for file in files), strict=True)
        archives = sorted([*root.glob("train[0-9]*.zip"), *root.glob("valid[0-9]*.zip")])
        folders = [root / name for name in ("images", "train", "val", "trainAll", "valAll")]
        return Contents(
            join(parts, ("train", "test")),
            find_existing(*folders, *archives),
            notes=tuple(note for note in notes if note),
        )

    def published(self) -> tuple[Published, ...]:
        return (
            Published("classes", "17", "Haurum and Moeslund 2021"),
            Published("images_train_and_val", "1,040,129", TABLE),
            Published("images_test", "130,046", TABLE),
            Published("positive_rows_train_and_val", "487,309", TABLE),
            Published("negative_rows_train_and_val", "552,820", TABLE),
            Published("positive_rows_test", "61,365", TABLE),
            Published("negative_rows_test", "68,681", TABLE),
        )


def _labels(file: Path) -> tuple[LabelMatrix, str]:
    import pandas as pd

    wanted = ("Filename", "Defect", *CODES)
    frame: Any = pd.read_csv(file, usecols=lambda name: name in wanted, dtype={"Filename": str})
    missing = [name for name in wanted if name not in frame.columns]
    if missing:
        raise DataError(f"{file} line 1: these columns are missing: {', '.join(missing)}")
    nameless = np.flatnonzero(frame["Filename"].isna().to_numpy())
    if len(nameless):
        raise DataError(f"{file} entry {nameless[0] + 1}: has no Filename ({len(nameless):,} such)")
    marks = frame[["Defect", *CODES]].to_numpy()
    wrong = np.argwhere(~np.isin(marks, (0, 1)))
    if len(wrong):
        row, column = wrong[0]
        raise DataError(
            f"{file} entry {row + 1}, column {('Defect', *CODES)[column]}: expected 0 or 1, got "
            f"{marks[row, column]}"
        )
    values = np.where(marks[:, 1:] == 1, PRESENT, ABSENT).astype(np.int8)
    odd = int(np.count_nonzero((values == PRESENT).any(axis=1) != (marks[:, 0] == 1)))
    note = f"{file.name}: {odd:,} rows in which Defect disagrees with the 17 defect columns"
    return LabelMatrix(values, CODES, frame["Filename"].to_numpy(dtype=str)), note if odd else ""
