"""A trained run, opened again: scores, predictions, evaluation."""

import dataclasses
import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from halftruth.data import DataError, ImageStore, decode_all, read_features
from halftruth.data.decode_images import describe_bad
from halftruth.data.transforms import Augment
from halftruth.labels import LabelMatrix
from halftruth.models import Classifier, build_image_model
from halftruth.train import checkpoint
from halftruth.train.build import head_model
from halftruth.train.checkpoint_files import BEST
from halftruth.train.config import Config, check_device, read_settings
from halftruth.train.devices import make_accelerator
from halftruth.train.inputs import Features, Images, Inputs
from halftruth.train.journal import Journal
from halftruth.train.output_tables import prediction_table, write_table
from halftruth.train.scoring import outputs
from halftruth.train.task import feature_options

# Decoded pixels that are held at once.
_BLOCK_BYTES = 256 << 20

Source = str | Path | Sequence[str | Path]


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
        values = read_settings(self.folder)
        strange = values.keys() - {field.name for field in dataclasses.fields(Config)}
        if strange:
            raise checkpoint.CheckpointError(
                f"{self.folder}: config.yaml has settings that this version of halftruth does not "
                f"know: {', '.join(sorted(strange))}"
            )
        check_device(device)
        # Not checked further: files that training needed may be gone by now.
        self.config = dataclasses.replace(Config(**values), device=device)
        self.saved = checkpoint.load(self.folder / BEST)
        self.classes: tuple[str, ...] = tuple(self.saved["identity"]["classes"])
        # The number of features of a row; None where the run looks at images.
        self.inputs: int | None = self.saved["identity"]["inputs"]
        # The precision of training may be one that this device does not have.
        self.accelerator = make_accelerator(dataclasses.replace(self.config, precision="no"))
        self.journal = Journal(None, quiet=quiet)

    @cached_property
    def thresholds(self) -> np.ndarray:
        """The cut of each class, fitted on validation; 0.5 where the run did not get so far."""
        path = self.folder / "result.json"
        if not path.exists():
            warnings.warn(
                f"{self.folder}: training is not finished, so there are no fitted thresholds; "
                "0.5 is taken for all classes",
                stacklevel=2,
            )
            return np.full(len(self.classes), 0.5)
        return np.array(json.loads(path.read_text(encoding="utf-8"))["thresholds"])

    @cached_property
    def model(self) -> Classifier:
        """The best weights, ready to answer."""
        config = self.config
        if self.inputs is not None:
            model = head_model(config, self.inputs, len(self.classes))
        else:
            model = build_image_model(
                config.backbone,
                len(self.classes),
                weights="none",
                image_size=config.image_size,
                head=config.head,
            )
        try:
            model.load_state_dict(self.saved["model"])
        except RuntimeError as error:
            raise checkpoint.CheckpointError(
                f"{self.folder / BEST} and config.yaml do not belong together: {error}"
            ) from error
        return model.to(self.accelerator.device).eval()

    def score(
        self,
        *,
        images: Source | None = None,
        features: str | Path | np.ndarray | None = None,
        items: Sequence[str] | None = None,
        bad_images: str = "skip",
        workers: int | None = None,
    ) -> Scores:
        """Probabilities of a feature matrix, or of images (all of the folder, or those named)."""
        if (images is None) == (features is None):
            kind = "images" if self.inputs is None else "features"
            raise DataError(
                f"{self.folder}: was trained on {kind}; expected them (--{kind}) and nothing else, "
                f"got {'neither images nor features' if images is None else 'both'}"
            )
        names = None if items is None else [str(item) for item in items]
        if features is not None:
            return self._score_features(features, names)
        assert images is not None
        return self._score_images(images, names, bad_images, workers)

    def read_features(self, path: str | Path, labels: LabelMatrix | None = None) -> np.ndarray:
        """A matrix of features, read as in training."""
        return read_features(path, labels=labels, **feature_options(self.config, path))

    def _score_features(self, source: str | Path | np.ndarray, names: list[str] | None) -> Scores:
        if self.inputs is None:
            raise DataError(f"{self.folder}: was trained on images, not on features")
        matrix = source if isinstance(source, np.ndarray) else self.read_features(source)
        if matrix.ndim != 2 or matrix.shape[1] != self.inputs:
            raise DataError(
                f"{self.folder}: was trained on {self.inputs:,} features a row, got a matrix of "
                f"shape {matrix.shape}"
            )
        if names is None:
            names = [str(row) for row in range(len(matrix))]
        if len(names) != len(matrix):
            raise DataError(f"expected {len(matrix):,} items, one a row, got {len(names):,}")
        return Scores(names, self._probabilities(Features(matrix), np.arange(len(matrix))), [])

    def _score_images(
        self, source: Source, names: list[str] | None, bad_images: str, workers: int | None
    ) -> Scores:
        if self.inputs is not None:
            raise DataError(f"{self.folder}: was trained on features, not on images")
        if bad_images not in ("skip", "fail"):
            raise DataError(f"bad_images: expected skip or fail, got {bad_images!r}")
        store = ImageStore(source)
        names = store.names() if names is None else names
        if not names:
            raise DataError(f"there are no images in {store!r}")
        size, threads = self.model.image_size, self.config.workers if workers is None else workers
        augment = Augment.preset("none", size, self.model.mean, self.model.std)
        block = max(_BLOCK_BYTES // (3 * size * size), 1)
        kept: list[str] = []
        parts: list[np.ndarray] = []
        bad: list[tuple[str, str]] = []
        with self.journal.progress("images", len(names)) as advance:
            for at in range(0, len(names), block):
                some = names[at : at + block]
                done = decode_all(
                    store, some, size, workers=max(threads, 1), on_bad="skip", progress=advance
                )
                good = np.flatnonzero(done.good)
                inputs = Images(store, some, size, augment=augment, pixels=done.pixels)
                parts.append(self._probabilities(inputs, good))
                kept += [some[row] for row in good]
                bad += done.bad
        if bad and bad_images == "fail":
            raise DataError(describe_bad(bad, len(names)))
        return Scores(kept, np.concatenate(parts), bad)

    def _probabilities(self, inputs: Inputs, rows: np.ndarray) -> np.ndarray:
        if len(rows) == 0:
            return np.zeros((0, len(self.classes)))
        logits = outputs(self.model, inputs, rows, self.accelerator, 2 * self.config.batch_size)
        return torch.sigmoid(logits.double()).cpu().numpy()


def opened(run: TrainedRun | str | Path) -> TrainedRun:
    """A run, or the run in a folder."""
    return run if isinstance(run, TrainedRun) else TrainedRun(run)


def predict(run: TrainedRun | str | Path, **source: Any) -> pd.DataFrame:
    """A table of items: name, chosen labels (joined by |), then the probability of each class.

    `source` is what `TrainedRun.score` takes: `images=` or `features=`.
    """
    run = opened(run)
    scores = run.score(**source)
    return prediction_table(scores.items, scores.probabilities, run.classes, run.thresholds)


def write_predictions(
    run: TrainedRun | str | Path, path: Path, **source: Any
) -> tuple[int, list[tuple[str, str]]]:
    """Write the table of `predict` as CSV or Parquet; (rows, bad images)."""
    run = opened(run)
    scores = run.score(**source)
    table = prediction_table(scores.items, scores.probabilities, run.classes, run.thresholds)
    write_table(table, path)
    return len(table), scores.bad
