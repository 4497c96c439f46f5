"""Predictions of a run, as a table in memory or in a file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from halftruth.data import DataError
from halftruth.data.errors import some
from halftruth.data.readers.text_table import read_table
from halftruth.presence.solvers import logit
from halftruth.train.results.output_tables import (
    TableWriter,
    avoid_names,
    escape_formula,
    make_prediction_table,
)
from halftruth.train.results.trained_run import RAW, TrainedRun, open_run, refuse_bad


def predict(run: TrainedRun | str | Path, source: object = None, **options: Any) -> pd.DataFrame:
    """Return `TrainedRun.predict(source, **options)` of a run or of the run in a folder."""
    return open_run(run).predict(source, **options)


def read_predictions(path: Path) -> pd.DataFrame:
    """Return a table of `predict`; texts stay as they are written."""
    if path.suffix == ".parquet" or path.is_dir():
        return pd.read_parquet(path)
    table = pd.DataFrame(read_table(path).columns, dtype=str)
    numbers = table.apply(pd.to_numeric, errors="coerce").dropna(axis=1)
    return table.assign(
        **{name: numbers[name] for name in numbers if name not in ("item", "labels")}
    )


def decide_again(
    run: TrainedRun | str | Path,
    table: pd.DataFrame,
    decide: str | None = None,
    labels_per_row: float | None = None,
    prevalence: Sequence[str] = (),
) -> pd.DataFrame:
    """Return a table of `predict` with labels by another rule or level; nothing is scored again."""
    run = open_run(run)
    names = list(run.classes)
    listed, stated = (avoid_names(name, names) for name in ("labels", "basis"))
    # Names that a spreadsheet would run as a formula are written with an apostrophe.
    table = table.rename(columns={escape_formula(name): name for name in names})
    if lost := [name for name in (*names, listed, stated) if name not in table]:
        raise DataError(
            f"expected a table of `halftruth predict {run.folder}`, with a column per class; there "
            f"is none for {some(lost)}"
        )
    try:
        p = table[names].to_numpy(dtype=float)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"expected a probability of every class in every row, as `halftruth predict` writes "
            f"them ({error})"
        ) from None
    if not ((p >= 0) & (p <= 1)).all():
        raise DataError("expected probabilities in 0..1, as `halftruth predict` writes them")
    moved = run.at_level(labels_per_row, prevalence)
    given = _check_basis(set(table[stated].astype(str)), stated, run, moved)
    if given is not moved and run.fitted is not None and moved.fitted is not None:
        p = run.fitted.recalibrate(logit(p), moved.fitted)
    chosen = (moved.decisions if decide is None else moved.decide(decide))(p)
    found = make_prediction_table([""] * len(p), p, names, chosen, moved.describe_basis())
    return table.assign(**{name: found[name].to_numpy() for name in (listed, *names, stated)})


def _check_basis(found: set[str], column: str, run: TrainedRun, moved: TrainedRun) -> TrainedRun:
    """Return the one of two levels of a run that all scores of a table have; others are refused."""
    for one in (moved, run):
        if found <= {one.describe_basis()}:
            return one
    texts, own = sorted(found), run.describe_basis()
    if len(texts) > 1:
        reason = "these are several tables in one; decide about each"
    elif texts[0].endswith(RAW):
        reason = "these are not probabilities; predict again without --raw"
    elif texts[0].startswith(own):
        reason = "give the same level (--labels-per-row, --prevalence), or predict again without it"
    else:
        reason = "this is a table of another run, or the run has changed since; predict again"
    raise DataError(f"column {column!r}: expected {own!r}, got {some(texts)}: {reason}")


def write_predictions(
    run: TrainedRun | str | Path, path: Path, source: object = None, **options: Any
) -> tuple[int, list[tuple[str, str]]]:
    """Write the table of `predict` as CSV or Parquet; return (rows, bad images).

    Rows are scored and written in parts, so that memory does not grow with them. Hints, which are
    matched to all rows at once, need all scores in memory.
    """
    run = open_run(run)
    shown = {name: options.pop(name, None) for name in ("decide", "raw", "top")}
    parts = run.open_parts(source, **options)
    rows, bad = 0, list[tuple[str, str]]()
    with TableWriter(path) as writer, run.logger.progress("parts", len(parts.units)) as advance:
        for unit in parts.units:
            for scores in parts.read(unit):
                writer.write(run.make_table(scores, **shown))
                rows, bad = rows + len(scores.items), bad + scores.bad
            advance()
        parts.warn()
        refuse_bad(bad, rows + len(bad), options.get("bad_images", "skip"))
    return rows, bad
