"""Heads: what turns a backbone's features into one logit a class."""

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from halftruth.registry import Registry

registry: "Registry[Head]" = Registry("head")


class Head(nn.Module):
    """`wants_map = True`: takes the (B, D, H, W) feature map instead of (B, D) pooled features.

    `has_penalty = True`: a forward pass in training leaves a `penalty` to add to the loss, in the
    units of its mean over entries. `keeps_maps = True`: it leaves its class maps, `maps`.

    All take `dropout` and `prior`, the share of positives: the first answer is then logit(prior),
    so that training does not begin by unlearning one half everywhere; without it 0.
    """

    wants_map: ClassVar[bool] = False
    has_penalty: ClassVar[bool] = False
    keeps_maps: ClassVar[bool] = False
    # Of no use on a backbone that is trained with it.
    only_features: ClassVar[bool] = False
    # Whether it is, at least in part, a line over the features: what a ridge prior is for.
    has_line: ClassVar[bool] = False
    # In training a head returns one block of B rows per member, stacked: (members · B, K).
    members: ClassVar[tuple[str, ...]] = ("head",)
    # Parts with a learning rate of their own, and no decay.
    own_rates: ClassVar[dict[str, float]] = {}
    penalty: Tensor
    maps: Tensor

    def __init__(
        self, dim: int, num_classes: int, dropout: float = 0.0, prior: float | None = None
    ) -> None:
        super().__init__()
        for what, value in (("dim", dim), ("num_classes", num_classes)):
            if value < 1:
                raise ValueError(f"expected {what} of at least 1, got {value}")
        if not 0 <= dropout < 1:
            raise ValueError(f"expected 0 <= dropout < 1, got {dropout}")
        self.dropped, self.start = dropout, bias_of(prior)

    def __getstate__(self) -> dict[str, Any]:
        # What a pass has left is part of its graph and cannot be copied.
        return {k: v for k, v in self.__dict__.items() if k not in ("penalty", "maps")}


class FullLinear(nn.Linear):
    """A linear layer in the precision of its weights, within autocast, too.

    It costs nothing beside a backbone, and logits in bfloat16 have three digits: too few to rank.
    """

    def forward(self, x: Tensor) -> Tensor:
        device = x.device.type
        # Asked first: an exported model should not carry a context that changes nothing.
        if not torch.is_autocast_enabled(device):
            return super().forward(x)
        with torch.autocast(device, enabled=False):
            return super().forward(x.to(self.weight.dtype))


@registry.register("linear")
class LinearHead(Head):
    """z = W f + b on pooled features; starts with small weights.

    >>> head = LinearHead(8, 3, prior=0.1)
    >>> torch.sigmoid(head(torch.zeros(1, 8))).mul(10).round().tolist()
    [[1.0, 1.0, 1.0]]
    """

    has_line: ClassVar[bool] = True

    def __init__(self, dim: int, num_classes: int, **shared: Any) -> None:
        super().__init__(dim, num_classes, **shared)
        self.dropout = nn.Dropout(self.dropped)
        self.linear = FullLinear(dim, num_classes)
        nn.init.normal_(self.linear.weight, std=0.01)
        nn.init.constant_(self.linear.bias, self.start)

    def forward(self, features: Tensor) -> Tensor:
        return self.linear(self.dropout(features))


@registry.register("cam", alpha=1.0)
@registry.register("boostlu")
class BoostLUHead(Head):
    """Class activation maps whose positive values are boosted before they are averaged.

        z_k = mean over (i, j) of  α c  where c > 0, else c,     c = W_k · F_ij + b_k

    False negatives in training leave a map's shape but lower its values; the boost undoes that,
    in training and in use. Kim et al., "Bridging the Gap between Model Explanations in Partially
    Annotated Multi-label Classification", CVPR 2023; α = 5. With α = 1 it is a linear head that
    keeps its class maps, "cam".
    """

    wants_map: ClassVar[bool] = True
    keeps_maps: ClassVar[bool] = True

    def __init__(self, dim: int, num_classes: int, *, alpha: float = 5.0, **shared: Any) -> None:
        super().__init__(dim, num_classes, **shared)
        if not alpha > 0:
            raise ValueError(f"expected alpha > 0, got {alpha}")
        self.alpha = alpha
        self.dropout = nn.Dropout2d(self.dropped)
        self.conv = nn.Conv2d(dim, num_classes, kernel_size=1)
        bias = self.start / alpha if self.start > 0 else self.start
        nn.init.normal_(self.conv.weight, std=0.01)
        nn.init.constant_(self.conv.bias, bias)  # type: ignore[arg-type]

    def forward(self, feature_map: Tensor) -> Tensor:
        cam = self.conv(self.dropout(feature_map))
        # A loss may look at the maps and at their mean: both gradients are added before rounding.
        cam = cam.to(torch.promote_types(cam.dtype, torch.float32))
        maps = torch.where(cam > 0, self.alpha * cam, cam)
        if self.training:
            self.maps = maps
        return maps.mean(dim=(2, 3))


def create_head(
    name: str, dim: int, num_classes: int, dropout: float = 0.0, **options: Any
) -> Head:
    """A head by name; `options` are `prior` and the head's own.

    >>> create_head("linear", 8, 3)(torch.zeros(2, 8)).shape
    torch.Size([2, 3])
    """
    return registry.create(name, dim=dim, num_classes=num_classes, dropout=dropout, **options)


def bias_of(prior: float | None) -> float:
    """The bias that answers with the share of positives where there is no evidence."""
    if prior is None:
        return 0.0
    if not 0 < prior < 1:
        raise ValueError(f"expected 0 < prior < 1 (the share of positives), got {prior}")
    return math.log(prior / (1 - prior))
