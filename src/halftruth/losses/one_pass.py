"""Value and gradient of a loss in one pass over the logits.

Autograd would keep a dozen copies of the logits and walk over each of them twice. The curves state
their slopes, so one walk is enough: rows are taken in blocks that stay in the processor's cache,
and what is kept for the backward pass is one copy, the gradient itself.
"""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from halftruth.losses import fused, native
from halftruth.losses.curves import Curve
from halftruth.losses.logit import Logit
from halftruth.losses.tracing import Untraceable

if TYPE_CHECKING:
    from halftruth.losses.base import Loss

# Entries of a block on a CPU: large enough to hide the cost of a call, small enough for its caches.
BLOCK = 1 << 18


def compute_dtype(logits: Tensor) -> torch.dtype:
    """float64 stays; everything else is computed in float32."""
    return torch.float64 if logits.dtype == torch.float64 else torch.float32


def block_curve(loss: "Loss", logits: Tensor, labels: Tensor, context: Any, rows: slice) -> Curve:
    """Value and slope of some rows."""
    z = logits[rows].to(compute_dtype(logits))
    return loss.terms(Logit(z, loss.eps), labels[rows], context, rows)


def blocks(logits: Tensor) -> list[slice]:
    """Whole rows in blocks on a CPU, everything at once elsewhere."""
    count, width = logits.shape
    if logits.device.type != "cpu":
        return [slice(0, count)] if count else []
    # Of equal size: a short last block would cost as many calls as the others.
    number = -(-count // max(BLOCK // max(width, 1), 1))
    step = -(-count // max(number, 1))
    return [slice(at, min(at + step, count)) for at in range(0, count, max(step, 1))]


def walk(
    loss: "Loss", logits: Tensor, labels: Tensor, context: Any, unit: str, want_slope: bool
) -> tuple[Tensor, Tensor | None]:
    """(sum, or one value a `unit`) and, if wanted, the slope of every entry."""
    dtype = compute_dtype(logits)
    every = blocks(logits)
    if len(every) == 1 and unit == "all":
        value, slope = block_curve(loss, logits, labels, context, every[0])
        return value.sum().double(), slope if want_slope else None
    slopes = torch.empty_like(logits, dtype=dtype) if want_slope else None
    sums: list[Tensor] = []
    for rows in every:
        value, slope = block_curve(loss, logits, labels, context, rows)
        if slopes is not None:
            slopes[rows] = slope
        if unit == "entry":
            sums.append(value)
        elif unit == "row":
            sums.append(value.sum(dim=1))
        else:
            # Blocks are added up in float64: neither rounding nor overflow grows with the batch.
            sums.append(value.sum().double())
        # Or they would be held while the next block is computed.
        del value, slope
    if unit == "all":
        total = torch.stack(sums).sum() if sums else logits.new_zeros((), dtype=torch.float64)
        return total, slopes
    shape = logits.shape if unit == "entry" else logits.shape[:1]
    return torch.cat(sums) if sums else logits.new_zeros(shape, dtype=dtype), slopes


class OnePass(torch.autograd.Function):
    """Autograd node around `walk`: the slopes are ready when backward asks for them."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        logits: Tensor,
        labels: Tensor,
        loss: "Loss",
        context: Any,
        unit: str,
        scale: float,
    ) -> Tensor:
        # Not through save_for_backward: by then they have done their part, but for a second time.
        ctx.batch = logits, labels
        ctx.loss, ctx.context, ctx.unit, ctx.scale = loss, context, unit, scale
        value, ctx.slopes = measure(ctx, logits, labels, logits.requires_grad)
        return value

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        if torch.is_grad_enabled():
            raise RuntimeError(
                "the losses of halftruth state their gradient and have no second derivative: "
                "expected backward without create_graph=True"
            )
        logits, labels = ctx.batch
        slopes = ctx.slopes
        # The slopes are scaled in place, so a second backward has to compute them anew.
        ctx.slopes = None
        if slopes is None:
            _, slopes = measure(ctx, logits, labels, True)
        assert slopes is not None
        if upstream.dtype != slopes.dtype:
            upstream = upstream.to(slopes.dtype)
        if ctx.unit == "all":
            fused.multiply_(slopes, upstream)
        else:
            slopes.mul_(upstream.unsqueeze(1) if ctx.unit == "row" else upstream)
        if slopes.dtype != logits.dtype:
            slopes = slopes.to(logits.dtype)
        return slopes, None, None, None, None, None


def measure(
    ctx: Any, logits: Tensor, labels: Tensor, want_slope: bool
) -> tuple[Tensor, Tensor | None]:
    """The scaled value and slopes: by one kernel where there is one, by `walk` elsewhere."""
    if ctx.unit == "all":
        with suppress(Untraceable):
            if fused.fits(logits):
                return fused.run(ctx.loss, logits, labels, ctx.context, ctx.scale, want_slope)
            if native.fits(logits, labels):
                return native.run(ctx.loss, logits, labels, ctx.context, ctx.scale, want_slope)
    value, slopes = walk(ctx.loss, logits, labels, ctx.context, ctx.unit, want_slope)
    if ctx.scale != 1:
        value = value * ctx.scale
        slopes = None if slopes is None else slopes.mul_(ctx.scale)
    return value.to(compute_dtype(logits)), slopes


def one_pass(
    loss: "Loss", logits: Tensor, labels: Tensor, context: Any, unit: str, scale: float = 1.0
) -> Tensor:
    """scale · the loss summed over everything, a row, or nothing (`unit` all, row, entry)."""
    if torch.compiler.is_compiling():
        return traced(loss, logits, labels, context, unit) * scale
    if unit == "all" and logits.numel() <= fused.FEW and fused.fits(logits):
        with suppress(Untraceable):
            return attached(loss, logits, labels, context, scale)
    return OnePass.apply(  # type: ignore[no-any-return]
        logits, labels, loss, context, unit, scale
    )


def attached(loss: "Loss", logits: Tensor, labels: Tensor, context: Any, scale: float) -> Tensor:
    """The same for a small batch on an accelerator, where Python takes longer than the device.

    z·s has the slopes s for its gradient, by a node of torch's own that never comes back to
    Python; its value is then overwritten by the loss. As everywhere here the slopes are constants:
    there are no second derivatives.
    """
    wanted = logits.requires_grad and torch.is_grad_enabled()
    value, slopes = fused.run(loss, logits, labels, context, scale, wanted)
    if slopes is None:
        return value
    link = torch.dot(logits.reshape(-1).to(slopes.dtype), slopes.view(-1))
    link.detach().copy_(value)
    return link


def traced(loss: "Loss", logits: Tensor, labels: Tensor, context: Any, unit: str) -> Tensor:
    """The same without a custom node, for `torch.compile`, which fuses the walk by itself."""
    z = logits.to(compute_dtype(logits))
    value, slope = loss.terms(
        Logit(z.detach(), loss.eps), labels, context, slice(0, logits.shape[0])
    )
    # z - z is 0, so the value is untouched and the gradient is the stated slope.
    value = value.detach() + slope.detach() * (z - z.detach())
    if unit == "all":
        return value.sum(dtype=torch.float64).to(z.dtype)
    return value.sum(dim=1) if unit == "row" else value
