"""One stage of training, to be read from top to bottom: `Stage.run` is the whole story."""

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
from accelerate import Accelerator, DistributedType
from torch import Tensor

from halftruth.losses import Loss
from halftruth.metrics import mean_average_precision
from halftruth.models import EMA, Classifier, apply_frozen, parameter_groups
from halftruth.train import checkpoint
from halftruth.train.config import Config
from halftruth.train.inputs import Inputs
from halftruth.train.journal import Journal
from halftruth.train.order import Batches, seed_step
from halftruth.train.schedule import rate
from halftruth.train.scores import outputs


_BARE = (DistributedType.NO, DistributedType.MULTI_CPU, DistributedType.MULTI_GPU)


class TrainingStopped(RuntimeError):
    """Training could not go on; the last checkpoint is good."""


class Interrupted(KeyboardInterrupt):
    """The user asked to stop; everything is saved."""


@dataclass
class Progress:
    """Where a stage is: all of it goes into the checkpoint."""

    stage: str
    epoch: int = 0
    step: int = 0
    best: float = -math.inf
    best_epoch: int = -1
    records: int = 0
    sums: Tensor = field(default_factory=lambda: torch.zeros(2, dtype=torch.float64))


@dataclass
class Stage:
    """A model, its inputs, a loss and a plan; `run()` trains it."""

    name: str
    model: Classifier
    inputs: Inputs
    loss: Loss
    labels: Tensor
    truth: Tensor | None
    train_rows: np.ndarray
    val_rows: np.ndarray
    config: Config
    accelerator: Accelerator
    journal: Journal
    folder: Path | None
    epochs: int
    lr: float
    head_lr: float
    select_on_truth: bool
    identity: dict[str, Any]
    stop_asked: Callable[[], bool] = lambda: False
    # Rows of journal entries that earlier stages have written.
    earlier_records: int = 0

    def __post_init__(self) -> None:
        config, accelerator = self.config, self.accelerator
        self.device = accelerator.device
        self.batches = Batches(
            self.train_rows,
            config.batch_size,
            config.seed,
            accelerator.process_index,
            accelerator.num_processes,
        )
        self.labels = self.labels.to(self.device)
        self.loss.to(self.device)
        self.loss.begin(self.labels[torch.as_tensor(self.train_rows, device=self.device)])
        self.model.to(self.device)
        if config.channels_last and self.device.type == "cuda":
            self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        groups = parameter_groups(self.model, self.lr, self.head_lr, config.weight_decay)
        for group in groups:
            group["full_lr"] = group["lr"]
        self.ema = EMA(self.model, config.ema) if config.ema else None
        self.optimizer = make_optimizer(config.optimizer, groups, self.device)
        forward = torch.compile(self.model) if config.compile else self.model
        self.forward, self.stepper = accelerator.prepare(forward, self.optimizer)
        # Accelerate looks for optional packages at every call, longer than a small step takes;
        # without loss scaling it has nothing to add to the optimiser and the backward pass.
        self.bare = accelerator.scaler is None and accelerator.distributed_type in _BARE
        if self.bare:
            self.stepper = self.optimizer
        # A lookup from rows of the table to rows of the training set: what a memory is indexed by.
        self.place = torch.full((len(self.labels),), -1, device=self.device)
        rows = torch.as_tensor(self.train_rows, device=self.device)
        self.place[rows] = torch.arange(len(rows), device=self.device)
        self.progress = Progress(self.name, records=self.earlier_records)
        self._best: dict[str, Any] = {}

    # ------------------------------------------------------------------ the story

    def run(self) -> Progress:
        """Train from where `progress` stands to the end."""
        at = self.progress
        while at.epoch < self.epochs:
            started = time.perf_counter()
            self.loss.start_epoch(at.epoch, self.epochs)
            self._train_epoch()
            scores = self._score(self.train_rows) if self.loss.needs_scores else None
            self.loss.end_epoch(scores)
            record = self._evaluate()
            record["seconds"] = time.perf_counter() - started
            # Without validation rows there is nothing to choose by: the last epoch is kept.
            improved = not len(self.val_rows) or record["select"] > at.best
            if improved:
                at.best, at.best_epoch = record.get("select", math.nan), at.epoch
                self._keep_best()
            at.epoch, at.step, at.records = at.epoch + 1, 0, at.records + 1
            at.sums.zero_()
            self.journal.write(record)
            self.save()
            self._tell(record, improved)
            patience = self.config.patience
            if patience is not None and at.epoch - 1 - at.best_epoch >= patience:
                self.journal.say(f"no better epoch in {patience}: {self.name} stops early")
                break
            if self._all_stop():
                raise Interrupted
        return at

    def _train_epoch(self) -> None:
        at, config = self.progress, self.config
        self.batches.epoch, self.batches.start = at.epoch, at.step
        steps, rank = self.batches.steps, self.accelerator.process_index
        values: list[Tensor] = []
        self.forward.train()
        apply_frozen(self.model)
        text = f"{self.name} {at.epoch + 1}/{self.epochs}"
        with self.journal.progress(text, steps, at.step) as advance:
            for raw, rows in self.inputs.load(self.batches, self.device):
                step = at.step
                seed_step(config.seed, at.epoch, step, rank, self.device)
                weight = self.batches.weight(step)
                value = self._loss(raw, rows)
                value = value if weight == 1 else value * weight
                if self.bare:
                    value.backward()
                else:
                    self.accelerator.backward(value)
                if config.clip:
                    self.accelerator.clip_grad_norm_(self.model.parameters(), config.clip)
                self._set_rate(at.epoch * steps + step)
                self.stepper.step()
                self.stepper.zero_grad(set_to_none=True)
                if self.ema is not None:
                    self.ema.update(self.model)
                # No waiting for the device here: a bad loss is found out below.
                values.append(value.detach())
                at.step += 1
                advance()
                if at.step < steps and self._pause_here():
                    self._add_up(values)
                    self.save()
                    if self._all_stop():
                        raise Interrupted
        self._add_up(values)

    def _loss(self, raw: Tensor, rows: Tensor) -> Tensor:
        views = self.loss.views
        # A row's augmentation is drawn from its key: the same in any batch, on any process.
        epoch = self.config.seed * 1_000_003 + self.progress.epoch
        keys = epoch * len(self.labels) + rows
        x = self.inputs.prepare(raw, keys=keys, views=views)
        if self.config.channels_last and self.device.type == "cuda" and x.dim() == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        logits = self.forward(x)
        if views > 1:
            logits = logits.view(views, len(rows), -1)
        value = self.loss(logits, self.labels[rows], index=self.place[rows])
        if self.config.l1:
            value = value + self.config.l1 * sum(p.abs().sum() for p in self.model.parameters())
        return value

    def _set_rate(self, step: int) -> None:
        config = self.config
        factor = rate(config.schedule, step, self.epochs * self.batches.steps, config.warmup)
        for group in self.optimizer.param_groups:
            group["lr"] = group["full_lr"] * factor

    def _pause_here(self) -> bool:
        every, step = self.config.checkpoint_every, self.progress.step
        return bool(every and step % every == 0) or self._all_stop(step)

    def _all_stop(self, step: int = 0) -> bool:
        """Whether any process was asked to stop; all of them have to hear of it at one step."""
        if self.accelerator.num_processes == 1:
            return self.stop_asked()
        if step % 20:
            return False
        asked = torch.tensor(float(self.stop_asked()), device=self.device)
        return bool(self.accelerator.reduce(asked, "sum") > 0)

    def _add_up(self, values: list[Tensor]) -> None:
        """Take in the losses of the last steps, one after the other as if there were no pauses."""
        at = self.progress
        first = at.step - len(values)
        numbers = torch.stack(values).tolist() if values else []
        values.clear()
        for place, number in enumerate(numbers):
            if not math.isfinite(number):
                self._refuse_bad_loss(first + place)
            at.sums[0] += number
        at.sums[1] += len(numbers)

    def _refuse_bad_loss(self, step: int) -> NoReturn:
        at = self.progress
        rows = self.batches.of_step(at.epoch, step)
        raise TrainingStopped(
            f"the loss became NaN or infinite in epoch {at.epoch + 1}, batch {step + 1} "
            f"(rows {', '.join(map(str, rows[:8]))}{', ...' if len(rows) > 8 else ''} of the label "
            "file). The last checkpoint is from before that. A lower learning rate (--lr), "
            "clipping (--clip 1) or --precision bf16 usually helps; look at those rows, too"
        )

    # ------------------------------------------------------------------ evaluation

    @property
    def evaluated(self) -> Classifier:
        """The model that is evaluated and kept: the average of the weights where there is one."""
        return self.model if self.ema is None else self.ema.module  # type: ignore[return-value]

    def _score(self, rows: np.ndarray) -> Tensor:
        model = self.evaluated.eval()
        return outputs(model, self.inputs, rows, self.accelerator, 2 * self.config.batch_size)

    def _evaluate(self) -> dict[str, Any]:
        at = self.progress
        record: dict[str, Any] = {
            "stage": self.name,
            "epoch": at.epoch,
            "loss": float(at.sums[0] / at.sums[1].clamp(min=1)),
            "lr": self.optimizer.param_groups[-1]["lr"],
        }
        if not len(self.val_rows):
            return record
        scores = self._score(self.val_rows)
        rows = torch.as_tensor(self.val_rows, device=self.device)
        record["val_mAP_observed"] = mean_average_precision(scores, self.labels[rows])
        if self.truth is not None:
            truth = self.truth.to(self.device)[rows]
            record["val_mAP"] = mean_average_precision(scores, truth)
        record["select"] = record["val_mAP" if self.select_on_truth else "val_mAP_observed"]
        if math.isnan(record["select"]):
            raise TrainingStopped(
                "the validation rows hold no present label, so no epoch can be chosen; give more "
                "rows to validation (--val) or a split column with labelled validation rows"
            )
        return record

    def _tell(self, record: dict[str, Any], improved: bool) -> None:
        shown = f"{self.name} epoch {record['epoch'] + 1}/{self.epochs}: loss {record['loss']:.5f}"
        if "select" in record:
            shown += f", validation mAP {100 * record['select']:.2f}"
            shown += "" if self.select_on_truth else " on the observed labels"
        if "val_mAP" in record and not self.select_on_truth:
            shown += f" ({100 * record['val_mAP']:.2f} on the truth)"
        self.journal.say(f"{shown}, {record['seconds']:.1f} s{'  *' if improved else ''}")

    # ------------------------------------------------------------------ what is kept

    def save(self) -> None:
        """Everything needed to go on from this very step; nothing where there is no folder."""
        self.accelerator.wait_for_everyone()
        if not self.accelerator.is_main_process or self.folder is None:
            return
        scaler = self.accelerator.scaler
        checkpoint.save(
            self.folder / "last.safetensors",
            {
                "identity": self.identity,
                "progress": vars(self.progress),
                "model": self.model.state_dict(),
                "ema": None if self.ema is None else self.ema.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "loss": dict(self.loss.state_dict()),
                "scaler": None if scaler is None else scaler.state_dict(),
            },
        )

    def resume(self, saved: dict[str, Any]) -> None:
        """Take up a checkpoint of this stage."""
        self.model.load_state_dict(saved["model"])
        if self.ema is not None:
            self.ema.load_state_dict(saved["ema"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.loss.load_state_dict(saved["loss"])
        if self.accelerator.scaler is not None and saved["scaler"] is not None:
            self.accelerator.scaler.load_state_dict(saved["scaler"])
        self.progress = Progress(**saved["progress"])
        self.journal.rewind(self.progress.records)

    def _keep_best(self) -> None:
        """The weights alone: what predict and evaluate need."""
        tree: dict[str, Any] = {"identity": self.identity, "stage": self.name}
        tree |= {"epoch": self.progress.epoch, "model": self.evaluated.state_dict()}
        if self.name == "head":
            tree["head_only"] = True
        self.keep(tree)

    def keep(self, tree: dict[str, Any]) -> None:
        """Hold on to the best weights: in the folder, or here where there is none."""
        if self.folder is None:
            self._best = copy.deepcopy(tree)
        elif self.accelerator.is_main_process:
            checkpoint.save(self.folder / "best.safetensors", tree)

    def best(self) -> dict[str, Any]:
        """The best weights so far, with the stage and epoch they are from."""
        self.accelerator.wait_for_everyone()
        return (
            self._best if self.folder is None else checkpoint.load(self.folder / "best.safetensors")
        )


def make_optimizer(
    name: str, groups: list[dict[str, Any]], device: torch.device
) -> torch.optim.Optimizer:
    """Adam, AdamW or SGD with momentum; few and fast kernels where torch has them."""
    fused = device.type in ("cpu", "cuda")
    if name == "sgd":
        return torch.optim.SGD(groups, momentum=0.9, fused=fused)
    kind = torch.optim.Adam if name == "adam" else torch.optim.AdamW
    return kind(groups, fused=fused)
