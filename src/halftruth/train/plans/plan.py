"""The interface of a plan, the data of a run in and a fitted model out, and what plans share."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from halftruth.data import DataError
from halftruth.data.decode_images import describe_bad
from halftruth.models import Classifier
from halftruth.train.build_models import build_model
from halftruth.train.config import Config
from halftruth.train.fitted import FittedModel
from halftruth.train.inputs.batches import Inputs, make_inputs
from halftruth.train.inputs.image_inputs import read_images
from halftruth.train.memory_use import describe_memory
from halftruth.train.results.output_tables import write_bad_images
from halftruth.train.results.run_result import Result, evaluate_run
from halftruth.train.run_folder import (
    LAST,
    MANIFEST,
    CheckpointError,
    Checkpoints,
    check_same_run,
    identify,
    load_checkpoint,
    write_text,
)
from halftruth.train.run_logger import HISTOGRAMS, METRICS, RunLogger
from halftruth.train.scoring import extract_features
from halftruth.train.task import Task, check_parts, remove_rows
from halftruth.train.trainer import Interrupted


@dataclass
class Work:
    """What the steps of a run share: settings, data, device, folder, messages."""

    config: Config
    task: Task
    accelerator: Accelerator
    logger: RunLogger
    folder: Path
    # Whether a run is continued, and its checkpoint, if there is one.
    resume: bool = False
    saved: dict[str, Any] | None = None
    # Images that cannot be read, and why.
    bad: list[tuple[str, str]] = field(default_factory=list)
    # By what a checkpoint is known to be of this run; set once the run begins.
    identity: dict[str, Any] = field(default_factory=dict)

    @property
    def main(self) -> bool:
        """Whether this is the process that writes files."""
        return bool(self.accelerator.is_main_process)

    @cached_property
    def model(self) -> Classifier:
        """The untrained model; a run for which memory does not suffice is refused."""
        model = build_model(self.config, self.task)
        if line := describe_memory(self.config, self.task, model, self.accelerator.device):
            self.logger.log(line)
        return model

    @cached_property
    def inputs(self) -> Inputs:
        """The inputs of all rows; rows of images that cannot be read leave the parts."""
        task = self.task
        if task.features is not None:
            self.bad = task.bad_images
            if self.bad:
                self._list_bad_images()
            return make_inputs(task.features)
        inputs, self.bad = read_images(self.config, task, self.model, self.logger, self.accelerator)
        if self.bad:
            self._leave_out_bad_images()
        return inputs

    def _leave_out_bad_images(self) -> None:
        """Fail if images cannot be read, or continue without their rows."""
        task, bad = self.task, self.bad
        path = self._list_bad_images(fail=self.config.bad_images == "fail")
        if len(bad) == len(task.names):
            raise DataError(
                f"none of the {len(bad):,} images can be read; the first is {bad[0][0]}: "
                f"{bad[0][1]}. All are listed in {path}"
            )
        lost = {name for name, _ in bad}
        rows = [row for row, name in enumerate(task.names) if name in lost]
        task.splits = remove_rows(task.splits, np.array(rows))
        check_parts(task, self.config)

    def _list_bad_images(self, fail: bool = False) -> Path:
        path = self.folder / "bad_images.csv"
        if self.main:
            write_bad_images(path, self.bad)
        if fail:
            raise DataError(
                f"{describe_bad(self.bad, len(self.task.names))} All are listed in {path}"
            )
        self.logger.log(f"{len(self.bad):,} images cannot be read and are left out: see {path}")
        return path

    def extract_features(self, model: Classifier, inputs: Inputs) -> Tensor:
        """Return the features of all rows: those of the run, or of the network before training."""
        if self.task.features is not None and not self.config.tunes_encoder:
            return torch.as_tensor(self.task.features)
        return extract_features(
            self.config, self.task, model, inputs, self.logger, self.accelerator
        )

    def begin(self) -> None:
        """Write the settings of the run, once; the checkpoint of another run is refused."""
        if self.identity:
            return
        self.identity = identify(self.config, self.task)
        if self.saved is not None:
            for note in check_same_run(self.saved["identity"], self.identity, self.folder / LAST):
                self.logger.log(f"changed since the checkpoint: {note}")
        if self.main:
            (self.folder / MANIFEST).unlink(missing_ok=True)
            write_text(self.folder / "config.yaml", self.config.to_yaml())
            if self.saved is None:
                for name in (METRICS, HISTOGRAMS):
                    (self.folder / name).unlink(missing_ok=True)

    def open_checkpoints(self) -> Checkpoints:
        """Return the checkpoints of the run."""
        return Checkpoints(self.folder, self.accelerator, self.identity)

    def fit_at_once(
        self, stage: str, fit: Callable[[], tuple[Classifier, Mapping[str, object]]]
    ) -> dict[str, Any]:
        """Fit a model that is not trained by epochs, unless it is saved; return its checkpoint."""
        self.begin()
        files = self.open_checkpoints()
        if self.saved is None:
            try:
                model, more = fit()
                files.save_best(model, stage, 0, more)
                files.save_last({"progress": {"stage": stage}})
            except KeyboardInterrupt as stop:
                self.logger.log("stopped; the same command starts again, from what is saved")
                raise Interrupted from stop
        return files.best()

    @contextmanager
    def open_part(self, name: str, config: Config) -> Iterator["Work"]:
        """Open a part of the run in a folder of its own: another model of the same data."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        logger = RunLogger(folder, main=self.main, quiet=self.logger.console.quiet)
        part = Work(
            config, self.task, self.accelerator, logger, folder, self.resume,
            load_last(folder, self.resume, self.folder),
        )  # fmt: skip
        part.inputs = self.inputs
        try:
            yield part
        finally:
            logger.close()


def load_last(folder: Path, resume: bool, run: Path) -> dict[str, object] | None:
    """Return the checkpoint to continue from, if there is one; without `resume` it is refused.

    `run`: the folder of the whole run.
    """
    path = folder / LAST
    if not path.exists():
        return None
    if not resume:
        raise CheckpointError(
            f"{run} already holds a run: continue it (--resume), or choose another folder (--out)"
        )
    return dict(load_checkpoint(path))


class Plan(ABC):
    """One way to fit the rows of a run, and to evaluate what was fitted."""

    # What `--method` and the checkpoint call it, if that is not a loss.
    name = ""

    @abstractmethod
    def fit(self, work: Work) -> FittedModel:
        """Fit the training rows, or continue from `work.saved`."""

    def evaluate(self, work: Work, fitted: FittedModel) -> Result:
        """Return scores, decisions and estimates of the fitted model."""
        return evaluate_run(work.config, work.task, fitted, work.accelerator)
