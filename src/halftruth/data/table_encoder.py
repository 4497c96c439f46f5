"""Turn columns of numbers, categories and vectors into a matrix; fitted on the training rows.

Numbers keep their values. A missing number becomes the median of the training rows, and a column
with missing numbers gets one more column, 1 where the number was missing. Categories become one
column per level (0 or 1); rare levels, and levels that training did not have, share a column.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from halftruth.data.errors import DataError, nearest, some
from halftruth.data.feature_columns import MATRIX, FeatureColumns, as_numbers, as_texts, has_gaps
from halftruth.data.readers.text_table import is_number

# Levels with a column of their own: the most frequent ones that enough training rows have.
MOST_LEVELS, FEWEST_ROWS = 100, 3
# A decimal comma, or commas between thousands.
# Numbers with a sign of a currency or a percentage, or with a decimal point and a unit.
_UNIT = re.compile(
    r"\s*(?:[$€£]\s*[-+]?[\d.,]+|[-+]?[\d.,]+\s*[%$€£]|[-+]?\d*\.\d+\s*[^\W\d]{1,4})\s*"
)
_COMMA = re.compile(r"\s*[-+]?\d+(,\d+)+(\.\d+)?\s*|\s*[-+]?\d+(\.\d{3})*,\d+\s*")
# Rows or numbers that no longer differ, or follow each other, by accident.
_SEVERAL = 20
NUMBER, CATEGORY, VECTOR = "number", "category", "vector"


def is_far(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return which numbers are farther outside a range than half of its width.

    >>> is_far(np.array([-4.0, 0.0, 16.0]), 0, 10)
    array([False, False,  True])
    """
    half = (high - low) / 2
    return np.asarray((values < low - half) | (values > high + half))


@dataclass(frozen=True)
class ColumnEncoder:
    """One column: its kind, and what the training rows say about it."""

    name: str
    kind: str
    # Levels of a category that have a column of their own.
    levels: tuple[str, ...] = ()
    # Whether rare and new levels of a category share a column.
    other: bool = False
    # The medians that replace missing numbers: one, or one per entry of a vector.
    fill: tuple[float, ...] = ()
    # The entries (of a vector) that get a column which says whether the number was missing.
    missing: tuple[int, ...] = ()
    # What training has seen beside `levels`: the levels that share a column, or the lowest and the
    # highest number.
    rare: tuple[str, ...] = ()
    span: tuple[float, ...] = ()

    @property
    def outputs(self) -> list[str]:
        """The names of the columns that this column becomes."""
        if self.kind == CATEGORY:
            names = [f"{self.name}={level}" for level in self.levels]
            names += [f"{self.name} is another"] * self.other
            return names + [f"{self.name} is missing"] * bool(self.missing)
        if self.kind == NUMBER:
            return [self.name] + [f"{self.name} is missing"] * bool(self.missing)
        start = f"{self.name}[" if self.name else "["
        names = [f"{start}{k}]" for k in range(len(self.fill))]
        return names + [f"{start}{k}] is missing" for k in self.missing]

    def transform(self, column: np.ndarray, place: str) -> np.ndarray:
        """Return the (N, number of outputs) float32 matrix of a column."""
        if self.kind == CATEGORY:
            return self._encode_levels(as_texts(column))
        if self.kind == NUMBER:
            if column.ndim != 1:
                raise DataError(
                    f"{place}, column {self.name!r}: expected numbers, as in training, got vectors"
                )
            values = as_numbers(column, self.name, place)[:, None]
        else:
            values = column
            if values.ndim != 2 or values.shape[1] != len(self.fill):
                called = f", column {self.name!r}" if self.name else ""
                shape = values.shape[1:] or "no vector"
                raise DataError(
                    f"{place}{called}: expected vectors of {len(self.fill):,} numbers, as in "
                    f"training, got {shape}"
                )
        if not self.missing and not has_gaps(values):
            return values.astype(np.float32, copy=False)
        gone = np.isnan(values)
        filled = np.where(gone, np.array(self.fill), values)
        return np.hstack([filled, gone[:, list(self.missing)]]).astype(np.float32)

    def find_unseen(self, column: np.ndarray) -> np.ndarray:
        """Return the rows (N,) whose level training has not seen, or with a number far outside."""
        if self.kind == CATEGORY:
            known = {*self.levels, *self.rare, None}
            return np.array([text not in known for text in as_texts(column)], dtype=bool)
        if not self.span:
            return np.zeros(len(column), dtype=bool)
        return is_far(as_numbers(column, self.name, ""), *self.span)

    def _encode_levels(self, texts: np.ndarray) -> np.ndarray:
        place = {level: k for k, level in enumerate(self.levels)}
        width = len(self.levels)
        elsewhere = width if self.other else -1
        gone = width + self.other if self.missing else -1
        column = np.array([gone if t is None else place.get(t, elsewhere) for t in texts])
        out = np.zeros((len(texts), width + self.other + bool(self.missing)), dtype=np.float32)
        rows = np.flatnonzero(column >= 0)
        out[rows, column[rows]] = 1
        return out


