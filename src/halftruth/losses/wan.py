"""Weak assume negative, alias DW: down-weighted unknown labels."""

from typing import Any

from halftruth.losses import curves
from halftruth.losses._engine.logit import Logit
from halftruth.losses.base import Loss, register, require
from halftruth.losses.curves import Curve


@register("wan", "dw")
class WeakNegative(Loss):
    """Cross-entropy in which an unknown label is a negative of little weight.

        ℓ⁺ = −log p      ℓ⁻ = −log(1−p)      ℓ° = −w log(1−p),  w = 1/(K−1) unless given

    With the default weight the one positive of a row counts as much as all its assumed negatives.
    Cole et al., CVPR 2021 (WAN); with a free weight DW in paper 001 C.2 (0.1; CUB 0.02).
    UNKNOWN: negative of weight w; ABSENT keeps its full weight. Needs: nothing.
    """

    paper = "Cole et al. 2021"
    unknown_is = "weak negative"

    def __init__(self, weight: float | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.weight = require(weight is None or weight >= 0, weight, "weight", ">= 0 or None")

    def unknown(self, s: Logit) -> Curve:
        weight = 1 / max(s.z.shape[-1] - 1, 1) if self.weight is None else self.weight
        return curves.scaled(self.absent(s), weight)
