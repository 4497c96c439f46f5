"""A model that is trained by epochs: a network on images or text, or a head on features."""

import time
from typing import Any

import torch
from torch import Tensor

from halftruth import losses
from halftruth.models import Classifier
from halftruth.train.auto.resolve import resolve_auto
from halftruth.train.config import AUTO
from halftruth.train.devices import catch_stop_signals
from halftruth.train.plans.ensemble import fit_ensemble_to_run
from halftruth.train.plans.plan import FittedModel, Plan, Work
from halftruth.train.plans.stages import Stages
from halftruth.train.run_logger import format_time
from halftruth.train.settings import BEST
from halftruth.train.teacher import (
    ESTIMATES,
    estimate_labels,
    make_teacher_of_estimates,
    save_estimates,
)
from halftruth.train.trainer import Teacher

Ensemble = tuple[Classifier, dict[str, Any]]
# Images of which the time is measured, and a time that needs no line.
_TIMED, _WORTH_SAYING = 4, 90.0


class NetworkPlan(Plan):
    """Train by epochs with the loss of the run, and keep the best weights."""

    def __init__(self, teacher: Teacher | None = None) -> None:
        """`teacher`: what the loss learns from before it trains, if it needs a trained model."""
        self.teacher = teacher
        # The ensemble on the features before training, fitted once for all that need it.
        self.frozen: Ensemble | None = None

    def fit(self, work: Work) -> FittedModel:
        config, teacher = work.config, self.teacher
        estimates = work.folder / ESTIMATES
        if losses.registry.get(config.method).teacher_on_features:
            if work.saved is None or not estimates.exists():
                self._estimate_labels(work)
            teacher = make_teacher_of_estimates(estimates, work.accelerator)
        work.begin()
        with catch_stop_signals() as stop_asked:
            frozen = (lambda x: self._fit_frozen(work, x)) if config.quality == BEST else None
            stages = Stages(work, stop_asked, teacher, frozen)
            reached = stages.train(work.model, work.inputs)
        best, model, inputs = stages.load_best(work.model, work.inputs)
        return FittedModel(model, inputs, None, best, reached.criterion, reached.kept)

    def _estimate_labels(self, work: Work) -> None:
        """Write P(present) of the training rows for a method that leans towards it."""
        features = work.extract_features(work.model, work.inputs).float()
        if work.main:
            found = self._fit_frozen(work, features)
            save_estimates(
                work.folder / ESTIMATES, estimate_labels(work.config, work.task, found[1])
            )
        work.accelerator.wait_for_everyone()

    def _fit_frozen(self, work: Work, features: Tensor) -> Ensemble:
        if self.frozen is None:
            self.frozen = fit_ensemble_to_run(work, features.cpu().numpy())
        return self.frozen


def describe_cpu_time(work: Work) -> str | None:
    """Return a line with the expected time on a CPU and what takes less; None where it is short.

    Measured on a few random images, before the images of the run are read.
    """
    config, task, model = work.config, work.task, work.model
    on_cpu = work.accelerator.device.type == "cpu"
    if not on_cpu or not model.image_size or config.tune == "head" or work.saved is not None:
        return None
    forward, step = _time_passes(model)
    epochs = config.epochs
    if config.method == AUTO:
        epochs = resolve_auto(config, task.labels.values[task.splits.train], 1)[0].epochs
    rows = {name: len(part) for name, part in vars(task.splits).items()}
    train = epochs * (rows["train"] * step + rows["val"] * forward)
    once = sum(rows.values()) * forward
    if train + once < _WORTH_SAYING:
        return None
    line = (
        f"on this CPU, training the network takes about {format_time(train + once)} "
        f"({rows['train']:,} images, {epochs} epochs)"
    )
    if config.method == AUTO:
        line += f"; --quality fast, an ensemble on its features, about {format_time(once)}"
    return line


def _time_passes(model: Classifier) -> tuple[float, float]:
    """Return the seconds per image of a forward pass, and of a step of training."""
    x = torch.randn(_TIMED, 3, model.image_size, model.image_size)
    was_training, state = model.training, torch.get_rng_state()
    model.eval()
    found = []
    for train in (False, False, True):
        started = time.perf_counter()
        with torch.set_grad_enabled(train):
            loss = model(x).sum()
            if train:
                used = [p for p in model.parameters() if p.requires_grad]
                torch.autograd.grad(loss, used, allow_unused=True)
        found.append((time.perf_counter() - started) / _TIMED)
    model.train(was_training)
    torch.set_rng_state(state)
    # The first pass also allocates.
    return found[1], found[2]
