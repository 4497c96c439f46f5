"""Two-stage pseudo-labels: a first model, trained by itself, labels what the second learns from."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from accelerate import Accelerator
from torch import Tensor

from halftruth import losses
from halftruth.losses import Loss
from halftruth.losses.pseudo_label import PseudoLabel
from halftruth.models import Classifier
from halftruth.train.auto import AUTO
from halftruth.train.config import Config
from halftruth.train.inputs import Inputs
from halftruth.train.loss_views import show_scores

FOLDER = "teacher"
# Fills in a loss's labels for these rows of the table; the tensor says which sample a row is.
Teacher = Callable[[Loss, np.ndarray, Tensor], None]


def teacher_config(config: Config) -> Config | None:
    """The first of two trainings, with the base loss alone; None for a method that has but one."""
    if config.method == AUTO or losses.registry.get(config.method) is not PseudoLabel:
        return None
    options = dict(config.options)
    base: Any = options.pop("base", losses.registry.signature("pseudo-label")["base"].default)
    described = {"name": base} if isinstance(base, str) else dict(base)
    if "reduction" in options:
        described["reduction"] = options["reduction"]
    out = Path(config.out)
    return dataclasses.replace(
        config,
        method=described.pop("name"),
        options=described,
        out=str(out / FOLDER),
        report=False,
        # What was decoded and extracted for the first training serves the second.
        cache_dir=config.cache_dir or str(out / "cache"),
    )


def teacher(
    model: Classifier, inputs: Inputs, accelerator: Accelerator, batch_size: int
) -> Teacher:
    """A trained model as the one that labels a training set."""

    def label(loss: Loss, rows: np.ndarray, place: Tensor) -> None:
        assert isinstance(loss, PseudoLabel)
        model.to(accelerator.device)
        show_scores(loss.fill_in, model, inputs, rows, place, accelerator, batch_size)
        if accelerator.num_processes > 1:
            loss.merge(accelerator.gather)
        loss.relabel()

    return label
