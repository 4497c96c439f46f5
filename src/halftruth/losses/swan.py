"""SWAN, share-weighted assume-negative: the default method of halftruth."""

from collections.abc import Sequence
from typing import Any, Unpack

import torch
from torch import Tensor

from halftruth import labels as label_codes
from halftruth.losses import curves
from halftruth.losses._engine.logit import Logit
from halftruth.losses.assume_negative import WeakNegative
from halftruth.losses.base import Options, register, require
from halftruth.losses.curves import Curve

FREQUENCY = "frequency"


@register("swan")
class Swan(WeakNegative):
    """Unknown labels are down-weighted by the share of present labels that are annotated.

        ℓ⁺ = −log p      ℓ⁻ = −log(1−p)      ℓ° = −r log(1−p)
        r = (m + 1) / (m + 1 + n),   m = its labelled positives,  n = Σ p over its unknown labels
        linear head on standardised features:  + ‖W‖² D / (2 v N K),  v = 2     (loss as a mean)

    r estimates, per row, the share of the present labels that are annotated (by Laplace's rule):
    the probability that a present label would have been annotated. n is the number of further
    positives that the model expects. r carries no gradient. Where all labels are annotated, n
    falls to 0 and r rises to 1, which is cross-entropy. Where one of several present
    labels is annotated, r falls to its share, and only in rows with many present classes.
    `propensity` e_k: some classes are annotated before others. Then r is per class,

        r_k = min(1, (m + 1) e_k / (e_k + Σ e_j over the labelled + Σ e_j p_j over the unknown))

    "frequency" takes the number of labelled positives of each class; K numbers may be given.
    The prior on the head: a logit has the standard deviation √v = 1.4. The trainer adds it where
    a head is trained on features (`ridge`).
    Own method (docs/explained/auto.md). `weight` replaces r by one number. UNKNOWN: negative of
    weight r; ABSENT keeps its full weight. Needs: nothing; with "frequency" begin(labels of the
    training set).

    Args:
        weight: one number in place of r; None: r is estimated per row.
        propensity: None, "frequency", or K numbers e_k > 0.
    """

    paper = "halftruth"
    unknown_is = "weak negative"
    ridge = 2.0
    # Of each class; empty as long as all classes are equal or the labels are not known.
    propensities: Tensor

    def __init__(
        self,
        weight: float | None = None,
        propensity: str | Tensor | Sequence[float] | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(weight, **options)
        by_name = propensity is None or isinstance(propensity, str)
        given = torch.empty(0) if by_name else torch.as_tensor(propensity, dtype=torch.float32)
        ok = given.ndim == 1 and bool((given.isfinite() & (given > 0)).all())
        ok = ok and (not by_name or propensity in (None, FREQUENCY))
        ok = ok and (propensity is None or weight is None)
        expected = f'None, "{FREQUENCY}" or one number > 0 per class, and not beside weight'
        require(ok, propensity, "propensity", expected)
        # What the propensities are: None, by frequency, or given.
        self.propensity = propensity if by_name else "given"
        self.register_buffer("propensities", given)

    def begin(self, labels: Tensor) -> None:
        super().begin(labels)
        if isinstance(self.propensity, str):
            # One more: a class without labels has a weight, too.
            counts = (torch.as_tensor(label_codes.check(labels)) > 0).sum(dim=0) + 1
            self.propensities = counts.to(self.propensities.device, torch.float32)

    def unknown(self, s: Logit) -> Curve:
        """The curve at the largest weight, in a row where the model expects no other positive."""
        return curves.scaled(self.absent(s), 1.0 if self.weight is None else self.weight)

    def prepare(self, logits: Tensor, labels: Tensor, index: Tensor | None) -> object:
        if self.propensity is None:
            return None
        if len(self.propensities) != labels.shape[1]:
            have = f"{len(self.propensities)} given" if len(self.propensities) else "not known yet"
            raise ValueError(
                f"propensities of {labels.shape[1]} classes expected, {have}: call begin(labels of "
                "the training set) or give one number per class"
            )
        return self.propensities.to(labels.device).expand(labels.shape)

    def terms(self, s: Logit, labels: Tensor, context: Any, rows: slice) -> Curve:
        if self.weight is not None:
            return super().terms(s, labels, context, rows)
        unknown = curves.is_unknown(labels).to(s.z.dtype)
        present = (labels > 0).to(s.z.dtype)
        shown = present.sum(dim=1, keepdim=True) + 1
        if context is None:
            share = shown / (shown + (unknown * s.p).sum(dim=1, keepdim=True))
        else:
            e = context[rows].to(s.z.dtype)
            others = ((present + unknown * s.p) * e).sum(dim=1, keepdim=True)
            share = (shown * e / (others + e)).clamp(max=1.0)
        curve = curves.scaled(self.absent(s), 1 - unknown * (1 - share))
        return curves.patched(curve, curves.is_present(labels), self.present, s)
