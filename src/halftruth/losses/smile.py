"""Label enhancement: every label a degree, mixed from what is known and what is learnt."""

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
from halftruth.losses.soft_target import toward

NOT_SEEN = -1.0


@register("smile")
class SMILE(Loss):
    """Cross-entropy to degrees of the labels, a mixture of prior and of what was learnt so far.

        ℓ(d) = −d log p − (1−d) log(1−p),   ℓ° = r ℓ(d)
        d = μ d₁ + (1−μ) d₂,   d₂ = 1 where PRESENT, `prior` where UNKNOWN;   ℓ⁻ = −log(1−p)
        d₁ ← m d₁ + (1−m) p   whenever the sample is in a batch (m = `decay`)

    The published code finds d₁ by a graph network over the neighbours of a sample among all
    features, or takes the model's own prediction instead. Our reading, so that it works on images
    and at any size: d₁ is the running average of the model's predictions of that very sample; at
    first d = d₂. `load_degrees` gives it any other d₁, which `decay=1` then leaves alone.
    Xu et al., NeurIPS 2022; r = `rate`, 1/(K−1) unless given; (prior, μ, r) from (.01, .01, .1) to
    (.1, .9, .7) by data set.
    UNKNOWN: a degree that is learnt. Needs: index, begin().
    """

    paper = "Xu et al. 2022"
    unknown_is = "a degree, learnt for each sample"
    needs_index = True

    def __init__(
        self,
        mu: float = 0.5,
        prior: float = 0.05,
        rate: float | None = None,
        decay: float = 0.9,
        memory_dtype: str = "float16",
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self.mu = require(0 <= mu <= 1, mu, "mu", "in [0, 1]")
        self.prior = require(0 <= prior <= 1, prior, "prior", "in [0, 1]")
        self.rate = require(rate is None or rate >= 0, rate, "rate", ">= 0 or None")
        self.decay = require(0 <= decay <= 1, decay, "decay", "in [0, 1]")
        self.memory = Memory(memory_dtype)

    def begin(self, labels: Tensor) -> None:
        labels = label_codes.check(torch.as_tensor(labels))
        self.memory.allocate(*labels.shape, fill=NOT_SEEN)

    def load_degrees(self, index: Tensor, degrees: Tensor) -> None:
        """d₁ of some samples, in [0, 1], from elsewhere; several processes `merge` then."""
        inside = bool(((degrees >= 0) & (degrees <= 1)).all())
        require(inside, degrees, "degrees", "in [0, 1]")
        self.memory.write(index, degrees)

    def prepare(self, logits: Tensor, labels: Tensor, index: Tensor | None) -> Any:
        assert index is not None
        learnt = self.memory.read(index).to(logits.device)
        if self.training and self.decay < 1:
            p = torch.sigmoid(logits.to(compute_dtype(logits)))
            moved = torch.lerp(p, learnt.to(p.dtype), self.decay)
            self.memory.write(index, torch.where(learnt < 0, p, moved))
        return learnt

    def terms(self, s: Logit, labels: Tensor, context: Any, rows: slice) -> Curve:
        learnt = context[rows].to(s.z.dtype)
        rate = 1 / max(labels.shape[1] - 1, 1) if self.rate is None else self.rate
        unknown = (labels == label_codes.UNKNOWN).to(s.z.dtype)
        known = (labels > 0) + self.prior * unknown
        degree = torch.where(learnt < 0, known, torch.lerp(known, learnt, self.mu))
        degree = torch.where(labels < 0, 0.0, degree)
        return curves.scaled(toward(s, degree), 1 + (rate - 1) * unknown)
