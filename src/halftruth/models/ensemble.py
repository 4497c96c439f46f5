"""A head that averages two members: a linear layer with a ridge prior, and an MLP."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from halftruth.models.heads import FullLinear, Head, LinearHead, registry

# The smallest weight of a new batch in the running statistics.
_MOMENTUM = 0.01


class MLP(nn.Module):
    """One hidden layer with dropout after it: z = V dropout(relu(U f)) + c."""

    def __init__(self, dim: int, num_classes: int, width: int, dropout: float, bias: float) -> None:
        super().__init__()
        self.hidden = nn.Sequential(nn.Linear(dim, width), nn.ReLU())
        self.dropout = nn.Dropout(dropout)
        self.output = FullLinear(width, num_classes)
        nn.init.normal_(self.output.weight, std=0.01)
        nn.init.constant_(self.output.bias, bias)


@registry.register("ensemble")
class EnsembleHead(Head):
    """The mean of a linear member and an MLP, after both are brought to one scale per class.

        a = W f + b,    h = V relu(U f) + c        each trained by the loss on its own
        z = ½ a + ½ (μ_a + σ_a (h − μ_h)/σ_h)      in use; μ, σ per class over training batches

    A linear layer with a ridge prior tolerates missing labels but draws straight boundaries only.
    An MLP is more flexible and memorises sooner. Their errors differ, so the mean is better than
    either where both are useful, and close to the better one elsewhere (docs/auto.md). Both need
    the same scale, or the one with larger logits decides alone. In training the logits of the
    members are stacked: (2B, K).

    >>> head = EnsembleHead(8, 3)
    >>> head(torch.zeros(2, 8)).shape, head.eval()(torch.zeros(2, 8)).shape
    (torch.Size([4, 3]), torch.Size([2, 3]))
    """

    only_features: ClassVar[bool] = True
    has_linear_layer: ClassVar[bool] = True
    members: ClassVar[tuple[str, ...]] = ("linear", "mlp")
    # Dropout makes the MLP insensitive to its rate; the run's rate is for the linear member.
    own_rates: ClassVar[dict[str, float]] = {"mlp": 1e-3}
    mean: Tensor
    var: Tensor
    batches: Tensor

    def __init__(
        self,
        dim: int,
        num_classes: int,
        *,
        mlp_width: int = 512,
        mlp_dropout: float = 0.8,
        **shared: Any,
    ) -> None:
        super().__init__(dim, num_classes, **shared)
        if mlp_width < 1 or not 0 <= mlp_dropout < 1:
            raise ValueError(
                "expected mlp_width >= 1 and 0 <= mlp_dropout < 1, got "
                f"{mlp_width} and {mlp_dropout}"
            )
        self.linear = LinearHead(dim, num_classes, **shared)
        self.mlp = MLP(dim, num_classes, mlp_width, mlp_dropout, self.initial_bias)
        self.register_buffer("mean", torch.zeros(2, num_classes))
        self.register_buffer("var", torch.ones(2, num_classes))
        self.register_buffer("batches", torch.zeros((), dtype=torch.long))

    def forward(self, features: Tensor) -> Tensor:
        a = self.linear(features)
        hidden = self.mlp.hidden(features)
        if self.training:
            plain = torch.stack([a, self.mlp.output(hidden)]).detach()
            self._update_statistics(plain.to(self.mean.dtype))
            return torch.cat([a, self.mlp.output(self.mlp.dropout(hidden))])
        h = self.mlp.output(hidden)
        scale = ((self.var[0] + 1e-6) / (self.var[1] + 1e-6)).sqrt()
        return (a + self.mean[0] + (h - self.mean[1]) * scale) / 2

    @torch.no_grad()
    def _update_statistics(self, logits: Tensor) -> None:
        """Update the running mean and variance per class of both members."""
        weight = (1 / (self.batches + 1)).clamp(min=_MOMENTUM)
        before = logits - self.mean[:, None]
        self.mean.add_(weight * before.mean(dim=1))
        # Welford's form includes the variation between batches.
        self.var.lerp_((before * (logits - self.mean[:, None])).mean(dim=1), weight)
        self.batches.add_(1)
