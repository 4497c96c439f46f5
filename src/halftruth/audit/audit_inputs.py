"""The files of an audit: labels, read as the user or a run says, and what to learn from."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from halftruth.audit.score_sources import run_reading_options
from halftruth.data import DataError, named_splits, read_column, read_labels
from halftruth.data.complete_rows import add_complete_rows
from halftruth.labels import PRESENT, LabelMatrix
from halftruth.reading import text_options
from halftruth.train.config import Config
from halftruth.train.inputs.feature_encoder import FeatureEncoder
from halftruth.train.inputs.feature_inputs import read_inputs, read_matrix
from halftruth.train.results.trained_run import TrainedRun

_WEIGHTS = ("label_weights", "weight_column")


@dataclass
class AuditInputs:
    """Labels, the chosen rows, images or features."""

    source: Path
    file: Path
    reading: dict[str, Any]
    whole: LabelMatrix
    rows: np.ndarray
    labels: LabelMatrix
    images: list[str]
    features: list[Path]
    matrix: np.ndarray | None
    groups: np.ndarray | None
    # The place of each row among those that the run has out-of-sample scores of; −1 if none.
    held: np.ndarray


def read_audit_inputs(
    source: Path,
    labels: str | Path | None,
    run: TrainedRun | None,
    images: Sequence[str | Path] | None,
    config: Config,
    split: str | None,
    group_column: str | None,
    reading: dict[str, Any] | None,
) -> AuditInputs:
    """Read the labels, choose their rows, and read the features if there are any."""
    file = Path(labels or (source if run is None else run.config.labels))
    stores = [str(Path(path)) for path in images or ()]
    options, complete = dict(reading or {}), config.complete_rows
    if run is not None:
        if complete is None and Path(run.config.labels).resolve() == file.resolve():
            complete = run.config.complete_rows
        options = {**run_reading_options(run, file), **options}
        stores = stores or list(run.config.images)
        config = dataclasses.replace(
            run.config,
            features=config.features or run.config.features,
            images=stores,
            reading_features=config.reading_features or run.config.reading_features,
        )
    features, others = config.features, [name for name in (group_column, config.text) if name]
    # First, so that a misspelt column is reported as --group-column, not as a dropped column.
    groups = None
    if group_column:
        groups = read_column(file, group_column, option="group_column", **text_options(options))
    if others:
        options["drop_columns"] = [*dict.fromkeys([*options.get("drop_columns", ()), *others])]
    given = read_labels(file, **options)
    if groups is not None and len(groups) != len(given):
        raise DataError(
            f"{file}: group_column (--group-column) has {len(groups):,} cells for {len(given):,} "
            "items, since rows of the same item were combined or files joined; keep one row per "
            "item in one file"
        )
    if complete is not None:
        given, _ = add_complete_rows(given, complete, options)
    _check_weights(given, reading or {}, trains=run is None and labels is None)
    given = given.ignore_weightless()
    rows = np.arange(len(given)) if split is None else _rows_of(given.split, split, file)
    if given.weights is not None:
        rows = rows[given.weights[rows].any(axis=1)]
    part = given.select(rows)
    if not (part.values == PRESENT).any():
        raise DataError(
            f"{file}: none of the labels of its {len(part):,} rows is present (1), so there is "
            "nothing to learn from; check the columns and the coding (--zero, --blank)"
        )
    matrix, held = None, np.full(len(rows), -1)
    if config.on_features and (run is not None or labels is None):
        config.reading = {**config.reading, **options}
        if run is not None:
            matrix = read_matrix(config, run.encoder, given, file, features, options)
            held = run.find_held_out(given, rows, matrix=matrix)
            matrix = matrix[rows]
        else:
            if images:
                raise DataError(
                    "images, features (--images, --features): expected one of the two for an audit "
                    "by folds; train a run on both, and audit that"
                )
            sources, texts, _ = read_inputs(config, given, file, features, options)
            # Without labels, since every row is scored by a model that must not know its label.
            fitted = FeatureEncoder.fit(sources, texts, None, rows, config.encoder)
            matrix = fitted.transform(sources, texts)[rows]
    elif run is not None and stores:
        held = run.find_held_out(given, rows, images=stores)
    groups = None if groups is None else groups[rows]
    paths = [Path(path) for path in features]
    return AuditInputs(
        source, file, options, given, rows, part, stores, paths, matrix, groups, held
    )


def _check_weights(labels: LabelMatrix, reading: dict[str, Any], *, trains: bool) -> None:
    """Refuse weights that change nothing: without training, only weights of 0 do."""
    named = [name for name in _WEIGHTS if name in reading]
    if named and not trains and labels.weights is not None and (labels.weights > 0).all():
        flag = named[0].replace("_", "-")
        raise DataError(
            f"{named[0]} (--{flag}): no effect, since nothing is trained and no weight is 0 (a "
            "label of weight 0 is unknown); leave it out"
        )


def _rows_of(column: np.ndarray | None, split: str, file: Path) -> np.ndarray:
    if split not in ("train", "val", "test"):
        raise DataError(f"split: expected train, val or test, got {split!r}")
    if column is None:
        raise DataError(
            f"{file}: there is no split column, so the part {split!r} cannot be chosen; leave out "
            "--split, or name the column with --split-column"
        )
    rows: np.ndarray = getattr(named_splits(column), split)
    if not len(rows):
        raise DataError(f"{file}: no row of the split column is in the part {split!r}")
    return rows
