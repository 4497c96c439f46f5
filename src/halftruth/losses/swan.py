"""Our own default: how loud an unknown label says no depends on how much its row leaves out."""

from typing import Any

from torch import Tensor

from halftruth.losses import curves
from halftruth.losses._engine.logit import Logit
from halftruth.losses.base import register
from halftruth.losses.curves import Curve
from halftruth.losses.wan import WeakNegative


@register("swan")
class Swan(WeakNegative):
    """Negatives that count as much as they would have been shown, had they been there.

        ℓ⁺ = −log p      ℓ⁻ = −log(1−p)      ℓ° = −r log(1−p)
        r = (m + 1) / (m + 1 + n),   m positives of the row shown,  n = Σ p over its unknown labels
        linear head on standardised features:  + ‖W‖² D / (2 v N K),  v = 2     (loss as a mean)

    A label that was not shown speaks against the class by the probability that it would have been
    shown if present: r, the share of the row's positives that are labelled (by Laplace's rule), n
    being how many more the model itself expects. r carries no gradient. Where everything is
    labelled n falls to 0 and r rises to 1, which is cross-entropy; with one label shown of several
    r falls to the share that one is, in the crowded rows alone.
    The second part says before any data that a logit has the standard deviation √v = 1.4. The
    trainer adds it where a head is trained on features (`ridge`).
    Ours (docs/auto.md). `weight` puts one number in the place of r. UNKNOWN: negative of weight r;
    ABSENT keeps its full weight. Needs: nothing.
    """

    paper = "halftruth"
    unknown_is = "weak negative"
    ridge = 2.0

    def __init__(self, weight: float | None = None, **options: Any) -> None:
        super().__init__(weight, **options)

    def unknown(self, s: Logit) -> Curve:
        """At the most it can weigh, in a row where the model expects nothing else."""
        return curves.scaled(self.absent(s), 1.0 if self.weight is None else self.weight)

    def terms(self, s: Logit, labels: Tensor, context: Any, rows: slice) -> Curve:
        if self.weight is not None:
            return super().terms(s, labels, context, rows)
        unknown = curves.is_unknown(labels).to(s.z.dtype)
        shown = (labels > 0).to(s.z.dtype).sum(dim=1, keepdim=True) + 1
        share = shown / (shown + (unknown * s.p).sum(dim=1, keepdim=True))
        curve = curves.scaled(self.absent(s), 1 - unknown * (1 - share))
        return curves.patched(curve, curves.is_present(labels), self.present, s)
