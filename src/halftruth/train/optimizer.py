"""Optimisers, and the rate of each of their parameter groups."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from halftruth.losses import Loss
from halftruth.models import Classifier, parameter_groups
from halftruth.train.config import Config


def make_groups(
    model: Classifier, loss: Loss, lr: float, head_lr: float, config: Config
) -> list[dict[str, Any]]:
    """Backbone and head, with and without weight decay, and what a loss trains of its own."""
    groups = parameter_groups(model, lr, head_lr, config.weight_decay)
    groups += [{"weight_decay": 0.0, **group} for group in loss.parameter_groups(head_lr)]
    # Schedules scale the rate; what they scale is kept beside it.
    return [{**group, "full_lr": group["lr"]} for group in groups]


def ridge_decay(loss: Loss, config: Config, rows: int, dim: int, classes: int) -> float:
    """The weight decay that is the prior W ~ N(0, v/D) of a linear head on D standardised features.

    −log prior = ‖W‖² D/(2v), and the loss is the −log likelihood divided by N K where it is a mean
    over entries. Not for AdamW, whose decay is no penalty.
    """
    variance = loss.ridge if config.ridge is None else config.ridge
    if not variance or config.optimizer == "adamw":
        return 0.0
    units = {"mean": 1.0, "batch": float(classes), "sum": float(classes * config.batch_size)}
    return dim / (variance * rows * classes) * units.get(loss.reduction, 1.0)


def make_optimizer(
    name: str, groups: list[dict[str, Any]], device: torch.device
) -> torch.optim.Optimizer:
    """Adam, AdamW or SGD with momentum; one kernel for all parameters."""
    fused = device.type in ("cpu", "cuda")
    if name == "sgd":
        return torch.optim.SGD(groups, momentum=0.9, fused=fused)
    kind = torch.optim.Adam if name == "adam" else torch.optim.AdamW
    return kind(groups, fused=fused)


def load_optimizer(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """Take up a saved state, but with the rates and decay that are configured now."""
    kept = ("lr", "full_lr", "weight_decay")
    now = [{name: group[name] for name in kept} for group in optimizer.param_groups]
    optimizer.load_state_dict(saved)
    for group, values in zip(optimizer.param_groups, now, strict=True):
        group.update(values)


def keep_rates_on(optimizer: torch.optim.Optimizer, device: torch.device) -> None:
    """Rates as tensors, whose values can change under a CUDA graph of the optimiser's step."""
    for group in optimizer.param_groups:
        group["lr"] = torch.tensor(group["lr"], device=device)


def scale_rates(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Set every group to its full rate times a factor."""
    for group in optimizer.param_groups:
        rate = group["full_lr"] * factor
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = rate


@contextmanager
def capturable(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Let a CUDA graph take up a step; all its state and rates must be on the device."""
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
