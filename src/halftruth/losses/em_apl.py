"""Entropy maximisation with asymmetric pseudo-labels."""

import warnings
from typing import Any

import torch
from torch import Tensor

from halftruth import labels as label_codes
from halftruth.losses import curves
from halftruth.losses._engine.logit import Logit
from halftruth.losses._engine.lowest import lowest, up_to
from halftruth.losses._engine.one_pass import compute_dtype
from halftruth.losses.base import register, require
from halftruth.losses.curves import Curve
from halftruth.losses.entropy import EM
from halftruth.losses.memory import Memory
from halftruth.losses.soft_target import toward

# An entry of the memory: a pseudo-label p̂ in (0, 1], minus the last prediction for an unknown
# label, or one of these.
KNOWN = 2.0
NOT_SCORED = -2.0


@register("em-apl")
class EMAPL(EM):
    """EM, and from epoch T_w on the least likely labels of each class become soft negatives.

        ℓ⁺ = −log p      ℓ⁻ = −log(1−p)      ℓ° = −α H(p)
        ℓ° = −β (p̂ log p + (1−p̂) log(1−p))       where a pseudo-label p̂ was given

    After each of the epochs T_w … T (1-based), the ⌊θ U_c / (T − T_w)⌋ lowest predictions among
    the still unknown labels of class c become its pseudo-labels, U_c being the labels unknown at
    first. A pseudo-label is the prediction of that time and stays as it is; there are no positive
    ones. Zhou et al., ECCV 2022 (paper 001), eq. 6-8; θ = 0.9; α, β, T_w = .2, .02, 5 VOC,
    .1, .9, 5 COCO, .1, .2, 4 NUS, .01, .4, 3 CUB.
    UNKNOWN: pushed towards p = 1/2, then to its own low prediction. Needs: index, begin(),
    start_epoch(), and the logits of the training set after the epochs that give pseudo-labels.
    """

    unknown_is = "kept undecided, the lowest soft negatives"
    needs_index = True
    needs_scores = True
    unknown_labels: Tensor

    def __init__(
        self,
        alpha: float = 0.1,
        beta: float = 0.9,
        theta: float = 0.9,
        warmup: int = 5,
        memory_dtype: str = "float16",
        **options: Any,
    ) -> None:
        super().__init__(alpha, **options)
        self.beta = require(beta >= 0, beta, "beta", ">= 0")
        self.theta = require(0 <= theta <= 1, theta, "theta", "in [0, 1]")
        self.warmup = require(warmup >= 1, warmup, "warmup", ">= 1")
        self.memory = Memory(memory_dtype)
        self.register_buffer("unknown_labels", torch.empty(0, dtype=torch.long))

    def begin(self, labels: Tensor) -> None:
        labels = label_codes.check(torch.as_tensor(labels))
        self.memory.allocate(*labels.shape, fill=KNOWN)
        table = self.memory.values
        counts = torch.zeros(labels.shape[1], dtype=torch.long, device=labels.device)
        with self.memory.whole() as mine:
            for rows in self.memory.row_blocks():
                unknown = labels[rows] == label_codes.UNKNOWN
                counts += unknown.sum(dim=0)
                if mine:
                    table[rows].masked_fill_(unknown.to(table.device), NOT_SCORED)
        self.unknown_labels = counts.to(self.unknown_labels.device)

    def start_epoch(self, epoch: int, epochs: int) -> None:
        super().start_epoch(epoch, epochs)
        # What the last epoch would give is never trained with.
        self.needs_scores = self.warmup <= epoch + 1 < epochs
        if epoch == 0 and epochs > 1 and self.warmup >= epochs:
            warnings.warn(
                f"em-apl with warmup={self.warmup} gives no pseudo-labels in {epochs} epochs and "
                "is plain em; use a smaller warmup",
                stacklevel=2,
            )

    def quota(self) -> Tensor:
        """How many labels of each class become pseudo-labels after an epoch."""
        share = self.theta * self.unknown_labels.double() / (self.epochs - self.warmup)
        return share.long()

    def observe(self, logits: Tensor, index: Tensor) -> None:
        old = self.memory.read(index)
        p = torch.sigmoid(logits.detach().to(compute_dtype(logits)))
        # A prediction of 0 would look like no prediction.
        least = 2.0**-24 if old.dtype == torch.float16 else torch.finfo(old.dtype).tiny
        self.memory.write(index, torch.where(old < 0, -p.clamp(min=least).to(old.dtype), old))

    def end_epoch(self, scores: Tensor | None = None) -> None:
        if self.epoch + 1 < self.warmup or self.epochs <= self.warmup:
            return
        if scores is None and not self.needs_scores:
            return
        if scores is not None:
            expected = (len(self.memory), *self.memory.shape)
            if scores.shape != expected:
                raise ValueError(
                    f"expected scores of shape {expected}, the logits of all training samples by "
                    f"index, got {tuple(scores.shape)}"
                )
            samples = torch.arange(len(scores), device=scores.device)
            for rows in self.memory.row_blocks():
                self.observe(scores[rows], samples[rows])
        self._refuse_unscored()
        with self.memory.whole() as mine:
            if mine:
                self._give_pseudo_labels()

    def _refuse_unscored(self) -> None:
        masks = [(self.memory.values[r] == NOT_SCORED).any(dim=1) for r in self.memory.row_blocks()]
        unscored = torch.cat(masks)
        if bool(unscored.any()):
            raise ValueError(
                f"em-apl ranks all samples after epoch {self.epoch + 1}, and "
                f"{int(unscored.sum())} have no scores (the first is "
                f"{int(unscored.int().argmax())}): call end_epoch(scores) with the logits of the "
                "training set, or observe(logits, index) for every sample"
            )

    def _give_pseudo_labels(self) -> None:
        table, near = self.memory.values, self.memory.near
        quota = self.quota().to(near)
        samples = torch.arange(len(table), device=near)
        for columns in self.memory.column_blocks():
            # Copied once, since every further look at host memory goes over the bus.
            block = table[:, columns].to(near, copy=True)
            unknown = block < 0
            p = torch.where(unknown, -block, torch.inf)
            counts = torch.minimum(quota[columns], unknown.sum(dim=0))
            given = unknown & up_to(p, samples, *lowest(p, counts))
            rest = torch.where(unknown, NOT_SCORED, block).to(p.dtype)
            table[:, columns] = torch.where(given, p, rest).to(table)

    def pseudo_labels(self, index: Tensor) -> Tensor:
        return -self._given(self.memory.read(index)).to(torch.int8)

    @staticmethod
    def _given(remembered: Tensor) -> Tensor:
        return (remembered > 0) & (remembered <= 1)

    def prepare(self, logits: Tensor, labels: Tensor, index: Tensor | None) -> Any:
        assert index is not None
        return self.memory.read(index).to(logits.device)

    def terms(self, s: Logit, labels: Tensor, context: Any, rows: slice) -> Curve:
        curve = super().terms(s, labels, context, rows)
        remembered = context[rows]
        where = (labels == label_codes.UNKNOWN) & self._given(remembered)

        def soft(part: Logit) -> Curve:
            target = remembered if part is s else remembered[where]
            return curves.scaled(toward(part, target.to(part.z.dtype)), self.beta)

        return curves.patched(curve, where, soft, s)
