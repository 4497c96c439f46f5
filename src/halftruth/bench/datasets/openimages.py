"""Open Images: human-verified image-level labels, present or absent; the rest is unknown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from halftruth.bench.datasets.dataset import Contents, Dataset, read_source_table, register
from halftruth.data.errors import DataError, class_names, some
from halftruth.data.readers.text_table import read_text
from halftruth.labels import ABSENT, PRESENT, UNKNOWN, LabelMatrix

TestPart = Literal["validation", "test"]
DESCRIPTIONS = ("oidv7-class-descriptions-boxable.csv", "class-descriptions-boxable.csv")
COLUMNS = ["ImageID", "LabelName", "Confidence"]


@register("openimages", "open-images")
class OpenImages(Dataset):
    """The boxable subset, which is closest to the 1.7 million images of the Hill and SPLC paper.

    test: the part used as test; "validation" is closest to the paper's 37,306 test images.
    classes: names or ids of the classes to keep; the paper's 567 of 601 are not named.
    Images without a present label of these classes are left out.
    """

    entry = "openimages"

    def __init__(self, test: TestPart = "validation", classes: Sequence[str] | None = None) -> None:
        self.test = self.check_choice("test", test, get_args(TestPart))
        self.classes = None if classes is None else class_names(classes, "classes=")

    def read(self, root: Path) -> Contents:
        train = "train-annotations-human-imagelabels-boxable.csv"
        folder = self.folder(root, ("", "annotations"), train)
        files = [folder / train, folder / f"{self.test}-annotations-human-imagelabels-boxable.csv"]
        named = next((file for name in DESCRIPTIONS if (file := folder / name).is_file()), None)
        self.require_files(named or folder / DESCRIPTIONS[0], *files)
        assert named is not None
        ids, names = self._read_classes(named)
        parts, notes = zip(*(_labels(file, ids, names) for file in files), strict=True)
        return Contents(
            self.join(parts, ("train", "test")),
            self.find_existing(root / "train", root / self.test),
            notes=tuple(note for note in notes if note),
        )

    def _read_classes(self, file: Path) -> tuple[list[str], tuple[str, ...]]:
        """Ids and names of the classes; V7 has a header, earlier releases do not."""
        pairs = [line.split(",", 1) for line in read_text(file).splitlines() if line.strip()]
        pairs = [pair for pair in pairs if pair != ["LabelName", "DisplayName"]]
        bad = [pair for pair in pairs if len(pair) != 2 or not pair[0].startswith("/")]
        if bad:
            raise DataError(f"{file}: expected lines such as /m/011k07,Tortoise, got {bad[0]}")
        table = {key.strip(): name.strip().strip('"') for key, name in pairs}
        if self.classes is not None:
            wanted = set(self.classes)
            unknown = sorted(wanted - set(table) - set(table.values()))
            if unknown:
                raise DataError(f"classes=: {file} has no class {some(unknown)}")
            table = {k: name for k, name in table.items() if {k, name} & wanted}
        return list(table), class_names(table.values(), file)


def _labels(file: Path, ids: list[str], names: tuple[str, ...]) -> tuple[LabelMatrix, str]:
    """One row per image: Confidence 1 is PRESENT, 0 is ABSENT, no entry is UNKNOWN."""
    import pandas as pd

    frame = read_source_table(file, COLUMNS)
    confidence = pd.to_numeric(frame["Confidence"], errors="coerce").to_numpy(dtype=float)
    wrong = np.flatnonzero(~np.isin(confidence, (0.0, 1.0)))
    if len(wrong):
        raise DataError(
            f"{file} entry {wrong[0] + 1}: expected a verified label with Confidence 0 or 1, got "
            f"{frame['Confidence'].iloc[wrong[0]]}; machine-generated labels are in another file"
        )
    column = pd.Index(ids).get_indexer(frame["LabelName"])
    row, images = pd.factorize(frame["ImageID"], sort=True)
    held, denied = (np.flatnonzero((column >= 0) & (confidence == mark)) for mark in (1.0, 0.0))
    values = np.full((len(images), len(ids)), UNKNOWN, dtype=np.int8)
    values[row[held], column[held]] = PRESENT
    conflict = values[row[denied], column[denied]] == PRESENT
    values[row[denied], column[denied]] = np.where(conflict, UNKNOWN, ABSENT)
    full = np.flatnonzero((values == PRESENT).any(axis=1))
    items = np.char.add(np.asarray(images, dtype=str)[full], ".jpg")
    count = int(conflict.sum())
    note = (
        f"{file.name}: {count:,} labels are verified both as present and as absent; "
        "they count as unknown"
    )
    return LabelMatrix(values[full], names, items), note if count else ""
