"""Cells of tables: columns of repeated texts, the place of a row, typed values as text."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from halftruth.data.errors import DataError

Cell = str | list[str]


class Cells(Sequence[str]):
    """A column of texts that repeat, such as label codes: (N,) numbers of `distinct` texts.

    >>> cells = Cells(np.array([0, 1, 0]), ["1", ""])
    >>> list(cells), cells[2], cells.index("")
    (['1', '', '1'], '1', 1)
    """

    def __init__(self, numbers: np.ndarray, distinct: list[str]) -> None:
        self.numbers, self.distinct = numbers, distinct

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, row: slice | int) -> Any:
        if isinstance(row, slice):
            return [self.distinct[number] for number in self.numbers[row]]
        return self.distinct[self.numbers[row]]

    def __iter__(self) -> Iterator[str]:
        return map(self.distinct.__getitem__, self.numbers.tolist())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)


class Places(Sequence[str]):
    """The place of each row, made when a message needs it: "labels.csv line 7"."""

    def __init__(self, prefix: str, numbers: Sequence[int]) -> None:
        self.prefix, self.numbers = prefix, numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, row: slice | int) -> Any:
        if isinstance(row, slice):
            return Places(self.prefix, self.numbers[row])
        return f"{self.prefix} {self.numbers[row]}"


def number_rows(place: str, first: int = 1) -> Places:
    """The places of rows of which the number is not known yet.

    >>> number_rows("labels.csv")[6]
    'labels.csv row 7'
    """
    return Places(f"{place} row", range(first, sys.maxsize))


def distinct_of(cells: Sequence[str]) -> Iterable[str]:
    """The distinct cells of a column, without lists."""
    return cells.distinct if isinstance(cells, Cells) else set(cells)


def map_cells(cells: Sequence[str], values: Mapping[str, int]) -> np.ndarray:
    """(N,) int8: the value of each cell of a column."""
    if isinstance(cells, Cells):
        return np.array([values[one] for one in cells.distinct], np.int8)[cells.numbers]
    return np.fromiter(map(values.__getitem__, cells), dtype=np.int8, count=len(cells))


def holds_lists(cells: Sequence[object]) -> bool:
    """Whether a column has cells that are lists."""
    return not isinstance(cells, Cells) and any(isinstance(cell, list) for cell in cells)


def parse_json(text: str, place: object) -> object:
    """Parse JSON; a mistake is an error with its place."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place}: is not JSON: {error}") from None


def parse_object(text: str, place: object) -> dict[str, object]:
    """Parse a JSON object: a record of named fields."""
    found = parse_json(text, place)
    if not isinstance(found, dict):
        raise DataError(f"{place}: expected an object {{...}}, got {text[:40]!r}")
    return found


def columns_of_records(
    records: Sequence[Mapping[str, object]], places: Sequence[str]
) -> dict[str, list[Cell]]:
    """The fields of records as columns; a field that a record does not have is blank."""
    names = dict.fromkeys(name for record in records for name in record)
    return {
        name: [
            as_cell(record.get(name), f"{place}, field {name!r}")
            for record, place in zip(records, places, strict=True)
        ]
        for name in names
    }


def as_cell(value: object, place: str) -> Cell:
    """Convert a typed value into the text that a CSV file would hold; lists stay lists."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, set | frozenset):
        value = sorted(value, key=str)
    if isinstance(value, list | tuple):
        if any(isinstance(entry, list | tuple | dict) or entry is None for entry in value):
            raise DataError(f"{place}: expected a flat list of label names, got {value!r:.60}")
        return [str(entry) for entry in value]
    if isinstance(value, dict | bytes):
        raise DataError(f"{place}: expected text, a number or a list, got {value!r:.60}")
    return str(value)
