"""Permanent positives by a threshold: the loss of MIME (Liu et al. 2023)."""

import torch

from cases import UNKNOWN, Case, Matrix
from cases.remembering import pattern, table
from halftruth import losses


class MIME(Case):
    name = "mime"
    defaults = {"theta": 0.95, "warmup": 2}
    variants = ({"theta": 0.5, "warmup": 1}, {"warmup": 9, "epoch": 9})

    def remember(self, loss: losses.Loss, labels: torch.Tensor) -> None:
        loss.begin(labels)
        loss.memory.write(torch.arange(len(labels)), table(labels) > 0.4)

    def entries(self, logits: Matrix, labels: list[list[int]], at: Matrix) -> Matrix:
        found = [
            [1 if y == UNKNOWN and pattern(n, c) > 0.4 else y for c, y in enumerate(row)]
            for n, row in enumerate(labels)
        ]
        return super().entries(logits, found, at)
