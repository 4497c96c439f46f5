"""Focal loss and the losses derived from it: ASL, focal margin, Hill."""

import math
from typing import Unpack

from halftruth.losses import curves
from halftruth.losses._engine.logit import Logit
from halftruth.losses.base import Loss, Options, register, require
from halftruth.losses.curves import Curve


@register("focal")
class Focal(Loss):
    """Cross-entropy with a small weight on entries that are predicted well already.

        ℓ⁺ = −α (1−p)^γ log p      ℓ⁻ = ℓ° = −(1−α) p^γ log(1−p)      (no α: both factors 1)

    Lin et al., ICCV 2017; over assumed negatives FAN in paper 004. Paper 001 takes α = 0.75.
    UNKNOWN: negative. Needs: nothing.

    Args:
        gamma: γ; 0 is cross-entropy.
        alpha: the weight of positives, 1 − α that of negatives; None: no weights.
    """

    paper = "Lin et al. 2017"

    def __init__(
        self, gamma: float = 2.0, alpha: float | None = None, **options: Unpack[Options]
    ) -> None:
        super().__init__(**options)
        self.gamma = require(gamma >= 0, gamma, "gamma", ">= 0")
        self.alpha = require(alpha is None or 0 <= alpha <= 1, alpha, "alpha", "in [0, 1] or None")

    def present(self, s: Logit) -> Curve:
        curve = curves.focal(s, self.gamma)
        return curve if self.alpha is None else curves.scaled(curve, self.alpha)

    def absent(self, s: Logit) -> Curve:
        curve = curves.absent_focal(s, self.gamma)
        return curve if self.alpha is None else curves.scaled(curve, 1 - self.alpha)


class Asymmetric(Loss):
    """Focal curves with separate exponents for positives and negatives."""

    def __init__(
        self, gamma_pos: float = 0.0, gamma_neg: float = 4.0, **options: Unpack[Options]
    ) -> None:
        super().__init__(**options)
        self.gamma_pos = require(gamma_pos >= 0, gamma_pos, "gamma_pos", ">= 0")
        self.gamma_neg = require(gamma_neg >= 0, gamma_neg, "gamma_neg", ">= 0")

    def present(self, s: Logit) -> Curve:
        return curves.focal(s, self.gamma_pos)

    def absent(self, s: Logit) -> Curve:
        return curves.absent_focal(s, self.gamma_neg)


@register("asl")
class ASL(Asymmetric):
    """Asymmetric loss: stronger focusing on negatives, and easy negatives are dropped.

        ℓ⁺ = −(1−p)^γ₊ log p      ℓ⁻ = ℓ° = −u^γ₋ log(1−u),  u = max(p − m, 0)

    Ridnik et al., ICCV 2021. The default of their class is γ₊ = 1; the script behind their
    results, the papers here and this class use γ₊ = 0. `detach_weight=True` treats the focal
    weights as constants (as their first implementation does, not their second: same value, another
    gradient). Paper 001: (γ₋, m) = (2, 0.2), CUB (1, 0). UNKNOWN: negative. Needs: nothing.

    Args:
        gamma_pos: γ₊.
        gamma_neg: γ₋, the focusing on negatives.
        margin: m; negatives with p below it cost nothing.
        detach_weight: whether the focal weights have no gradient.

    >>> import torch
    >>> ASL(reduction="none")(torch.tensor([[0.0, 0.0, 4.0]]), torch.tensor([[1, 0, -1]]))
    tensor([[0.6931, 0.0245, 2.0286]])
    """

    paper = "Ridnik et al. 2021"

    def __init__(
        self,
        gamma_pos: float = 0.0,
        gamma_neg: float = 4.0,
        margin: float = 0.05,
        detach_weight: bool = False,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(gamma_pos, gamma_neg, **options)
        self.margin = require(0 <= margin < 1, margin, "margin", "in [0, 1)")
        self.detach_weight = detach_weight

    def present(self, s: Logit) -> Curve:
        return curves.focal(s, self.gamma_pos, self.detach_weight)

    def absent(self, s: Logit) -> Curve:
        if self.margin == 0:
            return curves.absent_focal(s, self.gamma_neg, self.detach_weight)
        return curves.shifted_focal(s, self.gamma_neg, self.margin, self.detach_weight)


@register("focal-margin")
class FocalMargin(Loss):
    """Focal loss with a margin on the positives, which gives semi-hard ones more weight.

        ℓ⁺ = −(1−p')^γ log p',  p' = σ(z − m)      ℓ⁻ = ℓ° = −p^γ log(1−p)

    Paper 003 (Zhang et al. 2021), eq. 11; m in [0.5, 1]. A label that was
    corrected by a method gets no margin (`corrected`). UNKNOWN: negative. Needs: nothing.

    Args:
        margin: m, in logits.
        gamma: γ, of positives and negatives.
    """

    paper = "Zhang et al. 2021"

    def __init__(self, margin: float = 1.0, gamma: float = 2.0, **options: Unpack[Options]) -> None:
        super().__init__(**options)
        self.margin = require(math.isfinite(margin), margin, "margin", "to be finite")
        self.gamma = require(gamma >= 0, gamma, "gamma", ">= 0")

    def present(self, s: Logit) -> Curve:
        return curves.focal(s.shift(self.margin), self.gamma)

    def corrected(self, s: Logit) -> Curve:
        return curves.focal(s, self.gamma)

    def absent(self, s: Logit) -> Curve:
        return curves.absent_focal(s, self.gamma)


@register("hill")
class Hill(FocalMargin):
    """Hill loss: a confident prediction on an assumed negative may be a missing label.

        ℓ⁺ = −(1−p')^γ log p',  p' = σ(z − m)      ℓ⁻ = ℓ° = (λ − p) p²

    The slope of ℓ° falls again for p > 1/2 and is close to 0 at p = 1. λ = 3/2 puts its maximum in
    z at p = 1/2. Paper 003 (Zhang et al. 2021), eq. 5 and 11. `margin=0, gamma=0` is the reading
    of paper 002 (cross-entropy on positives). UNKNOWN: hill-shaped negative. Needs: nothing.

    Args:
        lam: λ, the height of the hill.
        margin: m, in logits, on labelled positives.
        gamma: γ of labelled positives.

    >>> import torch
    >>> logits = torch.tensor([[-2.0, 0.0, 4.0]], requires_grad=True)
    >>> Hill(reduction="sum")(logits, torch.zeros(1, 3, dtype=torch.int8)).backward()
    >>> logits.grad                            # a confident prediction is hardly pushed down
    tensor([[0.0331, 0.1875, 0.0009]])
    """

    unknown_is = "hill-shaped negative"

    def __init__(
        self, lam: float = 1.5, margin: float = 1.0, gamma: float = 2.0, **options: Unpack[Options]
    ) -> None:
        super().__init__(margin=margin, gamma=gamma, **options)
        self.lam = require(lam > 0, lam, "lam", "> 0")

    def absent(self, s: Logit) -> Curve:
        return curves.hill(s, self.lam)
