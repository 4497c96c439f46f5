"""A table of text (CSV, TSV, Parquet, JSON lines) that remembers where each row came from."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from halftruth.data.errors import DataError, nearest, some
from halftruth.data.readers.csv_file import read_csv, read_text

if TYPE_CHECKING:
    from halftruth.labels import LabelMatrix

TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")
SUFFIXES = (*TEXT_SUFFIXES, ".parquet", ".pq", ".jsonl")
Cell = str | list[str]


@dataclass(frozen=True)
class Table:
    """Named columns of cells; a cell is text, or a list of texts where the file has lists."""

    columns: dict[str, list[Any]]
    places: Sequence[str]

    @property
    def rows(self) -> int:
        return len(self.places)

    def where(self, row: int) -> str:
        """The file and line of a row, for messages."""
        return self.places[row]

    def column(self, name: str, option: str) -> list[Any]:
        """The cells of a column that `option` names, or an error with the nearest name."""
        if name not in self.columns:
            raise DataError(
                f"{option}={name!r}: there is no such column{nearest(name, self.columns)}; "
                f"the columns are {some(list(self.columns), 12)}"
            )
        return self.columns[name]

    def texts(self, name: str, option: str) -> list[str]:
        """The cells of a column that must not hold lists or blanks, stripped."""
        texts = []
        for row, cell in enumerate(self.column(name, option)):
            if isinstance(cell, list) or not cell.strip():
                what = "is blank" if not cell or isinstance(cell, str) else "holds a list"
                raise DataError(f"{self.where(row)}: column {name!r} {what}; expected a name")
            texts.append(cell.strip())
        return texts


def read_table(path: str | Path, delimiter: str | None = None) -> Table:
    """Read a table by the ending of its name."""
    path = Path(path)
    name = path.name.lower()
    if name.endswith((".parquet", ".pq")):
        columns, lines, unit = *_read_parquet(path), "row"
    elif name.endswith(".jsonl"):
        columns, lines, unit = *_read_json_lines(path), "line"
    elif name.endswith(TEXT_SUFFIXES):
        if delimiter is None and ".tsv" in name:
            delimiter = "\t"
        header, cells, lines = read_csv(path, delimiter)
        columns, unit = dict(zip(header, cells, strict=True)), "line"
    else:
        raise DataError(f"{path}: expected a table ending in {', '.join(SUFFIXES)}")
    return Table(columns, [f"{path} {unit} {line}" for line in lines])


def table_from_frame(frame: Any) -> Table:
    """The columns of a pandas DataFrame as cells; missing values are blank."""
    names = [str(name) for name in frame.columns]
    if twice := sorted(name for name, count in Counter(names).items() if count > 1):
        raise DataError(f"DataFrame: these column names occur more than once: {some(twice)}")
    if not len(frame):
        raise DataError("DataFrame: has no rows")
    columns = {}
    for position, name in enumerate(names):
        column = frame.iloc[:, position]
        missing = column.isna().tolist()
        columns[name] = [
            "" if blank else as_cell(value, f"DataFrame column {name!r}")
            for value, blank in zip(column.tolist(), missing, strict=True)
        ]
    return Table(columns, [f"DataFrame row {label!r}" for label in frame.index])


def index_ids(frame: Any) -> np.ndarray | None:
    """The index of a DataFrame as text; None for the default index 0, 1, 2, ..."""
    index = frame.index
    if index.nlevels > 1:
        raise DataError(
            f"DataFrame: expected one index level that names the items, got {index.nlevels}; "
            "use frame.reset_index(drop=True) or set_index with one column"
        )
    if index.tolist() == list(range(len(index))):
        return None
    return np.array([str(label) for label in index], dtype=str)


def read_column(path: str | Path, column: str, *, delimiter: str | None = None) -> np.ndarray:
    """One further column as text, a row of the file an entry: patients, sites, dates."""
    cells = read_table(path, delimiter).column(column, "column")
    return np.array([str(cell) for cell in cells], dtype=str)


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


def _read_parquet(path: Path) -> tuple[dict[str, list[Any]], list[int]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not path.is_file():
        raise DataError(f"{path}: there is no such file")
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: cannot be read as Parquet: {error}") from error
    twice = sorted(name for name, count in Counter(table.column_names).items() if count > 1)
    if twice:
        raise DataError(f"{path}: these column names occur more than once: {some(twice)}")
    if not table.num_rows:
        raise DataError(f"{path}: has columns but no rows")
    columns = {}
    for name in table.column_names:
        column, place = table[name], f"{path} column {name!r}"
        if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
            columns[name] = [as_cell(value, place) for value in column.to_pylist()]
        else:
            columns[name] = column.cast(pa.string()).fill_null("").to_numpy().tolist()
    return columns, list(range(1, table.num_rows + 1))


def _read_json_lines(path: Path) -> tuple[dict[str, list[Any]], list[int]]:
    records: list[dict[str, Any]] = []
    lines: list[int] = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path} line {number}: is not JSON: {error}") from None
        if not isinstance(record, dict):
            raise DataError(f"{path} line {number}: expected an object {{...}}, got {line[:40]!r}")
        records.append(record)
        lines.append(number)
    names = list(dict.fromkeys(name for record in records for name in record))
    columns = {
        name: [
            as_cell(record.get(name), f"{path} line {line}, field {name!r}")
            for record, line in zip(records, lines, strict=True)
        ]
        for name in names
    }
    return columns, lines


def as_cell(value: Any, place: str) -> Cell:
    """A typed value as the text that a CSV file would hold; lists stay lists."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        if any(isinstance(entry, list | tuple | dict) or entry is None for entry in value):
            raise DataError(f"{place}: expected a flat list of label names, got {value!r:.60}")
        return [str(entry) for entry in value]
    if isinstance(value, dict | bytes):
        raise DataError(f"{place}: expected text, a number or a list, got {value!r:.60}")
    return str(value)
