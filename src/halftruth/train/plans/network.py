"""A model that is trained by epochs: a network on images or text, or a head on features."""

from typing import Any

from torch import Tensor

from halftruth import losses
from halftruth.models import Classifier
from halftruth.train.devices import catch_stop_signals
from halftruth.train.plans.ensemble import fit_ensemble_to_run
from halftruth.train.plans.plan import FittedModel, Plan, Work
from halftruth.train.plans.stages import Stages
from halftruth.train.settings import BEST
from halftruth.train.teacher import (
    ESTIMATES,
    estimate_labels,
    make_teacher_of_estimates,
    save_estimates,
)
from halftruth.train.trainer import Teacher

Ensemble = tuple[Classifier, dict[str, Any]]


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
