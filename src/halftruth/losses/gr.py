"""Generalised robust loss: soft pseudo-labels, weights and robust curves with a schedule."""

import math
from typing import Any

import torch
from torch import Tensor

from halftruth.losses import curves
from halftruth.losses._engine.logit import Logit
from halftruth.losses.base import Loss, register, require
from halftruth.losses.curves import Curve

Span = tuple[float, float]


@register("gr")
class GR(Loss):
    """An unknown label is present with probability k(p), and counts with weight v(p).

        ℓ⁺ = (1 − p^q₁)/q₁      (q₁ = None: −log p)      ℓ⁻ = −log(1−p)
        ℓ° = v(p) [ k(p) (1 − p^q₂)/q₂ + (1 − k(p)) (1 − (1−p)^q₃)/q₃ ]
        k(p) = σ(w p + b),   v(p) = exp(−(p − μ)²/(2σ²)),   both without gradient

    w, b, μ and σ change linearly from their start to their end value with t/T, t being the
    0-based epoch. `schedule="code"` follows the published code, which is one epoch behind for w, b
    and one epoch ahead for μ, σ. Slope of ℓ° (eq. 18): v [(1−k)(1−p)^q₃ p − k p^q₂ (1−p)].
    Paper 002 (Chen et al., IJCAI 2024); ends (w, b) = (2, −2) VOC, (10, −8) otherwise; q₃ = 1.5 on
    CUB; start values are those of its code. UNKNOWN: soft pseudo-label. Needs: start_epoch().
    """

    paper = "Chen et al. 2024"
    unknown_is = "soft pseudo-label"

    def __init__(
        self,
        w: Span = (0.0, 2.0),
        b: Span = (-2.0, -2.0),
        mu: Span = (0.5, 0.8),
        sigma: Span = (2.0, 0.5),
        q1: float | None = None,
        q2: float = 0.01,
        q3: float = 1.0,
        schedule: str = "paper",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        spans = {"w": w, "b": b, "mu": mu, "sigma": sigma}
        for name, span in spans.items():
            ok = len(span) == 2 and all(map(math.isfinite, span))
            require(ok, span, name, "to be two finite numbers, (start, end)")
        require(min(sigma) > 0, sigma, "sigma", "> 0")
        for name, q in {"q1": q1 or 0.0, "q2": q2, "q3": q3}.items():
            require(q >= 0, q, name, ">= 0")
        self.spans = spans
        self.q1, self.q2, self.q3 = q1 or 0.0, q2, q3
        known = ("paper", "code")
        self.schedule = require(schedule in known, schedule, "schedule", f"in {known}")
        self.go_to(0.0)

    def go_to(self, share: float, weight: float | None = None) -> None:
        """Set the place in the schedule, 0..1: of k(p), and of v(p) where it differs."""
        weight = share if weight is None else weight
        for name, t in (("w", share), ("b", share), ("mu", weight), ("sigma", weight)):
            start, end = self.spans[name]
            setattr(self, name, start + (end - start) * t)

    def start_epoch(self, epoch: int, epochs: int) -> None:
        super().start_epoch(epoch, epochs)
        ahead = 1 if self.schedule == "code" else 0
        self.go_to(epoch / epochs, (epoch + ahead) / epochs)

    def presence_of_unknown(self, p: Tensor) -> Tensor:
        return torch.sigmoid(self.w * p + self.b)

    def present(self, s: Logit) -> Curve:
        return curves.robust_log(s, self.q1)

    def unknown(self, s: Logit) -> Curve:
        there = curves.robust_log(s, self.q2)
        curve = curves.mirrored(curves.robust_log, s, self.q3)
        k = (s.p * self.w).add_(self.b).sigmoid_()
        curve = curves.mixed(k, there, curve)
        del there, k
        v = (s.p - self.mu).square_().mul_(-0.5 / self.sigma**2).exp_()
        return curves.scaled(curve, v)

    w: float
    b: float
    mu: float
    sigma: float
