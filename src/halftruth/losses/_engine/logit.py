"""A logit with p, 1 - p and their log losses, computed without cancellation."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class once:
    """A property that is computed on first use and then kept.

    `functools.cached_property` holds a lock up to Python 3.11, which `torch.compile` cannot trace.
    """

    def __init__(self, compute: Callable[[Any], Tensor]) -> None:
        self.compute = compute
        self.name = compute.__name__
        self.__doc__ = compute.__doc__

    def __get__(self, owner: object, kind: type | None = None) -> Tensor:
        value = self.compute(owner)
        setattr(owner, self.name, value)
        return value


def softplus(z: Tensor) -> Tensor:
    """log(1 + e^z) = -log(1 - p); above the threshold it equals z in float64."""
    return torch.nn.functional.softplus(z, threshold=40.0)


class Logit:
    """z, p, 1 - p and their logarithms, each computed on first use; nobody writes into them.

    `eps` is the guard of some published codes inside the logarithms, log(p + eps). It is for
    comparison only: it removes the gradient of confident mistakes (at z = -15 a guard of 1e-5
    leaves 3 % of it).
    """

    def __init__(self, z: Tensor, eps: float = 0.0) -> None:
        self.z = z
        self.eps = eps

    @once
    def p(self) -> Tensor:
        return torch.sigmoid(self.z)

    @once
    def q(self) -> Tensor:
        """1 - p, exact where p rounds to 1."""
        return torch.sigmoid(self.minus_z)

    @once
    def minus_z(self) -> Tensor:
        return -self.z

    @once
    def pq(self) -> Tensor:
        """p (1 - p), the slope of p."""
        return self.p * self.q

    @once
    def loss_p(self) -> Tensor:
        """-log p."""
        return -torch.log(self.p + self.eps) if self.eps else softplus(self.minus_z)

    @once
    def loss_q(self) -> Tensor:
        """-log(1 - p)."""
        return -torch.log(self.q + self.eps) if self.eps else softplus(self.z)

    @once
    def log_p(self) -> Tensor:
        return -self.loss_p

    @once
    def log_q(self) -> Tensor:
        return -self.loss_q

    @once
    def slope_log_p(self) -> Tensor:
        return self.pq / (self.p + self.eps) if self.eps else self.q

    @once
    def slope_log_q(self) -> Tensor:
        return -self.pq / (self.q + self.eps) if self.eps else -self.p

    def mirror(self) -> "Logit":
        """The mirrored logit -z, with p and q swapped."""
        return _Mirror(self)

    def shift(self, margin: float) -> "Logit":
        """The logit z - margin."""
        return self.like(self.z - margin) if margin else self

    def like(self, z: Tensor) -> "Logit":
        """Another logit with the same `eps`."""
        return type(self)(z, self.eps)


class _Mirror(Logit):
    """-z of an existing Logit: nothing is computed twice."""

    def __init__(self, front: Logit) -> None:
        self.front = front
        self.eps = front.eps

    @property
    def z(self) -> Tensor:  # type: ignore[override]
        return self.front.minus_z

    @property
    def minus_z(self) -> Tensor:  # type: ignore[override]
        return self.front.z

    @property
    def p(self) -> Tensor:  # type: ignore[override]
        return self.front.q

    @property
    def q(self) -> Tensor:  # type: ignore[override]
        return self.front.p

    @property
    def pq(self) -> Tensor:  # type: ignore[override]
        return self.front.pq

    @property
    def loss_p(self) -> Tensor:  # type: ignore[override]
        return self.front.loss_q

    @property
    def loss_q(self) -> Tensor:  # type: ignore[override]
        return self.front.loss_p

    @property
    def log_p(self) -> Tensor:  # type: ignore[override]
        return self.front.log_q

    @property
    def log_q(self) -> Tensor:  # type: ignore[override]
        return self.front.log_p

    @once
    def slope_log_p(self) -> Tensor:  # type: ignore[override]
        return -self.front.slope_log_q if self.eps else self.q

    @once
    def slope_log_q(self) -> Tensor:  # type: ignore[override]
        return -self.front.slope_log_p if self.eps else -self.p

    def mirror(self) -> Logit:
        return self.front

    def like(self, z: Tensor) -> Logit:
        return self.front.like(z)
