"""Sewer-ML: 17 defects of sewer pipes; a normal pipe has none of them."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, get_args

import numpy as np

from halftruth.bench.datasets.dataset import (
    Contents,
    Dataset,
    classes_of,
    complete,
    read_source_table,
    register,
)
from halftruth.data.errors import DataError
from halftruth.labels import PRESENT, LabelMatrix
from halftruth.seeds import check_seed

CODES = classes_of("sewer-ml")
SewerSplit = Literal["paper", "held-out"]


@register("sewer-ml", "sewerml")
class SewerML(Dataset):
    """SewerML_Train for training, SewerML_Val for validation: the official test labels are hidden.

    The columns VA (water level) and ND (no defect) are not defects; in the rows of normal pipes
    all 17 are absent.

    split: "paper", as in the any-class presence paper: all rows of SewerML_Train are trained on,
        and results are those of SewerML_Val. "held-out": SewerML_Val is the test part, and a fifth
        of SewerML_Train is held out for validation.
    positives, negatives: only this many training rows with a defect, and this many times as many
        without, drawn with `subset_seed` (Table 5: 50,000 and 1, 2 or 5; its rows are not
        published).
    """

    entry = "sewer-ml"

    def __init__(
        self,
        split: SewerSplit = "paper",
        positives: int | None = None,
        negatives: float | None = None,
        subset_seed: int = 0,
    ) -> None:
        self.split = self.check_choice("split", split, get_args(SewerSplit))
        if (positives is None) != (negatives is None):
            raise DataError(
                "expected positives and negatives together, as in positives=50000, negatives=2; "
                f"got positives={positives}, negatives={negatives}"
            )
        if positives is not None and (int(positives) < 1 or float(negatives or 0) < 0):
            raise DataError(
                f"expected positives >= 1 and negatives >= 0, got {positives} and {negatives}"
            )
        self.subset_seed = check_seed(subset_seed, "subset_seed")
        self.subset = None if positives is None else (int(positives), float(negatives or 0))
        self.variant = self.split if self.subset is None else f"{self.split}, subset"

    def read(self, root: Path) -> Contents:
        folder = self.folder(root, ("", "annotations", "Annotations"), "SewerML_Train.csv")
        files = [folder / "SewerML_Train.csv", folder / "SewerML_Val.csv"]
        self.require_files(*files)
        read = [_labels(file) for file in files]
        notes = [note for _, note in read if note]
        parts = [labels for labels, _ in read]
        if self.subset is not None:
            rows, note = draw_defects(parts[0].values, *self.subset, self.subset_seed)
            parts[0] = parts[0].select(rows)
            notes += [note] if note else []
        archives = sorted([*root.glob("train[0-9]*.zip"), *root.glob("valid[0-9]*.zip")])
        folders = [root / name for name in ("images", "train", "val", "trainAll", "valAll")]
        return Contents(
            self.join(parts, ("train", "val" if self.split == "paper" else "test")),
            self.find_existing(*folders, *archives),
            notes=tuple(notes),
        )


def draw_defects(
    values: np.ndarray, positives: int, negatives: float, seed: int
) -> tuple[np.ndarray, str]:
    """Draw rows with a positive, and `negatives` times as many without; also what was missing.

    >>> draw_defects(np.array([[1], [-1], [1], [-1], [-1]]), 1, 2, 0)[0].tolist()
    [1, 2, 4]
    """
    random = np.random.RandomState(seed)
    held = (values == PRESENT).any(axis=1)
    found, missing = [], []
    for name, where, wanted in (
        ("with", held, positives),
        ("without", ~held, round(positives * negatives)),
    ):
        rows = random.permutation(np.flatnonzero(where))
        if len(rows) < wanted:
            missing.append(f"{len(rows):,} of {wanted:,} rows {name} a defect")
        found.append(rows[:wanted])
    note = f"the subset has only {' and '.join(missing)}" if missing else ""
    return np.sort(np.concatenate(found)), note


def _labels(file: Path) -> tuple[LabelMatrix, str]:
    frame = read_source_table(file, ("Filename", "Defect", *CODES))
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
    values = complete(marks[:, 1:] == 1)
    odd = int(np.count_nonzero((values == PRESENT).any(axis=1) != (marks[:, 0] == 1)))
    note = f"{file.name}: {odd:,} rows in which Defect disagrees with the 17 defect columns"
    return LabelMatrix(values, CODES, frame["Filename"].to_numpy(dtype=str)), note if odd else ""
