"""Self-paced loss correction over any base."""

from typing import Any, Unpack

import torch
from torch import Tensor

from halftruth.losses import curves
from halftruth.losses._engine.logit import Logit
from halftruth.losses.base import LossLike, register, require
from halftruth.losses.curves import Curve
from halftruth.losses.wrapper import Wrapper, WrapperOptions


@register("splc")
class SPLC(Wrapper):
    """After the first epoch, a confident prediction on an unknown label makes it positive.

        ℓ° = [p ≤ τ] ℓ°_base + [p > τ] ℓ⁺_base        from epoch `start` on (0-based)

    Paper 003 (Zhang et al. 2021), eq. 10; τ = 0.6 (0.65 on COCO with 75 % of the labels). As in
    the authors' code, a corrected label gets the positive curve without its margin;
    `margin_on_corrected=True` is eq. 10 as printed. `base="hill"` is the reading of paper 002,
    Table 1. A list of K thresholds has one per class, which the paper leaves to future work. It
    goes inside other wrappers, not around them. UNKNOWN: positive above τ. Needs: start_epoch().

    Args:
        tau: τ, or a list of one per class.
        start: the first epoch (0-based) with corrections.
        margin_on_corrected: whether a corrected label has the margin of the base.

    >>> loss = SPLC("bce", start=0, reduction="none")
    >>> loss(torch.tensor([[2.0, 0.0]]), torch.tensor([[0, 0]]))       # p = 0.88 and 0.5
    tensor([[0.1269, 0.6931]])
    """

    paper = "Zhang et al. 2021"
    unknown_is = "corrected above a threshold"
    depends_on_epoch = True
    without_epochs = "no label is corrected"

    def __init__(
        self,
        base: LossLike = "focal-margin",
        tau: float | list[float] = 0.6,
        start: int = 1,
        margin_on_corrected: bool = False,
        **options: Unpack[WrapperOptions],
    ) -> None:
        super().__init__(base, **options)
        if self.base.couples_rows or isinstance(self.base, Wrapper):
            raise ValueError(
                f"expected a base without coupled entries, got {type(self.base).__name__}: splc "
                'corrects single entries, so it goes inside, as in create("any-class", base="splc")'
            )
        several = [float(x) for x in tau] if isinstance(tau, list | tuple) else [float(tau)]
        inside = bool(several) and all(0 <= x <= 1 for x in several)
        require(inside, tau, "tau", "in [0, 1], or a list with one such number per class")
        self.tau: float | list[float] = several if isinstance(tau, list | tuple) else several[0]
        self.start = require(start >= 0, start, "start", ">= 0")
        self.margin_on_corrected = margin_on_corrected
        self.correcting = start == 0
        self.depends_on_epoch = start > 0 or self.base.depends_on_epoch
        if start == 0:
            self.without_epochs = ""

    def start_epoch(self, epoch: int, epochs: int) -> None:
        super().start_epoch(epoch, epochs)
        # `terms` must not read the epoch: torch.compile would compile again in each epoch.
        self.correcting = epoch >= self.start

    @property
    def pseudo_label_threshold(self) -> float:
        """The threshold, or the mean of the thresholds per class."""
        return sum(self.tau) / len(self.tau) if isinstance(self.tau, list) else self.tau

    def prepare(self, logits: Tensor, labels: Tensor, index: Tensor | None) -> object:
        inner = self.base.prepare(logits, labels, index)
        if not isinstance(self.tau, list):
            return inner
        if len(self.tau) != labels.shape[1]:
            raise ValueError(
                f"expected one tau for each of the {labels.shape[1]} classes, got {len(self.tau)}"
            )
        # As logits: one comparison per entry, without a probability.
        limits = torch.logit(torch.tensor(self.tau, dtype=torch.float64, device=labels.device))
        return inner, limits.to(logits.dtype).expand(labels.shape)

    def terms(self, s: Logit, labels: Any, context: Any, rows: slice) -> Curve:
        base, tau = self.base, self.tau
        if isinstance(tau, list):
            context, limits = context
        curve = base.terms(s, labels, context, rows)
        if not self.correcting:
            return curve
        there = base.present if self.margin_on_corrected else base.corrected
        above = s.z > limits[rows] if isinstance(tau, list) else curves.above(s.p, tau)
        return curves.patched(curve, curves.is_unknown(labels) & above, there, s)
