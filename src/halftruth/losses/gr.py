"""Generalised robust loss: soft pseudo-labels, weights and robust curves with a schedule."""

from typing import Any, Unpack

import torch
from torch import Tensor, nn

from halftruth.losses import curves
from halftruth.losses._engine.logit import Logit
from halftruth.losses._engine.one_pass import compute_dtype
from halftruth.losses.base import Loss, Options, register, require
from halftruth.losses.curves import Curve
from halftruth.losses.schedule import Span, check_span, value_at

SCHEDULED = ("w", "b", "mu", "sigma")
# A trained width of v(p) stays above this: at 0 every unknown label would have the weight 0.
Number = float | Tensor
NARROWEST = 0.01


@register("gr")
class GR(Loss):
    """An unknown label is present with probability k(p), and counts with weight v(p).

        ℓ⁺ = (1 − p^q₁)/q₁      (q₁ = None: −log p)      ℓ⁻ = −log(1−p)
        ℓ° = v(p) [ k(p) (1 − p^q₂)/q₂ + (1 − k(p)) (1 − (1−p)^q₃)/q₃ ]
        k(p) = σ(w p + b),   v(p) = exp(−(p − μ)²/(2σ²)),   both without gradient

    w, b, μ and σ change linearly from their start to their end value with t/T, t being the
    0-based epoch; so does a q that is given as (start, end). `schedule="code"` follows the
    published code, which is one epoch behind for w, b and one epoch ahead for μ, σ. Slope of ℓ°
    (eq. 18): v [(1−k)(1−p)^q₃ p − k p^q₂ (1−p)]. `trainable=True` trains w, b, μ and σ from their
    start values by gradient descent (last row of its Table 3): give the optimiser
    `loss.parameter_groups(lr)`. Paper 002 (Chen et al., IJCAI 2024); ends (w, b) = (2, −2) VOC,
    (10, −8) otherwise; q₃ = 1.5 on CUB; start values are those of its code.
    UNKNOWN: soft pseudo-label. Needs: start_epoch().

    Args:
        w, b: slope and offset of k(p), as (start, end).
        mu, sigma: centre and width of v(p), as (start, end).
        q1, q2, q3: the exponents, as a number or (start, end); 0 is the log loss.
        schedule: "paper", or "code" for that of the published code.
        trainable: whether w, b, μ and σ are trained.

    >>> loss = GR(w=(0, 10), b=(-2, -8))
    >>> loss.start_epoch(5, 10)                # half of the schedule
    >>> loss.w, loss.b
    (5.0, -5.0)
    """

    paper = "Chen et al. 2024"
    unknown_is = "soft pseudo-label"
    depends_on_epoch = True
    without_epochs = "k(p) and v(p) stay at their start values"

    def __init__(
        self,
        w: Span = (0.0, 2.0),
        b: Span = (-2.0, -2.0),
        mu: Span = (0.5, 0.8),
        sigma: Span = (2.0, 0.5),
        q1: float | Span | None = None,
        q2: float | Span = 0.01,
        q3: float | Span = 1.0,
        schedule: str = "paper",
        trainable: bool = False,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(**options)
        spans = {"w": w, "b": b, "mu": mu, "sigma": sigma}
        for name, span in spans.items():
            pair = isinstance(span, list | tuple) and len(span) == 2
            require(pair, span, name, "to be two finite numbers, (start, end)")
        given = {**spans, "q1": q1 or 0.0, "q2": q2, "q3": q3}
        self.spans = {name: check_span(span, name) for name, span in given.items()}
        require(min(self.spans["sigma"]) > 0, sigma, "sigma", "> 0")
        for name in ("q1", "q2", "q3"):
            require(min(self.spans[name]) >= 0, given[name], name, ">= 0")
        known = ("paper", "code")
        self.schedule = require(schedule in known, schedule, "schedule", f"in {known}")
        self.trainable = trainable
        self.depends_on_epoch = any(
            start != end
            for name, (start, end) in self.spans.items()
            if not (trainable and name in SCHEDULED)
        )
        if trainable:
            # In double precision, so that a step of a small learning rate is not rounded away.
            start = [self.spans[name][0] for name in SCHEDULED]
            self.trained = nn.Parameter(torch.tensor(start, dtype=torch.float64))
        self.go_to(0.0)

    def go_to(self, share: float, weight: float | None = None) -> None:
        """Set the place in the schedule, 0..1: of k(p) and q, and of v(p) where it differs."""
        weight = share if weight is None else weight
        for name, span in self.spans.items():
            setattr(self, name, value_at(span, weight if name in ("mu", "sigma") else share))
        # For torch.compile: each new number would be compiled anew, what a tensor holds is not.
        self.numbers = torch.tensor(
            [getattr(self, name) for name in SCHEDULED], dtype=torch.float64
        )

    def start_epoch(self, epoch: int, epochs: int) -> None:
        super().start_epoch(epoch, epochs)
        ahead = 1 if self.schedule == "code" else 0
        self.go_to(epoch / epochs, (epoch + ahead) / epochs)

    def presence_of_unknown(self, p: Tensor) -> Tensor:
        w, b = self._trained(p.dtype)[:2] if self.trainable else (self.w, self.b)
        return torch.sigmoid(w * p + b)

    def present(self, s: Logit) -> Curve:
        return curves.robust_log(s, self.q1)

    def unknown(self, s: Logit) -> Curve:
        if self.trainable:
            return self._unknown(s, *self._trained(s.z.dtype))
        return self._unknown(s, self.w, self.b, self.mu, self.sigma)

    def _unknown(self, s: Logit, w: Number, b: Number, mu: Number, sigma: Number) -> Curve:
        there = curves.robust_log(s, self.q2)
        curve = curves.mirrored(curves.robust_log, s, self.q3)
        k = (s.p * w).add_(b).sigmoid_()
        curve = curves.mixed(k, there, curve)
        del there, k
        v = (s.p - mu).square_().mul_(-0.5 / (sigma * sigma)).exp_()
        return curves.scaled(curve, v)

    # Trained w, b, μ and σ: `terms` has the loss, `extra` their gradient and no value.

    def _trained(self, dtype: torch.dtype) -> tuple[Tensor, ...]:
        w, b, mu, sigma = self.trained.detach().to(dtype)
        return w, b, mu, sigma.abs().clamp(min=NARROWEST)

    def parameter_groups(self, lr: float) -> list[dict[str, object]]:
        if not self.trainable:
            return []
        return [{"params": [self.trained], "lr": lr, "weight_decay": 0.0}]

    def prepare(self, logits: Tensor, labels: Tensor, index: Tensor | None) -> object:
        if self.trainable:
            return self._trained(compute_dtype(logits))
        if torch.compiler.is_compiling():
            return self.numbers.to(logits.device, compute_dtype(logits)).unbind()
        return None

    def terms(self, s: Logit, labels: Tensor, context: Any, rows: slice) -> Curve:
        if context is None:
            return super().terms(s, labels, context, rows)
        curve = self._unknown(s, *context)
        curve = curves.patched(curve, curves.is_absent(labels), self.absent, s)
        return curves.patched(curve, curves.is_present(labels), self.present, s)

    @property
    def has_extra(self) -> bool:
        return self.trainable

    def extra(self, logits: Tensor, labels: Tensor) -> Tensor | None:
        if not self.trainable:
            return None
        s = Logit(logits.detach().to(compute_dtype(logits)), self.eps)
        there, _ = curves.robust_log(s, self.q2)
        gone, _ = curves.mirrored(curves.robust_log, s, self.q3)
        w, b, mu, sigma = self.trained.to(s.z.dtype)
        k = torch.sigmoid(w * s.p + b)
        v = torch.exp(-0.5 * ((s.p - mu) / sigma.abs().clamp(min=NARROWEST)).square())
        costs = v * (k * there + (1 - k) * gone) * (labels == 0)
        total = costs.sum() / max(labels.numel(), 1)
        return total - total.detach()

    w: float
    b: float
    mu: float
    sigma: float
    q1: float
    q2: float
    q3: float
