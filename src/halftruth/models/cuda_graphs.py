"""Training steps as CUDA graphs: at small batches a GPU waits for Python, not for memory.

A capture writes down what a piece of code gives the device to do, for tensors at fixed places; a
replay does all of it again at the cost of one launch. What is captured here changes its tensors in
place (weights, averages), so a replay sees the current ones.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from halftruth.models.classifier import bare_forward
from halftruth.models.folding import folded

# A shape is worth a capture when it keeps coming; the first steps also choose cuDNN's algorithms.
SEEN = 3
_WARMING = 3


class Recurring:
    """Says once that a shape has come often enough in a row."""

    def __init__(self) -> None:
        self.shape: Any = None
        self.seen = 0

    def is_due(self, shape: Any) -> bool:
        """To be asked at every step."""
        if self.seen > SEEN:
            return False
        self.seen = self.seen + 1 if shape == self.shape else 1
        self.shape = shape
        return self.seen > SEEN


def _capturing(graph: Any, pool: Any = None) -> Any:
    """Other threads, which fetch pictures ahead, may use the device meanwhile."""
    return torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local")


class Captured:
    """A function of tensors, replayed for the shapes that keep coming.

    It must draw nothing at random and read nothing else that is moved. What it returns is
    overwritten by the next call. `around`: what holds during the capture only.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        around: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self.function, self.around = function, around
        self.shapes = Recurring()
        self.inputs: Sequence[Tensor] = ()
        self.output: Any = None
        self.graph: Any = None

    def __call__(self, *tensors: Tensor) -> Any:
        shapes = [tensor.shape for tensor in tensors]
        if self.graph is None and self.shapes.is_due(shapes):
            self._capture(tensors)
        if self.graph is None or shapes != self.shapes.shape:
            return self.function(*tensors)
        for own, given in zip(self.inputs, tensors, strict=True):
            own.copy_(given)
        self.graph.replay()
        return self.output

    def _capture(self, tensors: Sequence[Tensor]) -> None:
        self.inputs = [tensor.clone() for tensor in tensors]
        graph = torch.cuda.CUDAGraph()
        try:
            with self.around(), _capturing(graph):
                self.output = self.function(*self.inputs)
        except Exception:
            # What cannot be captured can still be called.
            torch.cuda.synchronize()
            return
        self.graph = graph


class _Body(nn.Module):
    """The model with its precision inside, as a capture needs it."""

    def __init__(self, model: nn.Module, dtype: torch.dtype | None, compiled: bool) -> None:
        super().__init__()
        self.model, self.dtype = model, dtype
        self.inner = bare_forward(model)
        if compiled:
            self.inner = torch.compile(self.inner)

    def forward(self, x: Tensor) -> Tensor:
        # Casts of the weights are part of the graph: kept ones would be of the first step.
        enabled = self.dtype is not None
        with torch.autocast("cuda", self.dtype, enabled=enabled, cache_enabled=False):
            return self.inner(x).float()  # type: ignore[no-any-return]


class Passes:
    """Forward and backward pass of a model, captured for the first shape that keeps coming.

    `backward` takes the gradient with respect to the logits, however a loss has come by it.
    `compiled`: what is captured is torch.compile's form of the
    model, which is made for one shape only; otherwise frozen batch norms are folded into the
    convolutions before them.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype | None, compiled: bool = False) -> None:
        self.model, self.dtype, self.compiled = model, dtype, compiled
        self.shapes = Recurring()
        self.graphs: tuple[Any, Any] | None = None
        self.kept: Any = None  # what a replay reads and nobody else holds

    def take(self, x: Tensor) -> bool:
        """Whether a batch like this is replayed, from now on if it has come often enough."""
        if self.graphs is None and self.shapes.is_due(x.shape):
            self._try(x)
        return self.graphs is not None and x.shape == self.shapes.shape

    def forward(self, x: Tensor) -> Tensor:
        """The logits, overwritten by the next pass."""
        assert self.graphs is not None
        self.x.copy_(x)
        self.graphs[0].replay()
        return self.logits

    def backward(self, gradient: Tensor) -> None:
        """Put the gradient of every weight into `gradients`, over that of the step before."""
        assert self.graphs is not None
        self.upstream.copy_(gradient)
        self.graphs[1].replay()

    def lend_gradients(self) -> None:
        """Let the weights have them as their own."""
        for weight, gradient in zip(self.weights, self.gradients, strict=True):
            weight.grad = gradient

    def _try(self, x: Tensor) -> None:
        # Warming up runs the model: what it remembers of its batches must not change by that.
        buffers = {name: value.clone() for name, value in self.model.named_buffers()}
        try:
            # What the compiler makes of a frozen batch norm is as good.
            folding = nullcontext() if self.compiled else folded(self.model, x[:2].detach())
            with folding as self.kept:
                self._capture(x)
        except Exception:
            # A model that cannot be compiled or captured is still a model.
            torch.cuda.synchronize()
            self.graphs = None
        finally:
            for name, value in self.model.named_buffers():
                value.copy_(buffers[name])

    def _capture(self, x: Tensor) -> None:
        body = _Body(self.model, self.dtype, self.compiled).train(self.model.training)
        self.weights = [p for p in self.model.parameters() if p.requires_grad]
        self.x = x.detach().clone()
        self._warm_up(body)
        forward, backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with _capturing(forward):
            logits = body(self.x)
        self.upstream = torch.zeros_like(logits)
        with _capturing(backward, forward.pool()):
            self.gradients = self._gradients(logits, self.upstream)
        self.logits = logits.detach()
        self.graphs = (forward, backward)

    def _warm_up(self, body: nn.Module) -> None:
        """Whatever happens at the first passes only, outside the capture and on its own stream."""
        stream, here = torch.cuda.Stream(), torch.cuda.current_stream()
        stream.wait_stream(here)
        with torch.cuda.stream(stream):
            for _ in range(_WARMING):
                logits = body(self.x)
                self._gradients(logits, torch.zeros_like(logits))
        here.wait_stream(stream)

    def _gradients(self, logits: Tensor, upstream: Tensor) -> list[Tensor | None]:
        """Of the weights, laid out as they are, which fused optimisers need."""
        found = torch.autograd.grad(logits, self.weights, upstream, allow_unused=True)
        return [
            g if g is None or g.stride() == w.stride() else torch.empty_like(w).copy_(g)
            for w, g in zip(self.weights, found, strict=True)
        ]
