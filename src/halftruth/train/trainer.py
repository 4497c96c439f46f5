"""One stage of training: `Trainer.run` trains epochs, evaluates them and keeps the best."""

import dataclasses
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from halftruth.losses import Loss
from halftruth.models import Classifier
from halftruth.models.cuda_graphs import Captured
from halftruth.train.config import Config
from halftruth.train.devices import keep_freed_memory, limit_threads
from halftruth.train.inputs.batches import Batches, Inputs, make_keys, seed_step
from halftruth.train.records import choose_criterion, make_epoch_record, measure_validation
from halftruth.train.run_folder import BEST, HEAD, Checkpoints
from halftruth.train.run_logger import RunLogger, StageClock
from halftruth.train.scoring import score_rows, send_scores
from halftruth.train.step import Learner, compute_learning_rate_factor, compute_ridge_decay

# The values of the setting `select` that keep the last epoch.
KEEP_LAST = ("last", "averaged")
# Steps between readings of the loss (which wait for the device) and between checks for a stop
# request (which wait for the other processes).
_READ_LOSS_EVERY = 50
_CHECK_STOP_EVERY = 20

# Lets a loss learn from a teacher: (loss, rows of the label table, sample of each row).
Teacher = Callable[[Loss, np.ndarray, Tensor], None]


class TrainingStopped(RuntimeError):
    """Training could not continue; the last checkpoint is valid."""


class Interrupted(KeyboardInterrupt):
    """The user asked to stop; everything is saved."""


@dataclass
class Progress:
    """The progress of a stage, stored in the checkpoint. Epochs are counted from 0 here."""

    stage: str
    epoch: int = 0
    step: int = 0
    # The sum of this epoch's losses so far.
    total: float = 0.0
    best: float = -math.inf
    best_epoch: int = -1
    # The key of an epoch's record that `best` is a value of, and its value in the kept epoch.
    criterion: str = ""
    kept: float = math.nan
    # The score of the stage before: an epoch with a lower score is not kept.
    floor: float = -math.inf
    # Lines of metrics.jsonl written so far, with those of earlier stages.
    records: int = 0


