"""Confident predictions become labels, once and for all, as mutual information has it."""

from typing import Any

import torch
from torch import Tensor

from halftruth import labels as label_codes
from halftruth.losses import curves
from halftruth.losses._engine.logit import Logit
from halftruth.losses.base import Loss, register, require
from halftruth.losses.curves import Curve
from halftruth.losses.memory import Memory


@register("mime")
class MIME(Loss):
    """Cross-entropy in which an unknown label that was once predicted above θ is positive.

        ℓ⁺ = −log p      ℓ⁻ = −log(1−p)
        ℓ° = ℓ⁺ where p > θ after any epoch from `warmup` on (1-based), else ℓ⁻

    What is once positive stays so; there are no negative pseudo-labels. This is half of the
    method: the other is a head whose answer goes through a random code of each class, with
    β KL(N(m, s) ‖ N(0, 1)) to pay for it, `--head variational` (halftruth.models). Liu et al.,
    ICML 2023; θ = .95, warm-up 2 (CUB 5), β = 1e-4.
    UNKNOWN: negative, positive once predicted above θ. Needs: index, begin(), start_epoch(), and
    the logits of the training set after the epochs that give pseudo-labels.
    """

    paper = "Liu et al. 2023"
    unknown_is = "negative, positive once above a threshold"
    needs_index = True
    needs_scores = True

    def __init__(self, theta: float = 0.95, warmup: int = 2, **options: Any) -> None:
        super().__init__(**options)
        self.theta = require(0 <= theta <= 1, theta, "theta", "in [0, 1]")
        self.warmup = require(warmup >= 1, warmup, "warmup", ">= 1")
        self.memory = Memory("bool")
        self._observed = False

    def begin(self, labels: Tensor) -> None:
        self.memory.allocate(*label_codes.check(torch.as_tensor(labels)).shape)

    def start_epoch(self, epoch: int, epochs: int) -> None:
        super().start_epoch(epoch, epochs)
        # What the last epoch would give is never trained with.
        self.needs_scores = self.warmup <= epoch + 1 < epochs
        self._observed = False

    def observe(self, logits: Tensor, index: Tensor) -> None:
        p = torch.sigmoid(logits.detach().to(torch.promote_types(logits.dtype, torch.float32)))
        self.memory.write(index, self.memory.read(index) | (p > self.theta))
        self._observed = True

    def end_epoch(self, scores: Tensor | None = None) -> None:
        if self.epoch + 1 < self.warmup:
            return
        if scores is not None:
            expected = (len(self.memory), *self.memory.shape)
            if scores.shape != expected:
                raise ValueError(
                    f"expected scores of shape {expected}, the logits of all training samples by "
                    f"index, got {tuple(scores.shape)}"
                )
            samples = torch.arange(len(scores), device=scores.device)
            with self.memory.whole():
                for rows in self.memory.row_blocks():
                    self.observe(scores[rows], samples[rows])
        if self.needs_scores and not self._observed:
            raise ValueError(
                f"mime looks at all samples after epoch {self.epoch + 1}: call end_epoch(scores) "
                "with the logits of the training set, or observe(logits, index) for every sample"
            )

    def pseudo_labels(self, index: Tensor) -> Tensor:
        return self.memory.read(index).to(torch.int8)

    def prepare(self, logits: Tensor, labels: Tensor, index: Tensor | None) -> Any:
        assert index is not None
        return self.memory.read(index).to(logits.device)

    def terms(self, s: Logit, labels: Tensor, context: Any, rows: slice) -> Curve:
        curve = super().terms(s, labels, context, rows)
        where = (labels == label_codes.UNKNOWN) & context[rows]
        return curves.patched(curve, where, self.present, s)
