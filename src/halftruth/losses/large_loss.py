"""Large loss matters: the largest losses on unknown labels are probably missing positives."""

import math
from fractions import Fraction
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor

from halftruth.losses import curves
from halftruth.losses._engine.logit import Logit
from halftruth.losses._engine.one_pass import compute_dtype
from halftruth.losses.base import Loss, Options, register, require
from halftruth.losses.curves import Curve
from halftruth.losses.memory import Memory
from halftruth.losses.memory_loss import MemoryLoss


class LargestLosses(Loss):
    """Cross-entropy that changes the unknown entries with the largest loss of each batch."""

    paper = "Kim et al. 2022"
    unknown_is = "negative, largest dropped or corrected"
    depends_on_epoch = True
    without_epochs = "no label is changed, which is cross-entropy with unknown labels as negatives"
    mode: str = "correct"
    # The share of a batch's entries that change; it depends on the epoch.
    share: Tensor

    def __init__(self, delta: float = 0.002, **options: Unpack[Options]) -> None:
        super().__init__(**options)
        self.delta = require(0 <= delta <= 1, delta, "delta", "in [0, 1]")
        self.depends_on_epoch = delta > 0
        self._set_share(0.0)

    def _set_share(self, share: float) -> None:
        # In a tensor: with a number, torch.compile would compile anew in every epoch.
        self.share = torch.tensor(share, dtype=torch.float64)

    def exact_share(self, steps: int) -> float:
        """δ · steps, a little below the exact number, so that rounding up never adds an entry."""
        return float(Fraction(repr(self.delta)) * steps) * (1 - 2**-50)

    def count(self, entries: int) -> int:
        """The number of entries of a batch that change in this epoch."""
        return min(math.ceil(entries * self.share.item()), entries)

    def threshold(self, z: Tensor) -> Tensor | None:
        """The smallest of the largest z, from which on entries change: −log(1−p) grows with z."""
        z = z.flatten()
        if torch.compiler.is_compiling() and len(z):
            return self._traced_threshold(z)
        count = self.count(len(z))
        return torch.topk(z, count, sorted=False).values.min() if count else None

    def _traced_threshold(self, z: Tensor) -> Tensor:
        """The same with a tensor as count."""
        count = (len(z) * self.share.to(z.device)).ceil()
        place = (count.clamp(max=len(z)).long() - 1).clamp(min=0)
        return torch.where(count > 0, z.sort(descending=True).values.take(place), math.inf)

    def prepare(self, logits: Tensor, labels: Tensor, index: Tensor | None) -> object:
        """Return (threshold, entries changed in earlier epochs), or None if nothing changes."""
        z = logits.to(compute_dtype(logits)).masked_fill(labels != 0, -math.inf)
        threshold = self.threshold(z)
        return None if threshold is None else (threshold, None)

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


@register("ll-r", mode="reject")
@register("ll-ct", mode="correct")
class LargeLoss(LargestLosses):
    """Cross-entropy that drops (LL-R) or corrects (LL-Ct) its largest unknown entries.

        ℓ⁺ = −log p      ℓ⁻ = −log(1−p)
        ℓ° = 0 or ℓ⁺ for the n = ⌈B K t δ⌉ unknown entries of the batch with the largest ℓ⁻,
             ℓ⁻ for the others;   t = 0-based epoch, so the first epoch changes nothing

    δ is a share of all B·K entries, known ones too, as in the code behind the published numbers.
    The share grows from epoch to epoch. `peer_rounding` repeats the running subtraction of that
    code, which sometimes counts one entry more. Kim et al., CVPR 2022; 100 δ = 0.2 to 0.5.
    UNKNOWN: negative, the largest dropped or taken as positive. Needs: start_epoch().

    Args:
        mode: "reject" (`ll-r`) or "correct" (`ll-ct`).
        delta: δ, the share of entries that is added per epoch.
        peer_rounding: whether to repeat the running subtraction of the published code.
    """

    known_modes: ClassVar[tuple[str, ...]] = ("reject", "correct")

    def __init__(
        self,
        mode: str,
        delta: float = 0.002,
        peer_rounding: bool = False,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(delta, **options)
        self.mode = require(mode in self.known_modes, mode, "mode", f"in {self.known_modes}")
        self.peer_rounding = peer_rounding

    def start_epoch(self, epoch: int, epochs: int) -> None:
        super().start_epoch(epoch, epochs)
        if not self.peer_rounding:
            self._set_share(self.exact_share(epoch))
            return
        clean = 1.0
        for _ in range(epoch):
            clean -= self.delta
        self._set_share(1 - clean)


@register("ll-cp")
class LargeLossPermanent(MemoryLoss, LargestLosses):
    """Cross-entropy that corrects its largest unknown entries for the rest of the training (LL-Cp).

        ℓ⁺ = −log p      ℓ⁻ = −log(1−p)
        ℓ° = ℓ⁺ for the ⌈B K δ⌉ unknown entries of the batch with the largest ℓ⁻, in every epoch
             after the first, and for the entries corrected before;   ℓ⁻ for the others

    `strict=True` remembers only losses above the smallest of these, one fewer per batch, as the
    first published code did. Kim et al., CVPR 2022; 100 δ = 0.1 to 0.2.
    UNKNOWN: negative, the largest taken as positive. Needs: index, begin(), start_epoch().

    Args:
        delta: δ, the share of entries of a batch.
        strict: whether the smallest of the largest losses is left out.
    """

    def __init__(
        self, delta: float = 0.002, strict: bool = False, **options: Unpack[Options]
    ) -> None:
        super().__init__(delta, **options)
        self.strict = strict
        # One bit per entry: whether it was corrected.
        self.memory = Memory("bool")

    def start_epoch(self, epoch: int, epochs: int) -> None:
        super().start_epoch(epoch, epochs)
        self._set_share(self.exact_share(min(epoch, 1)))

    def prepare(self, logits: Tensor, labels: Tensor, index: Tensor | None) -> object:
        assert index is not None
        before = self.memory.read(index).to(logits.device)
        open_ = (labels == 0) & ~before
        z = logits.to(compute_dtype(logits)).masked_fill(~open_, -math.inf)
        threshold = self.threshold(z)
        if threshold is not None and self.training:
            found = z > threshold if self.strict else z >= threshold
            self.memory.write(index, before | (open_ & found))
        return threshold, before

    def pseudo_labels(self, index: Tensor) -> Tensor:
        return self.memory.read(index).to(torch.int8)
