"""Which column of a table names the item, which the split, and which are labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from halftruth.data.errors import DataError, nearest, option, some
from halftruth.data.readers.cell_codes import holds_codes
from halftruth.data.readers.text_table import ITEM_COLUMNS, Table, is_number, plain
from halftruth.data.splits import SPLIT_NAMES

# In order of preference, compared in lower case without spaces and punctuation.
# fmt: off
LABEL_COLUMNS = [
    "labels", "label", "tags", "tag", "findinglabels", "findings", "categories", "category",
    "classes",
]
SPLIT_COLUMNS = ["split", "subset", "partition"]
# fmt: on
# What `halftruth repair` adds to a file: where a changed label comes from.
PROVENANCE = ("halftruth_added", "halftruth_removed", "halftruth_by")


@dataclass(frozen=True)
class Roles:
    """Columns by what they are for; either `listing` (label names in a cell) or `classes`."""

    item: str | None
    split: str | None
    listing: str | None
    classes: tuple[str, ...] = ()


def assign_roles(
    table: Table,
    *,
    image_column: str | None = None,
    label_column: str | None = None,
    split_column: str | None = None,
    drop_columns: Sequence[str] = (),
    classes: Sequence[str] | None = None,
) -> Roles:
    """Give every column a role; a column that fits none is for `coding.decode` to refuse.

    Named options win. Otherwise the item is a column with a usual name, or the first column if it
    holds distinct texts; a column called `labels` (or alike) that does not hold codes lists names.
    """
    for name in drop_columns:
        table.column(name, "drop_columns")
    free = [name for name in table.columns if name not in {*drop_columns, *PROVENANCE}]
    free = [name for name in free if not _is_row_counter(name, table)]

    split = split_column if split_column is not None else _find_split(table, free)
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
            "expected a column a class, or one that lists label names: "
            f"{option('label_column')}"
        )
    for name in free:
        if not name.strip():
            number = list(table.columns).index(name) + 1
            raise DataError(
                f"{table.where(0)}: column {number} has no name; name it in the header or remove it"
            )
    return Roles(item, split, None, tuple(free))


def _is_row_counter(name: str, table: Table) -> bool:
    """The nameless 0, 1, 2, ... that pandas writes in front of a table."""
    return name in ("", "Unnamed: 0") and table.columns[name] == list(map(str, range(table.rows)))


def _find_split(table: Table, free: list[str]) -> str | None:
    """A column called `split` (or alike) that does not hold labels; other values are typos."""
    for name in free:
        cells = table.columns[name]
        if plain(name) not in SPLIT_COLUMNS or _lists(table, name) or holds_codes(cells):
            continue
        for row, cell in enumerate(cells):
            value = cell.strip().lower()
            if value and value not in SPLIT_NAMES:
                raise DataError(
                    f"{table.where(row)}: column {name!r} names the split, but {cell!r} is not "
                    f"train, val or test{nearest(value, SPLIT_NAMES)}; correct it, or drop the "
                    f"column with {option('drop_columns', name)}"
                )
        return name
    return None


def _find_item(table: Table, free: list[str], label_column: str | None) -> str | None:
    usual = [
        name
        for name in free
        if plain(name) in ITEM_COLUMNS and name != label_column and _may_name(table, name)
    ]
    if usual:
        return min(usual, key=lambda name: ITEM_COLUMNS.index(plain(name)))
    if not free or free[0] == label_column or plain(free[0]) in LABEL_COLUMNS:
        return None
    if _lists(table, free[0]):
        return None
    cells = table.columns[free[0]]
    distinct = len(set(cells)) == len(cells) and all(cell.strip() for cell in cells)
    return free[0] if distinct and not any(map(is_number, cells)) else None


def _find_listing(table: Table, free: list[str]) -> str | None:
    usual = [name for name in free if plain(name) in LABEL_COLUMNS]
    lists = [name for name in usual if not holds_codes(table.columns[name])]
    if not lists:
        return None
    coded = [name for name in free if name not in lists and holds_codes(table.columns[name])]
    if len(lists) > 1 or coded:
        raise DataError(
            f"{table.where(0)}: labels could be in column {lists[0]!r} or in columns "
            f"{some(lists[1:] + coded)}; say which with {option('label_column')}, or set the "
            f"others aside with {option('drop_columns')}"
        )
    return lists[0]


def _may_name(table: Table, name: str) -> bool:
    """A class can be called `path` or `file`: repeated codes are labels, not names."""
    cells = table.columns[name]
    return not _lists(table, name) and (len(set(cells)) == len(cells) or not holds_codes(cells))


def _lists(table: Table, name: str) -> bool:
    return any(isinstance(cell, list) for cell in table.columns[name])
