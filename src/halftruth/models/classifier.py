"""A classifier is a backbone and a head: over images with timm, or over ready-made features."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from halftruth.models.heads import Head, LinearHead, create_head, registry
from halftruth.models.timm_support import create_backbone
from halftruth.models.weights import ModelError

Numbers = Sequence[float] | Tensor | None


class Classifier(nn.Module):
    """`forward(x) = head(features(x))`.

    `image_size`, `mean` and `std` are for the preparation of images; for a model on features they
    are 0, () and (). A head with `wants_map` gets the last feature map of the backbone instead.
    Frozen parts stay in evaluation mode when `train()` is called.
    """

    def __init__(
        self,
        backbone: nn.Module,
        head: Head,
        *,
        feature_dim: int,
        num_classes: int,
        image_size: int = 0,
        mean: tuple[float, ...] = (),
        std: tuple[float, ...] = (),
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.feature_dim = feature_dim
        self.num_classes = num_classes
        self.image_size = image_size
        self.mean = mean
        self.std = std

    @property
    def is_network(self) -> bool:
        """Whether the backbone is a network with weights, not only a standardisation or nothing."""
        return not isinstance(self.backbone, nn.Sequential | nn.Identity)

    def features(self, x: Tensor) -> Tensor:
        """The (B, D) pooled features, D = feature_dim."""
        return self.backbone(x)

    def forward(self, x: Tensor) -> Tensor:
        if self.head.wants_map:
            return self.head(self.backbone.forward_features(x))  # type: ignore[operator]
        return self.head(self.features(x))

    def train(self, mode: bool = True) -> "Classifier":
        super().train(mode)
        apply_frozen(self)
        return self


def bare_forward(model: nn.Module) -> Callable[..., Any]:
    """Return the forward pass of the class, without the autocast that Accelerate adds."""
    return partial(type(model).forward, model)


def apply_frozen(model: nn.Module) -> None:
    """Put frozen modules back into evaluation mode; `Classifier.train` calls this."""
    for module in model.modules():
        if is_frozen(module):
            module.eval()


def is_frozen(module: nn.Module) -> bool:
    """Whether this module itself was frozen (halftruth.models.parameter_groups)."""
    return getattr(module, "frozen_parameters", None) is not None


def build_image_model(
    backbone: str,
    num_classes: int,
    *,
    weights: str | Path = "pretrained",
    image_size: int | None = None,
    head: str = "linear",
    dropout: float = 0.0,
    drop_path: float = 0.0,
) -> Classifier:
    """A timm backbone with a new head.

    `weights`: "pretrained" (timm's download), "none", or a .safetensors, .pth, .pt or .bin file.
    """
    wants_map = registry.get(head).wants_map
    body = create_backbone(backbone, weights, image_size=image_size, drop_path=drop_path)
    cfg: dict[str, Any] = body.pretrained_cfg  # type: ignore[assignment]
    size = image_size or int(cfg["input_size"][-1])
    # Some families have one more layer after pooling; then its width is that of the features.
    dim = int(getattr(body, "head_hidden_size", None) or body.num_features)  # type: ignore[arg-type]
    head_dim = _map_channels(body, size, backbone, head) if wants_map else dim
    return Classifier(
        body,
        create_head(head, head_dim, num_classes, dropout),
        feature_dim=dim,
        num_classes=num_classes,
        image_size=size,
        mean=tuple(cfg["mean"]),
        std=tuple(cfg["std"]),
    )


class Standardize(nn.Module):
    """(x − mean) / std per column, both stored with the model."""

    mean: Tensor
    std: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("std", torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.std

    @torch.no_grad()
    def set(self, mean: Numbers, std: Numbers) -> None:
        """Store the mean and standard deviation per column; a constant column is only centred."""
        dim = len(self.mean)
        values = []
        for name, value, default in (("mean", mean, 0.0), ("std", std, 1.0)):
            given = torch.full((dim,), default) if value is None else torch.as_tensor(value)
            if given.shape != (dim,):
                raise ModelError(f"expected {dim} values of {name}, got {tuple(given.shape)}")
            if not given.isfinite().all() or (name == "std" and (given < 0).any()):
                raise ModelError(f"expected finite values of {name}, and none below 0 of std")
            values.append(given.detach().to(torch.float64).cpu())
        centre, spread = values
        # In float32 a smaller spread is rounding of the values of the column.
        constant = spread <= 1e-6 * centre.abs()
        self.mean.copy_(centre)
        self.std.copy_(torch.where(constant, 1.0, spread))


def build_feature_model(
    dim: int,
    num_classes: int,
    *,
    hidden: int = 0,
    head: str = "linear",
    dropout: float = 0.0,
    mean: Numbers = None,
    std: Numbers = None,
) -> Classifier:
    """A linear classifier, or one with a hidden layer or another head, on standardised features.

    >>> model = build_feature_model(4, 3, hidden=8)
    >>> model.features(torch.zeros(2, 4)).shape, model(torch.zeros(2, 4)).shape
    (torch.Size([2, 8]), torch.Size([2, 3]))
    """
    standardize = Standardize(dim)
    standardize.set(mean, std)
    layers: list[nn.Module] = [standardize]
    if hidden:
        layers += [nn.Linear(dim, hidden), nn.ReLU()]
    width = hidden or dim
    if registry.get(head).wants_map:
        raise ModelError(f"the head {head!r} needs feature maps, which only images have")
    made = create_head(head, width, num_classes, dropout)
    return Classifier(nn.Sequential(*layers), made, feature_dim=width, num_classes=num_classes)


@torch.no_grad()
def set_standardization(model: Classifier, features: Tensor, rows: Tensor | None = None) -> None:
    """Store the column means and deviations of (N, D) features in the model.

    `rows`: only these rows count, the training rows.
    """
    standardize = _standardize(model)
    dim = len(standardize.mean)
    count = len(features) if rows is None else len(rows)
    if features.ndim != 2 or features.shape[1] != dim or count == 0:
        raise ModelError(f"expected (N, {dim}) features, got {tuple(features.shape)}")

    def slices() -> Iterator[Tensor]:
        # A float64 copy of all the features may not fit where they do.
        parts = features.split(8192) if rows is None else (features[r] for r in rows.split(8192))
        return (part.cpu().double() for part in parts)

    mean, squares = torch.zeros(2, dim, dtype=torch.float64)
    for part in slices():
        mean += part.sum(0)
    mean /= count
    for part in slices():
        squares += (part - mean).square().sum(0)
    standardize.set(mean, (squares / count).sqrt())  # type: ignore[operator]


@torch.no_grad()
def transfer_head(source: Classifier, target: Classifier) -> None:
    """Give an image model the head trained on its features: LinearInit.

    W (f − μ)/σ + b  =  (W/σ) f + (b − W μ/σ), so the target needs no standardisation.
    """
    standardize, trained, head = _standardize(source), source.head, target.head
    if len(source.backbone) != 1 or not isinstance(head, LinearHead):  # type: ignore[arg-type]
        raise ModelError("only a linear head without a hidden layer can be transferred")
    assert isinstance(trained, LinearHead)
    if trained.linear.weight.shape != head.linear.weight.shape:
        raise ModelError(
            f"expected a head of shape {tuple(head.linear.weight.shape)} (classes, features), "
            f"got {tuple(trained.linear.weight.shape)}"
        )
    weight = trained.linear.weight.double() / standardize.std.double()
    head.linear.weight.copy_(weight)
    head.linear.bias.copy_(trained.linear.bias.double() - weight @ standardize.mean.double())


def _standardize(model: Classifier) -> Standardize:
    first = model.backbone[0] if isinstance(model.backbone, nn.Sequential) else None
    if not isinstance(first, Standardize):
        raise ModelError("expected a model from build_feature_model, which standardises features")
    return first


@torch.no_grad()
def _map_channels(body: nn.Module, size: int, name: str, head: str) -> int:
    """Return the channels of the last feature map, from a forward pass."""
    body.eval()
    found: Tensor = body.forward_features(torch.zeros(1, 3, size, size))  # type: ignore[operator]
    body.train()
    channels_first = getattr(body, "output_fmt", "NCHW") == "NCHW"
    if found.ndim != 4 or not channels_first or found.shape[1] != body.num_features:
        raise ModelError(
            f"the head {head!r} needs a backbone with feature maps (batch, channels, height, "
            f"width); {name} gives {tuple(found.shape)}: use a convolutional one, or head='linear'"
        )
    return found.shape[1]
