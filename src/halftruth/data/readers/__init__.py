"""`read_label_file`: read a label file of any known format."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from halftruth.data.errors import DataError, class_names, some
from halftruth.data.readers.arff import read_arff_labels
from halftruth.data.readers.cell_codes import CODES, Coding
from halftruth.data.readers.coco_json import read_coco
from halftruth.data.readers.label_table import (
    find_metadata,
    read_image_folder,
    read_label_table,
)
from halftruth.data.readers.numpy_file import read_matrix
from halftruth.data.readers.text_table import SUFFIXES
from halftruth.data.readers.voc import read_voc
from halftruth.data.remote import file_exists, is_remote, local_file
from halftruth.data.shards import ARROW, PARQUET, TAR, holds_shards
from halftruth.labels import LabelMatrix
from halftruth.reading import READING, without_defaults

# Each format and its reader; `READING` says which options have an effect there.
READERS: dict[str, Callable[..., LabelMatrix]] = {
    "table": read_label_table,
    "image folder": read_image_folder,
    "COCO": read_coco,
    "VOC": read_voc,
    "matrix": read_matrix,
    "ARFF": read_arff_labels,
}


def read_label_file(
    source: str | Path, reading: Mapping[str, Any], sparse: bool = False
) -> LabelMatrix:
    """Read a label file or folder of any known format; `reading` has options of `Reading`.

    `sparse`: labels of more than `MANY_CLASSES` classes, in a column of names or a scipy matrix
    (.npz), get sparse storage.
    """
    source = Path(source)
    if (classes := reading.get("classes")) is not None:
        reading = {**reading, "classes": class_names(classes, "classes=")}
        if not reading["classes"]:
            raise DataError("classes= is empty; name the classes or leave it out")
    options = without_defaults(reading)
    coding = Coding(**{name: options.pop(name) for name in CODES if name in options})
    if options.get("soft") and coding != Coding():
        raise DataError(
            "zero, blank, minus_one: have no effect with soft labels, in which 0 is absent, 1 is "
            "present and blank is unknown; leave them out"
        )
    shards = holds_shards(source) or source.name.lower().endswith((*TAR, *PARQUET, *ARROW))
    if is_remote(source) and not shards:
        with local_file(source) as copy:
            return read_label_file(copy, reading, sparse)
    kind = format_of(source)
    if foreign := sorted(name for name in options if kind not in READING[name].formats):
        known = sorted(name for name, option in READING.items() if kind in option.formats)
        raise DataError(
            f"{source}: {', '.join(foreign)} cannot be used with the format {kind}; "
            f"its options are {', '.join(known)}"
        )
    if sparse and kind in ("table", "matrix", "image folder"):
        options["sparse"] = True
    return READERS[kind](source, coding, **options)


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
        if parts := _parts_of_dataset(source):
            raise DataError(
                f"{source}: is a DatasetDict of Hugging Face with the parts {some(parts)}; give "
                f"one of them, such as {source / parts[0]}"
            )
        raise DataError(
            f"{source}: is a folder with neither Annotations/*.xml (VOC) nor metadata.csv, .jsonl "
            "or .parquet (image folder), nor shards (.tar, .parquet, .arrow); give the label file "
            "itself"
        )
    if not file_exists(source):
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


def _parts_of_dataset(folder: Path) -> list[str]:
    """The parts of a folder that `DatasetDict.save_to_disk` wrote."""
    try:
        found = json.loads((folder / "dataset_dict.json").read_bytes())
        return [str(part) for part in found["splits"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []
