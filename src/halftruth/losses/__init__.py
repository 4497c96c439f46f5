"""Losses for incomplete labels, behind one interface.

>>> import torch
>>> from halftruth import losses
>>> loss = losses.create("hill")
>>> logits = torch.tensor([[2.0, -1.0, 0.5]], requires_grad=True)
>>> loss(logits, torch.tensor([[1, 0, 0]])).backward()   # +1 present, 0 unknown, -1 absent
>>> logits.grad.shape
torch.Size([1, 3])
"""

import importlib
import pkgutil

from halftruth.losses.base import Loss, registry
from halftruth.losses.label_values import LabelValues
from halftruth.losses.memory_loss import MemoryLoss
from halftruth.losses.wrapper import Wrapper

# A method is a file in this folder: importing it registers it.
for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

create = registry.create
names = registry.names

_classes = {registry.get(name).__name__: registry.get(name) for name in names()}
globals().update(_classes)

__all__ = [
    "LabelValues",
    "Loss",
    "MemoryLoss",
    "Wrapper",
    "create",
    "names",
    "registry",
    *sorted(_classes),
]


def __getattr__(name: str) -> type[Loss]:
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
