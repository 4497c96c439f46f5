"""A run, from its settings to the files in its folder."""

import dataclasses
import math
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import broadcast_object_list
from torch import Tensor

from halftruth import losses
from halftruth.data import DataError
from halftruth.data.check import completeness_hint
from halftruth.data.decode_images import describe_bad
from halftruth.data.splits import named_splits
from halftruth.models import Classifier
from halftruth.models.heads import registry as heads
from halftruth.presence.propensity import shows_one
from halftruth.train.auto.label_bias import ROWS_TO_LABEL
from halftruth.train.auto.resolve import Budget, Choice, resolve_auto, search_settings
from halftruth.train.auto.shown_first import find_label_bias
from halftruth.train.config import AUTO, Config, load_settings
from halftruth.train.config import ENSEMBLE as ENSEMBLE_METHOD
from halftruth.train.devices import (
    catch_stop_signals,
    find_unused_processes,
    keep_freed_memory,
    make_accelerator,
)
from halftruth.train.ensemble.ensemble_run import fit_ensemble_to_task, load_ensemble
from halftruth.train.ensemble.preparation import prepare_features
from halftruth.train.inputs.batches import Features, Inputs, make_inputs
from halftruth.train.inputs.feature_encoder import FeatureEncoder
from halftruth.train.inputs.image_inputs import Images, read_images
from halftruth.train.journal import HISTOGRAMS, METRICS, Journal, OnEpoch
from halftruth.train.many_classes.many_run import (
    LEFT_OUT,
    MANY,
    describe_many_memory,
    evaluate_many,
    fit_many_to_task,
    load_many,
)
from halftruth.train.memory_use import describe_memory
from halftruth.train.results.output_tables import to_csv_text, write_bad_images
from halftruth.train.results.run_result import Result, evaluate_run
from halftruth.train.run_folder import (
    ENSEMBLE,
    LAST,
    OUT_OF_SAMPLE,
    RESULT,
    CheckpointError,
    Checkpoints,
    check_is_folder,
    check_same_run,
    identify,
    load_checkpoint,
    lock_folder,
    replace_file,
    write_text,
)
from halftruth.train.scoring import extract_features
from halftruth.train.stages import Stages, build_model
from halftruth.train.task import (
    check_parts,
    has_many_classes,
    load_task,
    release_validation,
    remove_rows,
)
from halftruth.train.teacher import (
    ESTIMATES,
    TEACHER,
    estimate_labels,
    make_teacher,
    make_teacher_config,
    make_teacher_of_estimates,
    save_estimates,
)
from halftruth.train.trackers import Trackers, check_trackers
from halftruth.train.trainer import Interrupted


def train(
    values: dict[str, Any], recipe: Any = None, *, resume: bool = False, quiet: bool = False
) -> Result:
    """Start a run, or continue the one in the folder `out` with its settings and `values`."""
    folder, unused_budget = Path(values.get("out", Config.out)), None
    if resume and recipe is None and (folder / "config.yaml").is_file():
        recipe, values = folder, {**values, "out": str(folder)}
        # The same command may have started the run with method auto, which was replaced then.
        if values.get("method", AUTO) == AUTO:
            values.pop("method", None)
            unused_budget = values.pop("budget", None)
    run = Run(load_settings(recipe, values), quiet=quiet)
    if unused_budget is not None:
        Journal(None, main=run.main, quiet=quiet).log(
            f"budget: the run in {folder} already has a method ({run.config.method}); nothing more "
            "is tried"
        )
    return run.go(resume=resume)


