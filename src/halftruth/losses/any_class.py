"""Any-class presence: a term for whether a row has any class at all."""

from typing import Unpack

from torch import Tensor

from halftruth.losses import curves
from halftruth.losses._engine.logit import Logit
from halftruth.losses.base import LossLike, register, require
from halftruth.losses.curves import Curve
from halftruth.losses.wrapper import Wrapper, WrapperOptions


def positives_and_empty_rows(labels: Tensor) -> Tensor:
    """The number of positive labels plus rows without one, the divisor of the authors' code."""
    there = labels > 0
    return (there.sum() + (~there.any(dim=1)).sum()).clamp(min=1)


@register("any-class")
class AnyClass(Wrapper):
    """A base loss plus a term for "any class is present", for data with many empty rows.

        L = Σ_j base_j + α [ a ℓ⁺(z*) + (1−a) ℓ⁻(z*) ],   a = [some y = +1],
        z* = Σ_j w_j z_j / Σ_j w_j,   w = 1 for present classes, λ for the others of a positive
        row, 1 everywhere in a row without positives

    p_a = σ(z*) is the normalised geometric mean of the probabilities (paper 000, eq. 22), and the
    slope is w_j/Σw · (p_a − a) for a cross-entropy base (eq. 24). ℓ⁺ and ℓ⁻ are the curves
    of the base, so a focal base gives the focal form. Paper 000 (Any-Class Presence Likelihood);
    α = 1, λ = 0.02 to 0.2, larger with more empty rows.
    UNKNOWN: as in the base; a row without a positive counts as empty. With
    `empty_rows="verified"` it counts only if all its classes are ABSENT, for data with missing
    positives.
    `normalizer="labels"` divides by positive labels plus empty rows, as the authors' code does.
    Needs: nothing.

    Args:
        alpha: α, the weight of the term.
        lam: λ, the weight of classes that are not present.
        empty_rows: "all" rows without a positive are empty, or only "verified" ones.
        normalizer: "mean", or "labels" for the divisor of the authors' code.
    """

    paper = "Any-Class Presence Likelihood"
    unknown_is = "as the base"

    def __init__(
        self,
        base: LossLike = "bce",
        alpha: float = 1.0,
        lam: float = 0.1,
        empty_rows: str = "all",
        normalizer: str = "mean",
        **options: Unpack[WrapperOptions],
    ) -> None:
        super().__init__(base, **options)
        self.alpha = require(alpha >= 0, alpha, "alpha", ">= 0")
        self.lam = require(lam >= 0, lam, "lam", ">= 0")
        known = ("all", "verified")
        self.empty_rows = require(empty_rows in known, empty_rows, "empty_rows", f"in {known}")
        known = ("mean", "labels")
        self.normalize_by = require(normalizer in known, normalizer, "normalizer", f"in {known}")
        self.couples_rows = True

    def terms(self, s: Logit, labels: Tensor, context: object, rows: slice) -> Curve:
        value, slope = self.base.terms(s, labels, context, rows)
        there = (labels > 0).to(s.z.dtype)
        present = there.sum(dim=1, keepdim=True)
        positive = present.clamp(max=1)
        # In an empty row all classes have the same weight, which is lam = 1.
        lam = 1 + (self.lam - 1) * positive
        total = lam * labels.shape[1] + (1 - lam) * present
        all_z = s.z.sum(dim=1, keepdim=True)
        present_z = (there * s.z).sum(dim=1, keepdim=True)
        mean = s.like((lam * all_z + (1 - lam) * present_z) / total)
        weight = (lam + (1 - lam) * there) / total
        value_any, slope_any = curves.mixed(
            positive, self.base.present(mean), self.base.absent(mean)
        )
        share: float | Tensor = self.alpha
        if self.empty_rows == "verified":
            known = (positive > 0) | (labels < 0).all(dim=1, keepdim=True)
            share = self.alpha * known.to(s.z.dtype)
        value = value + share * value_any / labels.shape[1]
        return value, slope + share * weight * slope_any

    def normalizer(self, labels: Tensor) -> float | Tensor:
        if self.normalize_by == "labels":
            return positives_and_empty_rows(labels)
        return self.base.normalizer(labels)
