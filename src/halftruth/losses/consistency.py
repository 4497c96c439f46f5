"""Consistency over several views of the same rows."""

from typing import Any

import torch
from torch import Tensor

from halftruth.losses._engine.one_pass import compute_dtype
from halftruth.losses.base import register, require
from halftruth.losses.wrapper import Wrapper


@register("consistency")
class Consistency(Wrapper):
    """A base loss on x, plus a penalty where augmented views of x are predicted differently.

        L = base(x) + α Σ_{i<j} ‖p(x_i) − p(x_j)‖²,   x₀ = x, x₁, x₂ its augmentations

    The squares are summed over classes like the base's entries, so under reduction "mean" both
    are divided by B·K. Paper 004, eq. 7-8; α = .7 VOC, .1 COCO, .15 NUS, .03 CUB. The logits are
    (V, B, K), the first view being x. UNKNOWN: as in the base. Needs: V forward passes, best
    done as one batch of V·B.
    """

    paper = "LASD, ICLR 2023 submission"
    unknown_is = "as the base"

    def __init__(
        self, base: Any = "lasd", weight: float = 0.1, views: int = 3, **options: Any
    ) -> None:
        super().__init__(base, **options)
        self.weight = require(weight >= 0, weight, "weight", ">= 0")
        require(self.base.views == 1, self.base.views, "a base with one view, not", "more")
        self.views = require(views >= 2, views, "views", ">= 2")

    def extra(self, logits: Tensor, labels: Tensor) -> Tensor | None:
        p = torch.sigmoid(logits.to(compute_dtype(logits)))
        # Over all pairs, Σ_{i<j} (p_i − p_j)² = V Σ_i (p_i − mean)²: one pass, not V².
        spread = (p - p.mean(dim=0)).square().sum() * self.views
        term = self.weight * spread / max(labels.numel(), 1)
        inner = self.base.extra(logits[0], labels)
        return term if inner is None else term + inner
