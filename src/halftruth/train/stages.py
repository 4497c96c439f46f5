"""The stages of a run: the head on extracted features, the whole network, or both."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from halftruth import losses
from halftruth.models import (
    Classifier,
    build_feature_model,
    build_image_model,
    freeze_batchnorm,
    set_standardization,
    transfer_head,
)
from halftruth.train.config import Config
from halftruth.train.inputs import Features, Inputs
from halftruth.train.journal import Journal
from halftruth.train.run_folder import HEAD, Checkpoints, load_checkpoint
from halftruth.train.scoring import extract_features
from halftruth.train.task import Task
from halftruth.train.trainer import Progress, Stage, Teacher

PLANS = {"head": ("head",), "all": ("all",), "head-first": ("head", "all")}


def build_model(config: Config, task: Task) -> Classifier:
    """Return the untrained model of a run."""
    torch.manual_seed(config.seed)
    if task.features is not None:
        return build_standardized_head(config, task, torch.from_numpy(task.features))
    return build_image_model(
        config.backbone,
        len(task.classes),
        weights=config.weights,
        image_size=config.image_size,
        head=config.head,
        dropout=config.dropout,
    )


def build_head(config: Config, dim: int, classes: int) -> Classifier:
    """Return a head on features, initialised from torch's random state."""
    return build_feature_model(
        dim, classes, hidden=config.hidden, head=config.head, dropout=config.dropout
    )


def build_standardized_head(config: Config, task: Task, features: Tensor) -> Classifier:
    """Return a head on features that are standardised by the training rows."""
    torch.manual_seed(config.seed)
    model = build_head(config, features.shape[1], len(task.classes))
    set_standardization(model, features, torch.from_numpy(task.splits.train))
    if task.encoder is not None and (columns := task.encoder.one_scale) is not None:
        # Between one scale for all terms and one per term, which would favour rare terms.
        std = model.backbone[0].std  # type: ignore[index]
        std[columns] = (std[columns] * std[columns].mean()).sqrt()
    return model


@dataclass
class Stages:
    """The stages of a run: `train` runs them, `load_best` returns the best model."""

    config: Config
    task: Task
    accelerator: Accelerator
    journal: Journal
    folder: Path
    identity: dict[str, Any]
    stop_asked: Callable[[], bool]
    teacher: Teacher | None = None

    def train(self, model: Classifier, inputs: Inputs, saved: dict[str, Any] | None) -> Progress:
        """Run all stages, from the checkpoint on if there is one."""
        plan = PLANS[self.config.tune if self.task.features is None else "all"]
        reached = 0 if saved is None else plan.index(saved["progress"]["stage"])
        before, head = Progress(""), dict[str, Any]()
        for number, name in enumerate(plan):
            if number < reached:
                continue
            make_stage = self._make_head_stage if name == "head" else self._make_full_stage
            stage = make_stage(model, inputs)
            # If the whole network is not better than the head alone, the head is kept.
            stage.progress.best, stage.progress.kept = before.best, before.kept
            stage.progress.floor = before.kept
            stage.progress.records = before.records
            stage.loss.load_carried_state(head)
            if saved is not None and number == reached:
                stage.resume(saved)
            before = stage.run()
            if name == "head":
                head = self._transfer_head(stage, model)
        return before

    def load_best(
        self, model: Classifier, inputs: Inputs
    ) -> tuple[dict[str, Any], Classifier, Inputs]:
        """Return the best checkpoint, the model with its weights, and the inputs of that model.

        A head alone is evaluated on the features extracted before, not on the images again.
        """
        best = self._open_checkpoints().best()
        model.load_state_dict(best["model"])
        if best["stage"] != "head":
            return best, model, inputs
        features = self._extract_features(model, inputs)
        small = build_standardized_head(self.config, self.task, features)
        small.load_state_dict(load_checkpoint(self.folder / HEAD)["model"])
        return best, small, Features(features)

    # ------------------------------------------------------------------ one stage

    def _make_head_stage(self, model: Classifier, inputs: Inputs) -> Stage:
        features = self._extract_features(model, inputs)
        small = build_standardized_head(self.config, self.task, features)
        return self._make_stage("head", small, Features(features))

    def _make_full_stage(self, model: Classifier, inputs: Inputs) -> Stage:
        if self.config.freeze_bn and self.task.features is None:
            freeze_batchnorm(model)
        return self._make_stage("all", model, inputs)

    def _make_stage(self, name: str, model: Classifier, inputs: Inputs) -> Stage:
        config, task = self.config, self.task
        on_features = name == "head" or task.features is not None
        lr = config.head_lr if on_features else config.lr
        loss = losses.create(config.method, **config.options)
        loss = loss.for_single_view() if name == "head" else loss
        return Stage(
            name=name,
            model=model,
            inputs=inputs,
            loss=task.with_label_values(loss),
            labels=torch.from_numpy(task.labels.values),
            truth=None if task.truth is None else torch.from_numpy(task.truth),
            train_rows=task.splits.train,
            val_rows=task.splits.val,
            config=config,
            accelerator=self.accelerator,
            journal=self.journal,
            folder=self.folder,
            epochs=config.head_epochs if name == "head" else config.epochs,
            lr=lr,
            head_lr=lr if on_features else lr * config.head_lr_mult,
            select_on_truth=config.selects_on_truth,
            identity=self.identity,
            stop_asked=self.stop_asked,
            teacher=self.teacher,
        )

    def _transfer_head(self, stage: Stage, model: Classifier) -> dict[str, Any]:
        """Move the best head of the first stage to the backbone: the best model so far."""
        best = stage.best()
        stage.model.load_state_dict(best["model"])
        transfer_head(stage.model, model)
        self._open_checkpoints().save_best(model, "head", int(best["epoch"]))
        return best

    def _extract_features(self, model: Classifier, inputs: Inputs) -> Tensor:
        task, config = self.task, self.config
        return extract_features(config, task, model, inputs, self.journal, self.accelerator)

    def _open_checkpoints(self) -> Checkpoints:
        return Checkpoints(self.folder, self.accelerator, self.identity)
