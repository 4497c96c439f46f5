"""Expected positive regularisation: the expected number of positives per row, on average."""

from typing import Unpack

import torch
from torch import Tensor

from halftruth.losses import curves
from halftruth.losses._engine.logit import Logit
from halftruth.losses._engine.one_pass import compute_dtype
from halftruth.losses.base import Loss, Options, register, require
from halftruth.losses.curves import Curve


def count_gap(logits: Tensor, classes: int, expected: float) -> Tensor:
    """((1/B) Σ p − k)² / K²; 0 for a batch without rows."""
    rows = len(logits)
    predicted = torch.sigmoid(logits.to(compute_dtype(logits))).sum() / max(rows, 1)
    gap: Tensor = ((predicted - expected) / classes) ** 2
    return gap if rows else gap * 0


@register("epr")
class EPR(Loss):
    """Cross-entropy on known labels, and k predicted positives per row on average.

        ℓ⁺ = −log p      ℓ⁻ = −log(1−p)      ℓ° = 0
        L = mean over B K entries + λ ((1/B) Σ_n Σ_i p_ni − k)² / K²

    The paper sums the positive term over classes. The code behind its numbers divides it by K,
    which makes the regulariser K times stronger: this is the default; `positive_sum=True` is the
    form of the paper. Cole et al., CVPR 2021; k = 1.5 VOC, 2.9 COCO, 1.9 NUS, 31.4 CUB.
    UNKNOWN: enters the expected number only. Needs: `expected_positives` (k).

    Args:
        expected_positives: k, the mean number of positives per row.
        weight: λ.
        positive_sum: whether to divide the regulariser by K, as in the paper.
    """

    paper = "Cole et al. 2021"
    unknown_is = "counted in the expectation"

    def __init__(
        self,
        expected_positives: float,
        weight: float = 1.0,
        positive_sum: bool = False,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(**options)
        self.expected_positives = require(
            expected_positives > 0, expected_positives, "expected_positives", "> 0"
        )
        self.weight = require(weight >= 0, weight, "weight", ">= 0")
        self.positive_sum = positive_sum

    def unknown(self, s: Logit) -> Curve:
        return curves.nothing(s)

    def extra(self, logits: Tensor, labels: Tensor) -> Tensor | None:
        width = labels.shape[1]
        term = self.weight * count_gap(logits, width, self.expected_positives)
        return term / width if self.positive_sum else term
