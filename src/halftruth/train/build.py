"""From a task to a model and its inputs: images decoded once, features extracted once."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from halftruth.data.transforms import Augment
from halftruth.models import (
    Classifier,
    build_feature_model,
    build_image_model,
    set_standardization,
)
from halftruth.train.config import Config
from halftruth.train.inputs import Images, Inputs, decode, stamp
from halftruth.train.journal import Journal
from halftruth.train.scoring import outputs
from halftruth.train.task import Task


def build_model(config: Config, task: Task) -> Classifier:
    """The model that is trained, as it starts."""
    torch.manual_seed(config.seed)
    if task.features is not None:
        return standardized_head(config, task, torch.from_numpy(task.features))
    return build_image_model(
        config.backbone,
        len(task.classes),
        weights=config.weights,
        image_size=config.image_size,
        head=config.head,
        dropout=config.dropout,
    )


def head_model(config: Config, dim: int, classes: int) -> Classifier:
    """A head over features, as it starts; drawn from torch's random state."""
    return build_feature_model(
        dim, classes, hidden=config.hidden, head=config.head, dropout=config.dropout
    )


def standardized_head(config: Config, task: Task, features: Tensor) -> Classifier:
    """A head over features, which are standardised as in the training rows."""
    torch.manual_seed(config.seed)
    model = head_model(config, features.shape[1], len(task.classes))
    set_standardization(model, features[torch.from_numpy(task.splits.train)])
    return model


def image_inputs(
    config: Config, task: Task, model: Classifier, journal: Journal, accelerator: Accelerator
) -> tuple[Images, list[tuple[str, str]]]:
    """The task's images, decoded once at the model's size, and the bad ones."""
    assert task.store is not None
    names, size = task.names, model.image_size
    with (
        accelerator.main_process_first(),
        journal.progress("reading images", len(names)) as advance,
    ):
        pixels, bad = decode(
            task.store,
            names,
            size,
            cache=config.cache,
            folder=Path(config.cache_dir or Path(config.out) / "cache"),
            workers=max(config.workers, 1),
            shared=accelerator.num_processes > 1,
            progress=advance,
        )
    augment = Augment.preset(config.augment, size, model.mean, model.std)
    images = Images(task.store, names, size, augment=augment, workers=config.workers, pixels=pixels)
    return images, bad


def extract_features(
    config: Config,
    task: Task,
    model: Classifier,
    inputs: Inputs,
    journal: Journal,
    accelerator: Accelerator,
) -> Tensor:
    """Features of all rows, once; kept on disk for the next run over the same images."""
    rows = np.sort(np.concatenate([*vars(task.splits).values()]))
    folder = Path(config.cache_dir or Path(config.out) / "cache")
    path = folder / f"features-{_features_key(config, task, model, rows)}.npy"
    accelerator.wait_for_everyone()
    if path.exists():
        return torch.from_numpy(np.load(path))
    model.to(accelerator.device).eval()
    journal.say(f"extracting features of {len(rows):,} images with {config.backbone}")
    with journal.progress("extracting features", len(rows)) as advance:
        size = 2 * config.batch_size
        some = outputs(model.features, inputs, rows, accelerator, size, advance).cpu()
    # NaN, which no later step lets pass, where a row has no part and must not be used.
    features = torch.full((len(task.labels.values), some.shape[1]), torch.nan)
    features[torch.from_numpy(rows)] = some
    if accelerator.is_main_process:
        folder.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.{os.getpid()}.npy")
        try:
            np.save(new, features.numpy())
            os.replace(new, path)
        finally:
            new.unlink(missing_ok=True)
    accelerator.wait_for_everyone()
    return features


def _features_key(config: Config, task: Task, model: Classifier, rows: np.ndarray) -> str:
    """What a file of features depends on, as a name."""
    assert task.store is not None
    weights: Any = config.weights
    if weights not in ("pretrained", "none"):
        facts = os.stat(weights)
        weights = [str(Path(weights).resolve()), facts.st_size, facts.st_mtime_ns]
    seed = config.seed if config.weights == "none" else None
    names = task.names
    parts = [
        config.backbone,
        weights,
        seed,
        model.image_size,
        [names[row] for row in rows],
        rows.tolist(),
        stamp(task.store),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]
