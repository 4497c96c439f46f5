"""One training step: forward pass, loss, gradients, optimiser, moving average of the weights."""

import inspect
import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
from accelerate import Accelerator, DistributedType
from torch import Tensor, nn

from halftruth.losses import Loss
from halftruth.models import EMA, Classifier, parameter_groups
from halftruth.models.cuda_graphs import Captured, Passes
from halftruth.train.config import Config

# Images of 224 px from which torch.compile, which takes a minute, saves time on one large GPU.
WORTH_COMPILING = 400_000
# The same for channels-last where convolutions are grouped: cuDNN compiles those kernels for every
# new shape, 19 s for EfficientNet-lite0 on an H200, and saves 7 ms per step of 32 images.
WORTH_CHANNELS_LAST = 90_000
_BARE = (DistributedType.NO, DistributedType.MULTI_CPU, DistributedType.MULTI_GPU)


def has_grouped_convolutions(model: nn.Module) -> bool:
    """Return whether the model has grouped convolutions, such as depthwise ones."""
    return any(isinstance(part, nn.Conv2d) and part.groups > 1 for part in model.modules())


class Learner:
    """A model, a loss and an optimiser on a device: `step` trains on one batch."""

    def __init__(
        self,
        model: Classifier,
        loss: Loss,
        accelerator: Accelerator,
        config: Config,
        lr: float,
        head_lr: float,
        images: int = 0,
        replay: bool = True,
    ) -> None:
        """Choose memory layout, CUDA graphs and compilation by what they save in this run.

        images: the number of images of all epochs. replay: replay steps as CUDA graphs where that
        is possible; a test compares the two.
        """
        self.model, self.loss, self.accelerator = model, loss, accelerator
        self.l1 = config.l1
        # No check of the first batch: the model returns logits, and the labels were checked before.
        loss._seen_batch = True
        device = accelerator.device
        model.to(device)
        layout = not has_grouped_convolutions(model) or images >= WORTH_CHANNELS_LAST
        self.channels_last = layout and device.type == "cuda"
        if self.channels_last:
            model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.ema = EMA(model, config.ema) if config.ema else None
        groups = make_groups(model, loss, lr, head_lr, config)
        self.optimizer = make_optimizer(config.optimizer, groups, device)
        # Accelerate looks for optional packages in every call, which takes longer than a small
        # step. Without loss scaling, optimiser and backward pass do not need it.
        self.bare = accelerator.scaler is None and accelerator.distributed_type in _BARE
        alone = self.bare and accelerator.distributed_type == DistributedType.NO
        # A replay does not run Python code, which stores maps or a penalty in some heads; and the
        # gradient of L1 is not a gradient of the logits.
        beyond_logits = model.head.has_penalty or loss.needs_maps or bool(config.l1)
        # The shape of a batch of texts depends on the longest text.
        fixed = bool(model.image_size) or not model.is_network
        replays = replay and alone and device.type == "cuda" and not beyond_logits and fixed
        compiled = replays and images * (model.image_size / 224) ** 2 >= WORTH_COMPILING
        self.forward, stepper = accelerator.prepare(model, self.optimizer)
        stepper = self.optimizer if self.bare else stepper
        self.update = Update(model, self.optimizer, self.ema, config.clip, accelerator, stepper)
        self.passes: Passes | None = None
        if replays:
            dtype = torch.bfloat16 if accelerator.mixed_precision == "bf16" else None
            self.passes = Passes(model, dtype, compiled)
            self.update.move_to_device()
        # The gradients of a loss's own parameters have another address in every step.
        self.update_replays = next(loss.parameters(), None) is None

    def step(
        self,
        x: Tensor,
        labels: Tensor,
        index: Tensor | None,
        weight: float,
        rate: float,
        boxes: Tensor | None = None,
    ) -> Tensor:
        """Train on a batch with a weighted loss, at `rate` times the full learning rates.

        `x` has the batch once per view of the loss; `boxes` are the crops, if the loss needs maps.
        The returned loss stays on the device: reading it would wait for the device.
        """
        if self.channels_last and x.dim() == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        passes = self.passes if self.passes is not None and self.passes.can_replay(x) else None
        if passes is None:
            value = self._loss(self.forward(x), labels, index, weight, boxes)
            if self.bare:
                value.backward()
            else:
                self.accelerator.backward(value)
        else:
            value = self._replay(passes, x, labels, index)
        self._average_gradients_of_loss()
        self.update(rate, replayed=passes is not None and self.update_replays)
        return value.detach()

    def _replay(self, passes: Passes, x: Tensor, labels: Tensor, index: Tensor | None) -> Tensor:
        """Replay both passes with the loss between them; with one process all weights are 1."""
        logits = passes.forward(x)
        value, gradient = self.loss.value_and_grad(*self._arguments(logits, labels, index))
        passes.backward(gradient.view_as(logits))
        if not self.update_replays or not self.update.is_captured:
            passes.assign_gradients()
        return value

    def _arguments(
        self, logits: Tensor, labels: Tensor, index: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return the arguments of the loss: logits per view, if it compares several."""
        if self.loss.views > 1:
            logits = logits.view(self.loss.views, len(labels), -1)
        return logits, labels, index

    def _loss(
        self,
        logits: Tensor,
        labels: Tensor,
        index: Tensor | None,
        weight: float,
        boxes: Tensor | None,
    ) -> Tensor:
        if weight == 0:
            # A repeated row, only for the exchange of gradients; it must not enter a memory.
            return 0.0 * logits.sum()
        value = self.loss(*self._arguments(logits, labels, index))
        if self.loss.needs_maps:
            assert index is not None
            assert boxes is not None
            value = value + self.loss.map_term(self.model.head.maps[: len(labels)], index, boxes)
        if self.model.head.has_penalty:
            value = value + self.model.head.penalty
        if self.l1:
            value = value + self.l1 * sum(p.abs().sum() for p in self.model.parameters())
        return value if weight == 1 else value * weight

    def _average_gradients_of_loss(self) -> None:
        """Average the gradients of a loss's own parameters, which Accelerate does not wrap."""
        if self.accelerator.num_processes > 1:
            for own in self.loss.parameters():
                grad = torch.zeros_like(own) if own.grad is None else own.grad
                own.grad = self.accelerator.reduce(grad, "mean")

    def merge_memory(self) -> None:
        """Exchange between processes what the loss has stored about their rows."""
        if self.accelerator.num_processes > 1:
            self.loss.merge(self.accelerator.gather)

    @property
    def evaluated(self) -> Classifier:
        """The model that is evaluated and kept: that with averaged weights, if there is one."""
        return self.model if self.ema is None else self.ema.module  # type: ignore[return-value]

    def state(self) -> dict[str, object]:
        """Return everything that changes in training, for a checkpoint."""
        scaler = self.accelerator.scaler
        return {
            "model": self.model.state_dict(),
            "ema": None if self.ema is None else self.ema.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "loss": dict(self.loss.state_dict()),
            "scaler": None if scaler is None else scaler.state_dict(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Continue from a state of `state`."""
        self.model.load_state_dict(state["model"])
        if self.ema is not None and state["ema"] is not None:
            self.ema.load_state_dict(state["ema"])
        load_optimizer(self.optimizer, state["optimizer"])
        self.loss.load_state_dict(state["loss"])
        if self.accelerator.scaler is not None and state["scaler"] is not None:
            self.accelerator.scaler.load_state_dict(state["scaler"])


class Update:
    """Clips gradients, runs the optimiser, clears gradients, updates the moving average.

    All tensors change in place, so that this can be one CUDA graph (`replayed`) if the numbers of a
    step (learning rates, weight of the average) are on the device.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        ema: EMA | None,
        clip: float,
        accelerator: Accelerator,
        stepper: Any = None,
    ) -> None:
        """`stepper`: the object whose `step` is called, if not the optimiser."""
        self.model, self.optimizer, self.ema = model, optimizer, ema
        self.clip, self.accelerator = clip, accelerator
        self.stepper = optimizer if stepper is None else stepper
        self.weight: float | Tensor = 0.0
        self.captured = Captured(self._update, partial(make_capturable, optimizer))

    def move_to_device(self) -> "Update":
        """Move the numbers of a step to the device, where a CUDA graph reads them."""
        for group in self.optimizer.param_groups:
            group["lr"] = torch.tensor(group["lr"], device=self.accelerator.device)
        self.weight = torch.zeros((), device=self.accelerator.device)
        return self

    @property
    def is_captured(self) -> bool:
        """Whether a graph is used, which reads gradients at fixed addresses and not `.grad`."""
        return self.captured.graph is not None

    def __call__(self, rate: float, replayed: bool = False) -> None:
        """Update at `rate` times the full learning rates."""
        scale_rates(self.optimizer, rate)
        if self.ema is not None:
            weight = self.ema.next_weight()
            if isinstance(self.weight, Tensor):
                self.weight.fill_(weight)
            else:
                self.weight = weight
        (self.captured if replayed else self._update)()

    def _update(self) -> None:
        if self.clip:
            self.accelerator.clip_grad_norm_(self.model.parameters(), self.clip)
        self.stepper.step()
        self.stepper.zero_grad(set_to_none=True)
        if self.ema is not None:
            self.ema.follow(self.model, self.weight)


# ---------------------------------------------------------------------- optimiser


def make_groups(
    model: Classifier, loss: Loss, lr: float, head_lr: float, config: Config
) -> list[dict[str, object]]:
    """Return the parameter groups of backbone, head and loss."""
    groups = parameter_groups(model, lr, head_lr, config.weight_decay)
    groups += [{"weight_decay": 0.0, **group} for group in loss.parameter_groups(head_lr)]
    # A schedule scales the full rate.
    return [{**group, "full_lr": group["lr"]} for group in groups]


def make_optimizer(
    name: str, groups: list[dict[str, object]], device: torch.device
) -> torch.optim.Optimizer:
    """Return Adam, AdamW or SGD with momentum, fused if the device supports it."""
    fused = device.type in ("cpu", "cuda")
    if name == "sgd":
        return skip_compiler(torch.optim.SGD)(groups, momentum=0.9, fused=fused)
    kind = torch.optim.Adam if name == "adam" else torch.optim.AdamW
    return skip_compiler(kind)(groups, fused=fused)


@cache
def skip_compiler(kind: type[object]) -> type[Any]:
    """Return an optimiser of torch that does not import torch's compiler at its first use.

    Torch wraps some of its methods so that the compiler leaves them alone. Nothing is compiled
    here, and the import takes one to two seconds.
    """
    wrapped = {
        name: inspect.unwrap(getattr(kind, name))
        for name in ("add_param_group", "zero_grad", "state_dict", "load_state_dict", "step")
    }
    wrapped["step"] = torch.no_grad()(wrapped["step"])
    return type(kind.__name__, (kind,), wrapped)


def load_optimizer(optimizer: torch.optim.Optimizer, saved: dict[str, object]) -> None:
    """Continue from a saved state, but with the current rates and weight decay."""
    kept = ("lr", "full_lr", "weight_decay")
    now = [{name: group[name] for name in kept} for group in optimizer.param_groups]
    optimizer.load_state_dict(saved)
    for group, values in zip(optimizer.param_groups, now, strict=True):
        group.update(values)


def scale_rates(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Set the learning rate of every group to its full rate times a factor."""
    for group in optimizer.param_groups:
        rate = group["full_lr"] * factor
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


@contextmanager
def make_capturable(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Allow a CUDA graph to capture a step; state and rates must be on the device."""
    before = [group.get("capturable") for group in optimizer.param_groups]
    try:
        for group in optimizer.param_groups:
            group["capturable"] = True
        yield
    finally:
        for group, value in zip(optimizer.param_groups, before, strict=True):
            group["capturable"] = value
            if value is None:
                del group["capturable"]


def compute_ridge_decay(loss: Loss, config: Config, rows: int, dim: int, classes: int) -> float:
    """Return the weight decay of the prior W ~ N(0, v/D) of a linear head on D features.

    −log prior = ‖W‖² D/(2v); a loss that is a mean over entries is the −log likelihood divided by
    N K. Not for AdamW, whose weight decay is not a penalty.
    """
    variance = loss.ridge if config.ridge is None else config.ridge
    if not variance or config.optimizer == "adamw":
        return 0.0
    units = {"mean": 1.0, "batch": float(classes), "sum": float(classes * config.batch_size)}
    return dim / (variance * rows * classes) * units.get(loss.reduction, 1.0)


def compute_learning_rate_factor(schedule: str, step: int, steps: int, warmup: float) -> float:
    """Return the factor of the learning rate at a step of a stage.

    "one-cycle" rises in a cosine from 1/25 over the first `warmup` share of the steps and falls in
    a cosine to 4e-6; "cosine" rises linearly from 0 and falls to 0; "constant" is 1.

    >>> [round(compute_learning_rate_factor("one-cycle", step, 11, 0.2), 3) for step in (0, 2, 10)]
    [0.04, 1.0, 0.0]
    """
    if schedule == "constant":
        return 1.0
    last = max(steps - 1, 1)
    climb = warmup * last
    if schedule == "cosine":
        if step < climb:
            return (step + 1) / (climb + 1)
        return _interpolate_cosine(1.0, 0.0, (step - climb) / max(last - climb, 1e-9))
    if step < climb:
        return _interpolate_cosine(1 / 25, 1.0, step / climb)
    return _interpolate_cosine(1.0, 4e-6, (step - climb) / max(last - climb, 1e-9))


def _interpolate_cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * min(share, 1.0))) / 2
