"""A head of two voices: a linear one under a prior, and one with a hidden layer."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from halftruth.models.heads import FullLinear, Head, LinearHead, registry

# The share of the newest batch in the running statistics, once there are enough.
_NEWEST = 0.01


@registry.register("duet")
class DuetHead(Head):
    """Two voices that learn apart and answer together, each class on the scale of the first.

        a = W f + b,    h = V relu(U f) + c    each trained by the loss, as if it were alone
        z = ½ a + ½ (μ_a + σ_a (h − μ_h)/σ_h)      in use; μ, σ of a class over training batches

    A linear voice with a ridge prior forgives missing labels but sees only straight lines; one with
    a hidden layer sees more and learns by heart sooner. Their mistakes differ, so that the mean is
    better than either where both are of use, and close to the better one elsewhere (docs/auto.md),
    provided that they speak equally loud: hence the common scale. In training the answers come one
    below the other, (2B, K).

    >>> head = DuetHead(8, 3)
    >>> head(torch.zeros(2, 8)).shape, head.eval()(torch.zeros(2, 8)).shape
    (torch.Size([4, 3]), torch.Size([2, 3]))
    """

    only_features: ClassVar[bool] = True
    has_line: ClassVar[bool] = True
    voices: ClassVar[int] = 2
    # Dropout makes it indifferent to its rate; that of the head is the linear voice's.
    own_rates: ClassVar[dict[str, float]] = {"hidden": 1e-3}
    mean: Tensor
    var: Tensor
    seen: Tensor

    def __init__(
        self, dim: int, num_classes: int, *, width: int = 512, silence: float = 0.8, **shared: Any
    ) -> None:
        super().__init__(dim, num_classes, **shared)
        if width < 1 or not 0 <= silence < 1:
            raise ValueError(f"expected width >= 1 and 0 <= silence < 1, got {width}, {silence}")
        self.linear = LinearHead(dim, num_classes, **shared)
        self.hidden = nn.ModuleDict(
            {
                "wide": nn.Sequential(nn.Linear(dim, width), nn.ReLU()),
                "dropout": nn.Dropout(silence),
                "out": FullLinear(width, num_classes),
            }
        )
        nn.init.normal_(self.hidden["out"].weight, std=0.01)  # type: ignore[arg-type]
        nn.init.constant_(self.hidden["out"].bias, self.start)  # type: ignore[arg-type]
        self.register_buffer("mean", torch.zeros(2, num_classes))
        self.register_buffer("var", torch.ones(2, num_classes))
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def forward(self, features: Tensor) -> Tensor:
        a = self.linear(features)
        wide = self.hidden["wide"](features)
        if self.training:
            self._listen(torch.stack([a, self.hidden["out"](wide)]).detach().to(self.mean.dtype))
            return torch.cat([a, self.hidden["out"](self.hidden["dropout"](wide))])
        h = self.hidden["out"](wide)
        loudness = ((self.var[0] + 1e-6) / (self.var[1] + 1e-6)).sqrt()
        return (a + self.mean[0] + (h - self.mean[1]) * loudness) / 2

    @torch.no_grad()
    def _listen(self, answers: Tensor) -> None:
        """Follow mean and variance of both voices, a class at a time."""
        share = (1 / (self.seen + 1)).clamp(min=_NEWEST)
        before = answers - self.mean[:, None]
        self.mean.add_(share * before.mean(dim=1))
        # Welford's form: what varies from batch to batch counts as well.
        self.var.lerp_((before * (answers - self.mean[:, None])).mean(dim=1), share)
        self.seen.add_(1)
