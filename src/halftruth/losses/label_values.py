"""Soft labels and weights around any loss."""

from typing import Any

import torch
from torch import Tensor

from halftruth.labels.checks import Array
from halftruth.losses import curves
from halftruth.losses._engine.logit import Logit
from halftruth.losses.base import Loss
from halftruth.losses.curves import Curve
from halftruth.losses.wrapper import Wrapper


class LabelValues(Wrapper):
    """A loss whose labels are probabilities, or have weights.

        L = Σ w · (y present(z) + (1 − y) absent(z))    where the soft label y is known
        L = Σ w · base                                  elsewhere

    Both are looked up by `index`; without them the loss is that of the base. Labels of 0 and 1 give
    exactly what ABSENT and PRESENT give.

    Args:
        base: a loss that was created.
        soft: (N, K), the probabilities of presence, NaN where a label is unknown.
        weights: (N, K) or (N, 1).

    >>> from halftruth import losses
    >>> soft = torch.tensor([[0.8, float("nan")]])
    >>> loss = losses.LabelValues(losses.create("bce"), soft=soft)
    >>> loss(torch.tensor([[1.0, -1.0]]), torch.tensor([[1, 0]]), index=torch.tensor([0]))
    tensor(0.4133)
    """

    soft: Tensor | None
    weights: Tensor | None

    def __init__(self, base: Loss, soft: Array | None = None, weights: Array | None = None) -> None:
        reduction, base.reduction = base.reduction, "mean"
        super().__init__(base, reduction=reduction)
        if soft is not None and base.couples_rows:
            raise ValueError(
                f"{type(base.innermost).__name__} compares the labels of a row with each other, "
                "which soft labels have no meaning for; use another method or hard labels"
            )
        self.needs_index = True
        for name, values in (("soft", soft), ("weights", weights)):
            # Not saved with the loss: it is data, and read again when a run is resumed.
            given = None if values is None else torch.as_tensor(values, dtype=torch.float32)
            self.register_buffer(name, given, persistent=False)

    def prepare(self, logits: Tensor, labels: Tensor, index: Tensor | None) -> object:
        inner_index = index if self.base.needs_index else None
        inner = self.base.prepare(logits, labels, inner_index)
        soft, weights = (
            None if table is None else table[index.to(table.device)].to(logits.device)  # type: ignore[union-attr]
            for table in (self.soft, self.weights)
        )
        known = None
        if soft is not None:
            known = (~soft.isnan()).float()
            soft = soft.nan_to_num(0.0)
        return inner, soft, known, weights

    def terms(self, s: Logit, labels: Tensor, context: Any, rows: slice) -> Curve:
        inner, soft, known, weights = context
        curve = self.base.terms(s, labels, inner, rows)
        if soft is not None:
            share = soft[rows].to(s.z.dtype)
            both = curves.mixed(share, self.base.present(s), self.base.absent(s))
            curve = curves.mixed(known[rows].to(s.z.dtype), both, curve)
        return curve if weights is None else curves.scaled(curve, weights[rows].to(s.z.dtype))