def fit_column(name: str, column: np.ndarray, rows: np.ndarray, place: str) -> ColumnEncoder:
    """Return the encoder of a column, by its training rows."""
    if column.dtype == object:
        return _fit_category(name, column[rows], place)
    if name == MATRIX and not has_gaps(column):
        return TableEncoder.for_matrix(column.shape[1]).columns[0]
    kind = NUMBER if column.ndim == 1 else VECTOR
    values = column[rows] if kind == VECTOR else column[rows][:, None]
    gone = np.isnan(values)
    span: tuple[float, ...] = ()
    if kind == NUMBER and not gone.all():
        _question_numbers(name, values[~gone], place)
        span = (float(np.nanmin(values)), float(np.nanmax(values)))
    if not gone.any():
        # Medians only matter where a later row misses a number.
        return ColumnEncoder(name, kind, fill=tuple(np.median(values, axis=0).tolist()), span=span)
    empty = np.flatnonzero(gone.all(axis=0))
    if len(empty):
        which = f"column {name!r}" if kind == NUMBER else f"entry {empty[0]} of {name or 'a row'!r}"
        raise DataError(
            f"{place}: {which} has no value in any of the {len(rows):,} training rows; drop it "
            "(Python: drop_columns=[...], command line: --read-features 'drop_columns=[...]')"
        )
    fill = np.nanmedian(values, axis=0)
    missing = np.flatnonzero(gone.any(axis=0))
    entries = tuple(missing.tolist())
    return ColumnEncoder(name, kind, fill=tuple(fill.tolist()), missing=entries, span=span)


def _question_numbers(name: str, values: np.ndarray, place: str) -> None:
    """Warn of numbers that may stand for a missing value, and of a column that numbers the rows."""
    steps = np.diff(values)
    one_way = (steps > 0).all() or (steps < 0).all()
    # Of all rows, the training rows are a part.
    if one_way and len(values) >= _SEVERAL and (steps % 1 == 0).all() and np.abs(steps).mean() < 2:
        warnings.warn(
            f"{place}: column {name!r} numbers the rows; drop it unless their order tells something"
            " about new rows, too (drop_columns=)",
            stacklevel=2,
        )
    for end in {float(values.min()), float(values.max())}:
        others = values[values != end]
        nines = re.fullmatch(r"(-1|-?9+)\.0", str(end)) is not None
        # Of a column of codes, such as 0 and 1, nothing is known.
        if (
            nines
            and len(others)
            and np.ptp(others)
            and is_far(np.array([end]), others.min(), others.max())[0]
        ):
            warnings.warn(
                f"{place}: column {name!r} holds {end:g} in {len(values) - len(others):,} rows, "
                "far from all other numbers; if it stands for a missing value, leave these cells "
                "blank",
                stacklevel=2,
            )


