"""Partial ASL (CSL): separate focusing for known and unknown labels; likely ones are left out."""

import math
from typing import Any, Unpack

import torch
from torch import Tensor

from halftruth.losses import curves
from halftruth.losses._engine.logit import Logit
from halftruth.losses._engine.one_pass import compute_dtype
from halftruth.losses.base import Options, register, require
from halftruth.losses.curves import Curve
from halftruth.losses.focal import Asymmetric


@register("csl", "p-asl")
class PartialASL(Asymmetric):
    """Focal curves per kind of label; unknown labels that are likely to be present are left out.

        ℓ⁺ = −(1−p)^γ₊ log p      ℓ⁻ = −p^γ₋ log(1−p)      ℓ° = −α p^γ° log(1−p), or 0

    `unknown="negative"`: the same for all unknown labels. "ignore": 0 for all. "selective": 0 for
    the `top`·B unknown labels of the batch with the largest predictions (the likelihood), and for
    all unknown labels of classes whose `prior` is above `prior_limit`; `prior` is a list of one
    frequency per class. Ben-Baruch et al., CVPR 2022 (partial labelling, class-aware selective
    loss); γ₊, γ₋, γ° = 0, 1, 2, top = 5, limit .05 as in their code.
    UNKNOWN: focal negative, the likely ones left out. Needs: nothing.

    Args:
        unknown: "selective", "negative" or "ignore".
        top: the number of unknown labels per row of a batch that are left out.
        prior: the frequency of each class, in [0, 1].
        prior_limit: classes above it have no cost for unknown labels.
        gamma_pos, gamma_neg, gamma_unknown: γ₊, γ₋ and γ°.
        alpha: α, the weight of unknown labels.
    """

    paper = "Ben-Baruch et al. 2022"
    unknown_is = "focal negative, likely ones left out"

    def __init__(
        self,
        unknown: str = "selective",
        top: float = 5.0,
        prior: list[float] | None = None,
        prior_limit: float = 0.05,
        gamma_pos: float = 0.0,
        gamma_neg: float = 1.0,
        gamma_unknown: float = 2.0,
        alpha: float = 1.0,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(gamma_pos, gamma_neg, **options)
        known = ("selective", "negative", "ignore")
        self.unknown_as = require(unknown in known, unknown, "unknown", f"in {known}")
        self.top = require(top >= 0, top, "top", ">= 0")
        self.prior = None if prior is None else [float(x) for x in prior]
        inside = all(0 <= x <= 1 for x in self.prior or [])
        require(inside, prior, "prior", "to be a list of shares in [0, 1]")
        self.prior_limit = require(0 <= prior_limit <= 1, prior_limit, "prior_limit", "in [0, 1]")
        ok = gamma_unknown >= 0
        self.gamma_unknown = require(ok, gamma_unknown, "gamma_unknown", ">= 0")
        self.alpha = require(alpha >= 0, alpha, "alpha", ">= 0")

    def unknown(self, s: Logit) -> Curve:
        if self.unknown_as == "ignore":
            return curves.nothing(s)
        return curves.scaled(curves.absent_focal(s, self.gamma_unknown), self.alpha)

    def prepare(self, logits: Tensor, labels: Tensor, index: Tensor | None) -> object:
        """Where unknown labels are left out, or None."""
        if self.unknown_as != "selective":
            return None
        unknown = labels == 0
        z = logits.to(compute_dtype(logits)).masked_fill(~unknown, -math.inf)
        count = min(math.ceil(self.top * len(z)), z.numel())
        left_out = torch.zeros_like(unknown)
        if count:
            lowest = torch.topk(z.flatten(), count, sorted=False).values.min()
            left_out = z >= lowest
        if self.prior is not None:
            if len(self.prior) != labels.shape[1]:
                raise ValueError(
                    f"expected a prior for each of the {labels.shape[1]} classes, got "
                    f"{len(self.prior)}"
                )
            common = torch.tensor(self.prior, device=z.device) > self.prior_limit
            left_out = left_out | common
        return left_out & unknown

    def terms(self, s: Logit, labels: Tensor, context: Any, rows: slice) -> Curve:
        curve = super().terms(s, labels, context, rows)
        return curve if context is None else curves.patched(curve, context[rows], curves.nothing, s)
