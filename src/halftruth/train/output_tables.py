"""Tables that a run writes for people: predictions, images that could not be read."""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from halftruth.data.readers.label_lists import join_names
from halftruth.train.run_folder import replace_file, write_text


def safe_cell(text: str) -> str:
    """A text that a spreadsheet would run as a formula, with an apostrophe before it.

    >>> safe_cell("=1+1.jpg"), safe_cell("a.jpg")
    ("'=1+1.jpg", 'a.jpg')
    """
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def write_bad_images(path: Path, bad: Sequence[tuple[str, str]]) -> None:
    """Names and reasons of images that could not be read."""
    with path.open("w", newline="", encoding="utf-8") as file:
        lines = [(safe_cell(name), reason) for name, reason in bad]
        csv.writer(file).writerows([("image", "reason"), *lines])


def prediction_table(
    items: Sequence[str], probabilities: np.ndarray, classes: Sequence[str], cuts: np.ndarray
) -> pd.DataFrame:
    """A row an item: name, chosen labels (joined by |), then the probability of each class."""
    names = np.array(classes, dtype=object)
    chosen = [join_names(list(names[row])) for row in probabilities > cuts]
    table = pd.DataFrame({"item": list(items), "labels": chosen}, dtype=object)
    return pd.concat([table, pd.DataFrame(probabilities, columns=list(classes))], axis=1)


def _safe(cell: object) -> object:
    return safe_cell(cell) if isinstance(cell, str) else cell


def write_table(table: pd.DataFrame, path: Path) -> None:
    """Write predictions as Parquet, or as CSV whose texts no spreadsheet takes for formulas."""
    if path.suffix != ".parquet":
        write_text(path, csv_text(table))
        return
    with replace_file(path) as new:
        table.to_parquet(new, index=False)


def csv_text(table: pd.DataFrame) -> str:
    """A table as CSV whose texts no spreadsheet takes for formulas."""
    safe = table.rename(columns=safe_cell)
    for place, kind in enumerate(table.dtypes):
        if not pd.api.types.is_numeric_dtype(kind):
            safe.isetitem(place, table.iloc[:, place].map(_safe).to_numpy())
    return str(safe.to_csv(index=False, float_format="%.6g"))
