"""Forward and backward as CUDA graphs: at small batches a GPU waits for Python, not for memory."""

from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from halftruth.models.folding import folded

# A shape is worth a capture when it keeps coming; the first steps also choose cuDNN's algorithms.
SEEN = 3
_WARNING = "set_warn_on_accumulate_grad_stream_mismatch"


class _Body(nn.Module):
    """The model with its precision inside, as a capture needs it."""

    def __init__(self, model: nn.Module, dtype: torch.dtype | None, compiled: bool) -> None:
        super().__init__()
        self.model, self.dtype = model, dtype
        # Around Accelerate, which would put its own precision on top.
        self.inner: Any = partial(type(model).forward, model)
        if compiled:
            self.inner = torch.compile(self.inner)

    def forward(self, x: Tensor) -> Tensor:
        # Casts of the weights are part of the graph: kept ones would be of the first step.
        enabled = self.dtype is not None
        with torch.autocast("cuda", self.dtype, enabled=enabled, cache_enabled=False):
            return self.inner(x).float()  # type: ignore[no-any-return]


class Replayed:
    """A model whose training pass is captured once for the shape that comes again and replayed.

    Other shapes (the last batch), evaluation, and whatever cannot be captured go through the model
    as it is. `compiled`: what is captured is torch.compile's form of the model, which is made for
    one shape only; otherwise frozen batch norms are folded into the convolutions before them.
    Weights are changed in place by optimisers, so a replay sees the current ones.
    """

    def __init__(
        self, model: nn.Module, plain: Any, dtype: torch.dtype | None, compiled: bool = False
    ) -> None:
        self.model, self.plain, self.dtype, self.compiled = model, plain, dtype, compiled
        self.shape: torch.Size | None = None
        self.seen = 0
        self.replay: Any = None
        self.kept: Any = None  # what a replay reads and nobody else holds
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
        body = _Body(self.model, self.dtype, self.compiled).train(self.model.training)
        # Warming up runs the model: what it remembers of its batches must not change by that.
        buffers = {name: value.clone() for name, value in self.model.named_buffers()}
        try:
            # What the compiler makes of a frozen batch norm is as good.
            folding = nullcontext() if self.compiled else folded(self.model, x[:2].detach())
            with folding as self.kept:
                replay = torch.cuda.make_graphed_callables(body, (x.detach().clone(),))
        except Exception:
            # A model that cannot be compiled or captured is still a model.
            torch.cuda.synchronize()
            return None
        finally:
            for name, value in self.model.named_buffers():
                value.copy_(buffers[name])
        # Gradients of a replay come from another stream than those of the first steps, and wait for
        # each other as they should; torch warns of it.
        if silence := getattr(torch.autograd.graph, _WARNING, None):
            silence(False)
        return replay
