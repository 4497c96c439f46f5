"""Tables that a run writes: predictions, classes, images that could not be read."""

import csv
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from halftruth.data.errors import DataError
from halftruth.data.readers.label_lists import join_names
from halftruth.train.run_folder import replace_file


def escape_formula(cell: object) -> Any:
    """Return a text that a spreadsheet would run as a formula with an apostrophe before it.

    >>> escape_formula("=1+1.jpg"), escape_formula("a.jpg")
    ("'=1+1.jpg", 'a.jpg')
    """
    is_formula = isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    return f"'{cell}" if is_formula else cell


def write_bad_images(path: Path, bad: Sequence[tuple[str, str]]) -> None:
    """Write the names of images that could not be read, with the reasons."""
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = [(escape_formula(name), reason) for name, reason in bad]
        csv.writer(file).writerows([("image", "reason"), *lines])


def avoid_names(name: str, taken: Collection[str]) -> str:
    """Return a name for a column, with as many underscores as make it differ from others.

    >>> avoid_names("item", ["cat"]), avoid_names("item", ["item", "item_"])
    ('item', 'item__')
    """
    while name in taken:
        name += "_"
    return name


def make_prediction_table(
    items: Sequence[str],
    scores: np.ndarray,
    classes: Sequence[str],
    chosen: np.ndarray,
    basis: str,
    top: int | None = None,
) -> pd.DataFrame:
    """Return one row per item: name, predicted labels (joined by |), score per class, basis.

    `chosen` (N, K): which labels are predicted. `basis`: what the scores are. A class has its own
    name, so that with a class called "item" the column of items is called "item_". `top`: instead
    of all scores, the names of so many classes with the highest ones, and these scores, each joined
    by |.
    """
    names = np.array(classes, dtype=object)
    if top is not None:
        if not 1 <= top <= len(classes):
            raise DataError(f"top (--top): expected 1 to {len(classes):,} (the classes), got {top}")
        best = np.argsort(-scores, axis=1, kind="stable")[:, :top]
        columns: dict[str, Sequence[object] | np.ndarray] = {
            "item": list(items),
            "labels": [join_names(list(names[row])) for row in chosen],
            "top": [join_names(list(names[row])) for row in best],
            "scores": [
                "|".join(f"{value:.4g}" for value in own[row])
                for own, row in zip(scores, best, strict=True)
            ],
        }
        return pd.DataFrame(columns, dtype=object)
    labels = [join_names(list(names[row])) for row in chosen]
    item, listed, stated = (avoid_names(name, classes) for name in ("item", "labels", "basis"))
    table = pd.DataFrame({item: list(items), listed: labels}, dtype=object)
    numbers = pd.DataFrame(scores, columns=list(classes))
    return pd.concat([table, numbers, pd.DataFrame({stated: [basis] * len(table)})], axis=1)


class TableWriter:
    """Writes a table in parts, as Parquet or CSV, by the ending of the path.

    The file appears when everything is written; after an error the old one is still there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stack = ExitStack()
        self._parquet: Any = None
        self._text: Any = None

    def __enter__(self) -> "TableWriter":
        self._stack.__enter__()
        self._new = self._stack.enter_context(replace_file(self.path))
        return self

    def write(self, table: pd.DataFrame) -> None:
        """Append rows; all parts have the same columns."""
        if self.path.suffix != ".parquet":
            if self._text is None:
                self._text = self._stack.enter_context(
                    self._new.open("w", encoding="utf-8", newline="")
                )
                self._text.write(to_csv_text(table))
            else:
                self._text.write(to_csv_text(table, header=False))
            return
        import pyarrow as pa
        import pyarrow.parquet as pq

        found = pa.Table.from_pandas(table, preserve_index=False)
        if self._parquet is None:
            self._parquet = self._stack.enter_context(pq.ParquetWriter(self._new, found.schema))
        self._parquet.write_table(found)

    def __exit__(self, *error: Any) -> bool | None:
        return self._stack.__exit__(*error)


def to_csv_text(table: pd.DataFrame, header: bool = True) -> str:
    """Return a table as CSV, with escaped formulas."""
    safe = table.rename(columns=escape_formula)
    for place, kind in enumerate(table.dtypes):
        if not pd.api.types.is_numeric_dtype(kind):
            safe.isetitem(place, table.iloc[:, place].map(escape_formula).to_numpy())
    return str(safe.to_csv(index=False, header=header, float_format="%.6g"))
