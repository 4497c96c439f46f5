"""The elementary curves of one logit, each with its gradient stated.

A curve is a pair (value, slope): the cost of the logit z, and its derivative. Values and slopes are
written in p = sigmoid(z), q = 1 - p and their logarithms, which `Logit` computes without
cancellation, so that both stay finite for every finite z. Curves are written for a PRESENT label;
`mirrored` turns one into the curve of an ABSENT label.

No function here writes into a tensor that it was given, or that `Logit` keeps: an operation in
place is only on a tensor made in the same function. So a curve may be used twice, and a method may
return the tensors of a `Logit` as its curve.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
import torch
from torch import Tensor

from halftruth.losses._engine.logit import Logit

Curve = tuple[Tensor, Tensor]


def with_slope(method: Callable[..., Any]) -> Callable[..., Curve]:
    """A method of a loss that may return its value alone; the slope is then left to autograd."""

    @wraps(method)
    def curve(loss: object, s: Logit, *rest: object) -> Curve:
        found = method(loss, s, *rest)
        if isinstance(found, tuple):
            return found
        with torch.inference_mode(False), torch.enable_grad():
            z = s.z.clone().detach().requires_grad_()
            value = method(loss, s.like(z), *rest)
            # The sum: an entry of a row may depend on the logits of the whole row.
            (slope,) = torch.autograd.grad(value.sum(), z)
        return found.detach(), slope

    return curve


def mirrored(curve: Callable[..., Curve], s: Logit, *arguments: float | bool) -> Curve:
    """The curve of an absent label, f(-z), with slope -f'(-z)."""
    value, slope = curve(s.mirror(), *arguments)
    return value, -slope


def log_loss(s: Logit) -> Curve:
    """-log p, slope -(1 - p)."""
    return s.loss_p, -s.slope_log_p


def absent_log_loss(s: Logit) -> Curve:
    """-log(1 - p), slope p: `log_loss` mirrored, without its two changes of sign."""
    return s.loss_q, -s.slope_log_q if s.eps else s.p


def focal(s: Logit, gamma: float, detach_weight: bool = False) -> Curve:
    """-(1-p)^gamma log p, slope (1-p)^gamma (gamma p log p - (1-p)).

    With `detach_weight` the factor (1-p)^gamma has no gradient.
    """
    if gamma == 0:
        return log_loss(s)
    weight = power(s.q, gamma)
    steep = s.slope_log_p
    if not detach_weight:
        steep = torch.addcmul(steep, s.p, s.loss_p, value=gamma)
    return weight * s.loss_p, (steep * weight).neg_()


def absent_focal(s: Logit, gamma: float, detach_weight: bool = False) -> Curve:
    """-p^gamma log(1-p): `focal` mirrored, without its two changes of sign."""
    if gamma == 0:
        return absent_log_loss(s)
    weight = power(s.p, gamma)
    steep = -s.slope_log_q if s.eps else s.p
    if not detach_weight:
        steep = torch.addcmul(steep, s.q, s.loss_q, value=gamma)
    return weight * s.loss_q, steep * weight


def shifted_focal(s: Logit, gamma: float, margin: float, detach_weight: bool = False) -> Curve:
    """ASL's absent curve -u^gamma log(1-u) with u = max(p - margin, 0).

    Slope p(1-p) (u^gamma / (1-u) - gamma u^(gamma-1) log(1-u)) where p > margin, else 0.
    """
    u = (s.p - margin).clamp_(min=0)
    rest = (s.q + (margin + s.eps)).clamp_(max=1 + s.eps)
    weight = power(u, gamma)
    slope = weight / rest
    log_rest = rest.log_()
    if gamma and not detach_weight:
        slope = slope.addcmul_(power(u, gamma - 1), log_rest, value=-gamma)
    slope = slope.mul_(s.p).mul_(s.q)
    # From gamma = 1 on, the slope is 0 where u is 0.
    if gamma < 1:
        slope = torch.where(u > 0, slope, 0.0)
    return log_rest.mul_(weight).neg_(), slope


def hill(s: Logit, lam: float) -> Curve:
    """(lam - p) p^2, the hill-shaped absent curve; slope (2 lam - 3p) p^2 (1-p)."""
    square = s.p * s.p
    slope = torch.rsub(s.p, 2 * lam, alpha=3).mul_(square).mul_(s.q)
    return square.mul_(lam - s.p), slope


def entropy(s: Logit) -> Curve:
    """H(p) = -p log p - (1-p) log(1-p), slope -z p (1-p)."""
    value = torch.addcmul(s.p * s.loss_p, s.q, s.loss_q)
    if s.eps:
        slope = s.pq * (s.log_q - s.log_p) - s.p * s.slope_log_p - s.q * s.slope_log_q
    else:
        slope = s.minus_z * s.pq
    return value, slope


