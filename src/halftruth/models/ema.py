"""An exponential moving average of a model's weights."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from itertools import chain

import torch
from torch import Tensor, nn

from halftruth.models.weights import ModelError, mismatches

Pairs = tuple[list[Tensor], list[Tensor]]

_UPDATES = "updates"
_MODULE = "module."


class EMA:
    """A copy of the model with averaged weights; evaluate `ema.module`.

        θ̄ ← d θ̄ + (1 − d) θ,     d = min(decay, (1 + t)/(10 + t)) in the t-th update (from 0)

    Float parameters and buffers are averaged in float32, whatever the model trains in; integer
    buffers are copied. `update` is a handful of fused kernels and never waits for the device.

    >>> model = nn.Linear(1, 1, bias=False)
    >>> ema = EMA(model, decay=0.9, warmup=False)
    >>> with torch.no_grad():
    ...     before, _ = model.weight.item(), model.weight.add_(1)
    >>> ema.update(model)
    >>> round(ema.module.weight.item() - before, 4)
    0.1
    """

    def __init__(self, model: nn.Module, decay: float = 0.9997, warmup: bool = True) -> None:
        if not 0 <= decay < 1:
            raise ValueError(f"expected 0 <= decay < 1, got {decay}")
        self.decay = decay
        self.warmup = warmup
        self.updates = 0
        self.module = deepcopy(_unwrapped(model)).eval().requires_grad_(False)
        self.module._apply(_at_least_float32)
        self._kept: tuple[object, tuple[Pairs, Pairs]] | None = None

    def current_decay(self) -> float:
        """The decay of the next update."""
        if not self.warmup:
            return self.decay
        return min(self.decay, (1 + self.updates) / (10 + self.updates))

    def update(self, model: nn.Module) -> None:
        """Take one step towards the model, after the optimiser's step."""
        self.follow(model, self.next_weight())

    def next_weight(self) -> float:
        """1 − d of the update that follows, which is counted."""
        weight = 1 - self.current_decay()
        self.updates += 1
        return weight

    @torch.no_grad()
    def follow(self, model: nn.Module, weight: float | Tensor) -> None:
        """Move by this share; a CUDA graph reads a weight in a tensor at every replay."""
        averaged, copied = self._pairs(model)
        if not isinstance(weight, Tensor):
            torch._foreach_lerp_(averaged[0], averaged[1], weight)
        elif averaged[0]:
            gaps = torch._foreach_sub(averaged[1], averaged[0])
            torch._foreach_mul_(gaps, weight)
            torch._foreach_add_(averaged[0], gaps)
        if copied[0]:
            torch._foreach_copy_(copied[0], copied[1])

    def _pairs(self, model: nn.Module) -> tuple[Pairs, Pairs]:
        """(shadow, live) tensors to be averaged and to be copied.

        Listing them takes longer than the update, so the lists are kept while nothing is moved.
        """
        mark = (id(model), next(_tensors(self.module)).device)
        if self._kept is not None and self._kept[0] == mark:
            return self._kept[1]
        averaged: Pairs = ([], [])
        copied: Pairs = ([], [])
        same = True
        for shadow, live in zip(_tensors(self.module), _tensors(_unwrapped(model)), strict=True):
            if live.dtype != shadow.dtype or live.device != shadow.device:
                live, same = live.to(shadow.device, shadow.dtype), False
            pairs = averaged if shadow.is_floating_point() else copied
            pairs[0].append(shadow)
            pairs[1].append(live)
        self._kept = (mark, (averaged, copied)) if same else None
        return averaged, copied

    def to(self, device: torch.device | str) -> "EMA":
        """Move the average; `update` copies from a model on another device, which is slower."""
        self.module.to(device)
        self._kept = None
        return self

    def state_dict(self) -> dict[str, Tensor]:
        """Tensors only, so that it can go into a safetensors file."""
        state = {_MODULE + name: tensor for name, tensor in self.module.state_dict().items()}
        return {**state, _UPDATES: torch.tensor(self.updates)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Load a state; that of another model is refused and changes nothing."""
        if _UPDATES not in state:
            raise ModelError(f"expected the state of an EMA, with {_UPDATES!r} in it")
        tensors = {k.removeprefix(_MODULE): t for k, t in state.items() if k != _UPDATES}
        problems = mismatches(tensors, self.module.state_dict())
        if problems:
            raise ModelError(f"this EMA belongs to another model:\n{problems}")
        self.module.load_state_dict(tensors)
        self.updates = int(state[_UPDATES])


def _unwrapped(model: nn.Module) -> nn.Module:
    """The model inside torch.compile's and DistributedDataParallel's wrappers."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, nn.parallel.DistributedDataParallel):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def _tensors(model: nn.Module) -> Iterator[Tensor]:
    return chain(model.parameters(), model.buffers())


def _at_least_float32(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
