"""What a run left behind, read for its figures: text files only, no weights."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from halftruth import losses
from halftruth.data import DataError
from halftruth.train.journal import HISTOGRAMS, METRICS
from halftruth.train.probability_records import GROUPS, cut_of
from halftruth.train.config import read_settings


class NotRecorded(DataError):
    """A figure needs what these runs did not keep."""


@dataclass
class Record:
    """A run's settings, its epochs, its histograms, and its classes where it is finished."""

    name: str
    folder: Path
    config: dict[str, Any]
    epochs: pd.DataFrame
    histograms: list[dict[str, Any]]
    classes: pd.DataFrame | None
    result: dict[str, Any]

    @property
    def method(self) -> str:
        return str(self.config.get("method", ""))

    @cached_property
    def tau(self) -> float:
        """Above which probability the method takes an unknown label for present."""
        return cut_of(losses.create(self.method, **self.config.get("options", {})))

    def counts(self, part: str, group: str) -> np.ndarray:
        """(epochs, bins) how many labels of a group have their probability in each bin."""
        found = [line.get(part, {}).get(group) for line in self.histograms]
        width = next((len(bins) for bins in found if bins), 0)
        return np.array([bins or [0] * width for bins in found], dtype=np.int64)

    def class_counts(self, part: str) -> np.ndarray | None:
        """(K, groups, bins) of the best epoch, None where they were not kept."""
        path = self.folder / "class_histograms.npz"
        if not path.is_file():
            return None
        with np.load(path) as file:
            found: np.ndarray | None = file.get(part)
        return found

    def part_with(self, *groups: str) -> str:
        """Where all these groups were seen: in training rows, else in validation rows."""
        for part in ("train", "val"):
            if all(self.counts(part, group).sum() for group in groups):
                return part
        raise NotRecorded(
            f"{self.folder}: its epochs hold no {' and '.join(groups)} labels; hidden and negative "
            "ones are known where the complete labels are given: halftruth train ... --truth FILE"
        )

    def groups(self, part: str) -> list[str]:
        return [group for group in GROUPS if self.counts(part, group).sum()]


def read_run(folder: str | Path) -> Record:
    """The records of the run in a folder; it may still be going on."""
    folder = Path(folder)
    config = read_settings(folder)
    epochs = pd.DataFrame(_lines(folder / METRICS))
    if epochs.empty:
        raise DataError(f"{folder}: there is nothing to draw before the first epoch has ended")
    # Stages follow each other: their epochs are counted on.
    epochs.insert(0, "number", range(1, len(epochs) + 1))
    table, result = folder / "classes.csv", folder / "result.json"
    return Record(
        name=folder.resolve().name,
        folder=folder,
        config=config,
        epochs=epochs,
        histograms=_aligned(_lines(folder / HISTOGRAMS), epochs),
        classes=pd.read_csv(table) if table.is_file() else None,
        result=json.loads(result.read_text(encoding="utf-8")) if result.is_file() else {},
    )


def read_runs(folders: Sequence[str | Path]) -> list[Record]:
    """Several runs, told apart by as much of their paths as it takes."""
    runs = [read_run(folder) for folder in folders]
    if len({run.folder.resolve() for run in runs}) < len(runs):
        raise DataError(f"expected each run once, got {', '.join(map(str, folders))}")
    depth = 1
    while len({run.name for run in runs}) < len(runs):
        depth += 1
        for run in runs:
            run.name = "/".join(run.folder.resolve().parts[-depth:])
    return runs


def _aligned(lines: list[dict[str, Any]], epochs: pd.DataFrame) -> list[dict[str, Any]]:
    """A line an epoch: empty ones where a run was begun by a version that kept none."""
    kept = {(line["stage"], line["epoch"]): line for line in lines}
    return [kept.get(key, {}) for key in zip(epochs["stage"], epochs["epoch"], strict=True)]


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
