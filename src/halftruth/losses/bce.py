"""Binary cross-entropy, alias AN: "assume negative"."""

from typing import Any

from halftruth.losses import curves
from halftruth.losses._engine.logit import Logit
from halftruth.losses.base import Loss, register, require
from halftruth.losses.curves import Curve


@register("bce", "an")
class BCE(Loss):
    """Binary cross-entropy; what is not labelled counts as absent, or not at all.

        ℓ⁺ = −log p      ℓ⁻ = −log(1−p)      ℓ° = ℓ⁻ (`unknown="negative"`) or 0 (`"ignore"`)

    With "negative" it is the baseline AN of every paper (Cole et al., CVPR 2021), with complete
    labels plain BCE, with "ignore" their IU: entries left out stay in the denominator.
    UNKNOWN: negative, or ignored. Needs: nothing.

    >>> import torch
    >>> from halftruth.losses import BCE
    >>> BCE()(torch.zeros(1, 2), torch.tensor([[1, 0]])).item()
    0.6931471824645996
    """

    paper = "Cole et al. 2021"
    unknown_is = "negative (or ignored)"

    def __init__(self, unknown: str = "negative", **options: Any) -> None:
        super().__init__(**options)
        allowed = ("negative", "ignore")
        self.unknown_as = require(unknown in allowed, unknown, "unknown", f"in {allowed}")

    def unknown(self, s: Logit) -> Curve:
        return self.absent(s) if self.unknown_as == "negative" else curves.nothing(s)
