"""Any label file with complete labels and a split column, as if it were a published data set."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from halftruth.bench.datasets.base import Contents, Dataset, published_of, register
from halftruth.bench.datasets.benchmark import Published
from halftruth.bench.datasets.chestxray14 import patient_parts
from halftruth.data import read_column
from halftruth.data.features import read_features
from halftruth.data.readers import read_labels


@register("table")
class LabelFile(Dataset):
    """`root` is the label file; 0, or a class that a list leaves out, is absent there.

    images: the folders and zip files of images; or features: a file of features.
    compare: the data set whose published numbers it should have, such as "voc2012".
    reading: options of `halftruth.data.read_labels`, such as drop_columns.
    patient_column: divide the rows anew, 70 / 15 / 15 % of the patients (or whatever it names), as
        the any-class presence paper does; a split column is then not used.
    """

    title = "a label file"
    homepage = "your own, in any format of docs/formats.md"
    tree = """
        a label file with complete labels and a split column (train, test, and val if you like)
    """

    def __init__(
        self,
        images: str | Path | Sequence[str | Path] = (),
        features: str | Path | None = None,
        compare: str | None = None,
        reading: dict[str, Any] | None = None,
        patient_column: str | None = None,
    ) -> None:
        several = [images] if isinstance(images, str | Path) else images
        self.images = tuple(Path(place) for place in several)
        self.features = features
        self.compare = compare
        self.reading = {"zero": "absent", "blank": "absent", **(reading or {})}
        self.patient_column = patient_column

    def read(self, root: Path) -> Contents:
        labels, patients = read_labels(root, **self._reading()), None
        if self.patient_column is not None:
            patients = np.array(read_column(root, self.patient_column))
            labels = dataclasses.replace(labels, split=patient_parts(patients))
        if labels.split is None:
            raise self.incomplete(f"{root}: no column says which rows are for training and test")
        rows = None if self.features is None else read_features(self.features, labels=labels)
        return Contents(labels, self.images, features=rows, groups=patients)

    def _reading(self) -> dict[str, Any]:
        if self.patient_column is None:
            return self.reading
        dropped = [*self.reading.get("drop_columns", ()), self.patient_column]
        return {**self.reading, "drop_columns": dropped}

    def published(self) -> tuple[Published, ...]:
        return published_of(self.compare)
