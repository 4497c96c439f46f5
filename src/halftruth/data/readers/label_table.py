"""Label tables: one column per class, or one column that lists the labels of its row."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from halftruth.data.errors import DataError, nearest, option, some
from halftruth.data.readers.cell_codes import (
    Coding,
    decode,
    decode_soft,
    holds_codes,
    number_of,
)
from halftruth.data.readers.cells import holds_lists
from halftruth.data.readers.duplicates import resolve_duplicates
from halftruth.data.readers.label_lists import (
    matrix_of_lists,
    read_numbers,
    split_cells,
)
from halftruth.data.readers.text_table import (
    Table,
    find_item_column,
    index_ids,
    is_number,
    is_row_counter,
    join_tables,
    plain,
    read_table,
    table_from_frame,
)
from halftruth.data.splits import SPLIT_NAMES
from halftruth.labels import PRESENT, LabelMatrix, harden
from halftruth.reading import Duplicates, Meaning

# fmt: off
LABEL_COLUMNS = [
    "labels", "label", "tags", "tag", "findinglabels", "findings", "categories", "category",
    "classes",
]
SPLIT_COLUMNS = ["split", "subset", "partition"]
# fmt: on
# The columns that `halftruth repair` adds to a file: where a changed label comes from.
PROVENANCE = ("halftruth_added", "halftruth_removed", "halftruth_by")
# Names of columns that number patients and the like; others that may, or may be classes, too; and
# the rows of a block of one number.
_IS_GROUP = re.compile(r"(?i:^(patient|subject|participant)$|[\s_.-]id$)|(?<=[a-z])I[dD]$")
_MAY_BE_GROUP = re.compile(r"(?i)person|case|study|session|visit|user|site|family|animal|sample")
_BLOCK = 5
_IS_PART = re.compile(
    r"(?i)(is|in)[\s_.-]?(train(ing)?|test|val(id(ation)?)?|holdout)|(cv[\s_.-]?)?fold"
)
# Rows from which on classes are compared with each other.
_ROWS_TO_COMPARE = 20
# The column in which a table of predictions states its run.
_BASIS = re.compile(r"run [0-9a-f]{8}(, .*)?")
# The metadata files of an image folder in the layout of Hugging Face datasets.
METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")


@dataclass(frozen=True)
class Roles:
    """The columns by their role; labels are in `listing` (names in a cell) or in `classes`."""

    item: str | None
    split: str | None
    listing: str | None
    classes: tuple[str, ...] = ()


def read_label_table(
    path: Path,
    coding: Coding,
    *,
    delimiter: str | None = None,
    columns: Sequence[str] | None = None,
    quotes: bool = True,
    **options: Any,
) -> LabelMatrix:
    """Read the labels of a CSV, TSV, Parquet or JSON-lines file."""
    return labels_of_table(read_table(path, delimiter, columns, quotes), coding, **options)


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


def refuse_labels_as_weights(weights: np.ndarray, values: np.ndarray, place: str) -> None:
    """Refuse weights (N, K) that are the labels."""
    if weights.shape == values.shape and np.array_equal(weights, values == PRESENT):
        raise DataError(
            f"{place}: these weights are the labels, 1 where one is present and 0 elsewhere, so "
            "that no other label would count; give weights"
        )


def question_weights(weights: np.ndarray, place: str) -> list[str]:
    """What to ask about weights of rows or labels: they have no effect, or are something else."""
    flat = weights.ravel()
    known = flat[np.isfinite(flat)]
    if len(known) < 2:
        return []
    if np.ptp(known) == 0:
        return [f"warning: all weights in {place} are {known[0]:g}, so they have no effect"]
    if len(known) > 20 and known.max() > known.sum() / 2:
        return [
            f"warning: one weight in {place}, {known.max():g}, is more than all others together, "
            "so that hardly anything else counts"
        ]
    if len(known) > 20 and (known % 1 == 0).all() and len(np.unique(known)) == len(known):
        return [
            f"warning: the weights in {place} are whole numbers that all differ, as those of rows "
            "or of items do; they may be another column"
        ]
    return []


def question_columns(names: Iterable[object], values: np.ndarray) -> list[str]:
    """What to ask about columns of 0 and 1 (N, K) that may be no classes, or no further ones.

    Patients and parts are known by the name, or by a name that says so and two blocks of rows, as
    no class is by chance; what follows from other classes, by its values.
    """
    known, present = [str(name) for name in names], values == PRESENT
    count, n = present.sum(axis=0), len(values)
    enough = np.minimum(count, n - count) >= _BLOCK
    blocks = enough & ((np.diff(values, axis=0) != 0).sum(axis=0) == 1)
    asked = []
    for name, in_blocks in zip(known, blocks, strict=True):
        if _IS_GROUP.search(name) or (in_blocks and _MAY_BE_GROUP.fullmatch(name)):
            asked.append(
                f"the class {name!r} may number patients or the like; if it does, name it as "
                "--group-column, so that rows of one stay together, or drop it with "
                f"{option('drop_columns', name)}"
            )
        elif _IS_PART.fullmatch(name):
            asked.append(
                f"the class {name!r} may say which rows are for training; if it does, drop it with "
                f"{option('drop_columns', name)}, or write train and test and name it with "
                f"{option('split_column')}"
            )
    if n < _ROWS_TO_COMPARE:
        return asked
    if (full := [known[k] for k in np.flatnonzero(count == n)]) and len(known) > 1:
        asked.append(f"present in every row, so there is nothing to learn: {some(full)}")
    if len(known) < 3:
        return asked
    rows = np.packbits(present, axis=0).T
    first: dict[bytes, str] = {}
    per_row = present.sum(axis=1)
    for k in np.flatnonzero(enough):
        name, others = known[k], per_row - present[:, k] > 0
        for text, found in (
            ("present in the same rows as", rows[k].tobytes()),
            ("present in all rows but those of", np.packbits(~present[:, k]).tobytes()),
        ):
            if found in first:
                asked.append(f"the class {name!r} is {text} {first[found]!r}; drop one of them")
        first.setdefault(rows[k].tobytes(), name)
        for text, same in (("every row with", others), ("every row without", ~others)):
            if (present[:, k] == same).all():
                asked.append(
                    f"the class {name!r} is present in {text} another class, and in no other; if "
                    f"it only sums these up, drop it with {option('drop_columns', name)}"
                )
    return asked


def labels_of_table(
    table: Table,
    coding: Coding,
    *,
    image_column: str | None = None,
    label_column: str | None = None,
    split_column: str | None = None,
    weight_column: str | None = None,
    drop_columns: Sequence[str] = (),
    classes: Sequence[str] | None = None,
    sep: str | None = None,
    nothing: str | None = None,
    soft: bool = False,
    duplicates: Duplicates = "error",
    items: np.ndarray | None = None,
    sparse: bool = False,
) -> LabelMatrix:
    """Convert a table into labels; `items` name the rows if no column does.

    `sparse`: labels of more than `MANY_CLASSES` classes get sparse storage.
    """
    weights, notes = None, list[str]()
    basis = [cells[0] for name, cells in table.columns.items() if plain(name) == "basis"]
    if any(isinstance(cell, str) and _BASIS.fullmatch(cell) for cell in basis):
        notes.append(
            "warning: this is a table of halftruth predict, whose labels are predictions, not "
            "labels that people gave"
        )
    if weight_column is not None:
        weights = read_weight_column(table, weight_column)
        drop_columns = [*drop_columns, weight_column]
        notes += question_weights(weights, f"column {weight_column!r}")
        if "weight" not in plain(weight_column) and np.isin(weights, (0, 1)).all():
            notes.append(
                f"warning: the weights in column {weight_column!r} are all 0 or 1, as labels are, "
                f"and {int((weights == 0).sum()):,} rows do not count; if it is a class, leave "
                f"out {option('weight_column')}"
            )
    roles = assign_roles(
        table,
        image_column=image_column,
        label_column=label_column,
        split_column=split_column,
        drop_columns=drop_columns,
        classes=classes,
    )
    if roles.listing is None:
        if sep is not None or nothing is not None:
            raise DataError(
                "sep= and nothing= are for a column that lists labels; this table has one column "
                f"per class; name the listing column with {option('label_column')}"
            )
        columns: list[list[str]] | None = _texts(table, roles.classes)
    else:
        lists, blank = split_cells(
            table.columns[roles.listing], where=table.where, sep=sep, nothing=nothing
        )
        columns = read_numbers(lists, classes, roles.listing, table.where)
        if columns is not None:
            roles = replace(roles, listing=None, classes=tuple(classes or ()))
    names, shares = roles.classes, None
    if columns is None:
        if soft:
            raise DataError(
                f"{table.where(0)}: column {roles.listing!r} lists names of labels, but soft "
                "labels (--soft) are one column of probabilities per class"
            )
        values, names = matrix_of_lists(
            lists, coding, where=table.where, classes=classes, blank_rows=blank, sparse=sparse
        )
        if not names:
            raise DataError(f"{table.where(0)}: column {roles.listing!r} lists no label in any row")
    elif soft:
        shares = decode_soft(columns, names, table.where)
        values = harden(shares)
        notes.append("read as probabilities of presence")
    else:
        values, said = decode(columns, names, table.where, coding)
        notes.extend(said)
        notes.extend(f"warning: {text}" for text in question_columns(names, values))
    if roles.item is not None:
        items = np.array(table.texts(roles.item, "image_column"))
    split = None
    if roles.split is not None:
        split, said = _read_split(table, roles.split)
        notes.extend(said)
    labels = LabelMatrix(values, names, items, split, tuple(notes), shares, weights)
    return resolve_duplicates(
        labels, duplicates, where=table.where, listed=roles.listing is not None
    )


def read_weight_column(table: Table, column: str) -> np.ndarray:
    """The (N, 1) weights of the rows in a column."""
    cells = table.column(column, "weight_column")
    found = np.array([[number_of(cell)] for cell in cells], dtype=np.float32)
    wrong = ~((found >= 0) & np.isfinite(found)).ravel()
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(
            f"{table.where(row)}, column {column!r}: expected a weight, a finite number of at "
            f"least 0, got {cells[row]!r}"
        )
    if not found.any():
        raise DataError(f"{table.where(0)}: every weight in column {column!r} is 0")
    return found


def assign_roles(
    table: Table,
    *,
    image_column: str | None = None,
    label_column: str | None = None,
    split_column: str | None = None,
    drop_columns: Sequence[str] = (),
    classes: Sequence[str] | None = None,
) -> Roles:
    """Give every column a role; `decode` refuses columns that are neither names nor labels.

    Without options, the item is a column with a usual name, or the first column if it holds
    distinct texts; a column called `labels` (or alike) that does not hold codes lists names.
    """
    for name in drop_columns:
        table.column(name, "drop_columns")
    free = [name for name in table.columns if name not in {*drop_columns, *PROVENANCE}]
    free = [name for name in free if not is_row_counter(name, table.columns[name])]

    maybe = [name for name in free if name not in (classes or ())]
    split = split_column if split_column is not None else _find_split(table, maybe)
    if split is not None:
        table.column(split, "split_column")
        free = [name for name in free if name != split]
    item = image_column if image_column is not None else _find_item(table, free, label_column)
    if item is not None:
        table.column(item, "image_column")
        free = [name for name in free if name != item]

    if label_column is not None:
        table.column(label_column, "label_column")
        if label_column in (item, split):
            raise DataError(f"label_column={label_column!r} is also the image or split column")
        if holds_codes(table.columns[label_column]):
            raise DataError(
                f"{table.where(0)}: column {label_column!r} holds codes such as "
                f"{table.columns[label_column][0]!r}, but label_column= (--label-column) expects "
                "names of classes such as cat|dog; leave the option out to read one column per "
                f"class, or choose this class only with classes=[{label_column!r}]"
            )
        return Roles(item, split, label_column)
    if classes is not None and all(name in table.columns for name in classes):
        return Roles(item, split, None, tuple(classes))
    listing = _find_listing(table, free)
    if listing is not None:
        return Roles(item, split, listing)
    if classes is not None:
        for name in classes:
            table.column(name, "classes")
    if not free:
        raise DataError(
            f"{table.where(0)}: no column is left for labels among {some(list(table.columns))}; "
            "expected one column per class, or one that lists label names: "
            f"{option('label_column')}"
        )
    for name in free:
        if not name.strip():
            number = list(table.columns).index(name) + 1
            raise DataError(
                f"{table.where(0)}: column {number} has no name; name it in the header or remove it"
            )
    return Roles(item, split, None, tuple(free))


def _find_split(table: Table, free: list[str]) -> str | None:
    """A column called `split` (or alike); values that name no part are typos."""
    for name in free:
        cells = table.columns[name]
        if plain(name) not in SPLIT_COLUMNS or holds_lists(table.columns[name]):
            continue
        if _split_numbers(cells):
            return name
        for row, cell in enumerate(cells):
            value = cell.strip().lower()
            if value and value not in SPLIT_NAMES:
                raise DataError(
                    f"{table.where(row)}: column {name!r} names the split, but {cell!r} is not "
                    f"train, val or test{nearest(value, SPLIT_NAMES)}; correct it, or drop the "
                    f"column with {option('drop_columns', name)}; if it is a class, name all "
                    "classes with classes="
                )
        return name
    return None


def _split_numbers(cells: Sequence[str]) -> dict[str, str]:
    """What numbers mean in a split column: 0 train, 1 test; or 0 train, 1 val, 2 test."""
    found = {float(cell) if is_number(cell) else -1.0 for cell in cells if cell.strip()}
    if found == {0, 1}:
        return {"0": "train", "1": "test"}
    return {"0": "train", "1": "val", "2": "test"} if found == {0, 1, 2} else {}


def _read_split(table: Table, name: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """The split of each row, and a note where numbers stand for the parts."""
    texts = table.texts(name, "split_column")
    if not (parts := _split_numbers(texts)):
        return np.array(texts), ()
    said = ", ".join(f"{number} as {part}" for number, part in parts.items())
    return np.array([parts[f"{float(text):g}"] for text in texts]), (f"read {name} {said}",)


def _find_item(table: Table, free: list[str], label_column: str | None) -> str | None:
    names = {name for name in free if name != label_column and _may_name(table, name)}
    found = find_item_column({name: table.columns[name] for name in free if name in names})
    if found is not None:
        return found
    if not free or free[0] == label_column or plain(free[0]) in LABEL_COLUMNS:
        return None
    if holds_lists(table.columns[free[0]]):
        return None
    cells = table.columns[free[0]]
    distinct = len(set(cells)) == len(cells) and all(cell.strip() for cell in cells)
    if holds_codes(cells) or any(map(is_number, cells)):
        return None
    return free[0] if distinct else None


def _find_listing(table: Table, free: list[str]) -> str | None:
    usual = [name for name in free if plain(name) in LABEL_COLUMNS]
    lists = [name for name in usual if not holds_codes(table.columns[name])]
    if not lists:
        return None
    coded = [name for name in free if name not in lists and holds_codes(table.columns[name])]
    if len(lists) > 1 or coded:
        raise DataError(
            f"{table.where(0)}: labels could be in column {lists[0]!r} or in columns "
            f"{some(lists[1:] + coded)}; choose with {option('label_column')}, or drop the others "
            f"with {option('drop_columns')}"
        )
    return lists[0]


def _may_name(table: Table, name: str) -> bool:
    """Whether a column may name items; a class can be called `path`, but it repeats its codes."""
    cells = table.columns[name]
    return not holds_lists(cells) and (len(set(cells)) == len(cells) or not holds_codes(cells))


def _texts(table: Table, names: Sequence[str]) -> list[list[str]]:
    for name in names:
        if holds_lists(table.columns[name]):
            raise DataError(
                f"{table.where(0)}: column {name!r} holds lists; pass "
                f"{option('label_column', name)} if it lists the labels, otherwise "
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
    """Read the labels of all metadata files; items are paths relative to the folder.

    Metadata in subfolders called train, validation or test also give the split.
    """
    files = find_metadata(folder)
    column = options.pop("image_column", None) or "file_name"
    tables = []
    for path in files:
        table = read_table(path)
        columns = {**table.columns, column: table.texts(column, "image_column")}
        subfolder = path.parent.relative_to(folder).as_posix()
        if subfolder != ".":
            columns[column] = [f"{subfolder}/{name}" for name in columns[column]]
            if subfolder.lower() in SPLIT_NAMES and "split" not in columns:
                columns["split"] = [subfolder.lower()] * table.rows
        tables.append(Table(columns, table.places))
    table = join_tables(tables, files)
    return labels_of_table(table, coding, image_column=column, **options)


def write_labels(labels: LabelMatrix, path: str | Path) -> None:
    """Write one column per class with 1 / 0 / -1, as `read_labels` reads it with its defaults.

    Soft labels are written as probabilities, blank where unknown (`soft=True` reads them), weights
    are not. The format follows from the name: .csv, .tsv or .parquet.
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
    values = labels.values if labels.soft is None else labels.soft
    columns |= {name: values[:, k] for k, name in enumerate(labels.classes)}

    import pandas as pd

    frame = pd.DataFrame(columns)
    if path.suffix == ".parquet":
        frame.to_parquet(path, index=False)
    elif path.suffix in (".csv", ".tsv"):
        frame.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")
    else:
        raise DataError(f"{path}: expected a name ending in .csv, .tsv or .parquet")
