"""Class-balanced weights by the effective number of samples, for rows with several labels."""

from collections.abc import Sequence
from typing import Any, Unpack

import torch
from torch import Tensor

from halftruth import labels as label_codes
from halftruth.losses import curves
from halftruth.losses._engine.logit import Logit
from halftruth.losses.any_class import positives_and_empty_rows
from halftruth.losses.base import LossLike, register, require
from halftruth.losses.curves import Curve
from halftruth.losses.wrapper import Wrapper, WrapperOptions


def effective_weights(counts: Tensor, beta: float) -> Tensor:
    """(1 − β)/(1 − βⁿ) for each count n, scaled to a mean of 1; 1 for a class without samples.

    >>> effective_weights(torch.tensor([1, 1000]), 0.999).round(decimals=4)
    tensor([1.9968, 0.0032], dtype=torch.float64)
    """
    n = counts.double()
    # expm1 keeps 1 − βⁿ exact for β close to 1.
    log_beta = torch.log(torch.tensor(beta, dtype=torch.float64)) if beta else -torch.inf
    weights = (1 - beta) / -torch.expm1(n * log_beta)
    seen = n > 0
    weights = torch.where(seen, weights, 0.0)
    return torch.where(seen, weights * seen.sum() / weights.sum(), 1.0)


@register("class-balanced")
class ClassBalanced(Wrapper):
    """Rows are weighted by the rarity of their classes; the empty row counts as a class.

        L = Σ_n ω_n base_n,   ω_n = Σ_{present c} w_c, or w_∅ for a row without positives,
        w_c = (1−β)/(1−β^n_c),  scaled so that all K+1 weights sum to K+1

    Cui et al., CVPR 2019, in the multi-label form of paper 000's code. The whole base loss is
    weighted, so `any-class` goes inside: `create("class-balanced", base="any-class")`.
    `normalizer="labels"` divides by positive labels plus empty rows, as that code does.
    UNKNOWN: as in the base; a row without a positive counts as empty. Needs: `counts` (K,) and
    `negatives` (rows without a positive), or begin(labels of the training set).

    Args:
        beta: β, in [0, 1); 0: equal weights.
        counts: (K,), the number of positives per class.
        negatives: the number of rows without a positive.
        normalizer: "mean", or "labels" for the divisor of the authors' code.

    >>> loss = ClassBalanced("hill", beta=0.99, counts=[900, 10], negatives=90)
    >>> loss.weights.round(decimals=2)         # two classes and the empty row
    tensor([0.2300, 2.3900, 0.3800], dtype=torch.float64)
    """

    paper = "Cui et al. 2019"
    unknown_is = "as the base"
    weights: Tensor

    def __init__(
        self,
        base: LossLike = "bce",
        beta: float = 0.9999,
        counts: Tensor | Sequence[float] | None = None,
        negatives: int | None = None,
        normalizer: str = "mean",
        **options: Unpack[WrapperOptions],
    ) -> None:
        super().__init__(base, **options)
        self.beta = require(0 <= beta < 1, beta, "beta", "in [0, 1)")
        known = ("mean", "labels")
        self.normalize_by = require(normalizer in known, normalizer, "normalizer", f"in {known}")
        self.register_buffer("weights", torch.empty(0, dtype=torch.float64))
        if (counts is None) != (negatives is None):
            raise ValueError(
                "expected counts and negatives (the rows without a positive) together, got only "
                f"{'counts' if negatives is None else 'negatives'}"
            )
        # Given counts are those of the whole data: begin() does not replace them.
        self.given = counts is not None
        if counts is not None:
            self._set_counts(torch.as_tensor(counts), torch.as_tensor(negatives))

    def _set_counts(self, counts: Tensor, negatives: Tensor) -> None:
        both = torch.cat([counts.flatten(), negatives.reshape(1)])
        ok = bool(((both >= 0) & both.isfinite()).all())
        require(ok, both.tolist(), "counts and negatives", ">= 0 and finite")
        self.weights = effective_weights(both, self.beta).to(self.weights.device)

    def begin(self, labels: Tensor) -> None:
        super().begin(labels)
        if self.given:
            return
        there = torch.as_tensor(label_codes.check(labels)) > 0
        self._set_counts(there.sum(dim=0), (~there.any(dim=1)).sum())

    def prepare(self, logits: Tensor, labels: Tensor, index: Tensor | None) -> object:
        if self.weights.numel() != labels.shape[1] + 1:
            given = f"were given for {self.weights.numel() - 1} classes"
            what = given if len(self.weights) else "are not known yet"
            raise ValueError(
                f"class-balanced weights {what}, the labels have {labels.shape[1]} classes: "
                "call begin(labels of the training set) or give counts and negatives"
            )
        there = (labels > 0).to(torch.float64)
        weights = self.weights.to(labels.device)
        row = there @ weights[:-1]
        row = torch.where(there.any(dim=1), row, weights[-1])
        return self.base.prepare(logits, labels, index), row.unsqueeze(1)

    def terms(self, s: Logit, labels: Tensor, context: Any, rows: slice) -> Curve:
        inner, row = context
        curve = self.base.terms(s, labels, inner, rows)
        return curves.scaled(curve, row[rows].to(s.z.dtype))

    def normalizer(self, labels: Tensor) -> float | Tensor:
        if self.normalize_by == "labels":
            return positives_and_empty_rows(labels)
        return self.base.normalizer(labels)
