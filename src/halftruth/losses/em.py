"""Entropy of unknown labels: maximised (EM, EM-APL) or minimised (EntMin)."""

import warnings
from typing import Any, Unpack

import torch
from torch import Tensor

from halftruth import labels as label_codes
from halftruth.losses import curves
from halftruth.losses._engine.logit import Logit
from halftruth.losses._engine.one_pass import compute_dtype
from halftruth.losses.base import Loss, Options, register, require
from halftruth.losses.curves import Curve
from halftruth.losses.memory import Memory
from halftruth.losses.memory_loss import MemoryLoss, lowest, up_to

# An entry of the memory is a negative pseudo-label p̂ in (0, 1], a positive one as 3 + p̂, minus the
# last prediction for an unknown label, or one of these.
KNOWN = 2.0
NOT_SCORED = -2.0
POSITIVE = 3.0


class EMOptions(Options, total=False):
    """Those of `em`, for type checkers."""

    shift: bool


@register("em")
class EM(Loss):
    """Entropy maximisation: the prediction of an unknown label is kept uncertain.

        ℓ⁺ = −log p      ℓ⁻ = −log(1−p)      ℓ° = −α H(p),  H = −p log p − (1−p) log(1−p)

    The slope of ℓ° is α z p(1−p): zero at z = 0, small for confident predictions of either sign,
    so labelled positives are learned first. The loss is negative where few labels are known;
    `shift=True` adds α log 2 to ℓ°, which changes no gradient and keeps it at or above zero.
    Zhou et al., ECCV 2022 (paper 001), eq. 4-5; α = 0.2 VOC, 0.1 COCO and NUS, 0.01 CUB. To
    predict labels, use a threshold of 0.75 or one fitted on validation rows.
    UNKNOWN: pushed towards p = 1/2. Needs: nothing.

    Args:
        alpha: α, the weight of the entropy.
        shift: whether to add α log 2 per unknown label.
    """

    paper = "Zhou et al. 2022"
    unknown_is = "kept undecided"

    def __init__(self, alpha: float = 0.1, shift: bool = False, **options: Unpack[Options]) -> None:
        super().__init__(**options)
        self.alpha = require(alpha >= 0, alpha, "alpha", ">= 0")
        self.shift = shift

    def unknown(self, s: Logit) -> Curve:
        value, slope = curves.scaled(curves.entropy(s), -self.alpha)
        return (value + self.alpha * 0.6931471805599453 if self.shift else value), slope


@register("entmin")
class EntropyMin(Loss):
    """Entropy minimisation: the prediction of an unknown label is made confident.

        ℓ⁺ = −log p      ℓ⁻ = −log(1−p)      ℓ° = w H(p)

    Grandvalet and Bengio 2004, as a baseline of paper 001 C.2: w = 0.01 VOC, 0.9 COCO, 0.4 NUS
    and CUB. It is EM with the opposite sign. UNKNOWN: pushed to the nearer end.
    Needs: nothing.
    """

    paper = "Grandvalet & Bengio 2004"
    unknown_is = "pushed to the nearer end"

    def __init__(self, weight: float = 0.01, **options: Unpack[Options]) -> None:
        super().__init__(**options)
        self.weight = require(weight >= 0, weight, "weight", ">= 0")

    def unknown(self, s: Logit) -> Curve:
        return curves.scaled(curves.entropy(s), self.weight)


