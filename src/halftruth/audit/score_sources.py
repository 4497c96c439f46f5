"""Scores from a probability file or from a trained run."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from halftruth.data import DataError, read_labels
from halftruth.data.errors import nearest, some
from halftruth.data.features import find_rows
from halftruth.data.readers.numpy_file import find_matrix, load_arrays
from halftruth.data.readers.text_table import Table, find_item_column, read_table
from halftruth.data.wide_matrix import Matrix
from halftruth.labels import LabelMatrix
from halftruth.presence.calibration import find_invalid
from halftruth.train.results.output_tables import escape_formula
from halftruth.train.results.trained_run import TrainedRun
from halftruth.train.task import choose_parts, read_groups, reading_options

SCORE_KEYS = ("scores", "probabilities", "pred_probs", "probs")


# ---------------------------------------------------------------------- probability files


def read_scores(path: str | Path, labels: LabelMatrix) -> tuple[np.ndarray, bool]:
    """(N, K) probabilities for the rows and classes of the labels, and whether classes are named.

    A table (CSV, TSV, Parquet, JSON lines) has one column per class, matched by name, and is
    matched by its column of items where there is one. A .npz may name its columns in `classes`.
    A .npy file has neither: its rows and columns are taken in the order of the labels.
    """
    path = Path(path)
    named = True
    if path.name.lower().endswith((".npy", ".npz")):
        arrays = load_arrays(path)
        matrix, _ = find_matrix(arrays, SCORE_KEYS, None, path)
        named = "classes" in arrays
        if named:
            columns = [str(name) for name in arrays["classes"]]
            _check_shape(matrix, (len(labels), len(columns)), path)
            matrix = matrix[:, [_find(name, columns, path) for name in labels.classes]]
        _check_shape(matrix, labels.values.shape, path)
    else:
        table = read_table(path)
        matrix = _read_columns(table, labels.classes, path)[_match_rows(table, labels, path)]
    matrix = matrix.astype(np.float64)
    check_probabilities(matrix, labels, path)
    return matrix, named


def check_probabilities(scores: np.ndarray, labels: LabelMatrix, source: object) -> None:
    """Refuse the first score that is NaN or outside 0..1, with its row and class."""
    invalid = find_invalid(scores)
    if invalid is None:
        return
    row, column = invalid
    item = "" if labels.items is None else f" ({labels.items[row]})"
    hint = "" if np.isnan(scores[row, column]) else "; apply the sigmoid to logits first"
    raise DataError(
        f"{source}: row {row + 1}{item}, class {labels.classes[column]!r}: expected a probability "
        f"in 0..1, got {scores[row, column]}{hint}"
    )


def _check_shape(matrix: np.ndarray, expected: tuple[int, ...], path: Path) -> None:
    if matrix.shape != expected:
        raise DataError(
            f"{path}: expected a matrix of rows x classes {expected}, got {matrix.shape}"
        )


def _find(name: str, columns: list[str], path: Path) -> int:
    # Names that a spreadsheet would run as a formula are written with an apostrophe.
    for written in (name, escape_formula(name)):
        if written in columns:
            return columns.index(written)
    raise DataError(
        f"{path}: expected a column of probabilities for the class {name!r}, found none"
        f"{nearest(name, columns)}"
    )


def _read_columns(table: Table, classes: tuple[str, ...], path: Path) -> np.ndarray:
    names = list(table.columns)
    found = [names[_find(name, names, path)] for name in classes]
    numbers = [
        [_number(cell, table.where(row), name) for row, cell in enumerate(table.columns[name])]
        for name in found
    ]
    return np.array(numbers, dtype=np.float64).T


def _number(cell: object, place: str, name: str) -> float:
    try:
        return float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise DataError(f"{place}, column {name!r}: expected a probability, got {cell!r}") from None


def _match_rows(table: Table, labels: LabelMatrix, path: Path) -> np.ndarray:
    """The row of the table for each row of the labels."""
    own = find_item_column({k: v for k, v in table.columns.items() if k not in labels.classes})
    if labels.items is None or own is None:
        if table.rows != len(labels):
            raise DataError(
                f"{path}: has {table.rows:,} rows, the labels have {len(labels):,}, and they "
                "cannot be matched by name; add a column `image`"
            )
        return np.arange(len(labels))
    known = {str(item) for item in labels.items}
    # Names that a spreadsheet would run as a formula are written with an apostrophe.
    ids = [item if item in known else item.removeprefix("'") for item in table.texts(own, "item")]
    return find_rows(np.array(ids), labels.items, str(path), "the label file")


# ---------------------------------------------------------------------- trained runs


def run_scores(
    run: TrainedRun,
    labels: LabelMatrix,
    *,
    images: list[str] | None = None,
    features: Matrix | None = None,
    held: np.ndarray | None = None,
) -> tuple[np.ndarray, list[tuple[str, str]]]:
    """(N, K) scores for the classes of the labels, NaN in rows of bad images, and those images.

    `held`: see `TrainedRun.find_held_out`; these rows have their out-of-sample scores.
    """
    missing = [name for name in labels.classes if name not in run.classes]
    if missing:
        raise DataError(
            f"{run.folder}: the run was trained without the classes {some(missing)}; "
            "leave these columns out (--drop-column), or choose another run"
        )
    columns = [run.classes.index(name) for name in labels.classes]
    if features is not None:
        found, good = run.score(features=features), np.ones(len(labels), dtype=bool)
    else:
        if labels.items is None:
            raise DataError("the label file names no images; give the column with --image-column")
        items = [str(item) for item in labels.items]
        found = run.score(images=images, items=items)
        lost = {name for name, _ in found.bad}
        good = np.array([item not in lost for item in items], dtype=bool)
    if held is not None:
        found = run.use_held_out(found, held[good])
    scores = np.full(labels.values.shape, np.nan)
    scores[good] = found.probabilities[:, columns]
    check_probabilities(scores[good], labels.select(good), run.folder)
    return scores, found.bad


def trained_on(run: TrainedRun, labels: LabelMatrix) -> np.ndarray | None:
    """(N,) True for rows that the run was trained on; None where its label file cannot be read."""
    try:
        trained = read_labels(run.config.labels, **reading_options(run.config))
        rows = choose_parts(run.config, trained, read_groups(run.config)).train
    except (DataError, OSError):
        return None
    if trained.items is None or labels.items is None:
        if len(trained) != len(labels):
            return None
        return np.isin(np.arange(len(labels)), rows)
    return np.isin(labels.items, trained.items[rows])
