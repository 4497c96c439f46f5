"""Parameter groups for optimisers, and freezing of parts of a model."""

from typing import Any

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from halftruth.models.classifier import Classifier, apply_frozen, is_frozen

__all__ = [
    "apply_frozen",
    "freeze_backbone",
    "freeze_batchnorm",
    "parameter_groups",
    "unfreeze",
]


def parameter_groups(
    model: Classifier, lr: float, head_lr: float, weight_decay: float
) -> list[dict[str, object]]:
    """Groups for an optimiser: backbone and head, each with and without weight decay.

    Biases, scales of norm layers (one-dimensional) and parameters that timm lists (position
    embeddings) get no decay. Frozen parameters and empty groups are left out.

    >>> from halftruth.models import build_feature_model
    >>> groups = parameter_groups(build_feature_model(4, 2), 1e-4, 1e-3, 0.01)
    >>> [(g["name"], g["lr"], g["weight_decay"]) for g in groups]
    [('head/decay', 0.001, 0.01), ('head/no-decay', 0.001, 0.0)]
    """
    asked = getattr(model.backbone, "no_weight_decay", set)
    spared = {f"backbone.{name}" for name in asked()}
    groups: dict[str, dict[str, Any]] = {}
    for part, rate in (("backbone", lr), ("head", head_lr)):
        for kind, decay in (("decay", weight_decay), ("no-decay", 0.0)):
            name = f"{part}/{kind}"
            groups[name] = {"name": name, "params": [], "lr": rate, "weight_decay": decay}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            part = "head" if name.startswith("head.") else "backbone"
            kind = "no-decay" if parameter.ndim <= 1 or name in spared else "decay"
            groups[f"{part}/{kind}"]["params"].append(parameter)
    return [group for group in groups.values() if group["params"]]


def freeze_backbone(model: Classifier) -> None:
    """Freeze the backbone: no gradients, no updates of running statistics, no dropout."""
    _freeze(model.backbone)


def freeze_batchnorm(model: nn.Module) -> None:
    """Freeze statistics, scale and shift of every batch norm, also after `model.train()`."""
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            _freeze(module)


def unfreeze(model: nn.Module) -> None:
    """Undo every freeze; then call `freeze_batchnorm` again if only the rest should train."""
    for module in model.modules():
        for parameter in getattr(module, "frozen_parameters", None) or ():
            parameter.requires_grad_(True)
        if is_frozen(module):
            module.frozen_parameters = None  # type: ignore[assignment]
            module.train(model.training)


def _freeze(module: nn.Module) -> None:
    if not is_frozen(module):
        # Stored for `unfreeze`, since some backbones have parameters that must never train.
        trainable = [p for p in module.parameters() if p.requires_grad]
        module.frozen_parameters = trainable  # type: ignore[assignment]
    module.requires_grad_(False)
    module.eval()
