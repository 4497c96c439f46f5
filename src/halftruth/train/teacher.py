"""Teachers of a loss: a first training, or an ensemble on the features before training."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from halftruth import losses
from halftruth.losses import Loss
from halftruth.models import Classifier
from halftruth.train.config import PLANS, Config
from halftruth.train.inputs.batches import Inputs
from halftruth.train.results.run_result import decide_without_complete_labels, read_label_bias
from halftruth.train.run_folder import replace_file
from halftruth.train.scored_rows import ScoredRows
from halftruth.train.scoring import send_scores
from halftruth.train.task import Task
from halftruth.train.trainer import Teacher

# The folder of the first training.
TEACHER = "teacher"
# P(present) of the labels of the training rows, by an ensemble on the features before training.
ESTIMATES = "estimates.npz"
# Rows per call of the loss, and the distance of estimates from 0 and 1.
_ROWS, _CLAMP = 4096, 1e-4


def make_teacher_config(config: Config) -> Config | None:
    """Return the settings of the first of two trainings; None for methods with one training."""
    if config.method in PLANS:
        return None
    described = losses.registry.get(config.method).teacher_loss(config.options)
    if described is None:
        return None
    method, options = described
    out = Path(config.out)
    return dataclasses.replace(
        config,
        method=method,
        options=options,
        out=str(out / TEACHER),
        report=False,
        # The second training uses the images and features that the first has cached.
        cache_dir=config.cache_dir or str(out / "cache"),
    )


def make_teacher(
    model: Classifier, inputs: Inputs, accelerator: Accelerator, batch_size: int
) -> Teacher:
    """Return a function that lets a loss learn from a trained model."""

    def teach(loss: Loss, rows: np.ndarray, place: Tensor) -> None:
        model.to(accelerator.device)
        teach_batch = loss.learn_from_teacher
        send_scores(teach_batch, model, inputs, rows, place, accelerator, batch_size)
        if accelerator.num_processes > 1:
            loss.merge(accelerator.gather)
        loss.end_teaching()

    return teach


def estimate_labels(config: Config, task: Task, facts: Mapping[str, object]) -> np.ndarray:
    """Return P(present | x, label) (N, K) of the training rows.

    `facts`: what the checkpoint of an ensemble has. Its members were not fitted on the rows that
    they score.
    """
    given, bias = ScoredRows.from_checkpoint(facts, task.labels), read_label_bias(facts)
    present = decide_without_complete_labels(config, task, given, bias)[2]
    estimates = np.full(task.labels.values.shape, np.nan, np.float32)
    estimates[given.rows] = present.middle
    return estimates[task.splits.train]


def save_estimates(path: Path, estimates: np.ndarray) -> None:
    with replace_file(path) as new, new.open("wb") as file:
        np.savez_compressed(file, present=estimates.astype(np.float16))


def make_teacher_of_estimates(path: Path, accelerator: Accelerator) -> Teacher:
    """Return a function that gives a loss the estimates of a file."""
    with np.load(path) as file:
        p = torch.from_numpy(file["present"]).float().clamp(_CLAMP, 1 - _CLAMP)

    def teach(loss: Loss, rows: np.ndarray, place: Tensor) -> None:
        # Each process gives its part; `merge` brings them together.
        mine = torch.arange(accelerator.process_index, len(rows), accelerator.num_processes)
        for part in mine.split(_ROWS):
            loss.learn_from_teacher(torch.logit(p[part]).to(place.device), part.to(place.device))
        if accelerator.num_processes > 1:
            loss.merge(accelerator.gather)
        loss.end_teaching()

    return teach
