"""Scores from outside: a table or a matrix of probabilities, brought into the labels' order."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from halftruth.audit.arrays import check_scores
from halftruth.data import DataError
from halftruth.data.errors import nearest, some
from halftruth.data.readers.array_file import find_matrix, load_arrays
from halftruth.data.readers.columns import ITEM_COLUMNS, plain
from halftruth.data.readers.text_table import Table, read_table
from halftruth.labels import LabelMatrix
from halftruth.train.output_tables import safe_cell

SCORE_KEYS = ("scores", "probabilities", "pred_probs", "probs")


def read_scores(path: str | Path, labels: LabelMatrix) -> np.ndarray:
    """(N, K) probabilities of a file, for the rows and classes of the labels.

    .npy and .npz hold a matrix in the labels' order. A table (CSV, TSV, Parquet, JSON lines) has a
    column a class, found by its name, and is matched by its column of items where there is one.
    """
    path = Path(path)
    if path.name.lower().endswith((".npy", ".npz")):
        matrix, _ = find_matrix(load_arrays(path), SCORE_KEYS, None, path)
    else:
        table = read_table(path)
        matrix = _columns(table, labels.classes)[_order(table, labels, path)]
    try:
        return check_scores(matrix, labels.values.shape)
    except ValueError as error:
        raise DataError(f"{path}: {error}") from None


def _columns(table: Table, classes: tuple[str, ...]) -> np.ndarray:
    columns = []
    for name in classes:
        # Names that a spreadsheet would run are written with an apostrophe before them.
        found = next((n for n in (name, safe_cell(name)) if n in table.columns), None)
        if found is None:
            raise DataError(
                f"{table.where(0)}: there is no column of probabilities for the class "
                f"{name!r}{nearest(name, table.columns)}"
            )
        columns.append([_number(cell, table.where(row), name)
                        for row, cell in enumerate(table.columns[found])])  # fmt: skip
    return np.array(columns, dtype=np.float64).T


def _number(cell: object, place: str, name: str) -> float:
    try:
        return float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise DataError(f"{place}, column {name!r}: expected a probability, got {cell!r}") from None


def _order(table: Table, labels: LabelMatrix, path: Path) -> np.ndarray:
    """The table's row for each row of the labels."""
    usual = [name for name in table.columns if plain(name) in ITEM_COLUMNS]
    usual = [name for name in usual if name not in labels.classes]
    if labels.items is None or not usual:
        if table.rows != len(labels):
            raise DataError(
                f"{path}: has {table.rows:,} rows, the labels {len(labels):,}, and there are no "
                "names in both to match them by; add a column `image`"
            )
        return np.arange(len(labels))
    items = table.texts(min(usual, key=lambda name: ITEM_COLUMNS.index(plain(name))), "item")
    place = {item.removeprefix("'"): row for row, item in enumerate(items)}
    place |= {item: row for row, item in enumerate(items)}
    if len(set(items)) < len(items):
        twice = next(item for item in items if items.count(item) > 1)
        raise DataError(f"{path}: {twice!r} has more than one row of probabilities")
    lost = [str(item) for item in labels.items if str(item) not in place]
    if lost:
        hint = f"; its rows are named {some(items, 3)}" if len(lost) == len(labels) else ""
        raise DataError(f"{path}: has no probabilities for {len(lost):,} rows: {some(lost)}{hint}")
    return np.array([place[str(item)] for item in labels.items])