def robust_log(s: Logit, q: float) -> Curve:
    """(1 - p^q) / q: the log loss for q -> 0, the absolute error for q = 1; slope -p^q (1-p)."""
    if q == 0:
        return log_loss(s)
    if q == 1:
        return s.q, -s.pq
    log_p = torch.nn.functional.logsigmoid(s.z) if s.eps else s.log_p
    exponent = log_p * q
    shrink = torch.expm1(exponent)
    # p^q as 1 - (1 - p^q) saves an exponential. It is inexact for small p^q only, and a small q
    # never gives one.
    power = shrink + 1 if q <= 0.1 else torch.exp(exponent)
    return shrink.mul_(-1 / q), power.mul_(s.q).neg_()


def taylor_log(s: Logit, order: int) -> Curve:
    """The first terms (1-p)^i / i of -log p, i = 1..order; slope -p (1-p) sum of (1-p)^(i-1)."""
    value, weight = s.q * (1 / order), torch.ones_like(s.q)
    for i in range(order - 1, 0, -1):
        value = (value + 1 / i).mul_(s.q)
        weight = (weight * s.q).add_(1.0)
    return value, weight.mul_(s.pq).neg_()


def squared(s: Logit) -> Curve:
    """(1-p)^2, slope -2 p (1-p)^2."""
    square = s.q * s.q
    slope = (s.p * square).mul_(-2.0)
    return square, slope


def toward(s: Logit, target: Tensor) -> Curve:
    """-t log p - (1-t) log(1-p), slope p - t; the target t has no gradient."""
    rest = 1 - target
    value = torch.addcmul(target * s.loss_p, rest, s.loss_q)
    if s.eps:
        return value, -(target * s.slope_log_p + rest * s.slope_log_q)
    return value, s.p - target


def scaled(curve: Curve, weight: float | Tensor) -> Curve:
    """weight · curve; the weight has no gradient."""
    return curve[0] * weight, curve[1] * weight


def added(a: Curve, b: Curve) -> Curve:
    """The sum of two curves."""
    return a[0] + b[0], a[1] + b[1]


def mixed(share: Tensor, a: Curve, b: Curve) -> Curve:
    """share · a + (1 - share) · b; the share has no gradient."""
    return torch.lerp(b[0], a[0], share), torch.lerp(b[1], a[1], share)


def patched(
    curve: Curve, where: Tensor, other: Callable[..., Curve], s: Logit, *tables: Tensor
) -> Curve:
    """`curve` with the entries under the mask `where` replaced by the curve `other`.

    `tables` (B, K): further arguments of `other`, of which it gets the same entries as of s.
    Labels are sparse: on a CPU only the masked entries of `other` are computed. On an accelerator
    and under a compiler it is faster to compute all of them and select.
    """
    value, slope = curve
    if not _by_numpy(where):
        mask = where.to(value.dtype)
        return mixed(mask, other(s, *tables), curve)
    at = torch.from_numpy(where.numpy().ravel().nonzero()[0])
    if not len(at):
        return curve
    new_value, new_slope = other(s.like(s.z.take(at)), *(table.take(at) for table in tables))
    return value.put(at, new_value), slope.put(at, new_slope)


def _by_numpy(x: Tensor) -> bool:
    """Whether numpy can read x: its comparisons and searches are five times as fast as torch's."""
    return x.is_cpu and not torch.compiler.is_compiling() and not x.requires_grad


def above(x: Tensor, threshold: float) -> Tensor:
    """Where x > threshold."""
    if not _by_numpy(x):
        return x > threshold
    values = x.numpy()
    return torch.from_numpy(np.greater(values, values.dtype.type(threshold)))


def is_absent(labels: Tensor) -> Tensor:
    """Where labels are ABSENT."""
    return torch.from_numpy(np.less(labels.numpy(), 0)) if _by_numpy(labels) else labels < 0


def is_unknown(labels: Tensor) -> Tensor:
    """Where labels are UNKNOWN."""
    return torch.from_numpy(np.equal(labels.numpy(), 0)) if _by_numpy(labels) else labels == 0


def is_present(labels: Tensor, no_absent: bool = False) -> Tensor:
    """Where labels are PRESENT; labels of only 0 and 1 are read as booleans without a pass."""
    if no_absent and labels.dtype == torch.int8:
        return labels.view(torch.bool)
    return above(labels, 0)


def holds_no_absent(labels: Tensor) -> bool:
    """Whether no label is ABSENT; False on accelerators, where the check would wait."""
    if torch.compiler.is_compiling() or not labels.is_cpu:
        return False
    return labels.numel() == 0 or int(labels.min()) >= 0


def nothing(s: Logit) -> Curve:
    """No cost and no gradient."""
    return torch.zeros_like(s.z), torch.zeros_like(s.z)


def power(base: Tensor, exponent: float) -> Tensor:
    """base^exponent, by products for the small integer exponents of the papers."""
    if exponent == 0:
        return torch.ones_like(base)
    if exponent == 1:
        return base
    if exponent in (2, 3, 4):
        square = base * base
        return square if exponent == 2 else square * (base if exponent == 3 else square)
    return base**exponent
