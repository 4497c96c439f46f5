"""Rows that a model was not fitted on, with their logits and labels: one record for all uses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from halftruth.labels import LabelMatrix
from halftruth.train.run_folder import OUT_OF_SAMPLE, CheckpointError

# The parts of a run that have scores, and what their rows are called. An ensemble without
# validation rows has scores of its training rows instead, by members that were not fitted to them.
HELD_OUT = "out_of_sample"
PARTS = {"val": "validation", HELD_OUT: "out-of-sample", "test": "test"}


@dataclass(frozen=True)
class ScoredRows:
    """Numbers, names, labels (n, K) and logits (n, K) of rows the model was not fitted on."""

    rows: np.ndarray
    items: np.ndarray
    labels: np.ndarray
    logits: np.ndarray

    @classmethod
    def of(cls, labels: LabelMatrix, rows: np.ndarray, logits: np.ndarray) -> "ScoredRows":
        """Return the record of some rows of a label matrix."""
        items: Sequence[str] | np.ndarray | None = [f"row {row + 1}" for row in rows]
        if labels.items is not None:
            items = [str(labels.items[row]) for row in rows]
        return cls(rows, np.asarray(items, dtype=str), labels.take(rows), logits)

    @classmethod
    def from_checkpoint(cls, best: Mapping[str, Any], labels: LabelMatrix) -> "ScoredRows":
        """Return the rows and logits that the checkpoint of an ensemble has."""
        held = best[HELD_OUT]
        return cls.of(labels, held["rows"].numpy(), held["logits"].double().numpy())

    @classmethod
    def read(cls, folder: Path) -> "ScoredRows":
        """Read out_of_sample.npz of a run folder."""
        path = folder / OUT_OF_SAMPLE
        try:
            # `np.load` of a path leaves a damaged file open.
            with path.open("rb") as given, np.load(given) as file:
                found = cls(*(file[key] for key in ("rows", "items", "labels", "logits")))
            found._check()
            return found
        except (OSError, EOFError, ValueError, KeyError, BadZipFile) as error:
            raise CheckpointError(
                f"cannot read {path}: {type(error).__name__}: {error}. It is written at the end of "
                f"training; `halftruth train --resume --out {folder}` writes it again"
            ) from error

    def _check(self) -> None:
        shapes = {self.rows.shape, self.items.shape, self.labels.shape[:1]}
        if shapes != {(len(self.logits),)} or self.labels.shape != self.logits.shape:
            raise ValueError("its rows, items, labels and logits do not have one shape")
        if not (np.isfinite(self.logits).all() and np.isin(self.labels, (-1, 0, 1)).all()):
            raise ValueError("expected finite logits, and labels of 1, 0 and -1")

    def to_arrays(self) -> dict[str, object]:
        """Return what is written to out_of_sample.npz."""
        exact = {"labels": self.labels.astype(np.int8), "logits": self.logits.astype(np.float32)}
        return {"rows": self.rows, "items": self.items, **exact}

    def find(self, keys: np.ndarray, names: bool = False) -> np.ndarray:
        """Return the place here of rows, by their numbers or by the names of items; −1 if none."""
        own = self.items if names else self.rows
        place = {key: k for k, key in enumerate(own.tolist())}
        return np.array([place.get(key, -1) for key in keys.tolist()], dtype=np.intp)
