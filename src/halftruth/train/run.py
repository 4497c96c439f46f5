"""A run: it reads the data, picks a plan, and writes what the plan has fitted into its folder."""

import math
import shlex
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from accelerate.utils import broadcast_object_list

from halftruth.data.check import completeness_hint
from halftruth.data.splits import named_splits
from halftruth.train.config import AUTO, Config, load_settings
from halftruth.train.devices import find_unused_processes, keep_freed_memory, make_accelerator
from halftruth.train.fitted import FittedModel
from halftruth.train.inputs.feature_encoder import FeatureEncoder
from halftruth.train.plans.choose import choose_plan
from halftruth.train.plans.plan import Plan, Work, load_last
from halftruth.train.results.run_result import Result
from halftruth.train.run_folder import (
    LAST,
    MEMBERS,
    RESULT,
    CheckpointError,
    check_is_folder,
    check_is_free,
    lock_folder,
    replace_file,
    write_manifest,
    write_text,
)
from halftruth.train.run_logger import OnEpoch, RunLogger
from halftruth.train.task import Task, load_task
from halftruth.train.teacher import TEACHER
from halftruth.train.trackers import Trackers, check_trackers
from halftruth.train.trainer import Interrupted


def train(
    values: dict[str, Any], recipe: Any = None, *, resume: bool = False, quiet: bool = False
) -> Result:
    """Start a run, or continue the one in the folder `out` with its settings and `values`."""
    folder, unused_budget = Path(values.get("out", Config.out)), None
    if resume and recipe is None and (folder / "config.yaml").is_file():
        if (folder / RESULT).exists() and not (folder / LAST).exists():
            raise CheckpointError(
                f"{folder}: cannot be continued, since {LAST} is missing: a shared run has only "
                "what predictions need. Train again into another folder"
            )
        recipe, values = folder, {**values, "out": str(folder)}
        # The same command may have started the run with method auto, which was replaced then.
        if values.get("method", AUTO) == AUTO:
            values.pop("method", None)
            unused_budget = values.pop("budget", None)
    run = Run(load_settings(recipe, values), quiet=quiet)
    if unused_budget is not None:
        RunLogger(None, main=run.main, quiet=quiet).log(
            f"budget: the run in {folder} already has a method ({run.config.method}); nothing more "
            "is tried"
        )
    return run.go(resume=resume)


