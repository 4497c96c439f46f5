"""Label tables: one column per class, or one column that lists the labels of its row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from halftruth.data.errors import DataError, option
from halftruth.data.readers.cell_codes import Coding, Meaning, decode
from halftruth.data.readers.columns import assign_roles
from halftruth.data.readers.duplicates import Duplicates, resolve_duplicates
from halftruth.data.readers.label_lists import matrix_of_lists, split_cells
from halftruth.data.readers.text_table import Table, index_ids, read_table, table_from_frame
from halftruth.data.splits import SPLIT_NAMES
from halftruth.labels import LabelMatrix

# The metadata files of an image folder in the layout of Hugging Face datasets.
METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")


def read_label_table(
    path: Path, coding: Coding, *, delimiter: str | None = None, **options: object
) -> LabelMatrix:
    """Labels of a CSV, TSV, Parquet or JSON-lines file; options as in `labels_of_table`."""
    return labels_of_table(read_table(path, delimiter), coding, **options)  # type: ignore[arg-type]


def labels_from_frame(
    frame: Any,
    *,
    zero: Meaning = "unknown",
    blank: Meaning = "unknown",
    minus_one: Meaning = "absent",
    **options: Any,
) -> LabelMatrix:
    """Convert a pandas DataFrame of labels into a `LabelMatrix`.

    The columns are the classes and the index names the items. A frame read from a label file works
    too: columns for the item, the split or a list of labels are found as in the file, and `options`
    are those of `read_labels` for a table (image_column, label_column, drop_columns, ...).

    >>> import pandas as pd
    >>> labels_from_frame(pd.DataFrame({"cat": [1, 0], "dog": [0, 1]}, index=["a", "b"])).items
    array(['a', 'b'], dtype='<U1')
    """
    coding = Coding(zero, blank, minus_one)
    return labels_of_table(table_from_frame(frame), coding, items=index_ids(frame), **options)


def labels_of_table(
    table: Table,
    coding: Coding,
    *,
    image_column: str | None = None,
    label_column: str | None = None,
    split_column: str | None = None,
    drop_columns: Sequence[str] = (),
    classes: Sequence[str] | None = None,
    sep: str | None = None,
    nothing: str | None = None,
    duplicates: Duplicates = "error",
    items: np.ndarray | None = None,
) -> LabelMatrix:
    """Labels of a table that is already read; `items` name the rows if no column does."""
    roles = assign_roles(
        table,
        image_column=image_column,
        label_column=label_column,
        split_column=split_column,
        drop_columns=drop_columns,
        classes=classes,
    )
    notes: tuple[str, ...] = ()
    if roles.listing is not None:
        lists, blank = split_cells(
            table.columns[roles.listing], where=table.where, sep=sep, nothing=nothing
        )
        values, names = matrix_of_lists(
            lists, coding, where=table.where, classes=classes, blank_rows=blank
        )
        if not names:
            raise DataError(f"{table.where(0)}: column {roles.listing!r} lists no label in any row")
    else:
        if sep is not None or nothing is not None:
            raise DataError(
                "sep= and nothing= are for a column that lists labels; this table has one column "
                f"per class; name the listing column with {option('label_column')}"
            )
        names = roles.classes
        values, notes = decode(_texts(table, names), names, table.where, coding)
    if roles.item is not None:
        items = np.array(table.texts(roles.item, "image_column"))
    split = None if roles.split is None else np.array(table.texts(roles.split, "split_column"))
    labels = LabelMatrix(values, names, items, split, notes)
    return resolve_duplicates(
        labels, duplicates, where=table.where, listed=roles.listing is not None
    )


def _texts(table: Table, names: Sequence[str]) -> list[list[str]]:
    for name in names:
        if any(isinstance(cell, list) for cell in table.columns[name]):
            raise DataError(
                f"{table.where(0)}: column {name!r} holds lists; pass "
                f"{option('label_column', name)} if it lists the labels, else "
                f"{option('drop_columns', name)}"
            )
    return [table.columns[name] for name in names]


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
        columns = {**table.columns, column: table.texts(column, "image_column")}
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


def write_labels(labels: LabelMatrix, path: str | Path) -> None:
    """Write a column a class with 1 / 0 / -1, as `read_labels` reads it with its defaults.

    The ending says how: .csv, .tsv or .parquet. Without items the rows keep their order only.
    """
    path = Path(path)
    columns: dict[str, np.ndarray] = {}
    if labels.items is not None:
        columns["image"] = labels.items
    if labels.split is not None:
        columns["split"] = labels.split
    taken = [name for name in labels.classes if name in columns]
    if taken:
        raise DataError(f"a class named {taken[0]!r} would hide the column of that name; rename it")
    columns |= {name: labels.values[:, k] for k, name in enumerate(labels.classes)}

    import pandas as pd

    frame = pd.DataFrame(columns)
    if path.suffix == ".parquet":
        frame.to_parquet(path, index=False)
    elif path.suffix in (".csv", ".tsv"):
        frame.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")
    else:
        raise DataError(f"{path}: expected a name ending in .csv, .tsv or .parquet")
