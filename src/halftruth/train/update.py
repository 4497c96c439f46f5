"""What follows the gradients of a step: clipping, the optimiser, the average of the weights."""

from functools import partial
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from halftruth.models import EMA
from halftruth.models.cuda_graphs import Captured
from halftruth.train.optimizer import capturable, keep_rates_on, scale_rates


class Update:
    """Clip the gradients, take a step, let the average follow, drop the gradients.

    All of it changes its tensors in place, so that it can be one CUDA graph: `replayed`, once the
    numbers of a step, the rates and the average's weight, are `on_device`.
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
        """`stepper`: what takes the steps, if not the optimiser itself."""
        self.model, self.optimizer, self.ema = model, optimizer, ema
        self.clip, self.accelerator = clip, accelerator
        self.stepper = optimizer if stepper is None else stepper
        self.weight: float | Tensor = 0.0
        self.captured = Captured(self._do, partial(capturable, optimizer))

    def on_device(self) -> "Update":
        """Keep the numbers of a step where a CUDA graph reads them."""
        keep_rates_on(self.optimizer, self.accelerator.device)
        self.weight = torch.zeros((), device=self.accelerator.device)
        return self

    @property
    def is_captured(self) -> bool:
        """Whether a replay reads gradients where they lay at the capture, not in `.grad`."""
        return self.captured.graph is not None

    def __call__(self, rate: float, replayed: bool = False) -> None:
        """At a share of the full learning rates."""
        scale_rates(self.optimizer, rate)
        if self.ema is not None:
            weight = self.ema.next_weight()
            if isinstance(self.weight, Tensor):
                self.weight.fill_(weight)
            else:
                self.weight = weight
        (self.captured if replayed else self._do)()

    def _do(self) -> None:
        if self.clip:
            self.accelerator.clip_grad_norm_(self.model.parameters(), self.clip)
        self.stepper.step()
        self.stepper.zero_grad(set_to_none=True)
        if self.ema is not None:
            self.ema.follow(self.model, self.weight)