@register("em-apl")
class EMAPL(MemoryLoss, EM):
    """EM; from epoch T_w on, the lowest predictions of each class become soft negative labels.

        ℓ⁺ = −log p      ℓ⁻ = −log(1−p)      ℓ° = −α H(p)
        ℓ° = −β (p̂ log p + (1−p̂) log(1−p))       where a pseudo-label p̂ was given

    After each of the epochs T_w … T (1-based), the ⌊θ U_c / (T − T_w)⌋ lowest predictions among
    the labels of class c that are still unknown become pseudo-labels. U_c is the number of labels
    that were unknown at first. A pseudo-label is the prediction at that time and does not change;
    there are no positive ones. Zhou et al., ECCV 2022 (paper 001), eq. 6-8; θ = 0.9;
    α, β, T_w = .2, .02, 5 VOC, .1, .9, 5 COCO, .1, .2, 4 NUS, .01, .4, 3 CUB. For the ablations of
    its appendix D: `hard=True` takes 0 in place of p̂, and `theta_pos` (.1 in its Table 6) also
    makes the highest predictions positive pseudo-labels, by the same rule.
    UNKNOWN: pushed towards p = 1/2, then towards its own low prediction. Needs: index, begin(),
    start_epoch(), and the logits of the training set after the epochs that give pseudo-labels.

    Args:
        alpha: α, the weight of the entropy.
        beta: β, the weight of pseudo-labels.
        theta: θ, the share of unknown labels that become negative by the last epoch.
        warmup: T_w, the first epoch (1-based) after which pseudo-labels are given.
        hard: whether a negative pseudo-label is 0 instead of the prediction p̂.
        theta_pos: the share of unknown labels that become positive.
        options: `reduction`, `eps` and `shift` of `em`.

    >>> loss, labels = EMAPL(warmup=1), torch.tensor([[1, 0], [0, 0]])
    >>> loss.begin(labels)
    >>> loss.start_epoch(0, 2)
    >>> value = loss(torch.zeros(2, 2), labels, index=torch.tensor([0, 1]))
    >>> loss.end_epoch(scores=torch.tensor([[3.0, -3.0], [-2.0, 1.0]]))
    >>> loss.pseudo_labels(torch.tensor([0, 1]))
    tensor([[ 0, -1],
            [ 0,  0]], dtype=torch.int8)
    """

    unknown_is = "kept undecided, the lowest soft negatives"
    depends_on_epoch = True
    without_epochs = "no pseudo-label is given, which is em"
    needs_scores = True
    initial = KNOWN
    unknown_labels: Tensor

    def __init__(
        self,
        alpha: float = 0.1,
        beta: float = 0.9,
        theta: float = 0.9,
        warmup: int = 5,
        hard: bool = False,
        theta_pos: float = 0.0,
        memory_dtype: str = "float16",
        **options: Unpack[EMOptions],
    ) -> None:
        super().__init__(alpha, **options)
        self.beta = require(beta >= 0, beta, "beta", ">= 0")
        self.theta = require(0 <= theta <= 1, theta, "theta", "in [0, 1]")
        self.warmup = require(warmup >= 1, warmup, "warmup", ">= 1")
        self.hard = hard
        ok = 0 <= theta_pos <= 1 - theta + 1e-9
        self.theta_pos = require(ok, theta_pos, "theta_pos", f"in [0, 1 - theta = {1 - theta:g}]")
        self.memory = Memory(memory_dtype)
        self.register_buffer("unknown_labels", torch.empty(0, dtype=torch.long))

    def begin(self, labels: Tensor) -> None:
        labels = label_codes.check(torch.as_tensor(labels))
        super().begin(labels)
        table = self.memory.values
        counts = torch.zeros(labels.shape[1], dtype=torch.long, device=labels.device)
        with self.memory.whole() as may_write:
            for rows in self.memory.row_blocks():
                unknown = labels[rows] == label_codes.UNKNOWN
                counts += unknown.sum(dim=0)
                if may_write:
                    table[rows].masked_fill_(unknown.to(table.device), NOT_SCORED)
        self.unknown_labels = counts.to(self.unknown_labels.device)

    def start_epoch(self, epoch: int, epochs: int) -> None:
        super().start_epoch(epoch, epochs)
        # Pseudo-labels of the last epoch would never be trained with.
        self.needs_scores = self.warmup <= epoch + 1 < epochs
        if epoch == 0 and epochs > 1 and self.warmup >= epochs:
            warnings.warn(
                f"em-apl with warmup={self.warmup} gives no pseudo-labels in {epochs} epochs and "
                "is the same as em; use a smaller warmup",
                stacklevel=2,
            )

    def quota(self, theta: float | None = None) -> Tensor:
        """The number of labels per class that become pseudo-labels after an epoch."""
        share = (
            (self.theta if theta is None else theta)
            * self.unknown_labels.double()
            / (self.epochs - self.warmup)
        )
        return share.long()

    def observe(self, logits: Tensor, index: Tensor) -> None:
        old = self.memory.read(index)
        p = torch.sigmoid(logits.detach().to(compute_dtype(logits)))
        # A prediction of 0 would look like no prediction.
        least = 2.0**-24 if old.dtype == torch.float16 else torch.finfo(old.dtype).tiny
        self.memory.write(index, torch.where(old < 0, -p.clamp(min=least).to(old.dtype), old))

    def end_epoch(self, scores: Tensor | None = None) -> None:
        self._require_epoch()
        if self.epoch + 1 < self.warmup or self.epochs <= self.warmup:
            return
        if scores is None and not self.needs_scores:
            return
        if scores is not None:
            self.observe_all(scores)
        self._require_scores()
        with self.memory.whole() as may_write:
            if may_write:
                self._give_pseudo_labels()

    def _require_scores(self) -> None:
        masks = [(self.memory.values[r] == NOT_SCORED).any(dim=1) for r in self.memory.row_blocks()]
        unscored = torch.cat(masks)
        if bool(unscored.any()):
            raise ValueError(
                f"em-apl ranks all samples after epoch {self.epoch + 1}, but "
                f"{int(unscored.sum())} have no scores (the first is "
                f"{int(unscored.int().argmax())}): call end_epoch(scores) with the logits of the "
                "training set, or observe(logits, index) for every sample"
            )

    def _give_pseudo_labels(self) -> None:
        table, near = self.memory.values, self.memory.near
        quota, highest = self.quota().to(near), self.quota(self.theta_pos).to(near)
        samples = torch.arange(len(table), device=near)
        for columns in self.memory.column_blocks():
            # One copy, since every further read of host memory goes over the bus.
            block = table[:, columns].to(near, copy=True)
            unknown = block < 0
            p = torch.where(unknown, -block, torch.inf)
            counts = torch.minimum(quota[columns], unknown.sum(dim=0))
            given = unknown & up_to(p, samples, *lowest(p, counts))
            rest = torch.where(unknown, NOT_SCORED, block).to(p.dtype)
            found = torch.where(given, p, rest)
            if self.theta_pos:
                left = unknown & ~given
                down = torch.where(left, -p, torch.inf)
                counts = torch.minimum(highest[columns], left.sum(dim=0))
                given = left & up_to(down, samples, *lowest(down, counts))
                found = torch.where(given, p + POSITIVE, found)
            table[:, columns] = found.to(table)

    def pseudo_labels(self, index: Tensor) -> Tensor:
        rows = self.memory.read(index)
        return (rows >= POSITIVE).to(torch.int8) - ((rows > 0) & (rows <= 1)).to(torch.int8)

    def terms(self, s: Logit, labels: Tensor, context: Any, rows: slice) -> Curve:
        curve = super().terms(s, labels, context, rows)
        remembered = context[rows]
        is_given = (remembered > 0) & (remembered != KNOWN)
        where = (labels == label_codes.UNKNOWN) & is_given
        return curves.patched(curve, where, self._toward_pseudo_label, s, remembered)

    def _toward_pseudo_label(self, s: Logit, remembered: Tensor) -> Curve:
        target = remembered.to(s.z.dtype)
        if self.hard:
            target = (target >= POSITIVE).to(s.z.dtype)
        elif self.theta_pos:
            target = torch.where(target >= POSITIVE, target - POSITIVE, target)
        return curves.scaled(curves.toward(s, target), self.beta)
