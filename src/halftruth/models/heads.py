"""Heads: from the features of a backbone to one logit per class."""

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from halftruth.registry import Registry

registry: "Registry[Head]" = Registry("head")


class Head(nn.Module):
    """Base class of heads; the class attributes describe what a head needs and stores.

    All heads take `dropout` and `prior`, the share of positives: the first logits are then
    logit(prior), so that training does not start from probabilities of one half. Without it the
    first logits are 0.
    """

    # Takes the (B, D, H, W) feature map instead of (B, D) pooled features.
    wants_map: ClassVar[bool] = False
    # A forward pass in training stores a `penalty`, which is added to the mean loss.
    has_penalty: ClassVar[bool] = False
    # A forward pass in training stores its class maps, `maps`.
    keeps_maps: ClassVar[bool] = False
    # For given features only, not for a backbone that is trained with the head.
    only_features: ClassVar[bool] = False
    # The head, or one of its members, is a linear layer on the features: a ridge prior applies.
    has_linear_layer: ClassVar[bool] = False
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
        self.dropout_rate, self.initial_bias = dropout, compute_bias(prior)

    def __getstate__(self) -> dict[str, object]:
        # These are part of an autograd graph and cannot be copied.
        return {k: v for k, v in self.__dict__.items() if k not in ("penalty", "maps")}


class FullLinear(nn.Linear):
    """A linear layer in the precision of its weights, also within autocast.

    Logits in bfloat16 have three digits, too few to rank; the cost is small next to a backbone.
    """

    def forward(self, x: Tensor) -> Tensor:
        device = x.device.type
        # Checked first, so that an exported model has no autocast context without effect.
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

    has_linear_layer: ClassVar[bool] = True

    def __init__(self, dim: int, num_classes: int, **shared: Any) -> None:
        super().__init__(dim, num_classes, **shared)
        self.dropout = nn.Dropout(self.dropout_rate)
        self.linear = FullLinear(dim, num_classes)
        nn.init.normal_(self.linear.weight, std=0.01)
        nn.init.constant_(self.linear.bias, self.initial_bias)

    def forward(self, features: Tensor) -> Tensor:
        return self.linear(self.dropout(features))


@registry.register("cam", alpha=1.0)
@registry.register("boostlu")
class BoostLUHead(Head):
    """Class activation maps whose positive values are boosted before they are averaged.

        z_k = mean over (i, j) of  α c  where c > 0, else c,     c = W_k · F_ij + b_k

    False negatives in training keep the shape of a map but lower its values; the boost reverses
    that, in training and in prediction. Kim et al., "Bridging the Gap between Model Explanations in
    Partially Annotated Multi-label Classification", CVPR 2023; α = 5. With α = 1 it is a linear
    head that keeps its class maps, "cam".
    """

    wants_map: ClassVar[bool] = True
    keeps_maps: ClassVar[bool] = True

    def __init__(self, dim: int, num_classes: int, *, alpha: float = 5.0, **shared: Any) -> None:
        super().__init__(dim, num_classes, **shared)
        if not alpha > 0:
            raise ValueError(f"expected alpha > 0, got {alpha}")
        self.alpha = alpha
        self.dropout = nn.Dropout2d(self.dropout_rate)
        self.conv = nn.Conv2d(dim, num_classes, kernel_size=1)
        bias = self.initial_bias / alpha if self.initial_bias > 0 else self.initial_bias
        nn.init.normal_(self.conv.weight, std=0.01)
        nn.init.constant_(self.conv.bias, bias)  # type: ignore[arg-type]

    def forward(self, feature_map: Tensor) -> Tensor:
        cam = self.conv(self.dropout(feature_map))
        # A loss may use the maps and their mean: both gradients are added before rounding.
        cam = cam.to(torch.promote_types(cam.dtype, torch.float32))
        maps = torch.where(cam > 0, self.alpha * cam, cam)
        if self.training:
            self.maps = maps
        return maps.mean(dim=(2, 3))


class ClassDots(nn.Module):
    """z_k = w_k · h_k + b_k for codes (B, K, d), one weight vector per class."""

    def __init__(self, num_classes: int, width: int, start: float) -> None:
        super().__init__()
        # So small that the first logits are nearly the bias, whatever the width.
        self.weight = nn.Parameter(torch.randn(num_classes, width) * 0.03 / width**0.5)
        self.bias = nn.Parameter(torch.full((num_classes,), start))

    def forward(self, codes: Tensor) -> Tensor:
        return (codes * self.weight).sum(dim=-1) + self.bias


