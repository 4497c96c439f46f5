"""One stage of training, to be read from top to bottom: `Stage.run` is the whole story."""

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
from halftruth.train.batches import Batches, seed_step
from halftruth.train.checkpoint_files import BEST, HEAD, Keeper
from halftruth.train.config import Config
from halftruth.train.criterion import criterion
from halftruth.train.crops import crop_boxes
from halftruth.train.epoch_record import epoch_record
from halftruth.train.inputs import Images, Inputs
from halftruth.train.journal import Journal
from halftruth.train.loss_views import estimates, show_scores, takes_batches
from halftruth.train.optimizer import ridge_decay
from halftruth.train.schedule import rate
from halftruth.train.scoring import outputs
from halftruth.train.stage_progress import Interrupted, Progress, TrainingStopped
from halftruth.train.step import Learner
from halftruth.train.teacher import Teacher

# Looking at a loss waits for the device, asking about a stop for the other processes.
_LOOK_EVERY = 50
_ASK_EVERY = 20


@dataclass
class Stage:
    """A model, its inputs, a loss and a plan; `run()` trains it.

    As it is by default it says nothing and leaves nothing on disk.
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
    journal: Journal = field(default_factory=lambda: Journal(None, quiet=True))
    folder: Path | None = None
    select_on_truth: bool = False
    identity: dict[str, Any] = field(default_factory=dict)
    stop_asked: Callable[[], bool] = lambda: False
    teacher: Teacher | None = None

    def __post_init__(self) -> None:
        config, accelerator = self.config, self.accelerator
        self.device = device = accelerator.device
        self.rank, self.world = accelerator.process_index, accelerator.num_processes
        self.kept = Keeper(
            self.folder, accelerator, self.identity, HEAD if self.name == "head" else BEST
        )
        self.batches = Batches(
            self.train_rows, config.batch_size, config.seed, self.rank, self.world
        )
        rows = torch.as_tensor(self.train_rows, device=device)
        self.labels = self.labels.to(device)
        self.criterion = criterion(self)
        self.progress = Progress(self.name, criterion=self.criterion)
        # A lookup from rows of the table to rows of the training set: what a memory is indexed by.
        self.place = torch.full((len(self.labels),), -1, device=device)
        self.place[rows] = torch.arange(len(rows), device=device)
        self.loss.place_memory(config.memory, together=self.world > 1)
        self.loss.to(device)
        self.loss.begin(self.labels[rows])
        if self.teacher is not None:
            self.teacher(self.loss, self.train_rows, self.place)
        if not self.model.image_size and not config.hidden and not config.weight_decay:
            dim, classes = self.model.feature_dim, self.labels.shape[1]
            decay = ridge_decay(self.loss, config, len(rows), dim, classes)
            # The loss is a mean over all members: each gets 1/members of its gradient alone.
            decay /= len(self.model.head.members)
            config = dataclasses.replace(config, weight_decay=decay)
        # Augmentation is some forty small calls: on a GPU one graph of them.
        self.prepare: Callable[[Tensor, Tensor], Tensor] = self._augmented
        if config.graphs and device.type == "cuda" and self.model.image_size:
            self.prepare = Captured(self._augmented)
        pictures = self.epochs * len(self.train_rows)
        self.learner = Learner(
            self.model, self.loss, accelerator, config, self.lr, self.head_lr, pictures
        )

    # ------------------------------------------------------------------ the story

    def run(self) -> Progress:
        """Train from where `progress` stands to the end."""
        at = self.progress
        while at.epoch < self.epochs and not self._out_of_patience():
            started = time.perf_counter()
            self.loss.start_epoch(at.epoch, self.epochs)
            self._train_epoch()
            self._end_epoch_of_loss()
            record = epoch_record(self)
            score = record.get("select", math.nan)
            improved = self._is_better(score)
            if improved:
                at.best, at.best_epoch, at.criterion = score, at.epoch, self.criterion
            if improved or (self.config.select == "last" and not score < at.floor):
                at.kept = score
                # Only the stage after a head alone has a use for labels estimated beside it.
                more = estimates(self.loss) if self.name == "head" else {}
                self.kept.save_best(self.learner.evaluated, self.name, at.epoch, more)
            at.epoch, at.step, at.total, at.records = at.epoch + 1, 0, 0.0, at.records + 1
            record["seconds"] = time.perf_counter() - started
            self.journal.write(record)
            self.save()
            self.journal.tell(record, self.epochs, self.criterion, improved)
            if self._all_stop():
                raise Interrupted
        return at

    def _is_better(self, score: float) -> bool:
        """Whether an epoch is the best so far; any is, where there is nothing to choose by."""
        at = self.progress
        return at.criterion != self.criterion or not score <= at.best

    def _train_epoch(self) -> None:
        at, steps = self.progress, self.batches.steps
        self.batches.epoch, self.batches.start = at.epoch, at.step
        look_every = 1 if self.device.type == "cpu" and self.world == 1 else _LOOK_EVERY
        losses: list[Tensor] = []
        self.learner.forward.train()
        text = f"{self.name} {at.epoch + 1}/{self.epochs}"
        with self.journal.progress(text, steps, at.step) as advance:
            for raw, rows in self.inputs.load(self.batches, self.device):
                losses.append(self._step(raw, rows))
                at.step += 1
                advance()
                pause = at.step < steps and self._pause_here()
                if pause or len(losses) == look_every:
                    self._take_in(losses)
                if pause:
                    self.save()
                    if self._all_stop():
                        raise Interrupted
        self._take_in(losses)

    def _step(self, raw: Tensor, rows: Tensor) -> Tensor:
        at, config, steps = self.progress, self.config, self.batches.steps
        seed_step(config.seed, at.epoch, at.step, self.rank, self.device)
        # A row's augmentation is drawn from its key: the same in any batch, on any process.
        epoch = config.seed * 1_000_003 + at.epoch
        keys = epoch * len(self.labels) + rows
        x = self.prepare(raw, keys)
        return self.learner.step(
            x,
            self.labels[rows],
            self.place[rows] if self.loss.needs_index else None,
            weight=self.batches.weight(at.step),
            rate=rate(
                config.schedule, at.epoch * steps + at.step, steps * self.epochs, config.warmup
            ),
            boxes=self._boxes(keys),
        )

    def _augmented(self, raw: Tensor, keys: Tensor) -> Tensor:
        return self.inputs.prepare(raw, keys=keys, views=self.loss.views)

    def _boxes(self, keys: Tensor) -> Tensor | None:
        if self.learner.spatial is None:
            return None
        assert isinstance(self.inputs, Images)
        if self.loss.views > 1:
            # Of several views the first is the picture itself.
            return torch.tensor([[0.0, 0.0, 1.0, 1.0]], device=keys.device).expand(len(keys), 4)
        return crop_boxes(self.inputs.augment, keys)

    def _end_epoch_of_loss(self) -> None:
        """Scores for a method that needs them; then all processes remember the same."""
        scores, model = None, self.learner.evaluated
        if self.loss.needs_scores and takes_batches(self.loss):
            size = 2 * self.config.batch_size
            rows, place = self.train_rows, self.place
            hear = self.loss.observe
            show_scores(hear, model, self.inputs, rows, place, self.accelerator, size)
        elif self.loss.needs_scores:
            scores = self.score(self.train_rows)
        self.learner.merge_memory()
        self.loss.end_epoch(scores)

    # ------------------------------------------------------------------ when to stop

    def _take_in(self, losses: list[Tensor]) -> None:
        """Add up the losses of the last steps, one after the other; refuse one that is none."""
        if not losses:
            return
        values, first = torch.stack(losses), self.progress.step - len(losses)
        losses.clear()
        if self.world > 1:
            values = self.accelerator.reduce(values, "mean")
        for step, value in enumerate(values.tolist(), start=first):
            if not math.isfinite(value):
                self._refuse_bad_loss(step)
            self.progress.total += value

    def _refuse_bad_loss(self, step: int) -> NoReturn:
        epoch = self.progress.epoch
        rows = self.batches.of_step(epoch, step)
        listed = ", ".join(map(str, rows[:8])) + (", ..." if len(rows) > 8 else "")
        raise TrainingStopped(
            f"the loss became NaN or infinite in epoch {epoch + 1}, batch {step + 1} of stage "
            f"{self.name} (rows {listed} of the label file, counted from 0). The last checkpoint "
            "is from before that. A lower rate (--lr, --head-lr), clipping (--clip 1) or "
            "--precision no usually helps, also with --resume; look at those rows, too"
        )

    def _pause_here(self) -> bool:
        every, step = self.config.checkpoint_every, self.progress.step
        return bool(every and step % every == 0) or self._all_stop(step)

    def _all_stop(self, step: int = 0) -> bool:
        """Whether any process was asked to stop; all of them have to hear of it at one step."""
        if self.world == 1:
            return self.stop_asked()
        if step % _ASK_EVERY:
            return False
        asked = torch.tensor(float(self.stop_asked()), device=self.device)
        return bool(self.accelerator.reduce(asked, "sum") > 0)

    def _out_of_patience(self) -> bool:
        at, patience = self.progress, self.config.patience
        if patience is None or at.step or at.epoch - 1 - at.best_epoch < patience:
            return False
        self.journal.say(f"no better epoch in {patience}: stage {self.name} stops early")
        return True

    def score(self, rows: np.ndarray) -> Tensor:
        """The logits of the model as it is evaluated, on some rows."""
        model = self.learner.evaluated.eval()
        return outputs(model, self.inputs, rows, self.accelerator, 2 * self.config.batch_size)

    # ------------------------------------------------------------------ what is kept

    def save(self) -> None:
        """Everything needed to go on from this very step; nothing where there is no folder."""
        if self.folder is not None:
            self.learner.merge_memory()
            self.kept.save_last({"progress": vars(self.progress), **self.learner.state()})

    def resume(self, saved: dict[str, Any]) -> None:
        """Take up a checkpoint of this stage."""
        self.learner.load(saved)
        self.progress = Progress(**saved["progress"])
        if self.progress.criterion != self.criterion:
            self.progress.floor = -math.inf
        self.journal.rewind(self.progress.records)

    def best(self) -> dict[str, Any]:
        """The best weights so far, with the stage and epoch they are from."""
        return self.kept.best()
