"""Images as features in one .npz: small numbers times a scale, labels packed as bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from halftruth.bench.datasets.base import Contents, Dataset, published_of, register
from halftruth.bench.datasets.benchmark import Published
from halftruth.bench.datasets.coco2014 import string_order
from halftruth.data.errors import DataError, class_names
from halftruth.data.features import check_features
from halftruth.data.readers.numpy_file import load_arrays
from halftruth.labels import ABSENT, PRESENT, LabelMatrix

PARTS = ("train", "test", "val")


@register("features")
@register("coco2014-features", compare="coco2014")
class PackedFeatures(Dataset):
    """`root` is the file, or the folder with features.npz in it. Labels are complete.

    features (N, D): int8 or any number, times `scale` where there is one.
    labels (N, ceil(K/8)) uint8: the bits of a row as `np.packbits(..., axis=1)` gives them.
    names (K): the classes. split (N): 0 train, 1 test, 2 val. image_id (N), optional: numbers;
    rows are then ordered by part and by number as text, as COCO's published splits want it.
    compare: the data set whose published numbers it should have.
    """

    title = "packed features"
    homepage = "made from your own images by any backbone; docs/datasets.md has the few lines"
    tree = """
        features.npz with features, labels, names, split and, optionally, scale and image_id
    """

    def __init__(self, compare: str | None = None) -> None:
        self.compare = compare

    def read(self, root: Path) -> Contents:
        file = root if root.suffix == ".npz" else root / "features.npz"
        self.need(file)
        arrays = load_arrays(file)
        lost = [key for key in ("features", "labels", "names", "split") if key not in arrays]
        if lost:
            raise self.incomplete(f"{file}: has no key {', '.join(lost)}")
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
        values = np.where(bits[:, : len(names)] == 1, PRESENT, ABSENT).astype(np.int8)
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

    def published(self) -> tuple[Published, ...]:
        return published_of(self.compare)
