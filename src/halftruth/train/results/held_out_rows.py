"""Rows that the model of a run was not fitted on, with their logits and labels."""

from collections.abc import Mapping
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
class OutOfSample:
    """Logits of rows that the model was not fitted on."""

    rows: np.ndarray
    logits: np.ndarray

    @classmethod
    def from_checkpoint(cls, best: Mapping[str, Any]) -> "OutOfSample":
        """Return the logits that the checkpoint of an ensemble has."""
        held = best["out_of_sample"]
        return cls(held["rows"].numpy(), held["logits"].double().numpy())

    def to_arrays(self, labels: LabelMatrix) -> dict[str, Any]:
        """Return what is written to out_of_sample.npz: also the labels and names of the rows."""
        items: Any = [f"row {row + 1}" for row in self.rows]
        if labels.items is not None:
            items = [str(labels.items[row]) for row in self.rows]
        return {
            "rows": self.rows,
            "items": np.asarray(items, dtype=str),
            "labels": labels.values[self.rows].astype(np.int8),
            "logits": self.logits.astype(np.float32),
        }


@dataclass(frozen=True)
class HeldOutRows:
    """The content of out_of_sample.npz."""

    rows: np.ndarray
    items: np.ndarray
    labels: np.ndarray
    logits: np.ndarray

    def find(self, keys: np.ndarray, names: bool = False) -> np.ndarray:
        """Return the place here of rows, by their numbers or by the names of items; −1 if none."""
        own = self.items if names else self.rows
        place = {key: k for k, key in enumerate(own.tolist())}
        return np.array([place.get(key, -1) for key in keys.tolist()], dtype=np.intp)


def read_held_out_rows(folder: Path) -> HeldOutRows:
    """Read out_of_sample.npz of a run folder."""
    path = folder / OUT_OF_SAMPLE
    try:
        with np.load(path, allow_pickle=False) as file:
            return HeldOutRows(*(file[key] for key in ("rows", "items", "labels", "logits")))
    except (OSError, ValueError, KeyError, BadZipFile) as error:
        raise CheckpointError(
            f"cannot read {path}: {type(error).__name__}: {error}. It is written at the end of "
            f"training; `halftruth train --resume --out {folder}` writes it again"
        ) from error
