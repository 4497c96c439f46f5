"""Large loss matters: the largest losses on unknown labels are probably missing positives."""

import math
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from halftruth.losses import curves
from halftruth.losses.base import Loss, register, require
from halftruth.losses.curves import Curve, Logit
from halftruth.losses.one_pass import compute_dtype


@register("ll-r", mode="reject")
@register("ll-ct", mode="correct")
class LargeLoss(Loss):
    """Cross-entropy that drops (LL-R) or turns round (LL-Ct) its largest unknown entries.

        ℓ⁺ = −log p      ℓ⁻ = −log(1−p)
        ℓ° = 0 or ℓ⁺ for the n = ⌈B K t δ⌉ unknown entries of the batch with the largest ℓ⁻,
             ℓ⁻ for the others;   t = 0-based epoch, so the first one is left alone

    The share δ is one of all B·K entries, known ones too, as in the code that made the numbers.
    It grows from epoch to epoch. `peer_rounding` repeats that code's running subtraction, which
    now and then counts one entry more. Kim et al., CVPR 2022; 100 δ = 0.2 to 0.5.
    UNKNOWN: negative, the largest left out or taken for positive. Needs: start_epoch().
    """

    paper = "Kim et al. 2022"
    unknown_is = "negative, largest dropped or corrected"

    def __init__(
        self, mode: str, delta: float = 0.002, peer_rounding: bool = False, **options: Any
    ) -> None:
        super().__init__(**options)
        self.mode = require(mode in ("reject", "correct"), mode, "mode", '"reject" or "correct"')
        self.delta = require(0 <= delta <= 1, delta, "delta", "in [0, 1]")
        self.peer_rounding = peer_rounding
        self.share = 0.0

    def start_epoch(self, epoch: int, epochs: int) -> None:
        super().start_epoch(epoch, epochs)
        if self.peer_rounding:
            clean = 1.0
            for _ in range(epoch):
                clean -= self.delta
            self.share = 1 - clean
        else:
            # A hair below the exact share, so that rounding never lifts a whole count over itself.
            self.share = float(Fraction(repr(self.delta)) * epoch) * (1 - 2**-50)

    def count(self, entries: int) -> int:
        """How many of a batch's entries change in this epoch."""
        return min(math.ceil(entries * self.share), entries)

    def prepare(self, logits: Tensor, labels: Tensor, index: Tensor | None) -> Any:
        """The logit from which on an unknown entry changes: −log(1−p) grows with z."""
        z = logits.to(compute_dtype(logits)).masked_fill(labels != 0, -math.inf).flatten()
        if torch.compiler.is_compiling() and len(z):
            return self._traced_threshold(z)
        count = self.count(len(z))
        return torch.topk(z, count, sorted=False).values.min() if count else None

    def _traced_threshold(self, z: Tensor) -> Tensor:
        """The same with a count that is a tensor: a number would be compiled anew every epoch."""
        count = (torch.full_like(z[0], len(z), dtype=torch.float64) * self.share).ceil()
        place = (count.clamp(max=len(z)).long() - 1).clamp(min=0)
        return torch.where(count > 0, z.sort(descending=True).values.take(place), math.inf)

    def terms(self, s: Logit, labels: Tensor, context: Any, rows: slice) -> Curve:
        curve = super().terms(s, labels, context, rows)
        if context is None:
            return curve
        instead = curves.nothing if self.mode == "reject" else self.present
        return curves.patched(curve, (labels == 0) & (s.z >= context), instead, s)
