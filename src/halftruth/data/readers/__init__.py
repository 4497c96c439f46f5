"""`read_label_file`: read a label file of any known format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from halftruth.data.errors import DataError, class_names
from halftruth.data.readers.arff import ArffLabels, read_arff_labels
from halftruth.data.readers.cell_codes import Coding, Meaning
from halftruth.data.readers.coco_json import read_coco
from halftruth.data.readers.duplicates import Duplicates
from halftruth.data.readers.label_table import (
    find_metadata,
    read_image_folder,
    read_label_table,
)
from halftruth.data.readers.numpy_file import read_matrix
from halftruth.data.readers.text_table import SUFFIXES
from halftruth.data.readers.voc import Difficult, read_voc
from halftruth.data.shards import TAR, holds_shards
from halftruth.labels import LabelMatrix

_COLUMNS = {
    "label_column", "image_column", "split_column", "weight_column", "drop_columns", "sep",
    "nothing", "soft",
}  # fmt: skip
_TEXT = {"delimiter", "columns", "quotes"}
# Each format: its reader, and the options that have an effect there.
READERS: dict[str, tuple[Callable[..., LabelMatrix], set[str]]] = {
    "table": (read_label_table, {*_COLUMNS, *_TEXT, "classes", "duplicates"}),
    "image folder": (read_image_folder, {*_COLUMNS, "classes", "duplicates"}),
    "COCO": (read_coco, {"classes", "keep_empty", "duplicates"}),
    "VOC": (read_voc, {"classes", "difficult"}),
    "matrix": (read_matrix, {"classes", "key", "split_column", "duplicates", "soft"}),
    "ARFF": (read_arff_labels, {"classes", "arff_labels"}),
}


def read_label_file(
    source: str | Path,
    *,
    zero: Meaning = "unknown",
    blank: Meaning = "unknown",
    minus_one: Meaning = "absent",
    soft: bool = False,
    image_column: str | None = None,
    label_column: str | None = None,
    split_column: str | None = None,
    weight_column: str | None = None,
    drop_columns: Sequence[str] = (),
    classes: Sequence[str] | None = None,
    delimiter: str | None = None,
    columns: Sequence[str] | None = None,
    quotes: bool = True,
    sep: str | None = None,
    nothing: str | None = None,
    duplicates: Duplicates = "error",
    keep_empty: bool = True,
    difficult: Difficult = "unlisted",
    key: str | None = None,
    arff_labels: ArffLabels = None,
    sparse: bool = False,
) -> LabelMatrix:
    """Read a label file or folder of any known format into a `LabelMatrix`.

    zero, blank, minus_one: the meaning of 0 (or "no", or a class that a list leaves out), of an
        empty cell (or empty list) and of -1: "unknown" or "absent". 1 and "yes" are present.
    soft: the values are probabilities of presence from 0 to 1; blank is unknown.
    image_column, split_column: columns with the item and its split; found if they have usual names.
    weight_column: a column with how much the labels of a row count in training.
    label_column, sep, nothing: a column that lists label names, the separator (found if only one of
        | ; , occurs), and the name that stands for no label ("No Finding").
    drop_columns: columns that are not labels; a table column that is neither a class nor a name is
        an error, never ignored.
    classes: the classes and their order (for a table with one column per class: which columns).
    duplicates: "error", "merge" or "keep" items that have several rows, or count them as votes of
        several annotators ("vote"): the share of votes becomes a soft label, their number a weight.
    delimiter: of a CSV file; found from the header by default. columns: the names of the columns of
        a text file without a header. quotes: False if quotation marks are part of the text.
    keep_empty: keep COCO images without objects. difficult: VOC classes with only difficult
        objects. key: the matrix in a .npz.
    arff_labels: names, an XML file or a count (see `label_positions`).
    sparse: labels of more than `MANY_CLASSES` classes, in a column of names or a scipy matrix
        (.npz), are returned as a `SparseLabelMatrix`.
    """
    source = Path(source)
    if classes is not None:
        classes = class_names(classes, "classes=")
        if not classes:
            raise DataError("classes= is empty; name the classes or leave it out")
    options: dict[str, Any] = {
        name: value
        for name, value, default in (
            ("soft", soft, False),
            ("image_column", image_column, None),
            ("label_column", label_column, None),
            ("split_column", split_column, None),
            ("weight_column", weight_column, None),
            ("drop_columns", tuple(drop_columns), ()),
            ("classes", classes, None),
            ("delimiter", delimiter, None),
            ("columns", columns, None),
            ("quotes", quotes, True),
            ("sep", sep, None),
            ("nothing", nothing, None),
            ("duplicates", duplicates, "error"),
            ("keep_empty", keep_empty, True),
            ("difficult", difficult, "unlisted"),
            ("key", key, None),
            ("arff_labels", arff_labels, None),
        )
        if value != default
    }
    coding = Coding(zero, blank, minus_one)
    if soft and coding != Coding():
        raise DataError(
            "zero, blank, minus_one: have no effect with soft labels, in which 0 is absent, 1 is "
            "present and blank is unknown; leave them out"
        )
    kind = format_of(source)
    reader, known = READERS[kind]
    if foreign := sorted(options.keys() - known):
        raise DataError(
            f"{source}: {', '.join(foreign)} cannot be used with the format {kind}; "
            f"its options are {', '.join(sorted(known))}"
        )
    if sparse and kind in ("table", "matrix", "image folder"):
        options["sparse"] = True
    return reader(source, coding, **options)


def format_of(source: Path) -> str:
    """Find the format of a source: a key of `READERS`."""
    name = source.name.lower()
    if holds_shards(source) or name.endswith(TAR):
        return "table"
    if source.is_dir():
        if (source / "Annotations").is_dir() or name == "annotations":
            return "VOC"
        if find_metadata(source):
            return "image folder"
        raise DataError(
            f"{source}: is a folder with neither Annotations/*.xml (VOC) nor metadata.csv, .jsonl "
            "or .parquet (image folder), nor shards (.tar, .parquet, .arrow); give the label file "
            "itself"
        )
    if not source.exists():
        raise DataError(f"{source}: there is no such file or folder")
    if name.endswith(SUFFIXES):
        return "table"
    if name.endswith(".json"):
        return "COCO"
    if name.endswith((".npz", ".npy")):
        return "matrix"
    if name.endswith((".arff", ".arff.gz")):
        return "ARFF"
    raise DataError(
        f"{source}: unknown kind of label file; expected {', '.join(SUFFIXES)}, .json (COCO), "
        ".npz, .npy, .arff, .tar, a VOC folder, an image folder with metadata, or shards"
    )
