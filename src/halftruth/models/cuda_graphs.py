"""Training steps as CUDA graphs: at small batches a GPU waits for Python, not for memory.

A capture records the kernels that some code launches, for tensors at fixed addresses; a replay
launches all of them at the cost of one launch. The captured code changes weights and averages in
place, so a replay uses their current values.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from halftruth.models.classifier import bare_forward
from halftruth.models.folding import folded

# Only a shape that recurs is worth a capture; the first steps also select cuDNN's algorithms.
STEPS_BEFORE_CAPTURE = 3
_WARM_UP_PASSES = 3


class ShapeCounter:
    """Counts steps in a row with the same shape, to decide when to capture."""

    def __init__(self) -> None:
        self.shape: object = None
        self.seen = 0

    def is_due(self, shape: object) -> bool:
        """Whether to capture now; true once. Call it at every step."""
        if self.seen > STEPS_BEFORE_CAPTURE:
            return False
        self.seen = self.seen + 1 if shape == self.shape else 1
        self.shape = shape
        return self.seen > STEPS_BEFORE_CAPTURE


def _capture_into(graph: torch.cuda.CUDAGraph, pool: Any = None) -> torch.cuda.graph:
    """Capture while other threads, which prefetch images, may use the device."""
    return torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local")


class Captured:
    """A function of tensors, captured and replayed once its shapes recur.

    It must not draw random numbers, nor read other tensors whose address changes. The next call
    overwrites its results. `around`: a context for the capture only.
    """

    def __init__(
        self,
        function: Callable[..., object],
        around: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self.function, self.around = function, around
        self.shapes = ShapeCounter()
        self.inputs: Sequence[Tensor] = ()
        self.output: object = None
        self.graph: torch.cuda.CUDAGraph | None = None

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
            with self.around(), _capture_into(graph):
                self.output = self.function(*self.inputs)
        except Exception:
            # A function that cannot be captured is called directly.
            torch.cuda.synchronize()
            return
        self.graph = graph


class _ModelInPrecision(nn.Module):
    """The model with its autocast inside, so that both are captured."""

    def __init__(self, model: nn.Module, dtype: torch.dtype | None, compiled: bool) -> None:
        super().__init__()
        self.model, self.dtype = model, dtype
        self.inner = bare_forward(model)
        if compiled:
            self.inner = torch.compile(self.inner)

    def forward(self, x: Tensor) -> Tensor:
        # Without cached casts: the graph has to cast the current weights at every step.
        enabled = self.dtype is not None
        with torch.autocast("cuda", self.dtype, enabled=enabled, cache_enabled=False):
            return self.inner(x).float()  # type: ignore[no-any-return]


class Passes:
    """Forward and backward pass of a model, captured for the first shape that recurs.

    `backward` takes the gradient with respect to the logits, computed in any way.
    `compiled`: the model is compiled by torch.compile, for this shape only, and then captured;
    otherwise frozen batch norms are folded into the convolutions before them.
    """

    def __init__(self, model: nn.Module, dtype: torch.dtype | None, compiled: bool = False) -> None:
        self.model, self.dtype, self.compiled = model, dtype, compiled
        self.shapes = ShapeCounter()
        self.graphs: tuple[torch.cuda.CUDAGraph, torch.cuda.CUDAGraph] | None = None
        self.kept: object = None  # tensors that a replay reads, referenced only here

    def can_replay(self, x: Tensor) -> bool:
        """Whether this batch can be replayed; captures the passes once its shape recurs."""
        if self.graphs is None and self.shapes.is_due(x.shape):
            self._try_capture(x)
        return self.graphs is not None and x.shape == self.shapes.shape

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, which the next pass overwrites."""
        assert self.graphs is not None
        self.x.copy_(x)
        self.graphs[0].replay()
        return self.logits

    def backward(self, gradient: Tensor) -> None:
        """Write the gradients of the weights into `gradients`, replacing those of the last step."""
        assert self.graphs is not None
        self.upstream.copy_(gradient)
        self.graphs[1].replay()

    def assign_gradients(self) -> None:
        """Assign `gradients` to the `.grad` of the weights."""
        for weight, gradient in zip(self.weights, self.gradients, strict=True):
            weight.grad = gradient

    def _try_capture(self, x: Tensor) -> None:
        # The warm-up runs the model, which must not change its running statistics.
        buffers = {name: value.clone() for name, value in self.model.named_buffers()}
        try:
            # The compiler fuses frozen batch norms itself.
            folding = nullcontext() if self.compiled else folded(self.model, x[:2].detach())
            with folding as self.kept:
                self._capture(x)
        except Exception:
            # A model that cannot be compiled or captured is trained without a graph.
            torch.cuda.synchronize()
            self.graphs = None
        finally:
            for name, value in self.model.named_buffers():
                value.copy_(buffers[name])

    def _capture(self, x: Tensor) -> None:
        body = _ModelInPrecision(self.model, self.dtype, self.compiled).train(self.model.training)
        self.weights = [p for p in self.model.parameters() if p.requires_grad]
        self.x = x.detach().clone()
        self._warm_up(body)
        forward, backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with _capture_into(forward):
            logits = body(self.x)
        self.upstream = torch.zeros_like(logits)
        with _capture_into(backward, forward.pool()):
            self.gradients = self._gradients(logits, self.upstream)
        self.logits = logits.detach()
        self.graphs = (forward, backward)

    def _warm_up(self, body: nn.Module) -> None:
        """Run passes on a separate stream before the capture, for one-time work."""
        stream, here = torch.cuda.Stream(), torch.cuda.current_stream()
        stream.wait_stream(here)
        with torch.cuda.stream(stream):
            for _ in range(_WARM_UP_PASSES):
                logits = body(self.x)
                self._gradients(logits, torch.zeros_like(logits))
        here.wait_stream(stream)

    def _gradients(self, logits: Tensor, upstream: Tensor) -> list[Tensor | None]:
        """Gradients with the memory layout of the weights, as fused optimisers need them."""
        found = torch.autograd.grad(logits, self.weights, upstream, allow_unused=True)
        return [
            g if g is None or g.stride() == w.stride() else torch.empty_like(w).copy_(g)
            for w, g in zip(self.weights, found, strict=True)
        ]
