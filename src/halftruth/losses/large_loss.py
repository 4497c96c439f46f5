"""Large loss matters: the largest losses on unknown labels are probably missing positives."""

import math
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from halftruth import labels as label_codes
from halftruth.losses import curves
from halftruth.losses._engine.logit import Logit
from halftruth.losses._engine.one_pass import compute_dtype
from halftruth.losses.base import Loss, register, require
from halftruth.losses.curves import Curve
from halftruth.losses.memory import Memory


@register("ll-r", mode="reject", strict=False)
@register("ll-ct", mode="correct", strict=False)
@register("ll-cp", mode="permanent", peer_rounding=False)
class LargeLoss(Loss):
    """Cross-entropy that drops (LL-R) or turns round (LL-Ct, LL-Cp) its largest unknown entries.

        ℓ⁺ = −log p      ℓ⁻ = −log(1−p)
        ℓ° = 0 or ℓ⁺ for the n = ⌈B K t δ⌉ unknown entries of the batch with the largest ℓ⁻,
             ℓ⁻ for the others;   t = 0-based epoch, so the first one is left alone

    The share δ is one of all B·K entries, known ones too, as in the code that made the numbers.
    It grows from epoch to epoch. `peer_rounding` repeats that code's running subtraction, which
    now and then counts one entry more. LL-Cp turns ⌈B K δ⌉ entries round in every epoch after the
    first and remembers them: they stay positive. `strict=True` remembers only losses above the
    smallest of these, one fewer a batch, as the first code did. Kim et al., CVPR 2022;
    100 δ = 0.2 to 0.5, for LL-Cp 0.1 to 0.2.
    UNKNOWN: negative, the largest left out or taken for positive. Needs: start_epoch(); LL-Cp
    also index and begin().
    """

    paper = "Kim et al. 2022"
    unknown_is = "negative, largest dropped or corrected"

    def __init__(
        self,
        mode: str,
        delta: float = 0.002,
        peer_rounding: bool = False,
        strict: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        known = ("reject", "correct", "permanent")
        self.mode = require(mode in known, mode, "mode", f"in {known}")
        self.delta = require(0 <= delta <= 1, delta, "delta", "in [0, 1]")
        self.peer_rounding, self.strict = peer_rounding, strict
        self.share = 0.0
        self.needs_index = mode == "permanent"
        # One bit an entry: whether it was turned round for good.
        self.memory = Memory("bool") if mode == "permanent" else None

    def begin(self, labels: Tensor) -> None:
        if self.memory is not None:
            self.memory.allocate(*label_codes.check(torch.as_tensor(labels)).shape)

    def start_epoch(self, epoch: int, epochs: int) -> None:
        super().start_epoch(epoch, epochs)
        steps = min(epoch, 1) if self.mode == "permanent" else epoch
        if self.peer_rounding:
            clean = 1.0
            for _ in range(steps):
                clean -= self.delta
            self.share = 1 - clean
        else:
            # A hair below the exact share, so that rounding never lifts a whole count over itself.
            self.share = float(Fraction(repr(self.delta)) * steps) * (1 - 2**-50)

    def count(self, entries: int) -> int:
        """How many of a batch's entries change in this epoch."""
        return min(math.ceil(entries * self.share), entries)

    def prepare(self, logits: Tensor, labels: Tensor, index: Tensor | None) -> Any:
        """The logit from which on an unknown entry changes, and what has changed before."""
        z, open_, before = logits.to(compute_dtype(logits)), labels == 0, None
        if self.memory is not None:
            assert index is not None
            before = self.memory.read(index).to(logits.device)
            open_ = open_ & ~before
        z = z.masked_fill(~open_, -math.inf)
        threshold = self._threshold(z.flatten())
        if self.memory is not None and threshold is not None and self.training:
            found = z > threshold if self.strict else z >= threshold
            self.memory.write(index, before | (open_ & found))  # type: ignore[operator,arg-type]
        return None if threshold is None and before is None else (threshold, before)

    def _threshold(self, z: Tensor) -> Tensor | None:
        """The smallest of the largest z: −log(1−p) grows with it."""
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
        threshold, before = context
        if threshold is None:
            changed = before[rows]
        else:
            changed = s.z >= threshold
            changed = changed if before is None else changed | before[rows]
        instead = curves.nothing if self.mode == "reject" else self.present
        return curves.patched(curve, (labels == 0) & changed, instead, s)

    def pseudo_labels(self, index: Tensor) -> Tensor | None:
        return None if self.memory is None else self.memory.read(index).to(torch.int8)