@registry.register("label-query")
class LabelQueryHead(Head):
    """One learnt query per class attends to the feature map.

        h = LN(Q + attention(Q, F)),   h ← LN(h + MLP(h)),   z_k = w_k · h_k + b_k

    Q holds one learnt vector per class, F the positions of the map, projected to `width`, with a
    sine code of rows and columns. One decoder layer without attention between classes, similar
    to the head before the classifiers of MIME and LAGC, with other sizes.

    >>> LabelQueryHead(8, 3, width=16, heads=2)(torch.zeros(2, 8, 7, 7)).shape
    torch.Size([2, 3])
    """

    wants_map: ClassVar[bool] = True

    def __init__(
        self, dim: int, num_classes: int, *, width: int = 256, heads: int = 4, **shared: Any
    ) -> None:
        super().__init__(dim, num_classes, **shared)
        if width < 4 or width % 4 or width % heads:
            raise ValueError(f"expected a width divisible by 4 and by {heads} heads, got {width}")
        self.project = nn.Conv2d(dim, width, kernel_size=1)
        self.queries = nn.Parameter(torch.randn(num_classes, width) * 0.02)
        self.attention = nn.MultiheadAttention(width, heads, self.dropout_rate, batch_first=True)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width),
            nn.GELU(),
            nn.Dropout(self.dropout_rate),
            nn.Linear(2 * width, width),
        )
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.dots = ClassDots(num_classes, width, self.initial_bias)

    def forward(self, feature_map: Tensor) -> Tensor:
        values = self.project(feature_map)
        keys = values + make_position_code(values).to(values.dtype)
        queries = self.queries.expand(feature_map.shape[0], -1, -1)
        keys, values = (x.flatten(2).transpose(1, 2) for x in (keys, values))
        attended, _ = self.attention(queries, keys, values, need_weights=False)
        codes = self.norms[0](queries + attended)
        return self.dots(self.norms[1](codes + self.mlp(codes)))


def make_position_code(x: Tensor) -> Tensor:
    """Return the (C, H, W) sines and cosines of rows and columns; C is divisible by 4."""
    _, channels, height, width = x.shape
    count = channels // 4
    waves = torch.arange(count, device=x.device, dtype=torch.float32) / count
    waves = torch.exp(-math.log(1e4) * waves)[:, None]
    rows, columns = (
        torch.arange(size, device=x.device, dtype=torch.float32) * waves for size in (height, width)
    )
    by_row = torch.cat([rows.sin(), rows.cos()])[:, :, None].expand(-1, -1, width)
    by_column = torch.cat([columns.sin(), columns.cos()])[:, None, :].expand(-1, height, -1)
    return torch.cat([by_row, by_column])


@registry.register("variational")
class VariationalHead(Head):
    """A random code per class with a penalty on its information (variational bottleneck).

        u_k = tanh(A f ⊙ e_k),   c_k ~ N(m(u_k), s(u_k)²),   z_k = w_k · c_k + b_k
        penalty = β KL(N(m, s²) ‖ N(0, 1)), the mean over batch, classes and code

    In prediction c = m, so that results are not random. For the method `mime` (Liu et al., ICML
    2023), β = 1e-4; in that paper the codes come from a transformer with label queries and are
    256 wide.

    >>> head = VariationalHead(8, 3).eval()
    >>> head(torch.zeros(2, 8)).shape
    torch.Size([2, 3])
    """

    has_penalty: ClassVar[bool] = True

    def __init__(
        self, dim: int, num_classes: int, *, width: int = 64, beta: float = 1e-4, **shared: Any
    ) -> None:
        super().__init__(dim, num_classes, **shared)
        if not beta >= 0:
            raise ValueError(f"expected beta >= 0, got {beta}")
        self.beta = beta
        self.dropout = nn.Dropout(self.dropout_rate)
        self.embed = nn.Linear(dim, width)
        self.classes = nn.Parameter(torch.randn(num_classes, width))
        self.mean, self.log_std = nn.Linear(width, width), nn.Linear(width, width)
        self.dots = ClassDots(num_classes, width, self.initial_bias)

    def forward(self, features: Tensor) -> Tensor:
        evidence = torch.tanh(self.embed(self.dropout(features)).unsqueeze(1) * self.classes)
        mean = self.mean(evidence)
        if not self.training:
            return self.dots(mean)
        log_std = self.log_std(evidence)
        self.penalty = self.beta * compute_kl_from_normal(mean, log_std)
        return self.dots(mean + log_std.exp() * torch.randn_like(mean))


def compute_kl_from_normal(mean: Tensor, log_std: Tensor) -> Tensor:
    """Return KL(N(m, s²) ‖ N(0, 1)) = ½ (m² + s² − 1) − log s, the mean over all entries.

    >>> compute_kl_from_normal(torch.tensor([1.0, -1.0]), torch.zeros(2))
    tensor(0.5000)
    """
    dtype = torch.promote_types(mean.dtype, torch.float32)
    mean, log_std = mean.to(dtype), log_std.to(dtype)
    return (0.5 * (mean.square() + (2 * log_std).exp() - 1) - log_std).mean()


def create_head(
    name: str, dim: int, num_classes: int, dropout: float = 0.0, **options: object
) -> Head:
    """Create a head by name; `options` are `prior` and the arguments of the head.

    >>> create_head("linear", 8, 3)(torch.zeros(2, 8)).shape
    torch.Size([2, 3])
    """
    return registry.create(name, dim=dim, num_classes=num_classes, dropout=dropout, **options)


def compute_bias(prior: float | None) -> float:
    """Return the bias whose sigmoid is the share of positives; 0 without one."""
    if prior is None:
        return 0.0
    if not 0 < prior < 1:
        raise ValueError(f"expected 0 < prior < 1 (the share of positives), got {prior}")
    return math.log(prior / (1 - prior))
