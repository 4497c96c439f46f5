"""Predictions of a run, as a table in memory or in a file."""

from pathlib import Path
from typing import Any

import pandas as pd

from halftruth.train.results.output_tables import TableWriter
from halftruth.train.results.trained_run import TrainedRun, open_run


def predict(run: TrainedRun | str | Path, source: Any = None, **options: Any) -> pd.DataFrame:
    """Return `TrainedRun.predict(source, **options)` of a run or of the run in a folder."""
    return open_run(run).predict(source, **options)


def write_predictions(
    run: TrainedRun | str | Path, path: Path, source: Any = None, **options: Any
) -> tuple[int, list[tuple[str, str]]]:
    """Write the table of `predict` as CSV or Parquet; return (rows, bad images).

    Rows are scored and written in blocks, so that memory does not grow with them. Hints, which are
    matched to all rows at once, need all scores in memory.
    """
    run = open_run(run)
    decide, raw, top = (options.pop(name, None) for name in ("decide", "raw", "top"))
    rows, bad = 0, list[tuple[str, str]]()
    with TableWriter(path) as writer:
        for scores in run.score_parts(source, **options):
            writer.write(run.make_table(scores, decide, bool(raw), top))
            rows, bad = rows + len(scores.items), bad + scores.bad
    return rows, bad
