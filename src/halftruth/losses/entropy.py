"""Entropy of the unknown labels: maximised (EM) or minimised (EntMin)."""

from typing import Any

from halftruth.losses import curves
from halftruth.losses._engine.logit import Logit
from halftruth.losses.base import Loss, register, require
from halftruth.losses.curves import Curve


@register("em")
class EM(Loss):
    """Entropy maximisation: the prediction of an unknown label is kept uncertain.

        ℓ⁺ = −log p      ℓ⁻ = −log(1−p)      ℓ° = −α H(p),  H = −p log p − (1−p) log(1−p)

    The slope of ℓ° is α z p(1−p): zero at z = 0, small for confident predictions of either sign,
    so labelled positives are learned first. The loss is negative where few labels are known;
    `shift=True` adds α log 2 to ℓ°, which changes no gradient and keeps it at or above zero.
    Zhou et al., ECCV 2022 (paper 001), eq. 4-5; α = 0.2 VOC, 0.1 COCO and NUS, 0.01 CUB. To
    predict labels, use a threshold of 0.75 or one fitted on validation rows.
    UNKNOWN: pushed towards p = 1/2. Needs: nothing.
    """

    paper = "Zhou et al. 2022"
    unknown_is = "kept undecided"

    def __init__(self, alpha: float = 0.1, shift: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.alpha = require(alpha >= 0, alpha, "alpha", ">= 0")
        self.shift = shift

    def unknown(self, s: Logit) -> Curve:
        value, slope = curves.scaled(curves.entropy(s), -self.alpha)
        return (value + self.alpha * 0.6931471805599453 if self.shift else value), slope


@register("entmin")
class EntropyMin(Loss):
    """Entropy minimisation: the prediction of an unknown label is made confident.

        ℓ⁺ = −log p      ℓ⁻ = −log(1−p)      ℓ° = w H(p)

    Grandvalet and Bengio 2004, as a baseline of paper 001 C.2: w = 0.01 VOC, 0.9 COCO, 0.4 NUS
    and CUB. It is EM with the opposite sign. UNKNOWN: pushed to the nearer end.
    Needs: nothing.
    """

    paper = "Grandvalet & Bengio 2004"
    unknown_is = "pushed to the nearer end"

    def __init__(self, weight: float = 0.01, **options: Any) -> None:
        super().__init__(**options)
        self.weight = require(weight >= 0, weight, "weight", ">= 0")

    def unknown(self, s: Logit) -> Curve:
        return curves.scaled(curves.entropy(s), self.weight)
