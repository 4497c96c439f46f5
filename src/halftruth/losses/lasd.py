"""Leveraged asymmetric losses: LAS, and LASD with disambiguation."""

from typing import Unpack

from halftruth.losses import curves
from halftruth.losses._engine.logit import Logit
from halftruth.losses.base import Options, register, require
from halftruth.losses.curves import Curve
from halftruth.losses.focal import Asymmetric


def balanced_lam_neg(classes: int, expected_positives: float, lam_pos: float) -> float:
    """λ₋ of Theorem 5.4: 1 + λ₊(|y| − 1) = λ₋(K − |y|); 1 if there is only one class.

    >>> round(balanced_lam_neg(20, 1.46, 0.1), 5)
    0.05642
    """
    if classes == expected_positives == 1:
        return 1.0
    if expected_positives >= classes:
        raise ValueError(
            f"expected expected_positives below the number of classes, got {expected_positives} "
            f"for {classes} classes: give lam_neg, or the average number of positives per row"
        )
    return (1 + lam_pos * (expected_positives - 1)) / (classes - expected_positives)


@register("las")
class LAS(Asymmetric):
    """Focal curves with a weight on all unknown labels.

        ℓ⁺ = −(1−p)^γ₊ log p      ℓ⁻ = −p^γ₋ log(1−p)      ℓ° = λ ℓ⁻

    λ = 1/(K−1) unless given, as in the paper: one positive per row then weighs as much as all
    unknown labels of the row. λ = 1 is `asl` without shift. Paper 004, eq. 5 and Theorem 5.4.
    UNKNOWN: negative of weight λ. Needs: nothing.

    Args:
        lam: λ; None: 1/(K−1).
        gamma_pos, gamma_neg: γ₊ and γ₋.
    """

    paper = "LASD, ICLR 2023 submission"
    unknown_is = "weak focal negative"

    def __init__(
        self,
        lam: float | None = None,
        gamma_pos: float = 0.0,
        gamma_neg: float = 4.0,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(gamma_pos, gamma_neg, **options)
        self.lam = require(lam is None or lam >= 0, lam, "lam", ">= 0 or None")

    def unknown(self, s: Logit) -> Curve:
        lam = balanced_lam_neg(s.z.shape[-1], 1.0, 0.0) if self.lam is None else self.lam
        return curves.scaled(self.absent(s), lam)


@register("lasd")
class LASD(Asymmetric):
    """LAS that counts a confident prediction on an unknown label as a positive.

        ℓ° = λ₊ ℓ⁺  where p > τ,   λ₋ ℓ⁻  where p ≤ τ;   the choice has no gradient

    λ₋ follows from the classes K and the expected positives |y| by Theorem 5.4 unless it is given;
    without `expected_positives`, |y| = 1 and λ₋ = 1/(K−1).
    Paper 004, eq. 6; (λ₊, τ) = (.1, .9) VOC, (.03, .9) COCO, (.015, .95) NUS, (.005, .93) CUB. The
    paper trains it with consistency over views: see `consistency`.
    UNKNOWN: weak positive above τ, weak negative below. Needs: nothing.

    Args:
        expected_positives: |y|, the mean number of positives per row; None: 1.
        lam_pos: λ₊, the weight above τ.
        lam_neg: λ₋, the weight below τ; None: by Theorem 5.4.
        tau: τ.
        gamma_pos, gamma_neg: γ₊ and γ₋.
    """

    paper = "LASD, ICLR 2023 submission"
    unknown_is = "weak, by a threshold"

    def __init__(
        self,
        expected_positives: float | None = None,
        lam_pos: float = 0.1,
        lam_neg: float | None = None,
        tau: float = 0.9,
        gamma_pos: float = 0.0,
        gamma_neg: float = 4.0,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(gamma_pos, gamma_neg, **options)
        positive = expected_positives is None or expected_positives > 0
        self.expected_positives = require(
            positive, expected_positives, "expected_positives", "> 0 or None"
        )
        self.lam_pos = require(lam_pos >= 0, lam_pos, "lam_pos", ">= 0")
        self.lam_neg = require(lam_neg is None or lam_neg >= 0, lam_neg, "lam_neg", ">= 0 or None")
        self.tau = require(0 <= tau <= 1, tau, "tau", "in [0, 1]")

    def unknown(self, s: Logit) -> Curve:
        lam_neg = self.lam_neg
        if lam_neg is None:
            expected = 1.0 if self.expected_positives is None else self.expected_positives
            lam_neg = balanced_lam_neg(s.z.shape[-1], expected, self.lam_pos)
        curve = curves.scaled(self.absent(s), lam_neg)
        return curves.patched(curve, curves.above(s.p, self.tau), self._weak_present, s)

    def _weak_present(self, s: Logit) -> Curve:
        return curves.scaled(self.present(s), self.lam_pos)
