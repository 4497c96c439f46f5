"""Heads with a code for each class: one looks for it in the picture, one makes it uncertain."""

import math
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from halftruth.models.heads import Head, registry


class ClassDots(nn.Module):
    """z_k = w_k · h_k + b_k for codes (B, K, d), a weight vector a class."""

    def __init__(self, num_classes: int, width: int, start: float) -> None:
        super().__init__()
        # So small that the bias is nearly the first answer, whatever the width.
        self.weight = nn.Parameter(torch.randn(num_classes, width) * 0.03 / width**0.5)
        self.bias = nn.Parameter(torch.full((num_classes,), start))

    def forward(self, codes: Tensor) -> Tensor:
        return (codes * self.weight).sum(dim=-1) + self.bias


@registry.register("label-query")
class LabelQueryHead(Head):
    """A query for each class looks for its evidence in the feature map.

        h = LN(Q + attention(Q, F)),   h ← LN(h + MLP(h)),   z_k = w_k · h_k + b_k

    Q holds one learnt vector a class, F the places of the map, projected to `width` with their
    rows and columns marked by sines. One decoder layer without attention between classes, as the
    heads with label queries before MIME's and LAGC's classifiers are in outline; sizes are ours.

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
        self.attention = nn.MultiheadAttention(width, heads, self.dropped, batch_first=True)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width),
            nn.GELU(),
            nn.Dropout(self.dropped),
            nn.Linear(2 * width, width),
        )
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.dots = ClassDots(num_classes, width, self.start)

    def forward(self, feature_map: Tensor) -> Tensor:
        places = self.project(feature_map)
        marked = places + position_code(places).to(places.dtype)
        queries = self.queries.expand(feature_map.shape[0], -1, -1)
        keys, values = (x.flatten(2).transpose(1, 2) for x in (marked, places))
        found, _ = self.attention(queries, keys, values, need_weights=False)
        codes = self.norms[0](queries + found)
        return self.dots(self.norms[1](codes + self.mlp(codes)))


def position_code(x: Tensor) -> Tensor:
    """Sines and cosines of rows and columns, for (B, C, H, W) with C divisible by 4: (C, H, W)."""
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
    """Each class's evidence is a random code, which has to be worth what it tells.

        u_k = tanh(A f ⊙ e_k),   c_k ~ N(m(u_k), s(u_k)²),   z_k = w_k · c_k + b_k
        penalty = β KL(N(m, s²) ‖ N(0, 1)), the mean over batch, classes and code

    In use c = m, so that predictions are not random. For the method `mime` (Liu et al., ICML 2023),
    β = 1e-4; there the codes come from a transformer with label queries and are 256 wide.

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
        self.dropout = nn.Dropout(self.dropped)
        self.embed = nn.Linear(dim, width)
        self.classes = nn.Parameter(torch.randn(num_classes, width))
        self.mean, self.log_std = nn.Linear(width, width), nn.Linear(width, width)
        self.dots = ClassDots(num_classes, width, self.start)

    def forward(self, features: Tensor) -> Tensor:
        evidence = torch.tanh(self.embed(self.dropout(features)).unsqueeze(1) * self.classes)
        mean = self.mean(evidence)
        if not self.training:
            return self.dots(mean)
        log_std = self.log_std(evidence)
        self.penalty = self.beta * kl_from_normal(mean, log_std)
        return self.dots(mean + log_std.exp() * torch.randn_like(mean))


def kl_from_normal(mean: Tensor, log_std: Tensor) -> Tensor:
    """KL(N(m, s²) ‖ N(0, 1)) = ½ (m² + s² − 1) − log s, the mean over all entries.

    >>> kl_from_normal(torch.tensor([1.0, -1.0]), torch.zeros(2))
    tensor(0.5000)
    """
    dtype = torch.promote_types(mean.dtype, torch.float32)
    mean, log_std = mean.to(dtype), log_std.to(dtype)
    return (0.5 * (mean.square() + (2 * log_std).exp() - 1) - log_std).mean()
