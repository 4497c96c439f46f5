"""Assume negative (AN): cross-entropy with unknown labels as negatives; AN-LS and WAN soften it."""

from typing import Unpack

from halftruth.losses import curves
from halftruth.losses._engine.logit import Logit
from halftruth.losses.base import Loss, Options, register, require
from halftruth.losses.curves import Curve


@register("bce", "an")
class BCE(Loss):
    """Binary cross-entropy; unknown labels count as absent, or not at all.

        ℓ⁺ = −log p      ℓ⁻ = −log(1−p)      ℓ° = ℓ⁻ (`unknown="negative"`) or 0 (`"ignore"`)

    With "negative" it is the baseline AN of every paper (Cole et al., CVPR 2021), with complete
    labels plain BCE, with "ignore" their IU: ignored entries stay in the denominator.
    UNKNOWN: negative, or ignored. Needs: nothing.

    Args:
        unknown: "negative", or "ignore" to give unknown labels no cost.

    >>> import torch
    >>> from halftruth.losses import BCE
    >>> BCE()(torch.zeros(1, 2), torch.tensor([[1, 0]])).item()
    0.6931471824645996
    """

    paper = "Cole et al. 2021"
    unknown_is = "negative (or ignored)"

    def __init__(self, unknown: str = "negative", **options: Unpack[Options]) -> None:
        super().__init__(**options)
        allowed = ("negative", "ignore")
        self.unknown_as = require(unknown in allowed, unknown, "unknown", f"in {allowed}")

    def unknown(self, s: Logit) -> Curve:
        return self.absent(s) if self.unknown_as == "negative" else curves.nothing(s)


@register("an-ls")
class LabelSmoothing(Loss):
    """Cross-entropy with smoothed targets, so that a wrong negative costs less.

        ℓ⁺ = −(1−c) log p − c log(1−p)      ℓ⁻ = ℓ° = −(1−c) log(1−p) − c log p

    `sides="negative"` leaves the positives hard (N-LS, paper 001 C.2). The papers write the
    smoothing as ε/2, the code behind their tables uses c itself: c = 0.1 is their ε = 0.2;
    `halve=True` reads `smoothing` as ε. Cole et al., CVPR 2021; Zhou et al., ECCV 2022.
    UNKNOWN: smoothed negative. Needs: nothing.

    Args:
        smoothing: c, in [0, 1).
        sides: "both", or "negative" to smooth negatives only.
        halve: whether `smoothing` is the ε of the papers, of which c is half.
    """

    paper = "Cole et al. 2021"
    unknown_is = "smoothed negative"

    def __init__(
        self,
        smoothing: float = 0.1,
        sides: str = "both",
        halve: bool = False,
        **options: Unpack[Options],
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


@register("wan", "dw")
class WeakNegative(Loss):
    """Weak assume negative: an unknown label is a negative with a small weight.

        ℓ⁺ = −log p      ℓ⁻ = −log(1−p)      ℓ° = −w log(1−p),  w = 1/(K−1) unless given

    With the default weight, one positive per row counts as much as all assumed negatives of the
    row. Cole et al., CVPR 2021 (WAN); with a free weight DW in paper 001 C.2 (0.1; CUB 0.02).
    UNKNOWN: negative of weight w; ABSENT keeps its full weight. Needs: nothing.

    Args:
        weight: w; None: 1/(K−1).
    """

    paper = "Cole et al. 2021"
    unknown_is = "weak negative"

    def __init__(self, weight: float | None = None, **options: Unpack[Options]) -> None:
        super().__init__(**options)
        self.weight = require(weight is None or weight >= 0, weight, "weight", ">= 0 or None")

    def unknown(self, s: Logit) -> Curve:
        weight = 1 / max(s.z.shape[-1] - 1, 1) if self.weight is None else self.weight
        return curves.scaled(self.absent(s), weight)
