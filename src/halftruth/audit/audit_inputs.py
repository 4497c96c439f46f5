"""The labels of an audit: the data of a run or of a label file, read as in training."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from halftruth.data import DataError
from halftruth.data.complete_rows import add_complete_rows
from halftruth.labels import PRESENT, LabelMatrix
from halftruth.train.config import Config
from halftruth.train.results.trained_run import TrainedRun
from halftruth.train.task import (
    choose_groups,
    find_reading_options,
    is_same_file,
    read_groups,
    read_label_rows,
    reading_options,
    select_rows,
)

_WEIGHTS = ("label_weights", "weight_column")


@dataclass
class AuditInputs:
    """The labels of a file, how they were read, and the rows that are audited."""

    config: Config
    reading: dict[str, Any]
    whole: LabelMatrix
    rows: np.ndarray
    groups: np.ndarray | None

    @property
    def file(self) -> Path:
        return Path(self.config.labels)

    @property
    def labels(self) -> LabelMatrix:
        """The labels of the audited rows."""
        return self.whole.select(self.rows)

    def describe(self) -> str:
        weights, text = self.whole.weights, self.whole.describe()
        if weights is None or weights.any(axis=1).all():
            return text
        count = np.count_nonzero(~weights.any(axis=1))
        return f"{text}\n{count:,} rows have the weight 0 and are left out"


def add_run(config: Config, run: TrainedRun) -> Config:
    """The data of an audit with the scores of a run: its own, where nothing else is given.

    Its label file, and files with its column of text, are read as in training.
    """
    if config.text or config.encoder:
        raise DataError(
            "text, encoder (--text, --encoder): the run has its own; leave them out, or give only "
            "the label file to train by folds"
        )
    own = run.config
    same = is_same_file(own.labels, config.labels)
    reading = find_reading_options(own, config.labels)
    return dataclasses.replace(
        own,
        labels=config.labels,
        images=config.images or own.images,
        features=config.features or own.features,
        reading={**reading, **config.reading},
        reading_features=config.reading_features or own.reading_features,
        group_column=config.group_column,
        complete_rows=config.complete_rows or (own.complete_rows if same else None),
    )


def read_audit_inputs(config: Config, split: str | None) -> AuditInputs:
    """Read the labels and choose their rows."""
    # First, so that a misspelt column is reported as --group-column, not as a dropped column.
    groups, reading, file = read_groups(config), reading_options(config), config.labels
    labels = read_label_rows(config, file, reading)
    groups = choose_groups(config, groups, labels)
    if config.complete_rows:
        labels, _ = add_complete_rows(labels, config.complete_rows, reading)
    labels = labels.ignore_weightless()
    rows = select_rows(labels, file, split)
    if not (labels.values[rows] == PRESENT).any():
        raise DataError(
            f"{file}: none of the labels of its {len(rows):,} rows is present (1), so there is "
            "nothing to learn from; check the columns and the coding (--zero, --blank)"
        )
    return AuditInputs(config, reading, labels, rows, None if groups is None else groups[rows])


def refuse_idle_weights(labels: LabelMatrix, reading: Mapping[str, object]) -> None:
    """Refuse weights that change nothing: without training, only weights of 0 do."""
    named = [name for name in _WEIGHTS if name in reading]
    if named and labels.weights is not None and (labels.weights > 0).all():
        flag = named[0].replace("_", "-")
        raise DataError(
            f"{named[0]} (--{flag}): no effect, since nothing is trained and no weight is 0 (a "
            "label of weight 0 is unknown); leave it out"
        )
