"""MIME: confident predictions become positive labels and stay so."""

from typing import Any, Unpack

import torch
from torch import Tensor

from halftruth import labels as label_codes
from halftruth.losses import curves
from halftruth.losses._engine.logit import Logit
from halftruth.losses._engine.one_pass import compute_dtype
from halftruth.losses.base import Options, register, require
from halftruth.losses.curves import Curve
from halftruth.losses.memory import Memory
from halftruth.losses.memory_loss import MemoryLoss


@register("mime")
class MIME(MemoryLoss):
    """Cross-entropy; an unknown label is positive once it was predicted above θ.

        ℓ⁺ = −log p      ℓ⁻ = −log(1−p)
        ℓ° = ℓ⁺ where p > θ after any epoch from `warmup` on (1-based), else ℓ⁻

    A positive pseudo-label does not change again; there are no negative ones. This is one half of
    the method. The other half is a head that predicts through a random code of each class, with
    the regulariser β KL(N(m, s) ‖ N(0, 1)): `--head variational` (halftruth.models). Liu et al.,
    ICML 2023; θ = .95, warm-up 2 (CUB 5), β = 1e-4.
    UNKNOWN: negative, positive once predicted above θ. Needs: index, begin(), start_epoch(), and
    the logits of the training set after the epochs that give pseudo-labels.

    Args:
        theta: θ, the probability above which a pseudo-label is given.
        warmup: the first epoch (1-based) after which pseudo-labels are given.
    """

    paper = "Liu et al. 2023"
    unknown_is = "negative, positive once above a threshold"
    depends_on_epoch = True
    without_epochs = "no pseudo-label is given"
    needs_scores = True

    def __init__(self, theta: float = 0.95, warmup: int = 2, **options: Unpack[Options]) -> None:
        super().__init__(**options)
        self.theta = require(0 <= theta <= 1, theta, "theta", "in [0, 1]")
        self.warmup = require(warmup >= 1, warmup, "warmup", ">= 1")
        self.memory = Memory("bool")
        self._observed = False

    def start_epoch(self, epoch: int, epochs: int) -> None:
        super().start_epoch(epoch, epochs)
        # Pseudo-labels of the last epoch would never be trained with.
        self.needs_scores = self.warmup <= epoch + 1 < epochs
        self._observed = False

    def observe(self, logits: Tensor, index: Tensor) -> None:
        p = torch.sigmoid(logits.detach().to(compute_dtype(logits)))
        self.memory.write(index, self.memory.read(index) | (p > self.theta))
        self._observed = True

    def end_epoch(self, scores: Tensor | None = None) -> None:
        self._require_epoch()
        if self.epoch + 1 < self.warmup:
            return
        if scores is not None:
            self.observe_all(scores)
        if self.needs_scores and not self._observed:
            raise ValueError(
                f"mime needs the scores of all samples after epoch {self.epoch + 1}: call "
                "end_epoch(scores) with the logits of the training set, or observe(logits, index) "
                "for every sample"
            )

    def pseudo_labels(self, index: Tensor) -> Tensor:
        return self.memory.read(index).to(torch.int8)

    def terms(self, s: Logit, labels: Tensor, context: Any, rows: slice) -> Curve:
        curve = super().terms(s, labels, context, rows)
        where = (labels == label_codes.UNKNOWN) & context[rows]
        return curves.patched(curve, where, self.present, s)