class Run:
    """One run: `go` reads the data, resolves auto, trains, and evaluates the best model."""

    def __init__(
        self,
        config: Config,
        quiet: bool = False,
        part_of: Path | None = None,
        on_epoch: OnEpoch | None = None,
    ) -> None:
        self.config = config
        self.on_epoch = on_epoch
        self.folder = Path(config.out)
        check_is_folder(self.folder)
        check_trackers(config.track)
        # The folder to resume from: that of the whole run, if this is only the teacher of a run.
        self.whole = part_of or self.folder
        self.accelerator = make_accelerator(config)
        self.main = self.accelerator.is_main_process
        self.quiet = quiet
        self.frozen: tuple[Classifier, dict[str, Any]] | None = None

    def go(self, resume: bool = False) -> Result:
        """Train the run, or continue it, and return the result."""
        started = time.perf_counter()
        keep_freed_memory()
        self._refuse_overwriting(resume)
        encoder = FeatureEncoder.load(self.folder) if resume else None
        on_matrix = self.config.on_features and self.config.fits_ensemble
        self.task = load_task(
            self.config, encoder,
            sparse=on_matrix, accelerator=self.accelerator, lower_absent=not on_matrix,
        )  # fmt: skip
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.task.encoder is not None and self.main:
            self.task.encoder.save(self.folder)
        with self._lock():
            return self._train(resume, self._load_last(resume), started)

    def _open_trackers(self) -> Trackers | None:
        """Return the trackers of the whole run; the teacher of a run has none."""
        if not self.config.track or not self.main or self.whole != self.folder:
            return None
        return Trackers(self.config.track, self.folder, self.config.to_dict())

    def _train(self, resume: bool, saved: dict[str, Any] | None, started: float) -> Result:
        self.journal = Journal(
            self.folder,
            main=self.main,
            quiet=self.quiet,
            trackers=self._open_trackers(),
            on_epoch=self.on_epoch,
        )
        if self.whole == self.folder:
            if resume and saved is None and not (self.folder / TEACHER / LAST).exists():
                self.journal.log("there is no checkpoint yet: training starts from the beginning")
            if warning := find_unused_processes(
                self.accelerator.num_processes, self.accelerator.device.type
            ):
                self.journal.log(warning)
            self.journal.log(self.task.describe())
            self._hint_at_complete_labels()
            self._report_unused_val()
        if has_many_classes(self.task.labels):
            return self._fit_many_classes(saved, started)
        self.first = self._train_teacher(resume)
        model = build_model(self.config, self.task)
        if line := describe_memory(self.config, self.task, model, self.accelerator.device):
            self.journal.log(line)
        inputs, bad = self._load_inputs(model)
        self._test_label_bias(model, inputs)
        if self.config.fits_ensemble:
            self.config = dataclasses.replace(self.config, method=ENSEMBLE_METHOD)
            if self.config.on_features:
                return self._fit_ensemble(inputs, saved, started, bad=bad)
            found = extract_features(
                self.config, self.task, model, inputs, self.journal, self.accelerator
            )
            return self._fit_ensemble(Features(found.float()), saved, started, bad, model)
        try:
            self._resolve_auto(model, inputs)
            if saved is None or not (self.folder / ESTIMATES).exists():
                self._estimate_labels(model, inputs)
        except KeyboardInterrupt as stop:
            self.journal.log(
                "stopped before the training; the same command starts again (with --budget 0 auto "
                "tries no settings)"
            )
            raise Interrupted from stop
        self.identity = identify(self.config, self.task)
        self._write_config(saved)
        try:
            with catch_stop_signals() as stop_asked:
                stages = self._make_stages(stop_asked)
                reached = stages.train(model, inputs, saved)
            best, model, inputs = stages.load_best(model, inputs)
            # The second of two trainings needs the model of the first.
            self.best_model = model, inputs
            result = evaluate_run(self.config, self.task, model, inputs, best, self.accelerator)
        except Interrupted:
            self.journal.log(
                "stopped; everything is saved. Continue with:\n"
                f"  halftruth train --resume --out {shlex.quote(str(self.whole))}"
            )
            raise
        finally:
            self.journal.close()
        result.criterion, result.best_score = reached.criterion, reached.kept
        result.bad_images = bad
        self._write_results(result, time.perf_counter() - started)
        self.journal.log(result.describe())
        return result

    # ------------------------------------------------------------------ before training

    def _hint_at_complete_labels(self) -> None:
        """Log a hint at `--zero absent` if the labels look complete and 0 means unknown."""
        many = has_many_classes(self.task.labels)
        if "zero" in self.config.reading or self.config.truth or many:
            return
        if hint := completeness_hint(self.task.labels.select(self.task.splits.train)):
            self.journal.log(f"hint: {hint}")

    def _report_unused_val(self) -> None:
        """Warn where `val` was set, but the label file names the validation rows."""
        column = self.task.labels.split
        if column is None or self.config.val is None or not len(named_splits(column).val):
            return
        self.journal.log(
            "warning: --val has no effect, since the split column names the validation rows; "
            "leave it out, or remove those rows from the column"
        )

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Lock the run folder in the main process; all processes fail if it cannot be locked."""
        with ExitStack() as lock:
            problem: list[Any] = [None]
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

    def _refuse_overwriting(self, resume: bool) -> None:
        if not resume and (self.folder / LAST).exists():
            raise CheckpointError(
                f"{self.whole} already holds a run: continue it (--resume), or choose another "
                "folder (--out)"
            )

    def _load_last(self, resume: bool) -> dict[str, Any] | None:
        """Return the checkpoint to continue from, if there is one."""
        self._refuse_overwriting(resume)
        last = self.folder / LAST
        return load_checkpoint(last) if last.exists() else None

    def _resolve_auto(self, model: Classifier, inputs: Inputs) -> None:
        """Replace "auto" by a method and settings for a network, and log the reasons."""
        if self.config.method != AUTO:
            return
        task = self.task
        labels = task.labels.values
        self.config, choice = resolve_auto(
            self.config, labels[task.splits.train], model.feature_dim,
            plain=task.labels.soft is None,
        )  # fmt: skip
        found: list[str] = []
        if (features := self._get_features_for_search(model, inputs, choice)) is not None:
            self.config, found = search_settings(
                self.config, choice, features, torch.from_numpy(labels),
                task.splits.train, self.accelerator, log=self.journal.log, groups=task.groups,
            )  # fmt: skip
        self.journal.log("auto: " + "\n      ".join([*choice.reasons, *found]))

    def _test_label_bias(self, model: Classifier, inputs: Inputs) -> None:
        """Train only a head on images if frequent classes are named first.

        A network learns which classes are named next to which, and then finds a class only in
        pictures in which it would have been named. Frozen features do not.
        """
        config, task = self.config, self.task
        head = dataclasses.replace(config, tune="head")
        rows = task.splits.train
        if config.tune != "head-first" or not head.fits_ensemble:
            return
        if task.labels.soft is not None or not shows_one(task.labels.values[rows]):
            return
        features = extract_features(config, task, model, inputs, self.journal, self.accelerator)
        prepared = prepare_features(features.float().cpu().numpy()[rows])
        bias = find_label_bias(prepared, task.labels.values[rows], config.seed)
        if bias is None or not bias.found:
            return
        self.journal.log(
            "auto: frequent classes are named first in these labels. A network would learn that, "
            "so the backbone stays as it is and an ensemble on its features is fitted, for which "
            "settings of training have no effect (--method em trains the network anyway)"
        )
        self.config = head
        if head.val is None:
            # An ensemble needs no rows to choose an epoch.
            task.splits = release_validation(task)

    def _get_features_for_search(
        self, model: Classifier, inputs: Inputs, choice: Choice
    ) -> Tensor | None:
        """Return the features of all rows, if settings of a head on features may be tried."""
        config = self.config
        if not heads.get(config.head).has_linear_layer or not Budget(choice.budget).allows(0):
            return None
        if config.tune == "all":
            return None
        return self._extract_features(model, inputs).float()

    def _train_teacher(self, resume: bool) -> "Run | None":
        """Train the teacher, if the method has one."""
        config = make_teacher_config(self.config)
        if config is None:
            return None
        first = Run(config, quiet=self.quiet, part_of=self.folder)
        if first._load_last(resume) is None and self.main:
            # Resuming needs the settings of the whole run, not only those of the teacher.
            write_text(self.folder / "config.yaml", self.config.to_yaml())
        self.journal.log("first training: the model that will label the training rows")
        first.go(resume=resume)
        self.journal.log("second training: from scratch, with the labels of the first model")
        return first

    def _load_inputs(self, model: Classifier) -> tuple[Inputs, list[tuple[str, str]]]:
        task = self.task
        if task.features is not None:
            if task.bad_images:
                path = self.folder / "bad_images.csv"
                if self.main:
                    write_bad_images(path, task.bad_images)
                self.journal.log(
                    f"{len(task.bad_images):,} images cannot be read and are left out: see {path}"
                )
            return make_inputs(task.features), task.bad_images
        self.images: tuple[Images, list[tuple[str, str]]]
        if self.first is None:
            self.images = read_images(self.config, task, model, self.journal, self.accelerator)
        else:
            self.images = self.first.images
        inputs, bad = self.images
        if bad:
            self._leave_out_bad_images(bad)
        return inputs, bad

    def _leave_out_bad_images(self, bad: list[tuple[str, str]]) -> None:
        """Write the list of unreadable images; fail, or continue without their rows."""
        task, path = self.task, self.folder / "bad_images.csv"
        if self.main:
            write_bad_images(path, bad)
        if self.config.bad_images == "fail":
            raise DataError(f"{describe_bad(bad, len(task.names))} All are listed in {path}")
        if len(bad) == len(task.names):
            raise DataError(
                f"none of the {len(bad):,} images can be read; the first is {bad[0][0]}: "
                f"{bad[0][1]}. All are listed in {path}"
            )
        lost = {name for name, _ in bad}
        rows = [row for row, name in enumerate(task.names) if name in lost]
        task.splits = remove_rows(task.splits, np.array(rows))
        check_parts(task, self.config)
        self.journal.log(f"{len(bad):,} images cannot be read and are left out: see {path}")

    def _write_config(self, saved: dict[str, Any] | None) -> None:
        if saved is not None:
            for note in check_same_run(saved["identity"], self.identity, self.folder / LAST):
                self.journal.log(f"changed since the checkpoint: {note}")
        if self.main:
            write_text(self.folder / "config.yaml", self.config.to_yaml())
            if saved is None:
                for name in (METRICS, HISTOGRAMS):
                    (self.folder / name).unlink(missing_ok=True)

    def _estimate_labels(self, model: Classifier, inputs: Inputs) -> None:
        """Write P(present) of the training rows for a method that leans towards it."""
        if not losses.registry.get(self.config.method).teacher_on_features:
            return
        features = self._extract_features(model, inputs).float().cpu().numpy()
        if self.main:
            fitted = fit_ensemble_to_task(
                features, self.task, self.config.seed, self.accelerator.device, self.journal.log
            )
            found = estimate_labels(self.config, self.task, fitted[1])
            save_estimates(self.folder / ESTIMATES, found)
            if self.config.frozen_ensemble:
                # The same ensemble; fitted again only where a run is continued.
                self.frozen = fitted
        self.accelerator.wait_for_everyone()

    def _extract_features(self, model: Classifier, inputs: Inputs) -> Tensor:
        """Return the features of all rows: those of the run, or of the network before training."""
        config, task = self.config, self.task
        if task.features is not None and not config.tunes_encoder:
            return torch.as_tensor(task.features)
        return extract_features(config, task, model, inputs, self.journal, self.accelerator)

    def _make_stages(self, stop_asked: Callable[[], bool]) -> Stages:
        teacher = None
        if self.first is not None:
            size = 2 * self.config.batch_size
            teacher = make_teacher(*self.first.best_model, self.accelerator, size)
        elif losses.registry.get(self.config.method).teacher_on_features:
            teacher = make_teacher_of_estimates(self.folder / ESTIMATES, self.accelerator)
        return Stages(
            self.config, self.task, self.accelerator, self.journal, self.folder, self.identity,
            stop_asked, teacher, self.frozen,
        )  # fmt: skip

    # ------------------------------------------------------------------ models without epochs

    def _fit_at_once(
        self,
        stage: str,
        saved: dict[str, Any] | None,
        fit: Callable[[], tuple[Classifier, dict[str, Any]]],
    ) -> dict[str, Any]:
        """Fit a model that is not trained by epochs, unless it is saved; return its checkpoint."""
        self.identity = identify(self.config, self.task)
        self._write_config(saved)
        files = Checkpoints(self.folder, self.accelerator, self.identity)
        if saved is None:
            try:
                model, more = fit()
                files.save_best(model, stage, 0, more)
                files.save_last({"progress": {"stage": stage}})
            except KeyboardInterrupt as stop:
                self.journal.log("stopped; nothing is saved yet. The same command starts again")
                raise Interrupted from stop
        return files.best()

    def _fit_ensemble(
        self,
        inputs: Inputs,
        saved: dict[str, Any] | None,
        started: float,
        bad: Sequence[tuple[str, str]] = (),
        network: Classifier | None = None,
    ) -> Result:
        """Fit the ensemble of auto to features, and evaluate it.

        `network`: whose features of images these are.
        """
        config, task, journal = self.config, self.task, self.journal
        matrix = task.features
        if network is not None:
            assert isinstance(inputs, Features)
            matrix = inputs.features.cpu().numpy()
        assert matrix is not None
        best = self._fit_at_once(
            ENSEMBLE, saved,
            lambda: fit_ensemble_to_task(
                matrix, task, config.seed, self.accelerator.device, journal.log, network
            ),
        )  # fmt: skip
        model, given = load_ensemble(best, matrix.shape[1], len(task.classes))
        result = evaluate_run(config, task, model, inputs, best, self.accelerator, given)
        result.members, result.bad_images = best["members"], list(bad)
        assert result.details is not None
        held = result.details.held
        result.criterion = f"{held}_mAP"
        result.best_score = result.get_observed(held).get("mAP", math.nan)
        journal.write({"stage": ENSEMBLE, "epoch": 1, result.criterion: result.best_score})
        journal.close()
        self._write_results(result, time.perf_counter() - started)
        journal.log(result.describe())
        return result

    def _fit_many_classes(self, saved: dict[str, Any] | None, started: float) -> Result:
        """Fit the model of many classes, and evaluate it by blocks of rows and classes."""
        task, journal = self.task, self.journal
        journal.log(f"{len(task.classes):,} classes: labels stay sparse; {LEFT_OUT}")
        if line := describe_many_memory(task):
            journal.log(line)
        best = self._fit_at_once(
            MANY, saved, lambda: fit_many_to_task(self.config, task, journal.log)
        )
        result, pooled, table = evaluate_many(self.config, task, load_many(best, task))
        journal.write({"stage": MANY, "epoch": 1, "val_mAP": result.best_score})
        journal.close()
        if self.main:
            write_text(self.folder / RESULT, result.to_json())
            write_text(self.folder / "classes.csv", to_csv_text(table))
            with replace_file(self.folder / OUT_OF_SAMPLE) as new, new.open("wb") as file:
                np.savez_compressed(file, pooled=pooled)
        journal.log(result.describe())
        journal.log(f"finished in {time.perf_counter() - started:.0f} s")
        return result

    # ------------------------------------------------------------------ after training

    def _write_results(self, result: Result, seconds: float) -> None:
        details = result.details
        assert details is not None
        details.seconds = seconds + self.journal.seconds_before
        if self.main:
            write_text(self.folder / RESULT, result.to_json())
            write_text(self.folder / "classes.csv", to_csv_text(details.classes))
            counts: dict[str, Any] = {**details.histograms}
            with replace_file(self.folder / "class_histograms.npz") as new, new.open("wb") as file:
                np.savez_compressed(file, **counts)
            held = details.out_of_sample
            with replace_file(self.folder / OUT_OF_SAMPLE) as new, new.open("wb") as file:
                np.savez_compressed(file, **held.to_arrays(self.task.labels))
            if details.rows_to_label is not None:
                items, rows = self.task.labels.items, details.rows_to_label
                names = rows + 1 if items is None else items[rows]
                write_text(self.folder / ROWS_TO_LABEL, "".join(f"{name}\n" for name in names))
