"""The image folder of Hugging Face datasets: images beside a metadata.csv, .jsonl or .parquet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from halftruth.data.errors import DataError
from halftruth.data.readers.cell_codes import Coding
from halftruth.data.readers.label_table import labels_of_table
from halftruth.data.readers.text_table import Table, read_table
from halftruth.data.splits import SPLIT_NAMES
from halftruth.labels import LabelMatrix

METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")


def find_metadata(folder: Path) -> list[Path]:
    """The folder's own metadata file, or those of its direct subfolders."""
    own = _metadata_in(folder)
    if own:
        return own
    inside = sorted(path for path in folder.iterdir() if path.is_dir())
    return [found for path in inside for found in _metadata_in(path)]


def _metadata_in(folder: Path) -> list[Path]:
    found = [folder / name for name in METADATA if (folder / name).is_file()]
    if len(found) > 1:
        raise DataError(f"{folder}: holds both {found[0].name} and {found[1].name}; keep one")
    return found


def read_image_folder(folder: Path, coding: Coding, **options: Any) -> LabelMatrix:
    """Labels of all metadata files; items are paths relative to the folder.

    Metadata in subfolders called train, validation or test also give the split.
    """
    files = find_metadata(folder)
    column = options.pop("image_column", None) or "file_name"
    joined: dict[str, list[Any]] = {}
    places: list[str] = []
    for path in files:
        table = read_table(path)
        columns = {**table.columns, column: table.texts(column, f"{path}: image_column")}
        subfolder = path.parent.relative_to(folder).as_posix()
        if subfolder != ".":
            columns[column] = [f"{subfolder}/{name}" for name in columns[column]]
            if subfolder.lower() in SPLIT_NAMES and "split" not in columns:
                columns["split"] = [subfolder.lower()] * table.rows
        if joined and columns.keys() != joined.keys():
            odd = sorted(columns.keys() ^ joined.keys())
            raise DataError(f"{path}: columns differ from those of {files[0]}: {odd}")
        for name, cells in columns.items():
            joined.setdefault(name, []).extend(cells)
        places += table.places
    return labels_of_table(Table(joined, places), coding, image_column=column, **options)
