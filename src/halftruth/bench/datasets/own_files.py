"""Your own label file or features, read like a published data set."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from halftruth.bench.datasets.chestxray14 import patient_parts
from halftruth.bench.datasets.coco import string_order
from halftruth.bench.datasets.dataset import Contents, Dataset, complete, register
from halftruth.bench.label_settings import MEASURES
from halftruth.data import read_column, read_labels
from halftruth.data.errors import DataError, class_names, some
from halftruth.data.feature_columns import read_features
from halftruth.data.features import check_features
from halftruth.data.readers.numpy_file import load_arrays
from halftruth.labels import LabelMatrix


@register("table")
class LabelFile(Dataset):
    """A label file (`root`); 0, or a class that a list leaves out, is absent.

    images: folders and zip files of images; or features: a file of features.
    compare: the data set whose published numbers it is compared with, such as "voc2012".
    reading: options of `halftruth.data.read_labels`, such as drop_columns.
    measures: a .npz file of numbers per row of the label file and class, (N, K), that the label
        settings `size`, `centre` and others need: `area`, `centre_distance`;
        and `classes`, the names of its columns.
    patient_column: split the rows by this column, 70 / 15 / 15 % of the patients, as in the
        any-class presence paper; a split column is then not used.
    """

    entry = "table"

    def __init__(
        self,
        images: str | Path | Sequence[str | Path] = (),
        features: str | Path | None = None,
        compare: str | None = None,
        reading: dict[str, Any] | None = None,
        patient_column: str | None = None,
        measures: str | Path | None = None,
    ) -> None:
        several = [images] if isinstance(images, str | Path) else images
        self.images = tuple(Path(place) for place in several)
        self.features = features
        self.compare = compare
        self.reading = {"zero": "absent", "blank": "absent", **(reading or {})}
        self.patient_column = patient_column
        self.measures = measures

    def read(self, root: Path) -> Contents:
        reading, patients = dict(self.reading), None
        if self.patient_column is not None:
            reading["drop_columns"] = [*reading.get("drop_columns", ()), self.patient_column]
        labels = read_labels(root, **reading)
        if self.patient_column is not None:
            patients = np.array(read_column(root, self.patient_column))
            labels = dataclasses.replace(labels, split=patient_parts(patients))
        if labels.split is None:
            raise self.incomplete(f"{root}: there is no split column for training and test rows")
        rows = None if self.features is None else read_features(self.features, labels=labels)
        return Contents(labels, self.images, features=rows, groups=patients)

    def read_measures(self, root: Path, labels: LabelMatrix) -> Mapping[str, np.ndarray]:
        return {} if self.measures is None else read_measures(Path(self.measures), labels)


def read_measures(file: Path, labels: LabelMatrix) -> dict[str, np.ndarray]:
    """Read the measures of a label file's rows, with its classes as columns, from a .npz file."""
    if not file.is_file():
        raise DataError(f"{file}: there is no such file of measures")
    arrays = load_arrays(file)
    if "classes" not in arrays:
        raise DataError(f"{file}: has no key classes, the names of the columns of its tables")
    names = list(class_names(map(str, arrays.pop("classes").tolist()), file))
    missing = [name for name in labels.classes if name not in names]
    if missing:
        raise DataError(f"{file} [classes]: has no {some(missing)} of the label file")
    known = {name: table for name, table in arrays.items() if name in MEASURES}
    if not known:
        raise DataError(f"{file}: expected at least one of {', '.join(MEASURES)}")
    for name, table in known.items():
        if table.dtype.kind not in "iuf" or table.shape != (len(labels), len(names)):
            raise DataError(
                f"{file} [{name}]: expected numbers of shape {(len(labels), len(names))}, the rows "
                f"of the label file by its classes, got {table.dtype} of shape {table.shape}"
            )
    columns = [names.index(name) for name in labels.classes]
    return {name: table[:, columns].astype(np.float64) for name, table in known.items()}


PARTS = ("train", "test", "val")


@register("features")
@register("coco2014-features", compare="coco2014")
class PackedFeatures(Dataset):
    """A file (`root`), or a folder with features.npz. Labels are complete.

    features (N, D): int8 or any number, times `scale` where there is one.
    labels (N, ceil(K/8)) uint8: the bits of each row, as from `np.packbits(..., axis=1)`.
    names (K): the classes. split (N): 0 train, 1 test, 2 val. image_id (N), optional: numbers;
    rows are then ordered by part and by number as text, as in COCO's published splits.
    compare: the data set whose published numbers it is compared with.
    """

    entry = "features"

    def __init__(self, compare: str | None = None) -> None:
        self.compare = compare

    def read(self, root: Path) -> Contents:
        file = root if root.suffix == ".npz" else root / "features.npz"
        self.require_files(file)
        arrays = load_arrays(file)
        missing = [key for key in ("features", "labels", "names", "split") if key not in arrays]
        if missing:
            raise self.incomplete(f"{file}: has no key {', '.join(missing)}")
        names = class_names(map(str, arrays["names"].tolist()), file)
        packed, split = arrays["labels"], arrays["split"]
        rows, width = len(split), -(-len(names) // 8)
        if packed.dtype != np.uint8 or packed.shape != (rows, width):
            raise DataError(
                f"{file} [labels]: expected uint8 of shape {(rows, width)}, the bits of "
                f"{len(names)} classes, got {packed.dtype} of shape {packed.shape}"
            )
        if not np.isin(split, range(len(PARTS))).all():
            raise DataError(f"{file} [split]: expected 0 (train), 1 (test) or 2 (val)")
        bits = np.unpackbits(packed, axis=1)
        if bits[:, len(names) :].any():
            raise DataError(f"{file} [labels]: bits are set beyond the {len(names)} classes")
        values = complete(bits[:, : len(names)] == 1)
        matrix = np.multiply(arrays["features"], arrays.get("scale", 1.0), dtype=np.float32)
        check_features(matrix, rows=rows, place=f"{file} [features]")
        order = np.arange(rows)
        items = None
        if "image_id" in arrays:
            by_number = string_order(arrays["image_id"])
            order = by_number[np.argsort(split[by_number], kind="stable")]
            items = arrays["image_id"][order].astype(str)
        parts = np.array(PARTS)[split[order]]
        return Contents(LabelMatrix(values[order], names, items, parts), features=matrix[order])
