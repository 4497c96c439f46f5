"""The ensemble of named members that `auto` fits on features."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from halftruth.models.classifier import Classifier, Standardize
from halftruth.models.forest import Forest
from halftruth.models.heads import FullLinear, Head
from halftruth.models.neighbours import Neighbours

MEMBERS = ("linear", "mlp", "forest", "neighbours")
MLP_WIDTH = 512


class SignedLog(nn.Module):
    """sign(x) log(1 + |x|): keeps small values and shortens the tails of a distribution."""

    def forward(self, x: Tensor) -> Tensor:
        # Missing values (NaN) take the mean of their column, which is 0 here.
        x = torch.nan_to_num(x, nan=0.0)
        return x.sign() * x.abs().log1p()


def make_preparation(dim: int) -> nn.Sequential:
    """Return the steps from raw features to those of the members, without their statistics."""
    return nn.Sequential(Standardize(dim), SignedLog(), Standardize(dim))


class EnsembleHead(Head):
    """A weighted sum of the standardised logits of its members, per class.

        z_k = b_k + Σ_m w_mk (z_mk − μ_mk) / σ_mk        μ, σ over the training rows

    `halftruth.train.ensemble` finds the weights on out-of-sample scores. `prepare` standardises the
    features, takes the signed logarithm and standardises again.
    """

    only_features: ClassVar[bool] = True
    mean: Tensor
    std: Tensor
    weight: Tensor
    bias: Tensor

    def __init__(self, dim: int, num_classes: int, parts: Mapping[str, nn.Module]) -> None:
        super().__init__(dim, num_classes)
        self.prepare = make_preparation(dim)
        self.parts = nn.ModuleDict(dict(parts))
        for name, value in (("mean", 0.0), ("std", 1.0), ("weight", 1 / max(len(parts), 1))):
            self.register_buffer(name, torch.full((len(parts), num_classes), value))
        self.register_buffer("bias", torch.zeros(num_classes))

    def forward(self, features: Tensor) -> Tensor:
        prepared = self.prepare(features)
        total = self.bias
        for number, part in enumerate(self.parts.values()):
            z = (part(prepared) - self.mean[number]) / self.std[number]
            total = total + self.weight[number] * z
        return total


def get_layout(parts: Mapping[str, nn.Module]) -> dict[str, dict[str, Any]]:
    """Return the sizes of all members, from which `build_ensemble` makes them again."""
    return {name: getattr(part, "layout", {}) for name, part in parts.items()}


def build_ensemble(
    dim: int,
    num_classes: int,
    layout: Mapping[str, Mapping[str, Any]],
) -> Classifier:
    """Return an ensemble on D features, with members of these sizes.

    >>> model = build_ensemble(4, 3, {"linear": {}, "mlp": {}})
    >>> model(torch.zeros(2, 4)).shape
    torch.Size([2, 3])
    """
    parts = {name: _build_member(name, dim, num_classes, dict(layout[name])) for name in layout}
    return Classifier(
        nn.Identity(),
        EnsembleHead(dim, num_classes, parts),
        feature_dim=dim,
        num_classes=num_classes,
    )


def put_on_backbone(network: Classifier, ensemble: Classifier) -> Classifier:
    """Return an ensemble on the features of a network's backbone; it shares their modules."""
    return Classifier(
        network.backbone, ensemble.head, feature_dim=network.feature_dim,
        num_classes=network.num_classes, image_size=network.image_size, mean=network.mean,
        std=network.std,
    )  # fmt: skip


def _build_member(name: str, dim: int, num_classes: int, sizes: dict[str, Any]) -> nn.Module:
    if name == "linear":
        return FullLinear(dim, num_classes)
    if name == "mlp":
        return build_mlp(dim, num_classes)
    if name == "forest":
        return Forest(num_classes, **sizes)
    return Neighbours(dim, num_classes, **sizes)


def build_mlp(dim: int, num_classes: int) -> nn.Sequential:
    """Return an untrained MLP with one hidden layer."""
    return nn.Sequential(
        FullLinear(dim, MLP_WIDTH), nn.ReLU(), nn.Dropout(0.8), FullLinear(MLP_WIDTH, num_classes)
    )
