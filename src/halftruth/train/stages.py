"""The stages of a run: head first, on features extracted once, then everything; or one of them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from halftruth import losses
from halftruth.losses.wrapper import Wrapper
from halftruth.models import Classifier, freeze_batchnorm, transfer_head
from halftruth.train import checkpoint
from halftruth.train.build import extract_features, standardized_head
from halftruth.train.checkpoint_files import HEAD, Keeper
from halftruth.train.config import Config
from halftruth.train.inputs import Features, Inputs
from halftruth.train.journal import Journal
from halftruth.train.loss_views import load_estimates
from halftruth.train.stage_progress import Progress
from halftruth.train.task import Task
from halftruth.train.teacher import Teacher
from halftruth.train.trainer import Stage

PLANS = {"head": ("head",), "all": ("all",), "head-first": ("head", "all")}


@dataclass
class Stages:
    """What all stages of a run share; `train` goes through them, `best` is what has come of it."""

    config: Config
    task: Task
    accelerator: Accelerator
    journal: Journal
    folder: Path
    identity: dict[str, Any]
    stop_asked: Callable[[], bool]
    teacher: Teacher | None = None

    def train(self, model: Classifier, inputs: Inputs, saved: dict[str, Any] | None) -> Progress:
        """All stages, from the checkpoint on where there is one; where the last of them stands."""
        plan = PLANS[self.config.tune if self.task.features is None else "all"]
        reached = 0 if saved is None else plan.index(saved["progress"]["stage"])
        before, head = Progress(""), dict[str, Any]()
        for number, name in enumerate(plan):
            if number < reached:
                continue
            stage = self._head(model, inputs) if name == "head" else self._all(model, inputs)
            # Training everything has to beat the head alone, or the head alone is kept.
            stage.progress.best, stage.progress.kept = before.best, before.kept
            stage.progress.floor = before.kept
            stage.progress.records = before.records
            load_estimates(stage.loss, head)
            if saved is not None and number == reached:
                stage.resume(saved)
            before = stage.run()
            if name == "head":
                head = self._take_head(stage, model)
        return before

    def best(self, model: Classifier, inputs: Inputs) -> tuple[dict[str, Any], Classifier, Inputs]:
        """The best weights, in a model, and what it looks at.

        A head alone needs no second look at images.
        """
        best = self._keeper().best()
        model.load_state_dict(best["model"])
        if best["stage"] != "head":
            return best, model, inputs
        features = self._features(model, inputs)
        small = standardized_head(self.config, self.task, features)
        small.load_state_dict(checkpoint.load(self.folder / HEAD)["model"])
        return best, small, Features(features)

    # ------------------------------------------------------------------ one of them

    def _head(self, model: Classifier, inputs: Inputs) -> Stage:
        features = self._features(model, inputs)
        small = standardized_head(self.config, self.task, features)
        return self._stage("head", small, Features(features))

    def _all(self, model: Classifier, inputs: Inputs) -> Stage:
        if self.config.freeze_bn and self.task.features is None:
            freeze_batchnorm(model)
        return self._stage("all", model, inputs)

    def _stage(self, name: str, model: Classifier, inputs: Inputs) -> Stage:
        config, task = self.config, self.task
        on_features = name == "head" or task.features is not None
        lr = config.head_lr if on_features else config.lr
        return Stage(
            name=name,
            model=model,
            inputs=inputs,
            loss=self._loss(name),
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

    def _loss(self, name: str) -> losses.Loss:
        loss = losses.create(self.config.method, **self.config.options)
        # Features have no views to compare: a head alone learns by what compares them for others.
        while name == "head" and loss.views > 1 and isinstance(loss, Wrapper):
            loss = loss.base
        return loss

    def _take_head(self, stage: Stage, model: Classifier) -> dict[str, Any]:
        """Put the best head of the first stage onto the backbone: the best model so far."""
        best = stage.best()
        stage.model.load_state_dict(best["model"])
        transfer_head(stage.model, model)
        self._keeper().save_best(model, "head", int(best["epoch"]))
        return best

    def _features(self, model: Classifier, inputs: Inputs) -> torch.Tensor:
        task, config = self.task, self.config
        return extract_features(config, task, model, inputs, self.journal, self.accelerator)

    def _keeper(self) -> Keeper:
        return Keeper(self.folder, self.accelerator, self.identity)