@dataclass
class Trainer:
    """A model with its inputs, labels, loss and settings; `run()` trains it.

    Without `logger` and `folder` it shows nothing and writes nothing.
    """

    name: str
    model: Classifier
    inputs: Inputs
    loss: Loss
    labels: Tensor
    train_rows: np.ndarray
    val_rows: np.ndarray
    config: Config
    accelerator: Accelerator
    epochs: int
    lr: float
    head_lr: float
    truth: Tensor | None = None
    logger: RunLogger = field(default_factory=lambda: RunLogger(None, quiet=True))
    folder: Path | None = None
    select_on_truth: bool = False
    identity: dict[str, Any] = field(default_factory=dict)
    stop_asked: Callable[[], bool] = lambda: False
    teacher: Teacher | None = None

    def __post_init__(self) -> None:
        config, accelerator = self.config, self.accelerator
        self.device = device = accelerator.device
        self.rank, self.world = accelerator.process_index, accelerator.num_processes
        self.checkpoints = Checkpoints(
            self.folder, accelerator, self.identity, HEAD if self.name == "head" else BEST
        )
        self.batches = Batches(
            self.train_rows, config.batch_size, config.seed, self.rank, self.world,
            getattr(self.inputs, "shards", None),
        )  # fmt: skip
        rows = torch.as_tensor(self.train_rows, device=device)
        self.labels = self.labels.to(device)
        self.criterion = choose_criterion(self)
        self.progress = Progress(self.name, criterion=self.criterion)
        # The sample in the training set of each row of the label table; a memory is indexed by it.
        self.place = torch.full((len(self.labels),), -1, device=device)
        self.place[rows] = torch.arange(len(rows), device=device)
        self.loss.place_memory(together=self.world > 1)
        self.loss.to(device)
        self.loss.begin(self.labels[rows])
        if self.teacher is not None:
            self.teacher(self.loss, self.train_rows, self.place)
        if not self.model.is_network and not config.hidden and not config.weight_decay:
            dim, classes = self.model.feature_dim, self.labels.shape[1]
            decay = compute_ridge_decay(self.loss, config, len(rows), dim, classes)
            config = dataclasses.replace(config, weight_decay=decay)
        # Augmentation has about forty small calls: on a GPU they become one graph.
        self.prepare: Callable[[Tensor, Tensor], Tensor] = self._augment
        if device.type == "cuda" and self.model.image_size:
            self.prepare = Captured(self._augment)
        images = self.epochs * len(self.train_rows)
        self.learner = Learner(
            self.model, self.loss, accelerator, config, self.lr, self.head_lr, images
        )

    # ------------------------------------------------------------------ training

    def run(self) -> Progress:
        """Train from the current progress to the end."""
        keep_freed_memory()
        with limit_threads(self._count_work(), self.device):
            return self._run_epochs()

    def _run_epochs(self) -> Progress:
        at = self.progress
        self.clock = StageClock(
            self.name, self.batches.steps, self.epochs - at.epoch,
            validation=len(self.val_rows) / len(self.train_rows), device=self.device,
            log=self.logger.log,
        )  # fmt: skip
        while at.epoch < self.epochs and not self._out_of_patience():
            started = time.perf_counter()
            self.loss.start_epoch(at.epoch, self.epochs)
            self._train_epoch()
            self._end_epoch_of_loss()
            record = make_epoch_record(self)
            score = record.get("select", math.nan)
            improved = self._is_better(score)
            if improved:
                at.best, at.best_epoch, at.criterion = score, at.epoch, self.criterion
            if improved or (self.config.select in KEEP_LAST and not score < at.floor):
                at.kept = score
                # The stage after the head alone continues from this state of the loss.
                more = self.loss.carried_state() if self.name == "head" else {}
                self.checkpoints.save_best(self.learner.evaluated, self.name, at.epoch, more)
            at.epoch, at.step, at.total, at.records = at.epoch + 1, 0, 0.0, at.records + 1
            record["seconds"] = time.perf_counter() - started
            self.logger.write(record)
            self.save()
            self.logger.log_epoch(record, self.epochs, self.criterion, improved)
            if self._is_stop_requested():
                raise Interrupted
        return at

    def _is_better(self, score: float) -> bool:
        """Return whether an epoch is the best so far; with a score of NaN every epoch is."""
        at = self.progress
        return at.criterion != self.criterion or not score <= at.best

    def _train_epoch(self) -> None:
        at, steps = self.progress, self.batches.steps
        self.batches.epoch, self.batches.start = at.epoch, at.step
        read_every = 1 if self.device.type == "cpu" and self.world == 1 else _READ_LOSS_EVERY
        losses: list[Tensor] = []
        self.learner.forward.train()
        text = f"{self.name} epoch {at.epoch + 1}/{self.epochs}"
        with self.logger.progress(text, steps, at.step) as advance:
            for raw, rows in self.inputs.load(self.batches, self.device):
                losses.append(self._step(raw, rows))
                at.step += 1
                self.clock.count_step()
                advance()
                pause = at.step < steps and self._should_pause()
                if pause or len(losses) == read_every:
                    self._add_losses(losses)
                if pause:
                    self.save()
                    if self._is_stop_requested():
                        raise Interrupted
        self._add_losses(losses)

    def _step(self, raw: Tensor, rows: Tensor) -> Tensor:
        at, config, steps = self.progress, self.config, self.batches.steps
        seed_step(config.seed, at.epoch, at.step, self.rank, self.device)
        keys = make_keys(config.seed, at.epoch, rows, len(self.labels))
        x = self.prepare(raw, keys)
        return self.learner.step(
            x,
            self.labels[rows],
            self.place[rows] if self.loss.needs_index else None,
            weight=self.batches.weight(at.step),
            rate=compute_learning_rate_factor(
                config.schedule, at.epoch * steps + at.step, steps * self.epochs, config.warmup
            ),
            boxes=self.inputs.crop_boxes(keys, self.loss.views) if self.loss.needs_maps else None,
        )

    def _augment(self, raw: Tensor, keys: Tensor) -> Tensor:
        return self.inputs.prepare(raw, keys=keys, views=self.loss.views)

    def _end_epoch_of_loss(self) -> None:
        """Give a method the scores it needs, and merge the memories of all processes."""
        scores = None
        if self.loss.needs_scores and self.loss.observes_batches:
            send_scores(
                self.loss.observe, self.learner.evaluated, self.inputs, self.train_rows, self.place,
                self.accelerator, 2 * self.config.batch_size,
            )  # fmt: skip
        elif self.loss.needs_scores:
            scores = self.score(self.train_rows)
        self.learner.merge_memory()
        self.loss.end_epoch(scores)

    def _count_work(self) -> float:
        """Return the multiply-adds of a forward pass; with images any number of threads is busy."""
        if self.model.is_network:
            return math.inf
        return self.config.batch_size * sum(p.numel() for p in self.model.parameters())

    # ------------------------------------------------------------------ when to stop

    def _add_losses(self, losses: list[Tensor]) -> None:
        """Add the losses of the last steps to the total; stop training if one is not finite."""
        if not losses:
            return
        values, first = torch.stack(losses), self.progress.step - len(losses)
        losses.clear()
        if self.world > 1:
            values = self.accelerator.reduce(values, "mean")
        for step, value in enumerate(values.tolist(), start=first):
            if not math.isfinite(value):
                self._stop_at_bad_loss(step)
            self.progress.total += value

    def _stop_at_bad_loss(self, step: int) -> NoReturn:
        epoch = self.progress.epoch
        rows = self.batches.get_rows_of_step(epoch, step)
        listed = ", ".join(map(str, rows[:8])) + (", ..." if len(rows) > 8 else "")
        raise TrainingStopped(
            f"the loss became NaN or infinite in epoch {epoch + 1}, batch {step + 1} of stage "
            f"{self.name} (rows {listed} of the label file, counted from 0). The last checkpoint "
            "is from an earlier step. A lower learning rate (--lr, --head-lr), clipping (--clip 1) "
            "or --precision no usually helps, also with --resume; check those rows, too"
        )

    def _should_pause(self) -> bool:
        every, step = self.config.checkpoint_every, self.progress.step
        return bool(every and step % every == 0) or self._is_stop_requested(step)

    def _is_stop_requested(self, step: int = 0) -> bool:
        """Return whether any process was asked to stop; all must stop at the same step."""
        if self.world == 1:
            return self.stop_asked()
        if step % _CHECK_STOP_EVERY:
            return False
        asked = torch.tensor(float(self.stop_asked()), device=self.device)
        return bool(self.accelerator.reduce(asked, "sum") > 0)

    def _out_of_patience(self) -> bool:
        at, patience = self.progress, self.config.patience
        if patience is None or at.step or at.epoch - 1 - at.best_epoch < patience:
            return False
        self.logger.log(f"no better epoch in {patience}: stage {self.name} stops early")
        return True

    def score(self, rows: np.ndarray) -> Tensor:
        """Return the logits of some rows, from the evaluated model."""
        return self.score_with(self.learner.evaluated, rows)

    def score_with(self, model: Classifier, rows: np.ndarray) -> Tensor:
        """Return the logits of some rows, from any model."""
        size = 2 * self.config.batch_size
        return score_rows(model.eval(), self.inputs, rows, self.accelerator, size)

    def measure(self, model: Classifier) -> float:
        """Return a model's value of the criterion on the validation rows; NaN without them."""
        if not len(self.val_rows):
            return math.nan
        return measure_validation(self, self.score_with(model, self.val_rows))["select"]

    # ------------------------------------------------------------------ checkpoints

    def save(self) -> None:
        """Save everything needed to continue from this step, if there is a folder."""
        if self.folder is not None:
            self.learner.merge_memory()
            self.checkpoints.save_last({"progress": vars(self.progress), **self.learner.state()})

    def resume(self, saved: dict[str, Any]) -> None:
        """Continue from a checkpoint of this stage."""
        self.learner.load(saved)
        self.progress = Progress(**saved["progress"])
        if self.progress.criterion != self.criterion:
            self.progress.floor = -math.inf
        self.logger.rewind(self.progress.records)

    def best(self) -> dict[str, Any]:
        """Return the best weights so far, with their stage and epoch."""
        return self.checkpoints.best()
