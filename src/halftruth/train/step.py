"""What changes while training: weights, their average, the optimiser, what a loss remembers."""

from typing import Any

import torch
from accelerate import Accelerator, DistributedType
from torch import Tensor

from halftruth.losses import Loss
from halftruth.losses.spatial import SpatialConsistency
from halftruth.models import EMA, Classifier
from halftruth.models.cuda_graphs import Passes
from halftruth.train.config import Config
from halftruth.train.optimizer import load_optimizer, make_groups, make_optimizer
from halftruth.train.update import Update

# Pictures of 224 px from which the minute a compiler takes has come back on one large GPU.
WORTH_COMPILING = 400_000
_BARE = (DistributedType.NO, DistributedType.MULTI_CPU, DistributedType.MULTI_GPU)


class Learner:
    """A model, a loss and an optimiser on their device: `step` learns from one batch."""

    def __init__(
        self,
        model: Classifier,
        loss: Loss,
        accelerator: Accelerator,
        config: Config,
        lr: float,
        head_lr: float,
        pictures: int = 0,
    ) -> None:
        """`pictures`: how many will pass in all, which decides whether compiling is worth it."""
        self.model, self.loss, self.accelerator = model, loss, accelerator
        self.l1 = config.l1
        # The model gives logits, however small at first; the labels were checked when read.
        loss._seen_batch = True
        device = accelerator.device
        model.to(device)
        self.channels_last = config.channels_last and device.type == "cuda"
        if self.channels_last:
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.ema = EMA(model, config.ema) if config.ema else None
        groups = make_groups(model, loss, lr, head_lr, config)
        self.optimizer = make_optimizer(config.optimizer, groups, device)
        # Accelerate looks for optional packages at every call, longer than a small step takes;
        # without loss scaling it has nothing to add to the optimiser and the backward pass.
        self.bare = accelerator.scaler is None and accelerator.distributed_type in _BARE
        alone = self.bare and accelerator.distributed_type == DistributedType.NO
        parts = (part for part in loss.modules() if isinstance(part, SpatialConsistency))
        self.spatial = next(parts, None)
        # A head that notes down something in its forward pass would do so at the capture only, and
        # a penalty on the weights has a gradient beside that of the logits.
        notes = model.head.has_penalty or self.spatial is not None or bool(config.l1)
        replays = config.graphs and alone and device.type == "cuda" and not notes
        compiled = config.compile
        if compiled is None:
            compiled = replays and pictures * (model.image_size / 224) ** 2 >= WORTH_COMPILING
        forward = torch.compile(model) if compiled and not replays else model
        self.forward, stepper = accelerator.prepare(forward, self.optimizer)
        stepper = self.optimizer if self.bare else stepper
        self.update = Update(model, self.optimizer, self.ema, config.clip, accelerator, stepper)
        self.passes: Passes | None = None
        if replays:
            dtype = torch.bfloat16 if accelerator.mixed_precision == "bf16" else None
            self.passes = Passes(model, dtype, compiled)
            self.update.on_device()
        # Gradients of what a loss trains of its own lie elsewhere at every step.
        self.update_stays = next(loss.parameters(), None) is None

    def step(
        self,
        x: Tensor,
        labels: Tensor,
        index: Tensor | None,
        weight: float,
        rate: float,
        boxes: Tensor | None = None,
    ) -> Tensor:
        """Learn from a batch, its loss weighted, at a share of the full learning rates.

        x holds the batch once for each of the loss's views, `boxes` which part of a picture it
        shows where the loss asks for it. The loss is returned as it is on the
        device: looking at it would wait.
        """
        if self.channels_last and x.dim() == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        passes = self.passes if self.passes is not None and self.passes.take(x) else None
        if passes is None:
            value = self._loss(self.forward(x), labels, index, weight, boxes)
            if self.bare:
                value.backward()
            else:
                self.accelerator.backward(value)
        else:
            value = self._replayed(passes, x, labels, index)
        self._exchange_own_gradients()
        self.update(rate, replayed=passes is not None and self.update_stays)
        return value.detach()

    def _replayed(self, passes: Passes, x: Tensor, labels: Tensor, index: Tensor | None) -> Tensor:
        """Both passes with the loss between them; a batch is whole where there is one process."""
        logits = passes.forward(x)
        value, gradient = self.loss.value_and_grad(*self._heard(logits, labels), index)
        passes.backward(gradient.view_as(logits))
        if not self.update_stays or not self.update.is_captured:
            passes.lend_gradients()
        return value

    def _heard(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Logits and labels as the loss takes them: by view, or labels repeated per member."""
        if self.loss.views > 1:
            return logits.view(self.loss.views, len(labels), -1), labels
        members = len(self.model.head.members)
        return logits, labels.repeat(members, 1) if members > 1 else labels

    def _loss(
        self,
        logits: Tensor,
        labels: Tensor,
        index: Tensor | None,
        weight: float,
        boxes: Tensor | None,
    ) -> Tensor:
        if weight == 0:
            # A row borrowed to take part in the exchange; a memory must not hear of it.
            return 0.0 * logits.sum()
        value = self.loss(*self._heard(logits, labels), index=index)
        if self.spatial is not None:
            assert index is not None
            assert boxes is not None
            maps = self.model.head.maps[: len(labels)]
            value = value + self.spatial.spatial(maps, index, boxes)
        if self.model.head.has_penalty:
            value = value + self.model.head.penalty
        if self.l1:
            value = value + self.l1 * sum(p.abs().sum() for p in self.model.parameters())
        return value if weight == 1 else value * weight

    def _exchange_own_gradients(self) -> None:
        """What a loss trains of its own is outside the wrapped model: its gradients go by hand."""
        if self.accelerator.num_processes > 1:
            for own in self.loss.parameters():
                grad = torch.zeros_like(own) if own.grad is None else own.grad
                own.grad = self.accelerator.reduce(grad, "mean")

    def merge_memory(self) -> None:
        """Let all processes remember what each has learnt about its own rows."""
        if self.accelerator.num_processes > 1:
            self.loss.merge(self.accelerator.gather)

    @property
    def evaluated(self) -> Classifier:
        """The model that is evaluated and kept: the average of the weights where there is one."""
        return self.model if self.ema is None else self.ema.module  # type: ignore[return-value]

    def state(self) -> dict[str, Any]:
        """All of it, as a tree of tensors, numbers and names."""
        scaler = self.accelerator.scaler
        return {
            "model": self.model.state_dict(),
            "ema": None if self.ema is None else self.ema.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "loss": dict(self.loss.state_dict()),
            "scaler": None if scaler is None else scaler.state_dict(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take up a state."""
        self.model.load_state_dict(state["model"])
        if self.ema is not None and state["ema"] is not None:
            self.ema.load_state_dict(state["ema"])
        load_optimizer(self.optimizer, state["optimizer"])
        self.loss.load_state_dict(state["loss"])
        if self.accelerator.scaler is not None and state["scaler"] is not None:
            self.accelerator.scaler.load_state_dict(state["scaler"])
