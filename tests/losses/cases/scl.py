"""Spatial consistency (Verelst et al. 2023): the base; the term for maps has its own tests."""

import torch

from cases import Wrapped
from cases.bce import BCE
from cases.wan import WeakNegative
from halftruth import losses


class SpatialConsistency(Wrapped):
    name = "scl"
    default_base = BCE
    defaults = {"weight": 1.0, "decay": 0.8, "side": 7, "start": 1}
    variants = ({"weight": 2.0}, {"base": WeakNegative})

    def remember(self, loss: losses.Loss, labels: torch.Tensor) -> None:
        loss.begin(labels)
        super().remember(loss, labels)
