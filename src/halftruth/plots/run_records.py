"""The records of a run, read for its figures: text files and histograms, no weights."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from halftruth import losses
from halftruth.data import DataError
from halftruth.train.config import GIVEN, PLANS, read_settings
from halftruth.train.records import GROUPS
from halftruth.train.run_folder import RESULT, refuse_damage
from halftruth.train.run_logger import HISTOGRAMS, METRICS
from halftruth.train.scored_rows import PARTS

ROWS_OF = {"train": "training rows"} | {part: f"{name} rows" for part, name in PARTS.items()}
NO_EPOCHS = "its model is an ensemble, which is not trained by epochs"


class NotRecorded(DataError):
    """A figure needs records that these runs do not have."""


@dataclass
class Record:
    """A run's settings, epochs and histograms, and its classes and result if it is finished."""

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

    @property
    def is_ensemble(self) -> bool:
        """Whether the model is the ensemble of auto, which has no epochs to draw."""
        return "loss" not in self.epochs

    def create_loss(self) -> losses.Loss:
        """Create the loss of the run; a class that nobody has imported stays so.

        The folder may come from somebody else, and importing runs code.
        """
        if self.method in (*PLANS, GIVEN):
            raise NotRecorded(f"{self.folder}: {self.method} has no loss")
        options = self.config.get("options", {})
        for module, name in re.findall(r"([\w.]+):([A-Za-z_]\w*)", f"{self.method} {options}"):
            if module not in sys.modules:
                raise NotRecorded(
                    f"{self.folder}: the figure needs {module}:{name}, which is not imported for a "
                    "figure; import it and draw in Python, with halftruth.plots"
                )
        return losses.create(self.method, **options)

    @cached_property
    def threshold(self) -> float:
        """The probability above which the method counts an unknown label as present."""
        return self.create_loss().pseudo_label_threshold

    def counts(self, part: str, group: str) -> np.ndarray:
        """(epochs, bins) number of labels of a group with a probability in each bin."""
        found = [line.get(part, {}).get(group) for line in self.histograms]
        width = next((len(bins) for bins in found if bins), 0)
        return np.array([bins or [0] * width for bins in found], dtype=np.int64)

    def class_counts(self, part: str) -> np.ndarray | None:
        """(K, groups, bins) counts of the best epoch; None if they were not recorded."""
        path = self.folder / "class_histograms.npz"
        if not path.is_file():
            return None
        with refuse_damage(path), path.open("rb") as given, np.load(given) as file:
            found: np.ndarray | None = file.get(part)
            if found is not None and self.classes is not None and len(found) != len(self.classes):
                raise ValueError(
                    f"expected {len(self.classes)} classes as in classes.csv, got {len(found)}"
                )
        return found

    def start_with(self, before: Record) -> Record:
        """The run with the state before training (a run that learnt nothing) as epoch 0."""
        first = before.epochs.iloc[:1].assign(number=0)
        epochs = pd.concat([first, self.epochs], ignore_index=True)
        return replace(self, epochs=epochs, histograms=[before.histograms[0], *self.histograms])

    def place(self, epoch: str) -> int:
        """The place of the "first" or "last" recorded epoch, or of the "best"."""
        recorded = [place for place, line in enumerate(self.histograms) if line]
        if epoch == "best":
            if not self.result:
                raise NotRecorded(f"{self.folder}: its best epoch is not known before the end")
            best = int(self.result["best_epoch"])
            same = (self.epochs["stage"] == self.result["best_stage"]) & (self.epochs["number"] > 0)
            return int(np.flatnonzero(same & (self.epochs["epoch"] == best))[-1])
        return recorded[0 if epoch == "first" else -1]

    def number(self, place: int) -> int:
        return int(self.epochs["number"].iloc[place])

    def part_with(self, *groups: str) -> str:
        """The rows that have labels of all these groups: "train", or else "val"."""
        for part in ("train", "val"):
            if all(self.counts(part, group).sum() for group in groups):
                return part
        if self.is_ensemble:
            raise NotRecorded(f"{self.folder}: {NO_EPOCHS}")
        raise NotRecorded(
            f"{self.folder}: its epochs have no {' and '.join(groups)} labels; hidden and negative "
            "labels are known if complete labels are given: halftruth train ... --truth FILE"
        )

    def groups(self, part: str) -> list[str]:
        return [group for group in GROUPS if self.counts(part, group).sum()]


def read_run(folder: str | Path) -> Record:
    """Read the records of the run in a folder; the run may still be in progress."""
    folder = Path(folder)
    config = read_settings(folder)
    epochs = pd.DataFrame(_read_lines(folder / METRICS))
    if epochs.empty:
        raise DataError(f"{folder}: there is nothing to draw before the end of the first epoch")
    # The epochs of later stages are counted on.
    epochs.insert(0, "number", range(1, len(epochs) + 1))
    # Histograms of epochs that were not recorded are empty.
    kept = {(line["stage"], line["epoch"]): line for line in _read_lines(folder / HISTOGRAMS)}
    histograms = [kept.get(key, {}) for key in zip(epochs["stage"], epochs["epoch"], strict=True)]
    classes, result = None, {}
    if (path := folder / "classes.csv").is_file():
        with refuse_damage(path):
            classes = pd.read_csv(path)
            if not {"class", "train_present"} <= set(classes) or not any(
                f"{part}_AP" in classes for part in PARTS
            ):
                raise ValueError("expected the columns class, train_present and val_AP")
    if (path := folder / RESULT).is_file():
        with refuse_damage(path):
            result = json.loads(path.read_text(encoding="utf-8"))
            if not {"best_stage", "best_epoch"} <= result.keys():
                raise ValueError("best_stage and best_epoch are missing")
            count = len(result.get("thresholds", classes if classes is not None else ()))
            if classes is not None and count != len(classes):
                raise ValueError(f"expected {len(classes)} thresholds, one per class, got {count}")
    name = folder.resolve().name
    return Record(name, folder, config, epochs, histograms, classes, result)


def read_runs(folders: Sequence[str | Path]) -> list[Record]:
    """Read several runs; equal names get as many parent folders as make them differ."""
    runs = [read_run(folder) for folder in folders]
    if len({run.folder.resolve() for run in runs}) < len(runs):
        raise DataError(f"expected each run once, got {', '.join(map(str, folders))}")
    depth = 1
    while len({run.name for run in runs}) < len(runs):
        depth += 1
        for run in runs:
            run.name = "/".join(run.folder.resolve().parts[-depth:])
    return runs


def _read_lines(path: Path) -> list[dict[str, object]]:
    """Read one JSON object per line; skip a last line that is still being written."""
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8", errors="replace")
    whole = text[: text.rfind("\n") + 1].splitlines()
    last = text[text.rfind("\n") + 1 :]
    with refuse_damage(path):
        records = [json.loads(line) for line in whole if line.strip()]
        with contextlib.suppress(ValueError):
            records += [json.loads(last)] if last.strip() else []
        for record in records:
            if not {"stage", "epoch"} <= record.keys():
                raise ValueError("a line has no stage and epoch")
    return records
