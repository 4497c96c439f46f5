"""Label smoothing over assumed negatives: AN-LS and N-LS."""

from typing import Any

from halftruth.losses import curves
from halftruth.losses._engine.logit import Logit
from halftruth.losses.base import Loss, register, require
from halftruth.losses.curves import Curve


@register("an-ls")
class LabelSmoothing(Loss):
    """Cross-entropy with softened targets, so that a wrong negative costs less.

        ℓ⁺ = −(1−c) log p − c log(1−p)      ℓ⁻ = ℓ° = −(1−c) log(1−p) − c log p

    `sides="negative"` leaves the positives hard (N-LS, paper 001 C.2). The papers write the
    smoothing as ε/2, the code that made their tables uses c itself: c = 0.1 is their ε = 0.2;
    `halve=True` takes `smoothing` for ε. Cole et al., CVPR 2021; Zhou et al., ECCV 2022.
    UNKNOWN: smoothed negative. Needs: nothing.
    """

    paper = "Cole et al. 2021"
    unknown_is = "smoothed negative"

    def __init__(
        self, smoothing: float = 0.1, sides: str = "both", halve: bool = False, **options: Any
    ) -> None:
        super().__init__(**options)
        self.smoothing = require(0 <= smoothing < 1, smoothing, "smoothing", "in [0, 1)")
        self.sides = require(sides in ("both", "negative"), sides, "sides", '"both" or "negative"')
        self.halve = halve

    def _smoothed(self, own: Curve, other: Curve) -> Curve:
        c = self.smoothing / 2 if self.halve else self.smoothing
        return curves.added(curves.scaled(own, 1 - c), curves.scaled(other, c))

    def present(self, s: Logit) -> Curve:
        own = curves.log_loss(s)
        if self.sides == "negative":
            return own
        return self._smoothed(own, curves.mirrored(curves.log_loss, s))

    def absent(self, s: Logit) -> Curve:
        return self._smoothed(curves.mirrored(curves.log_loss, s), curves.log_loss(s))
