"""Any label file with complete labels and a split column, as if it were a published data set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from halftruth.data.benchmarks.base import Contents, Dataset, published_of, register
from halftruth.data.benchmarks.benchmark import Published
from halftruth.data.features import read_features
from halftruth.data.formats import read_labels


@register("table")
class LabelFile(Dataset):
    """`root` is the label file; 0, or a class that a list leaves out, is absent there.

    images: the folders and zip files of images; or features: a file of features.
    compare: the data set whose published numbers it should have, such as "voc2012".
    reading: options of `halftruth.data.read_labels`, such as drop_columns.
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
    ) -> None:
        several = [images] if isinstance(images, str | Path) else images
        self.images = tuple(Path(place) for place in several)
        self.features = features
        self.compare = compare
        self.reading = {"zero": "absent", "blank": "absent", **(reading or {})}

    def read(self, root: Path) -> Contents:
        labels = read_labels(root, **self.reading)
        if labels.split is None:
            raise self.incomplete(f"{root}: no column says which rows are for training and test")
        rows = None if self.features is None else read_features(self.features, rows=len(labels))
        return Contents(labels, self.images, features=rows)

    def published(self) -> tuple[Published, ...]:
        return published_of(self.compare)
