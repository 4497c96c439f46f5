"""The meaning of 1, 0, -1, words and empty cells, and cells decoded into labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import get_args

import numpy as np

from halftruth.data.errors import DataError, check_choice, option
from halftruth.data.readers.cells import distinct_of, holds_lists, map_cells
from halftruth.data.splits import SPLIT_NAMES
from halftruth.labels import ABSENT, PRESENT, UNKNOWN
from halftruth.reading import Meaning

# The options that make up a `Coding`.
CODES = ("zero", "blank", "minus_one")
_CODE = {"unknown": UNKNOWN, "absent": ABSENT, "present": PRESENT}
BLANK = {"", "nan", "na", "n/a", "<na>", "null", "none", "?"}
TRUTH_WORDS = {
    "true": "true", "yes": "true", "y": "true", "t": "true",
    "false": "false", "no": "false", "n": "false", "f": "false",
}  # fmt: skip
_BY_NUMBER = {1.0: "1", 0.0: "0", -1.0: "-1"}


@dataclass(frozen=True)
class Coding:
    """The meaning of the codes of one label file; by default 0 and blank cells are unknown.

    `zero` is also the meaning of "no" and of a class that a list of labels leaves out.

    >>> Coding(zero="absent", minus_one="unknown").meanings()
    {'1': 1, 'true': 1, '0': -1, 'false': -1, '-1': 0, 'blank': 0}
    """

    zero: Meaning = "unknown"
    blank: Meaning = "unknown"
    minus_one: Meaning = "absent"

    def __post_init__(self) -> None:
        for field in fields(self):
            check_choice(field.name, getattr(self, field.name), get_args(Meaning))
        if self.minus_one == self.zero == "unknown":
            raise DataError(
                f"minus_one='unknown' needs {option('zero', 'absent')}, else 0 and -1 would both "
                "mean unknown"
            )

    def meanings(self) -> dict[str, int]:
        """The label of each kind of cell; "yes" is 'true', "no" is 'false'."""
        zero = int(_CODE[self.zero])
        present = int(PRESENT)
        return {
            "1": present,
            "true": present,
            "0": zero,
            "false": zero,
            "-1": int(_CODE[self.minus_one]),
            "blank": int(_CODE[self.blank]),
        }

    @property
    def unlisted(self) -> int:
        """The label of a class that a list of labels does not name."""
        return self.meanings()["0"]


def kind_of(cell: object) -> str | None:
    """Classify a cell as '1', '0', '-1', 'true' (or yes), 'false' (or no) or 'blank', else None.

    >>> [kind_of(cell) for cell in ("1.0", " -1", "NaN", "TRUE", "no", "2")]
    ['1', '-1', 'blank', 'true', 'false', None]
    """
    if not isinstance(cell, str):
        return None
    token = cell.strip().lower()
    if token in BLANK:
        return "blank"
    if token in TRUTH_WORDS:
        return TRUTH_WORDS[token]
    try:
        return _BY_NUMBER.get(float(token))
    except ValueError:
        return None


def holds_codes(cells: Sequence[str]) -> bool:
    """Whether every cell of a column is a label code, and at least one is not blank."""
    if holds_lists(cells):
        return False
    kinds = {kind_of(cell) for cell in distinct_of(cells)}
    return None not in kinds and kinds != {"blank"}


def decode(
    columns: Sequence[Sequence[str]],
    names: Sequence[str],
    where: Callable[[int], str],
    coding: Coding,
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Decode columns of cells into (N, K) int8 labels; also returns notes on how words were read.

    `where(row)` names the place of a row for messages; `names` are the names of the columns.
    """
    meanings = coding.meanings()
    seen: dict[str, tuple[int, str, str]] = {}
    values = np.empty((len(columns[0]) if columns else 0, len(names)), dtype=np.int8)
    for position, (name, cells) in enumerate(zip(names, columns, strict=True)):
        kinds = {cell: kind_of(cell) for cell in distinct_of(cells)}
        for cell, kind in kinds.items():
            if kind is None:
                _refuse(name, cells, kinds, where)
            elif kind not in seen:
                seen[kind] = (cells.index(cell), name, cell.strip())
        table = {cell: meanings[kind] for cell, kind in kinds.items() if kind is not None}
        values[:, position] = map_cells(cells, table)
    _check_mixture(seen, coding, where)
    word_of = {code: word for word, code in _CODE.items()}
    read = [
        f"{seen[kind][2]!r} as {word_of[meanings[kind]]}"
        for kind in ("true", "false")
        if kind in seen
    ]
    return values, (f"read {' and '.join(read)}",) if read else ()


