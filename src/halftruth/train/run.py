"""A configuration being carried out, from its files to what is left in its folder."""

import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from halftruth.data import DataError
from halftruth.data.decode_images import describe_bad
from halftruth.models import Classifier
from halftruth.models.heads import registry as heads
from halftruth.train import checkpoint
from halftruth.train.auto import AUTO, Budget, Choice, settled
from halftruth.train.build import (
    build_model,
    extract_features,
    image_inputs,
)
from halftruth.train.checkpoint_files import LAST
from halftruth.train.config import Config
from halftruth.train.devices import make_accelerator, stop_signals
from halftruth.train.identity import check_same, identify
from halftruth.train.inputs import Features, Inputs
from halftruth.train.journal import HISTOGRAMS, METRICS, Journal, Watch
from halftruth.train.measure import Measured, measure
from halftruth.train.output_tables import csv_text, write_bad_images
from halftruth.train.result import Result
from halftruth.train.search_settings import tried
from halftruth.train.stage_progress import Interrupted
from halftruth.train.stages import Stages
from halftruth.train.task import check_parts, load_task, without
from halftruth.train.teacher import FOLDER as TEACHER
from halftruth.train.teacher import teacher, teacher_config


class Run:
    """Read, build, settle what is left open, train, measure: `go` is the whole story."""

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
            with stop_signals() as stop_asked:
                stages = self._stages(stop_asked)
                reached = stages.train(model, inputs, saved)
            best, model, inputs = stages.best(model, inputs)
            # For the second of two trainings.
            self.best_model = model, inputs
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
        result.criterion, result.best_score = reached.criterion, reached.kept
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
        if config.tune == "all":
            return None
        task, journal = self.task, self.journal
        return extract_features(config, task, model, inputs, journal, self.accelerator).float()

    def _first_training(self, resume: bool) -> "Run | None":
        """Train the model that labels the training set, where the method has one."""
        config = teacher_config(self.config)
        if config is None:
            return None
        first = Run(config, quiet=self.quiet, part_of=self.folder)
        if first._last(resume) is None and self.main:
            # To resume the first training one needs the settings of the whole.
            checkpoint.write_text(self.folder / "config.yaml", self.config.to_yaml())
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
            checkpoint.write_text(self.folder / "config.yaml", self.config.to_yaml())
            if saved is None:
                for name in (METRICS, HISTOGRAMS):
                    (self.folder / name).unlink(missing_ok=True)

    def _stages(self, stop_asked: Callable[[], bool]) -> Stages:
        labelled = None
        if self.first is not None:
            size = 2 * self.config.batch_size
            labelled = teacher(*self.first.best_model, self.accelerator, size)
        return Stages(
            self.config, self.task, self.accelerator, self.journal, self.folder, self.identity,
            stop_asked, labelled,
        )  # fmt: skip

    # ------------------------------------------------------------------ after it

    def _report(self, measured: Measured, seconds: float) -> None:
        """Draw report.html; a run is worth more than its pictures, so nothing here may end it."""
        try:
            from halftruth.report.run_report import write_report

            path = write_report(self.config, self.task, measured, seconds)
        except Exception as error:
            kind = type(error).__name__
            self.journal.say(f"warning: report.html could not be drawn ({kind}: {error})")
        else:
            self.journal.say(f"report: {path}")
