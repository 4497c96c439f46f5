"""A trained run, opened again: scores, predictions, evaluation."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from halftruth.data import DataError, ImageStore, choose_splits, named_splits, read_features
from halftruth.data import read_labels as read
from halftruth.labels import LabelMatrix
from halftruth.metrics import average_precision
from halftruth.metrics import evaluate as score_labels
from halftruth.models import Classifier, build_feature_model, build_image_model
from halftruth.train import checkpoint
from halftruth.train.config import Config
from halftruth.train.inputs import Features, Images, Inputs
from halftruth.train.journal import Journal
from halftruth.train.run import image_inputs, make_accelerator, read_settings
from halftruth.train.scores import outputs
from halftruth.train.task import Task, align_truth


@dataclass
class Scores:
    """Probabilities (N, K) of some items, and the images that could not be read."""

    items: list[str]
    probabilities: np.ndarray
    bad: list[tuple[str, str]]


class TrainedRun:
    """What `fit` left in a folder.

    run = TrainedRun("runs/first")
    run.score(images="photos/").probabilities
    """

    def __init__(self, folder: str | Path, *, device: str = "auto", quiet: bool = True) -> None:
        self.folder = Path(folder)
        # Not checked: files that training needed may be gone by now.
        self.config = Config(**read_settings(self.folder))
        self.config.device = device
        best = self.folder / "best.safetensors"
        self.saved = checkpoint.load(best)
        self.classes: tuple[str, ...] = tuple(self.saved["identity"]["classes"])
        self.accelerator = make_accelerator(self.config)
        self.journal = Journal(self.folder, main=False, quiet=quiet)

    @cached_property
    def thresholds(self) -> np.ndarray:
        """The cut of each class, fitted on validation; 0.5 where the run did not get so far."""
        path = self.folder / "result.json"
        if not path.exists():
            return np.full(len(self.classes), 0.5)
        return np.array(json.loads(path.read_text(encoding="utf-8"))["thresholds"])

    @cached_property
    def model(self) -> Classifier:
        """The best weights, ready to answer."""
        config, state = self.config, self.saved["model"]
        if self.saved["identity"]["backbone"] == "features":
            dim = int(self.saved["identity"]["inputs"])
            model = build_feature_model(dim, len(self.classes), hidden=config.hidden)
        else:
            model = build_image_model(
                config.backbone,
                len(self.classes),
                weights="none",
                image_size=config.image_size,
                head=config.head,
            )
        model.load_state_dict(state)
        return model.to(self.accelerator.device).eval()

    def score(
        self,
        *,
        images: str | Path | Sequence[str | Path] | None = None,
        features: str | Path | np.ndarray | None = None,
        items: Sequence[str] | None = None,
        bad_images: str = "skip",
        workers: int | None = None,
    ) -> Scores:
        """Probabilities of a feature matrix, or of images (all of the folder, or those named)."""
        if (images is None) == (features is None):
            raise DataError("expected images or features, and not both")
        if features is not None:
            matrix = features if isinstance(features, np.ndarray) else read_features(features)
            wanted = self.saved["identity"]["inputs"]
            if matrix.shape[1] != wanted:
                raise DataError(
                    f"the run was trained on {wanted or 'no'} features a row, got {matrix.shape[1]}"
                )
            names = [str(item) for item in items] if items is not None else _numbers(len(matrix))
            probabilities = self._probabilities(Features(matrix), np.arange(len(matrix)))
            return Scores(names, probabilities, [])
        if self.saved["identity"]["inputs"] is not None:
            raise DataError("the run was trained on features, not on images")
        store = ImageStore(images)  # type: ignore[arg-type]
        names = [str(item) for item in items] if items is not None else store.names()
        if not names:
            raise DataError(f"there are no images in {store!r}")
        labels = LabelMatrix(
            np.zeros((len(names), len(self.classes)), np.int8), self.classes, np.array(names)
        )
        task = Task(labels, choose_splits(2, val=0.5), store=store)
        config = dataclasses.replace(self.config, bad_images=bad_images, out=str(self.folder))
        config.workers = self.config.workers if workers is None else workers
        inputs, bad = image_inputs(config, task, self.model, self.journal, self.accelerator)
        lost = {name for name, _ in bad}
        rows = np.array([row for row, name in enumerate(names) if name not in lost], dtype=int)
        return Scores([names[row] for row in rows], self._probabilities(inputs, rows), bad)

    def _probabilities(self, inputs: Inputs | Images | Features, rows: np.ndarray) -> np.ndarray:
        if len(rows) == 0:
            return np.zeros((0, len(self.classes)))
        logits = outputs(self.model, inputs, rows, self.accelerator, 2 * self.config.batch_size)
        return torch.sigmoid(logits.double()).cpu().numpy()


def predict(run: TrainedRun, **source: Any) -> pd.DataFrame:
    """A table of items: name, chosen labels (joined by |), then the probability of each class."""
    return prediction_table(run, run.score(**source))


def prediction_table(run: TrainedRun, scores: Scores) -> pd.DataFrame:
    """Names, chosen labels and probabilities of scored items."""
    chosen = scores.probabilities > run.thresholds
    names = np.array(run.classes, dtype=object)
    table = pd.DataFrame({"item": scores.items})
    table["labels"] = ["|".join(names[row]) for row in chosen]
    return pd.concat([table, pd.DataFrame(scores.probabilities, columns=list(names))], axis=1)


def write_predictions(
    run: TrainedRun, path: Path, **source: Any
) -> tuple[int, list[tuple[str, str]]]:
    """Write the table of `predict` as CSV or Parquet; (rows, bad images)."""
    scores = run.score(**source)
    table = prediction_table(run, scores)
    if path.suffix == ".parquet":
        table.to_parquet(path, index=False)
    else:
        table.to_csv(path, index=False, float_format="%.6g")
    return len(table), scores.bad


def evaluate(
    run: TrainedRun,
    labels: str | Path,
    *,
    images: str | Path | Sequence[str | Path] | None = None,
    features: str | Path | None = None,
    split: str | None = None,
    reading: dict[str, Any] | None = None,
    **options: Any,
) -> tuple[dict[str, float], pd.DataFrame, list[tuple[str, str]]]:
    """(metrics, a table of classes, bad images) of a run on a label file.

    Classes are matched by name. `split` takes the rows of one part of a split column. Labels that
    are not present count as absent unless `ignore_unknown=True`.
    """
    given = read(labels, **(reading or {}))
    missing = [name for name in run.classes if name not in given.classes]
    if missing:
        raise DataError(f"{labels}: the run knows classes that the labels lack: {missing}")
    values = given.values[:, [given.classes.index(name) for name in run.classes]]
    rows = np.arange(len(values))
    if split is not None:
        if given.split is None:
            raise DataError(f"{labels}: there is no split column, so no part {split!r}")
        rows = getattr(named_splits(given.split), split, np.empty(0, int))
        if not len(rows):
            raise DataError(f"{labels}: no row belongs to the part {split!r}")
    items = None if given.items is None else [str(given.items[row]) for row in rows]
    if features is not None:
        matrix = read_features(features, rows=len(values))[rows]
        scores = run.score(features=matrix, items=items)
    else:
        if items is None:
            raise DataError(f"{labels}: the file names no images")
        scores = run.score(images=images, items=items, bad_images="skip")
        lost = {name for name, _ in scores.bad}
        rows = np.array([row for row, item in zip(rows, items, strict=True) if item not in lost])
    truth = values[rows]
    metrics = score_labels(scores.probabilities, truth, threshold=run.thresholds, **options)
    ignore = bool(options.get("ignore_unknown", False))
    table = pd.DataFrame(
        {
            "class": run.classes,
            "present": (truth > 0).sum(axis=0),
            "AP": average_precision(scores.probabilities, truth, ignore_unknown=ignore),
            "threshold": run.thresholds,
        }
    )
    return metrics, table, scores.bad


def _numbers(count: int) -> list[str]:
    return [str(row) for row in range(count)]


__all__ = ["Scores", "TrainedRun", "align_truth", "evaluate", "predict"]
