"""Self-paced loss correction over any base."""

from typing import Any

from halftruth.losses import curves
from halftruth.losses._engine.logit import Logit
from halftruth.losses.base import register, require
from halftruth.losses.curves import Curve
from halftruth.losses.wrapper import Wrapper


@register("splc")
class SPLC(Wrapper):
    """After the first epoch, a confident prediction on an unknown label makes it positive.

        ℓ° = [p ≤ τ] ℓ°_base + [p > τ] ℓ⁺_base        from epoch `start` on (0-based)

    Paper 003 (Zhang et al. 2021), eq. 10; τ = 0.6 (0.65 on COCO with 75 % of the labels). As in
    the authors' code, a corrected label gets the positive curve without its margin;
    `margin_on_corrected=True` is eq. 10 as printed. `base="hill"` is the reading of paper 002,
    Table 1. It goes inside other wrappers, not around them. UNKNOWN: positive above τ.
    Needs: start_epoch().
    """

    paper = "Zhang et al. 2021"
    unknown_is = "corrected above a threshold"

    def __init__(
        self,
        base: Any = "focal-margin",
        tau: float = 0.6,
        start: int = 1,
        margin_on_corrected: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(base, **options)
        if self.base.couples_rows or isinstance(self.base, Wrapper):
            raise ValueError(
                f"expected a base without coupled entries, got {type(self.base).__name__}: splc "
                'corrects single entries, so it goes inside, as in create("any-class", base="splc")'
            )
        self.tau = require(0 <= tau <= 1, tau, "tau", "in [0, 1]")
        self.start = require(start >= 0, start, "start", ">= 0")
        self.margin_on_corrected = margin_on_corrected
        self.correcting = start == 0

    def start_epoch(self, epoch: int, epochs: int) -> None:
        super().start_epoch(epoch, epochs)
        # `terms` must not read the epoch: torch.compile would compile again in each epoch.
        self.correcting = epoch >= self.start

    def terms(self, s: Logit, labels: Any, context: Any, rows: slice) -> Curve:
        curve = self.base.terms(s, labels, context, rows)
        if not self.correcting:
            return curve
        there = self.base.present if self.margin_on_corrected else self.base.corrected
        return curves.patched(
            curve, curves.is_unknown(labels) & curves.above(s.p, self.tau), there, s
        )