def _fit_category(name: str, texts: np.ndarray, place: str) -> ColumnEncoder:
    counts = Counter(text for text in texts if text is not None)
    if not counts:
        raise DataError(
            f"{place}: column {name!r} has no value in any of the {len(texts):,} training rows; "
            "drop it (Python: drop_columns=[...], command line: --read-features "
            "'drop_columns=[...]')"
        )
    known = sum(counts.values())
    commas = [text for text in counts if _COMMA.fullmatch(text)]
    if len(commas) > len(counts) / 2:
        raise DataError(
            f"{place}: column {name!r} holds numbers with a comma, such as {commas[0]!r}; write "
            "0.5 instead of 0,5, and 1000 instead of 1,000; if they are categories, write them "
            "another way, or drop the column (drop_columns=)"
        )
    units = [text for text in counts if _UNIT.fullmatch(text)]
    if len(units) > len(counts) / 2:
        raise DataError(
            f"{place}: column {name!r} holds numbers with a unit, such as {units[0]!r}; write the "
            "numbers alone, or drop the column (drop_columns=)"
        )
    numbers = sum(map(is_number, counts))
    if numbers > _SEVERAL and len(counts) / 2 < numbers < len(counts):
        other = next(text for text in counts if not is_number(text))
        warnings.warn(
            f"{place}: column {name!r} has {numbers:,} different numbers and other texts, such as "
            f"{other!r:.40}, so that each number is a category; if the texts stand for missing "
            "values, leave these cells blank",
            stacklevel=2,
        )
    # Numbers alone are categories because the user says so.
    differ = known >= _SEVERAL and len(counts) > 0.9 * known and numbers < len(counts)
    few = len(counts) <= MOST_LEVELS and not differ
    if not few and len(counts) > known / 2:
        example = next(iter(counts))
        raise DataError(
            f"{place}: column {name!r} has {len(counts):,} different texts in {known:,} training "
            f"rows, such as {example!r:.40}, so it has no categories; drop it (Python: "
            "drop_columns=[...], command line: --read-features 'drop_columns=[...]'), or, if it "
            "is text to learn from, put it into the label file and name it with text= (--text)"
        )
    ranked = sorted(counts, key=lambda level: (-counts[level], level))
    # Few rows have few levels that are frequent; then every level is kept.
    frequent = [level for level in ranked if counts[level] >= FEWEST_ROWS] or ranked
    levels = tuple(frequent[:MOST_LEVELS])
    missing = (0,) if known < len(texts) else ()
    rare = tuple(sorted(counts.keys() - set(levels)))
    return ColumnEncoder(name, CATEGORY, levels, bool(rare), missing=missing, rare=rare)


@dataclass(frozen=True)
class TableEncoder:
    """The encoders of all columns of one source of features."""

    columns: tuple[ColumnEncoder, ...]

    @classmethod
    def fit(cls, source: FeatureColumns, rows: np.ndarray) -> TableEncoder:
        """Return the encoder of a source, by its training rows."""
        return cls(
            tuple(
                fit_column(name, column, rows, source.place)
                for name, column in source.columns.items()
            )
        )

    @classmethod
    def for_matrix(cls, width: int) -> TableEncoder:
        """Return the encoder of a matrix that stays as it is."""
        return cls((ColumnEncoder(MATRIX, VECTOR, fill=(0.0,) * width),))

    @property
    def outputs(self) -> list[str]:
        """The names of the columns of the matrix."""
        return [name for column in self.columns for name in column.outputs]

    @property
    def is_plain(self) -> bool:
        """Whether the source is a matrix without missing values, which stays as it is."""
        return [column.name for column in self.columns] == [MATRIX] and not self.columns[0].missing

    def transform(self, source: FeatureColumns) -> np.ndarray:
        """Return the matrix of a source; columns are found by name, others are not used.

        A matrix that stays as it is may also come as columns of numbers, in their order.
        """
        if self.is_plain:
            # The caller checks the number of columns.
            return source.columns[MATRIX] if source.names is None else source.to_matrix()
        lost = [column.name for column in self.columns if column.name not in source.columns]
        if lost and MATRIX in (*lost, *source.columns):
            got = "a matrix" if source.names is None else f"the columns {some(source.names)}"
            wanted = "a matrix" if lost == [MATRIX] else f"the columns {some(lost)}"
            raise DataError(f"{source.place}: expected {wanted}, as in training, got {got}")
        if lost:
            raise DataError(
                f"{source.place}: has no column {some(lost)}, with which the run was trained"
                f"{nearest(lost[0], source.columns)}"
            )
        blocks = [one.transform(source.columns[one.name], source.place) for one in self.columns]
        return blocks[0] if len(blocks) == 1 else np.hstack(blocks)

    def to_json(self) -> list[dict[str, object]]:
        """Return what `from_json` reads."""
        return [
            {
                name: list(v) if isinstance(v, tuple) else v
                for name, v in vars(one).items()
                if v != ()
            }
            for one in self.columns
        ]

    @classmethod
    def from_json(cls, columns: Sequence[Mapping[str, object]]) -> TableEncoder:
        """Return the encoder of which `to_json` returned a description."""
        values: list[dict[str, Any]] = [
            {key: tuple(v) if isinstance(v, list) else v for key, v in one.items()}
            for one in columns
        ]
        return cls(tuple(ColumnEncoder(**one) for one in values))

    def describe(self) -> str:
        """Describe the columns in a few words."""
        kinds = Counter(column.kind for column in self.columns)
        plural = {NUMBER: "numbers", CATEGORY: "categories", VECTOR: "vectors"}
        found = ", ".join(f"{count:,} {plural[kind]}" for kind, count in kinds.items())
        filled = sum(bool(column.missing) for column in self.columns)
        gaps = f", {filled:,} of them with missing values" if filled else ""
        return f"{found}{gaps}: {len(self.outputs):,} features"
