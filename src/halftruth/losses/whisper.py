"""Our own default: unknown labels whisper their no, and a prior keeps the head from shouting."""

import math
from typing import Any

from halftruth.losses import curves
from halftruth.losses.base import register
from halftruth.losses.curves import Curve
from halftruth.losses.logit import Logit
from halftruth.losses.wan import WeakNegative


@register("whisper")
class Whisper(WeakNegative):
    """Weak negatives whose joint noise stays below the voice of one positive, and a ridge prior.

        ℓ⁺ = −log p      ℓ⁻ = −log(1−p)      ℓ° = −w log(1−p),  w = 1/√(2K) unless given
        linear head on standardised features:  + ‖W‖² D / (2 v N K),  v = 2     (loss as a mean)

    A positive pulls at its logit with a force of up to 1. The K unknown labels of a row, right or
    wrong, push with w each; as independent pushes they add up to w√K, which w = 1/√(2K) keeps at
    0.7 for any number of classes, where 1/(K−1) lets it vanish and 1 lets it win. The second part
    says before any data that a logit has the standard deviation √v = 1.4: W ~ N(0, v/D) on D
    standardised features. The trainer adds it where a head is trained on features (`ridge`).
    Ours (docs/auto.md). UNKNOWN: negative of weight w; ABSENT keeps its full weight.
    Needs: nothing.
    """

    paper = "halftruth"
    unknown_is = "weak negative"
    ridge = 2.0

    def __init__(self, weight: float | None = None, **options: Any) -> None:
        super().__init__(weight, **options)

    def unknown(self, s: Logit) -> Curve:
        weight = 1 / math.sqrt(2 * s.z.shape[-1]) if self.weight is None else self.weight
        return curves.scaled(self.absent(s), weight)