def decode_soft(
    columns: Sequence[Sequence[str]], names: Sequence[str], where: Callable[[int], str]
) -> np.ndarray:
    """Decode columns of probabilities into (N, K) float32 soft labels; blank cells are NaN."""
    values = np.empty((len(columns[0]) if columns else 0, len(names)), dtype=np.float32)
    for position, (name, cells) in enumerate(zip(names, columns, strict=True)):
        numbers = {cell: number_of(cell) for cell in distinct_of(cells)}
        wrong = {cell for cell, number in numbers.items() if number < 0 or number > 1}
        if wrong:
            row = next(row for row, cell in enumerate(cells) if cell in wrong)
            raise DataError(
                f"{where(row)}, column {name!r}: expected the probability that the class is "
                f"present, from 0 to 1, or blank (unknown), got {cells[row]!r}; if the column is "
                f"not a class, drop it with {option('drop_columns', name)}"
            )
        values[:, position] = [numbers[cell] for cell in cells]
    return values


def number_of(cell: object) -> float:
    """The number of a cell: NaN where it is blank, -inf for other texts and lists."""
    token = str(cell).strip().lower()
    try:
        return float("nan" if token in BLANK else token)
    except ValueError:
        return float("-inf")


def _refuse(
    name: str,
    cells: Sequence[str],
    kinds: dict[str, str | None],
    where: Callable[[int], str],
) -> None:
    """Raise: some values of a class column are wrong, or the column is not a class column."""
    wrong = [row for row, cell in enumerate(cells) if kinds[cell] is None]
    place = f"{where(wrong[0])}, column {name!r}"
    if all(cell.strip().lower() in SPLIT_NAMES for cell in kinds):
        raise DataError(
            f"{place}: this column holds {cells[wrong[0]]!r}, so it looks like the split; read it "
            f"with {option('split_column', name)}, or drop it with {option('drop_columns', name)}"
        )
    if all(0 <= number_of(cell) <= 1 for cell in kinds if kinds[cell] != "blank"):
        raise DataError(
            f"{place}: expected a label of 1, 0, -1, yes, no, true, false or blank, got "
            f"{cells[wrong[0]]!r}; if the numbers are probabilities that a class is present, pass "
            f"soft=True (--soft); if this is not a class, drop it with "
            f"{option('drop_columns', name)}"
        )
    if len(wrong) <= sum(kinds[cell] not in (None, "blank") for cell in cells):
        raise DataError(
            f"{place}: expected a label of 1, 0, -1, yes, no, true, false or blank, got "
            f"{cells[wrong[0]]!r} ({len(wrong):,} such cells in this column); correct them, or "
            f"drop the column with {option('drop_columns', name)}"
        )
    raise DataError(
        f"{place}: this is not a column of labels; it holds {cells[wrong[0]]!r}, but 1, 0, -1, "
        f"yes, no or blank was expected; drop it with {option('drop_columns', name)}, or pass "
        f"{option('label_column', name)} if it lists label names"
    )


def which_is_unknown() -> str:
    """The advice for a file in which 0 and -1 would mean the same."""
    return (
        f"if -1 means unknown pass {option('minus_one', 'unknown')}, if 0 means unknown pass "
        f"{option('zero', 'unknown')}"
    )


def _check_mixture(
    seen: dict[str, tuple[int, str, str]], coding: Coding, where: Callable[[int], str]
) -> None:
    """Refuse words next to 1/0, and 0 next to -1 if both have one meaning: one code per file."""

    def place(kind: str) -> str:
        row, name, cell = seen[kind]
        return f"{cell} at {where(row)}, column {name!r}"

    words = [kind for kind in ("true", "false") if kind in seen]
    digits = [kind for kind in ("1", "0", "-1") if kind in seen]
    if words and digits:
        raise DataError(
            f"mixed codes: {place(words[0])}, but {place(digits[0])}; write all labels either as "
            "1 / 0 / -1 or as words (yes / no, true / false)"
        )
    if "0" in seen and "-1" in seen and coding.zero == coding.minus_one:
        raise DataError(
            f"contradictory codes: {place('0')} and {place('-1')} would both mean "
            f"{coding.zero}; {which_is_unknown()}"
        )
