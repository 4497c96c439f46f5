"""`fit`: from a configuration to a trained run in a folder."""

import shlex
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from halftruth import losses
from halftruth.data import DataError
from halftruth.data.decoding import describe_bad
from halftruth.losses.wrapper import Wrapper
from halftruth.models import Classifier, freeze_batchnorm, transfer_head
from halftruth.models.heads import registry as heads
from halftruth.train import checkpoint
from halftruth.train.auto import AUTO, Budget, Choice, settled
from halftruth.train.building import (
    build_model,
    extract_features,
    image_inputs,
    standardized_head,
)
from halftruth.train.config import Config
from halftruth.train.identity import check_same, identify
from halftruth.train.inputs import Features, Inputs
from halftruth.train.journal import HISTOGRAMS, METRICS, Journal, Watch
from halftruth.train.keeping import HEAD, LAST, Keeper
from halftruth.train.machine import make_accelerator, stop_signals
from halftruth.train.measuring import Measured, measure
from halftruth.train.progress import Interrupted, Progress
from halftruth.train.result import Result
from halftruth.train.settings import collect, load_settings, to_yaml
from halftruth.train.stage import Stage
from halftruth.train.tables import csv_text, write_bad_images
from halftruth.train.task import check_parts, load_task, without
from halftruth.train.teacher import FOLDER as TEACHER
from halftruth.train.teacher import Teacher, teacher, teacher_config
from halftruth.train.trying import tried
from halftruth.train.watching import load_estimates

PLANS = {"head": ("head",), "all": ("all",), "head-first": ("head", "all")}


def fit(
    labels: str | Path | Config | None = None,
    images: str | Path | list[str] | None = None,
    *,
    resume: bool = False,
    quiet: bool = False,
    **settings: Any,
) -> Result:
    """Train on a label file and a folder of images (or features), as `halftruth train` does.

    `settings` are the fields of `Config`; options of `read_labels` (such as `label_column` or
    `zero`) may stand among them. The run's folder (`out`) then holds config.yaml, metrics.jsonl,
    best.safetensors, last.safetensors, result.json, classes.csv and report.html.

        result = halftruth.fit("labels.csv", "photos/", method="em", out="runs/first")
        result.val["mAP"]
    """
    if isinstance(labels, Config):
        config = Config.of({**labels.to_dict(), **settings})
        return Run(config, quiet=quiet).go(resume=resume)
    values = collect(settings)
    if labels is not None:
        values["labels"] = str(labels)
    if images is not None:
        values["images"] = images
    return train(values, resume=resume, quiet=quiet)


def train(
    values: dict[str, Any], recipe: Path | None = None, *, resume: bool = False, quiet: bool = False
) -> Result:
    """Start a run, or go on with that in the folder `out`: by its own settings and `values`."""
    folder, spent = Path(values.get("out", Config.out)), None
    if resume and recipe is None and (folder / "config.yaml").is_file():
        recipe, values = folder, {**values, "out": str(folder)}
        # The same command may have begun the run, with auto as its method, which has chosen then.
        if values.get("method", AUTO) == AUTO:
            values.pop("method", None)
            spent = values.pop("budget", None)
    run = Run(load_settings(recipe, values), quiet=quiet)
    if spent is not None:
        there = f"the run in {folder} has its method, {run.config.method}"
        Journal(None, main=run.main, quiet=quiet).say(f"budget: {there}; nothing more is tried")
    return run.go(resume=resume)


