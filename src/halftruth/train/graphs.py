"""Forward and backward as CUDA graphs: at small batches a GPU waits for Python, not for memory."""

from typing import Any

import torch
from torch import Tensor, nn

# A shape is worth a capture when it keeps coming; the first steps also choose cuDNN's algorithms.
SEEN = 3


class _Body(nn.Module):
    """The model with its precision inside, as a capture needs it."""

    def __init__(self, model: nn.Module, dtype: torch.dtype | None) -> None:
        super().__init__()
        self.model, self.dtype = model, dtype

    def forward(self, x: Tensor) -> Tensor:
        # Casts of the weights are part of the graph: kept ones would be of the first step.
        enabled = self.dtype is not None
        with torch.autocast("cuda", self.dtype, enabled=enabled, cache_enabled=False):
            # Around Accelerate, which would put its own precision on top.
            return type(self.model).forward(self.model, x).float()


class Replayed:
    """A model whose training pass is captured once for the shape that comes again and replayed.

    Other shapes (the last batch), evaluation, and whatever cannot be captured go through the model
    as it is. Weights are changed in place by optimisers, so a replay always sees the current ones.
    """

    def __init__(self, model: nn.Module, plain: Any, dtype: torch.dtype | None) -> None:
        self.model, self.plain, self.dtype = model, plain, dtype
        self.shape: torch.Size | None = None
        self.seen = 0
        self.replay: Any = None
        self.tried = False

    def __call__(self, x: Tensor) -> Tensor:
        if self.replay is not None and x.shape == self.shape:
            return self.replay(x)  # type: ignore[no-any-return]
        if not self.tried:
            self.seen = self.seen + 1 if x.shape == self.shape else 1
            self.shape = x.shape
            if self.seen > SEEN:
                self.replay = self._captured(x)
                return self(x)
        return self.plain(x)  # type: ignore[no-any-return]

    def _captured(self, x: Tensor) -> Any:
        self.tried = True
        body = _Body(self.model, self.dtype).train(self.model.training)
        # Warming up runs the model: what it remembers of its batches must not change by that.
        kept = {name: value.clone() for name, value in self.model.named_buffers()}
        try:
            replay = torch.cuda.make_graphed_callables(body, (x.detach().clone(),))
        except RuntimeError:
            torch.cuda.synchronize()
            return None
        finally:
            for name, value in self.model.named_buffers():
                value.copy_(kept[name])
        return replay