class Run:
    """One run: `go` reads the data, picks a plan, fits and evaluates it, and writes the results."""

    def __init__(
        self, config: Config, quiet: bool = False, on_epoch: OnEpoch | None = None
    ) -> None:
        self.config, self.quiet, self.on_epoch = config, quiet, on_epoch
        self.folder = Path(config.out)
        check_is_folder(self.folder)
        check_trackers(config.track)
        self.accelerator = make_accelerator(config)
        self.main = self.accelerator.is_main_process

    def go(self, resume: bool = False) -> Result:
        """Train the run, or continue it, and return the result."""
        started = time.perf_counter()
        keep_freed_memory()
        if not resume:
            load_last(self.folder, resume, self.folder)
            check_is_free(self.folder)
        task = self._load_task(FeatureEncoder.load(self.folder) if resume else None)
        with self._lock():
            saved = load_last(self.folder, resume, self.folder)
            logger = self._open_logger()
            work = Work(self.config, task, self.accelerator, logger, self.folder, resume, saved)
            try:
                self._describe(work)
                plan = choose_plan(work)
                return self._finish(work, plan, plan.fit(work), started)
            except KeyboardInterrupt as stop:
                self._say_stopped(work, stop)
                if isinstance(stop, Interrupted):
                    raise
                raise Interrupted from stop
            finally:
                logger.close()

    # ------------------------------------------------------------------ before training

    def _load_task(self, encoder: FeatureEncoder | None) -> Task:
        on_matrix = self.config.on_features and self.config.fits_ensemble
        task = load_task(
            self.config, encoder,
            sparse=on_matrix, accelerator=self.accelerator, lower_absent=not on_matrix,
        )  # fmt: skip
        self.folder.mkdir(parents=True, exist_ok=True)
        if task.encoder is not None and self.main:
            task.encoder.save(self.folder)
        return task

    def _open_logger(self) -> RunLogger:
        trackers = None
        if self.config.track and self.main:
            trackers = Trackers(self.config.track, self.folder, self.config.to_dict())
        return RunLogger(
            self.folder,
            main=self.main, quiet=self.quiet, trackers=trackers, on_epoch=self.on_epoch,
        )  # fmt: skip

    def _describe(self, work: Work) -> None:
        """Log what the data are, and what looks odd about them or the command."""
        log, labels = work.logger.log, work.task.labels
        begun = (self.folder / TEACHER / LAST).exists() or (self.folder / MEMBERS).exists()
        if work.resume and work.saved is None and not begun:
            log("there is no checkpoint yet: training starts from the beginning")
        machine = self.accelerator.num_processes, self.accelerator.device.type
        if warning := find_unused_processes(*machine):
            log(warning)
        log(work.task.describe())
        asked = "zero" in self.config.reading or self.config.truth or labels.is_sparse
        if not asked and (hint := completeness_hint(labels.select(work.task.splits.train))):
            log(f"hint: {hint}")
        named = labels.split is not None and len(named_splits(labels.split).val)
        if named and self.config.val is not None:
            log(
                "warning: --val has no effect, since the split column names the validation rows; "
                "leave it out, or remove those rows from the column"
            )

    def _say_stopped(self, work: Work, stop: KeyboardInterrupt) -> None:
        if (self.folder / LAST).exists() or (self.folder / TEACHER / LAST).exists():
            work.logger.log(
                "stopped; everything is saved. Continue with:\n"
                f"  halftruth train --resume --out {shlex.quote(str(self.folder))}"
            )
        elif not isinstance(stop, Interrupted):
            work.logger.log(
                "stopped before the training; the same command starts again (with --budget 0 auto "
                "tries no settings)"
            )

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Lock the run folder in the main process; all processes fail if it cannot be locked."""
        with ExitStack() as lock:
            problem: list[object] = [None]
            if self.main:
                try:
                    lock.enter_context(lock_folder(self.folder))
                except CheckpointError as error:
                    problem = [str(error)]
            if self.accelerator.num_processes > 1:
                broadcast_object_list(problem)
            if problem[0] is not None:
                raise CheckpointError(problem[0])
            yield

    # ------------------------------------------------------------------ results

    def _finish(self, work: Work, plan: Plan, fitted: FittedModel, started: float) -> Result:
        """Evaluate the fitted model, and write and log the result."""
        result = plan.evaluate(work, fitted)
        result.bad_images = list(work.bad)
        result.criterion, result.best_score = fitted.criterion, fitted.best_score
        if not result.criterion:
            # A model without epochs has one line of metrics.
            held = "val" if result.details is None else result.details.held
            result.criterion = f"{held}_mAP"
            result.best_score = result.get_observed(held).get("mAP", math.nan)
            work.logger.write({"stage": plan.name, "epoch": 1, result.criterion: result.best_score})
        seconds = time.perf_counter() - started
        if result.details is not None:
            result.details.seconds = seconds + work.logger.seconds_before
        if self.main:
            self._write(result)
            shutil.rmtree(self.folder / MEMBERS, ignore_errors=True)
        # The arrays of the files need not stay in memory.
        result.files = {}
        work.logger.log(result.describe())
        return result

    def _write(self, result: Result) -> None:
        """Write result.json, the tables and arrays beside it, and the checksums of all."""
        write_text(self.folder / RESULT, result.to_json())
        for name, content in result.files.items():
            if isinstance(content, str):
                write_text(self.folder / name, content)
                continue
            with replace_file(self.folder / name) as new, new.open("wb") as file:
                np.savez_compressed(file, **content)
        write_manifest(self.folder)
