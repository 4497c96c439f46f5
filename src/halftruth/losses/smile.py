"""SMILE: label enhancement, a soft label per entry from a prior and the model's predictions."""

from typing import Any, Unpack

import torch
from torch import Tensor

from halftruth import labels as label_codes
from halftruth.losses import curves
from halftruth.losses._engine.logit import Logit
from halftruth.losses.base import Options, register, require
from halftruth.losses.curves import Curve
from halftruth.losses.memory import Memory
from halftruth.losses.memory_loss import MemoryLoss, running_average


@register("smile")
class SMILE(MemoryLoss):
    """Cross-entropy to soft labels, a mixture of a prior and of the predictions so far.

        ℓ(d) = −d log p − (1−d) log(1−p),   ℓ° = r ℓ(d)
        d = μ d₁ + (1−μ) d₂,   d₂ = 1 where PRESENT, `prior` where UNKNOWN;   ℓ⁻ = −log(1−p)
        d₁ ← m d₁ + (1−m) p   whenever the sample is in a batch (m = `decay`)

    The published code computes d₁ with a graph network over the neighbours of a sample among all
    features, or uses the model's own prediction. Our reading works on images and at any size: d₁ is
    the running average of the model's predictions for the sample; at first d = d₂. `load_degrees`
    sets any other d₁, and `decay=1` then leaves it unchanged.
    Xu et al., NeurIPS 2022; r = `rate`, 1/(K−1) unless given; (prior, μ, r) from (.01, .01, .1) to
    (.1, .9, .7), depending on the data set.
    UNKNOWN: a soft label that is learned. Needs: index, begin().

    Args:
        mu: μ, the weight of d₁.
        prior: the degree of an unknown label in d₂.
        rate: r, the weight of unknown labels; None: 1/(K−1).
        decay: m, of the running average; 1: d₁ stays as it is.
    """

    paper = "Xu et al. 2022"
    unknown_is = "soft label, learned per sample"
    initial = -1.0  # not seen yet

    def __init__(
        self,
        mu: float = 0.5,
        prior: float = 0.05,
        rate: float | None = None,
        decay: float = 0.9,
        memory_dtype: str = "float16",
        **options: Unpack[Options],
    ) -> None:
        super().__init__(**options)
        self.mu = require(0 <= mu <= 1, mu, "mu", "in [0, 1]")
        self.prior = require(0 <= prior <= 1, prior, "prior", "in [0, 1]")
        self.rate = require(rate is None or rate >= 0, rate, "rate", ">= 0 or None")
        self.decay = require(0 <= decay <= 1, decay, "decay", "in [0, 1]")
        self.memory = Memory(memory_dtype)

    def load_degrees(self, index: Tensor, degrees: Tensor) -> None:
        """Set d₁ of some samples, in [0, 1]; with several processes call `merge` afterwards."""
        inside = bool(((degrees >= 0) & (degrees <= 1)).all())
        require(inside, degrees, "degrees", "in [0, 1]")
        self.memory.write(index, degrees)

    def update(self, rows: Tensor, logits: Tensor, labels: Tensor) -> Tensor | None:
        return running_average(rows, logits, self.decay) if self.decay < 1 else None

    def terms(self, s: Logit, labels: Tensor, context: Any, rows: slice) -> Curve:
        learned = context[rows].to(s.z.dtype)
        rate = 1 / max(labels.shape[1] - 1, 1) if self.rate is None else self.rate
        unknown = (labels == label_codes.UNKNOWN).to(s.z.dtype)
        known = (labels > 0) + self.prior * unknown
        degree = torch.where(learned < 0, known, torch.lerp(known, learned, self.mu))
        degree = torch.where(labels < 0, 0.0, degree)
        return curves.scaled(curves.toward(s, degree), 1 + (rate - 1) * unknown)