class Run:
    """A configuration being carried out."""

    def __init__(
        self,
        config: Config,
        quiet: bool = False,
        part_of: Path | None = None,
        watch: Watch | None = None,
    ) -> None:
        self.config = config
        self.watch = watch
        self.folder = Path(config.out)
        # What to resume: the whole, where this is only its first training.
        self.whole = part_of or self.folder
        self.accelerator = make_accelerator(config)
        self.main = self.accelerator.is_main_process
        self.quiet = quiet

    def go(self, resume: bool = False) -> Result:
        """Read, build, train each stage, keep the best, measure it."""
        started = time.perf_counter()
        saved = self._last(resume)
        self.task = load_task(self.config)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.journal = Journal(
            self.folder,
            main=self.main,
            quiet=self.quiet,
            tensorboard=self.config.tensorboard,
            watch=self.watch,
        )
        if self.whole == self.folder:
            if resume and saved is None and not (self.folder / TEACHER / LAST).exists():
                self.journal.say("there is no checkpoint yet: training starts from the beginning")
            self.journal.say(self.task.describe())
        self.first = self._first_training(resume)
        model = build_model(self.config, self.task)
        inputs, bad = self._inputs(model)
        try:
            model = self._settle(model, inputs)
        except KeyboardInterrupt as stop:
            self.journal.say(
                "stopped while auto tried settings; nothing is trained yet. The same command "
                "begins again; with --budget 0 nothing is tried"
            )
            raise Interrupted from stop
        self.identity = identify(self.config, self.task)
        self._write_config(saved)
        try:
            with stop_signals() as self.stop_asked:
                self._train(model, inputs, saved)
            best = self._keeper().best()
            model, inputs = self.best_model = self._as_measured(best, model, inputs)
            measured = measure(self.config, self.task, model, inputs, best, self.accelerator)
        except Interrupted:
            self.journal.say(
                "stopped; everything is saved. Go on with:\n"
                f"  halftruth train --resume --out {shlex.quote(str(self.whole))}"
            )
            raise
        finally:
            self.journal.close()
        result = measured.result
        result.criterion, result.best_score = self.criterion, self.best_score
        result.bad_images = bad
        if self.main:
            checkpoint.write_text(self.folder / "result.json", result.to_json())
            checkpoint.write_text(self.folder / "classes.csv", csv_text(measured.classes))
            counts: dict[str, Any] = {**measured.histograms}
            np.savez_compressed(self.folder / "class_histograms.npz", **counts)
        self.journal.say(result.describe())
        if self.main and self.config.report:
            self._report(measured, time.perf_counter() - started)
        return result

    # ------------------------------------------------------------------ before training

    def _last(self, resume: bool) -> dict[str, Any] | None:
        """The checkpoint to go on from; a run that is there already is not overwritten."""
        last = self.folder / LAST
        if resume:
            return checkpoint.load(last) if last.exists() else None
        if last.exists():
            raise checkpoint.CheckpointError(
                f"{self.whole} holds a run already: go on with it (--resume), or choose another "
                "folder (--out)"
            )
        return None

    def _settle(self, model: Classifier, inputs: Inputs) -> Classifier:
        """Replace "auto" by a method and a recipe, and tell the reasons; the model for it."""
        if self.config.method != AUTO:
            return model
        task = self.task
        labels = task.labels.values
        dim = model.feature_dim if task.features is None else int(task.features.shape[1])
        self.config, choice = settled(self.config, labels[task.splits.train], dim)
        found: list[str] = []
        if (features := self._to_try_on(model, inputs, choice)) is not None:
            self.config, found = tried(
                self.config, choice, features, torch.from_numpy(labels),
                task.splits.train, self.accelerator, say=self.journal.say, groups=task.groups,
            )  # fmt: skip
        self.journal.say("auto: " + "\n      ".join([*choice.reasons, *found]))
        return model if task.features is None else build_model(self.config, task)

    def _to_try_on(self, model: Classifier, inputs: Inputs, choice: Choice) -> Tensor | None:
        """Features of all rows, where settings of a line over them may be tried."""
        config, given = self.config, self.task.features
        if not heads.get(config.head).has_line or not Budget(choice.budget).allows(0):
            return None
        if given is not None:
            return torch.as_tensor(given).float()
        return None if config.tune == "all" else self._features(model, inputs).float()

    def _first_training(self, resume: bool) -> "Run | None":
        """Train the model that labels the training set, where the method has one."""
        config = teacher_config(self.config)
        if config is None:
            return None
        first = Run(config, quiet=self.quiet, part_of=self.folder)
        if first._last(resume) is None and self.main:
            # To resume the first training one needs the settings of the whole.
            checkpoint.write_text(self.folder / "config.yaml", to_yaml(self.config))
        self.journal.say("first training, of the model that will fill in labels:")
        first.go(resume=resume)
        self.journal.say("second training, from scratch, on the labels as filled in:")
        return first

    def _inputs(self, model: Classifier) -> tuple[Inputs, list[tuple[str, str]]]:
        task = self.task
        if task.features is not None:
            return Features(task.features), []
        if self.first is None:
            self.images = image_inputs(self.config, task, model, self.journal, self.accelerator)
        else:
            self.images = self.first.images
        inputs, bad = self.images
        if bad:
            self._leave_out(bad)
        return inputs, bad

    def _leave_out(self, bad: list[tuple[str, str]]) -> None:
        """List the images that cannot be read; go on without their rows, if that is wanted."""
        task, path = self.task, self.folder / "bad_images.csv"
        if self.main:
            write_bad_images(path, bad)
        if self.config.bad_images == "fail":
            raise DataError(f"{describe_bad(bad, len(task.names))} All are listed in {path}")
        lost = {name for name, _ in bad}
        rows = [row for row, name in enumerate(task.names) if name in lost]
        task.splits = without(task.splits, np.array(rows))
        check_parts(task, self.config)
        self.journal.say(f"{len(bad):,} images cannot be read and are left out: see {path}")

    def _write_config(self, saved: dict[str, Any] | None) -> None:
        if saved is not None:
            for note in check_same(saved["identity"], self.identity, self.folder / LAST):
                self.journal.say(f"changed since the checkpoint: {note}")
        if self.main:
            checkpoint.write_text(self.folder / "config.yaml", to_yaml(self.config))
            if saved is None:
                for name in (METRICS, HISTOGRAMS):
                    (self.folder / name).unlink(missing_ok=True)

    # ------------------------------------------------------------------ training

    def _train(self, model: Classifier, inputs: Inputs, saved: dict[str, Any] | None) -> None:
        """Head first, on features extracted once, then everything; or one of the two."""
        plan = PLANS[self.config.tune if self.task.features is None else "all"]
        reached = 0 if saved is None else plan.index(saved["progress"]["stage"])
        before, head = Progress(""), dict[str, Any]()
        for number, name in enumerate(plan):
            if number < reached:
                continue
            stage = self._head_stage(model, inputs) if name == "head" else self._all(model, inputs)
            # Training everything has to beat the head alone, or the head alone is kept.
            stage.progress.best, stage.progress.kept = before.best, before.kept
            stage.progress.floor = before.kept
            stage.progress.records = before.records
            load_estimates(stage.loss, head)
            if saved is not None and number == reached:
                stage.resume(saved)
            before, self.criterion = stage.run(), stage.criterion
            if name == "head":
                head = self._take_head(stage, model)
        self.best_score = before.kept

    def _head_stage(self, model: Classifier, inputs: Inputs) -> Stage:
        features = self._features(model, inputs)
        model = standardized_head(self.config, self.task, features)
        return self._stage("head", model, Features(features))

    def _features(self, model: Classifier, inputs: Any) -> Tensor:
        task, config = self.task, self.config
        return extract_features(config, task, model, inputs, self.journal, self.accelerator)

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
            teacher=None if self.first is None else self._teacher(*self.first.best_model),
        )

    def _loss(self, name: str) -> losses.Loss:
        loss = losses.create(self.config.method, **self.config.options)
        # Features have no views to compare: a head alone learns by what compares them for others.
        while name == "head" and loss.views > 1 and isinstance(loss, Wrapper):
            loss = loss.base
        return loss

    def _teacher(self, model: Classifier, inputs: Inputs) -> Teacher:
        return teacher(model, inputs, self.accelerator, 2 * self.config.batch_size)

    def _take_head(self, stage: Stage, model: Classifier) -> dict[str, Any]:
        """Put the best head of the first stage onto the backbone: the best model so far."""
        best = stage.best()
        stage.model.load_state_dict(best["model"])
        transfer_head(stage.model, model)
        self._keeper().save_best(model, "head", int(best["epoch"]))
        return best

    def _as_measured(
        self, best: dict[str, Any], model: Classifier, inputs: Inputs
    ) -> tuple[Classifier, Inputs]:
        """The best weights and what they look at: a head alone needs no second look at images."""
        model.load_state_dict(best["model"])
        if best["stage"] != "head":
            return model, inputs
        features = self._features(model, inputs)
        small = standardized_head(self.config, self.task, features)
        small.load_state_dict(checkpoint.load(self.folder / HEAD)["model"])
        return small, Features(features)

    def _report(self, measured: Measured, seconds: float) -> None:
        """Draw report.html; a run is worth more than its pictures, so nothing here may end it."""
        try:
            from halftruth.plots.report import write_report

            path = write_report(self.config, self.task, measured, seconds)
        except Exception as error:
            kind = type(error).__name__
            self.journal.say(f"warning: report.html could not be drawn ({kind}: {error})")
        else:
            self.journal.say(f"report: {path}")

    def _keeper(self) -> Keeper:
        return Keeper(self.folder, self.accelerator, self.identity)


__all__ = ["Result", "Run", "fit", "train"]
