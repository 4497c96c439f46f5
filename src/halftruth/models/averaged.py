"""A trained network averaged with an ensemble on the features of its backbone before training."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from halftruth.models.classifier import Classifier
from halftruth.models.ensemble import build_ensemble
from halftruth.models.heads import Head


class TwoBackbones(nn.Module):
    """The features of two backbones, side by side."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.first(x), self.second(x)], dim=1)


class AveragedHead(Head):
    """The mean of two heads, each on its own features, on the scale of the first.

    z = μ₁ + σ₁ · ½ [(z₁ − μ₁)/σ₁ + (z₂ − μ₂)/σ₂]        μ, σ per class over validation rows
    """

    mean: Tensor
    std: Tensor

    def __init__(self, dims: tuple[int, int], num_classes: int, heads: tuple[Head, Head]) -> None:
        super().__init__(sum(dims), num_classes)
        self.dims = dims
        self.heads = nn.ModuleList(heads)
        self.register_buffer("mean", torch.zeros(2, num_classes))
        self.register_buffer("std", torch.ones(2, num_classes))

    def forward(self, features: Tensor) -> Tensor:
        both = features.split(self.dims, dim=1)
        pairs = zip(self.heads, both, self.mean, self.std, strict=True)
        z = torch.stack([(head(part) - mean) / std for head, part, mean, std in pairs])
        return self.mean[0] + self.std[0] * z.mean(dim=0)

    def set_scales(self, first: Tensor, second: Tensor) -> None:
        """Take mean and deviation per class from the logits (N, K) of both on the same rows."""
        for row, logits in enumerate((first, second)):
            spread = logits.std(dim=0) if len(logits) > 1 else torch.ones_like(logits[0])
            self.mean[row] = logits.mean(dim=0)
            self.std[row] = torch.where(spread > 1e-6, spread, 1.0)


def average_classifiers(network: Classifier, other: Classifier) -> Classifier:
    """Return one classifier with the mean of both; it shares their modules."""
    head = AveragedHead(
        (network.feature_dim, other.feature_dim), network.num_classes, (network.head, other.head)
    )
    return Classifier(
        TwoBackbones(network.backbone, other.backbone),
        head.to(next(network.parameters()).device),
        feature_dim=network.feature_dim + other.feature_dim,
        num_classes=network.num_classes,
        image_size=network.image_size,
        mean=network.mean,
        std=network.std,
    )


def build_averaged(network: Classifier, layout: Mapping[str, Any]) -> Classifier:
    """Return an averaged classifier with members of these sizes, for saved weights."""
    frozen = build_ensemble(network.feature_dim, network.num_classes, layout)
    frozen.backbone = deepcopy(network.backbone)
    return average_classifiers(network, frozen)
