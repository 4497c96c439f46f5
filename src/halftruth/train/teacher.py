"""Methods with two trainings: a first model, the teacher, labels the rows for the second."""

import dataclasses
from pathlib import Path

import numpy as np
from accelerate import Accelerator
from torch import Tensor

from halftruth import losses
from halftruth.losses import Loss
from halftruth.models import Classifier
from halftruth.train.config import AUTO, Config
from halftruth.train.inputs.batches import Inputs
from halftruth.train.scoring import send_scores
from halftruth.train.trainer import Teacher

# The folder of the first training.
TEACHER = "teacher"


def make_teacher_config(config: Config) -> Config | None:
    """Return the settings of the first of two trainings; None for methods with one training."""
    if config.method == AUTO:
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
