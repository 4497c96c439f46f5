"""Value and gradient of a loss in one pass over the logits.

Autograd would keep a dozen copies of the logits and read each of them twice. The curves state their
slopes, so one pass is enough: rows are processed in blocks that fit the cache of the processor, and
only the gradient is kept for the backward pass.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from halftruth.losses._engine import fused
from halftruth.losses._engine.logit import Logit
from halftruth.losses._engine.tracing import Untraceable

if TYPE_CHECKING:
    from halftruth.losses.base import Loss

# Entries per block on a CPU: large enough to hide the cost of a call, small enough for its caches.
BLOCK = 1 << 18


def compute_dtype(logits: Tensor) -> torch.dtype:
    """float64 stays; everything else is computed in float32."""
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


def blocks(logits: Tensor) -> list[slice]:
    """Whole rows in blocks on a CPU, everything at once elsewhere."""
    count, width = logits.shape
    if not logits.is_cpu or count * width <= BLOCK:
        return [slice(0, count)]
    # Of equal size: a short last block would cost as many calls as a full one.
    number = -(-count // max(BLOCK // width, 1))
    step = -(-count // number)
    return [slice(at, min(at + step, count)) for at in range(0, count, step)]


def walk(
    loss: "Loss",
    logits: Tensor,
    labels: Tensor,
    context: object,
    unit: str,
    want_slope: bool,
    scale: float = 1.0,
) -> tuple[Tensor, Tensor | None]:
    """`scale` times the sum, or one value per `unit`, and, if wanted, the slope of every entry.

    The slopes are a new tensor, whatever the method returned.
    """
    dtype = compute_dtype(logits)
    every = blocks(logits)
    if len(every) == 1:
        z = logits if logits.dtype == dtype else logits.to(dtype)
        value, slope = loss.terms(Logit(z, loss.eps), labels, context, every[0])
        value = _reduced(value, unit)
        return (value if scale == 1 else value * scale), slope * scale if want_slope else None
    slopes = torch.empty_like(logits, dtype=dtype) if want_slope else None
    parts: list[Tensor] = []
    for rows in every:
        s = Logit(logits[rows].to(dtype), loss.eps)
        value, slope = loss.terms(s, labels[rows], context, rows)
        if slopes is not None:
            torch.mul(slope, scale, out=slopes[rows])
        # Blocks are added up in float64: neither rounding nor overflow grows with the batch.
        part = _reduced(value, unit)
        parts.append(part.double() if unit == "all" else part)
        # Otherwise all of it would be held while the next block is computed.
        del s, value, slope
    total = torch.stack(parts).sum() if unit == "all" else torch.cat(parts)
    return (total if scale == 1 else total * scale).to(dtype), slopes


def _reduced(value: Tensor, unit: str) -> Tensor:
    return value if unit == "entry" else value.sum() if unit == "all" else value.sum(dim=1)


class LossTask(NamedTuple):
    """The arguments of a computation on some logits."""

    loss: "Loss"
    labels: Tensor
    context: object
    unit: str
    scale: float


class OnePass(torch.autograd.Function):
    """Autograd node around `measure`: the slopes are computed in the forward pass."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, task: LossTask) -> Tensor:  # type: ignore[override]
        # Not through save_for_backward: the logits are needed again only by a second backward.
        ctx.logits, ctx.task = logits, task
        value, ctx.slopes = measure(logits, task, logits.requires_grad)
        return value

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        if torch.is_grad_enabled():
            raise RuntimeError(
                "halftruth losses state their gradient and have no second derivative: expected "
                "backward without create_graph=True"
            )
        slopes, dtype, unit = ctx.slopes, ctx.logits.dtype, ctx.task.unit
        # The slopes are scaled in place, so a second backward must compute them again.
        ctx.slopes = None
        if slopes is None:
            _, slopes = measure(ctx.logits, ctx.task, True)
        assert slopes is not None
        if upstream.dtype != slopes.dtype:
            upstream = upstream.to(slopes.dtype)
        if unit == "all":
            fused.multiply_(slopes, upstream)
        else:
            slopes.mul_(upstream.unsqueeze(1) if unit == "row" else upstream)
        return slopes if slopes.dtype == dtype else slopes.to(dtype), None


def measure(logits: Tensor, task: LossTask, want_slope: bool) -> tuple[Tensor, Tensor | None]:
    """The scaled value and slopes, by a kernel on a GPU where possible, else by `walk`."""
    loss, labels, context, unit, scale = task
    if unit == "all" and fused.fits(logits):
        with suppress(Untraceable):
            return fused.run_kernel(loss, logits, labels, context, scale, want_slope)
    return walk(loss, logits, labels, context, unit, want_slope, scale)


def one_pass(
    loss: "Loss", logits: Tensor, labels: Tensor, context: object, unit: str, scale: float = 1.0
) -> Tensor:
    """scale · the loss, summed over everything, per row or not at all (`unit` all, row, entry)."""
    if torch.compiler.is_compiling():
        return traced(loss, logits, labels, context, unit) * scale
    return OnePass.apply(  # type: ignore[no-any-return]
        logits, LossTask(loss, labels, context, unit, scale)
    )


def traced(loss: "Loss", logits: Tensor, labels: Tensor, context: object, unit: str) -> Tensor:
    """The same without a custom node, for `torch.compile`, which fuses the operations."""
    z = logits.to(compute_dtype(logits))
    value, slope = loss.terms(
        Logit(z.detach(), loss.eps), labels, context, slice(0, logits.shape[0])
    )
    # z - z is 0, so the value does not change and the gradient is the stated slope.
    value = value.detach() + slope.detach() * (z - z.detach())
    if unit == "all":
        return value.sum(dtype=torch.float64).to(z.dtype)
    return value.sum(dim=1) if unit == "row" else value
