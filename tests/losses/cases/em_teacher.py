"""Entropy maximisation, with unknown labels pulled towards the estimates of a teacher."""

import torch

from cases import UNKNOWN, Matrix, log_sigmoid
from cases.em import EM
from cases.remembering import pattern, table
from halftruth import losses


class EMTeacher(EM):
    name = "em-teacher"
    defaults = {"alpha": 0.1, "shift": False, "weight": 0.1}
    variants = ({"alpha": 0.2, "weight": 0.02}, {"weight": 0.0}, {"shift": True, "weight": 1.0})
    golden = ()

    def taught(self, n: int, c: int) -> bool:
        """Which unknown labels have an estimate here."""
        return pattern(n, c) > 0.2

    def remember(self, loss: losses.Loss, labels: torch.Tensor) -> None:
        loss.begin(labels)
        estimates = table(labels)
        where = (labels == UNKNOWN) & (estimates > 0.2)
        loss.memory.values[where] = estimates[where].to(loss.memory.values)

    def entries(self, logits: Matrix, labels: list[list[int]], at: Matrix) -> Matrix:
        values = super().entries(logits, labels, at)
        for n, row in enumerate(labels):
            for c, y in enumerate(row):
                if y == UNKNOWN and self.taught(n, c):
                    z, q = logits[n][c], pattern(n, c)
                    values[n][c] -= self.weight * (q * log_sigmoid(z) + (1 - q) * log_sigmoid(-z))
        return values

    def closed_form(self, logits: Matrix, labels: list[list[int]]) -> None:
        return None
