"""Columns of a large text file: each distinct text once, and its number per row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np


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

    @overload
    def __getitem__(self, row: int) -> str: ...

    @overload
    def __getitem__(self, row: slice) -> list[str]: ...

    def __getitem__(self, row: int | slice) -> str | list[str]:
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

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return Places(self.prefix, self.numbers[row])
        return f"{self.prefix} {self.numbers[row]}"


def distinct_of(cells: Sequence[Any]) -> Iterable[Any]:
    """The distinct cells of a column, without lists."""
    return cells.distinct if isinstance(cells, Cells) else set(cells)


def map_cells(cells: Sequence[Any], values: dict[Any, int]) -> np.ndarray:
    """(N,) int8: the value of each cell of a column."""
    if isinstance(cells, Cells):
        return np.array([values[one] for one in cells.distinct], np.int8)[cells.numbers]
    return np.fromiter(map(values.__getitem__, cells), dtype=np.int8, count=len(cells))


def holds_lists(cells: Sequence[Any]) -> bool:
    """Whether a column has cells that are lists."""
    return not isinstance(cells, Cells) and any(isinstance(cell, list) for cell in cells)
