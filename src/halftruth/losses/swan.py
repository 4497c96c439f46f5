"""SWAN, share-weighted assume-negative: the default method of halftruth."""

from typing import Any

from torch import Tensor

from halftruth.losses import curves
from halftruth.losses._engine.logit import Logit
from halftruth.losses.assume_negative import WeakNegative
from halftruth.losses.base import register
from halftruth.losses.curves import Curve


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
    The second part is a prior on the head: a logit has the standard deviation √v = 1.4. The
    trainer adds it where a head is trained on features (`ridge`).
    Own method (docs/auto.md). `weight` replaces r by one number. UNKNOWN: negative of weight r;
    ABSENT keeps its full weight. Needs: nothing.
    """

    paper = "halftruth"
    unknown_is = "weak negative"
    ridge = 2.0

    def __init__(self, weight: float | None = None, **options: Any) -> None:
        super().__init__(weight, **options)

    def unknown(self, s: Logit) -> Curve:
        """The curve at the largest weight, in a row where the model expects no other positive."""
        return curves.scaled(self.absent(s), 1.0 if self.weight is None else self.weight)

    def terms(self, s: Logit, labels: Tensor, context: Any, rows: slice) -> Curve:
        if self.weight is not None:
            return super().terms(s, labels, context, rows)
        unknown = curves.is_unknown(labels).to(s.z.dtype)
        shown = (labels > 0).to(s.z.dtype).sum(dim=1, keepdim=True) + 1
        share = shown / (shown + (unknown * s.p).sum(dim=1, keepdim=True))
        curve = curves.scaled(self.absent(s), 1 - unknown * (1 - share))
        return curves.patched(curve, curves.is_present(labels), self.present, s)
