"""Solvers of the ensemble: L-BFGS for small problems, Newton's method for linear members."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from halftruth.train.step import skip_compiler

# Steps of conjugate gradients in a Newton step, which need not be exact.
_GRADIENT_STEPS = 6
# A Newton step is shortened to a quarter up to so many times, then left out.
_SHORTER = 4
_TINY = 1e-30


def minimise(parameters: Sequence[Tensor], value: Callable[[], Tensor], steps: int) -> None:
    """Move parameters to a minimum of `value`, in at most so many steps.

    >>> x = torch.zeros(1, requires_grad=True)
    >>> minimise([x], lambda: (x - 2).square().sum(), steps=10)
    >>> round(x.item(), 4)
    2.0
    """
    solver = skip_compiler(torch.optim.LBFGS)(
        parameters, max_iter=steps, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        solver.zero_grad()
        now = value()
        now.backward()  # type: ignore[no-untyped-call]
        return now

    solver.step(closure)  # type: ignore[arg-type]


@torch.no_grad()
def step_newton(
    x: object, target: Tensor, cell: Tensor, weight: Tensor, bias: Tensor, z: Tensor, decay: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return weight (D, K), bias (K,) and z (N, K) after a step that lowers, for each class,

        Σ cell · cross-entropy(target, z) + cross-entropy(½, bias) + decay ‖weight‖²

    and z = x weight + bias. The second term is one row without a known label: it keeps the bias of
    a class that no row shows from falling without end, where scores would no longer differ.
    `x` (N, D): a tensor, or rows of a sparse matrix with `x @ w` and `x.T @ r`. Classes are
    problems of their own that share the products with x. The step is found by conjugate gradients,
    and is shortened where the value would not fall.
    """
    step, moved, shift = _find_step(x, target, cell, weight, bias, z, decay)
    along, length = (weight * step).sum(dim=0), step.square().sum(dim=0)

    def measure(size: Tensor | float) -> Tensor:
        value = F.binary_cross_entropy_with_logits(z + size * moved, target, cell, reduction="none")
        level = bias + size * shift
        prior = F.softplus(level) - level / 2
        return value.sum(dim=0) + prior + decay * (2 * size * along + size * size * length)

    before, size = measure(0.0), torch.ones_like(bias)
    for last in range(-_SHORTER, 1):
        worse = ~(measure(size) <= before)
        if not bool(worse.any()):
            break
        size = torch.where(worse, size / 4 if last else 0.0, size)
    return weight + size * step, bias + size * shift, z + size * moved


def _find_step(
    x: Any, target: Tensor, cell: Tensor, weight: Tensor, bias: Tensor, z: Tensor, decay: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the Newton step of weights (D, K), logits (N, K) and bias (K,), nearly solved."""
    p = torch.sigmoid(z)
    residual, curve = cell * (target - p), cell * p * (1 - p)
    # The bias is solved for exactly: it has a far larger curvature than a weight.
    level = torch.sigmoid(bias)
    total = curve.sum(dim=0) + level * (1 - level)
    share, shift = curve / total, (residual.sum(dim=0) + 0.5 - level) / total
    left = x.T @ (residual - curve * shift)
    left.sub_(weight, alpha=2 * decay)
    step, direction = torch.zeros_like(weight), left.clone()
    moved, size = shift.expand_as(z).clone(), left.square().sum(dim=0)
    for number in range(1, _GRADIENT_STEPS + 1):
        along = x @ direction
        mean = (share * along).sum(dim=0)
        along -= mean
        product = (x.T @ (curve * along)).add_(direction, alpha=2 * decay)
        rate = size / (direction * product).sum(dim=0).clamp(min=_TINY)
        step.addcmul_(direction, rate)
        moved.addcmul_(along, rate)
        shift = shift - rate * mean
        if number < _GRADIENT_STEPS:
            left.addcmul_(product, -rate)
            before, size = size, left.square().sum(dim=0)
            direction.mul_(size / before.clamp(min=_TINY)).add_(left)
    return step, moved, shift
