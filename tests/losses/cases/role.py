"""Regularised online label estimation (Cole et al. 2021)."""

import torch

from cases import ABSENT, PRESENT, Case, Matrix, log_sigmoid, sigmoid
from cases.remembering import pattern, table
from halftruth import losses


class ROLE(Case):
    name = "role"
    needed = {"expected_positives": 1.5}
    defaults = {"init": 0.6, "lr_mult": 10.0, "light": None, "rate": None, "seed": 0}
    variants = ({"expected_positives": 3.0, "light": True, "rate": 0.1}, {"init": 0.5, "seed": 3})
    has_constants = True

    def remember(self, loss: losses.Loss, labels: torch.Tensor) -> None:
        loss.begin(labels)
        loss.table.copy_(8 * table(labels) - 2)

    def g(self, n: int, c: int) -> float:
        return 8 * pattern(n, c) - 2

    def side(self, z: float, target: float, y: int) -> float:
        """The cost of z for the prediction of the other side, and for a known label."""
        known = {PRESENT: -log_sigmoid(z), ABSENT: -log_sigmoid(-z)}.get(y, 0.0)
        return known - target * log_sigmoid(z) - (1 - target) * log_sigmoid(-z)

    def entries(self, logits: Matrix, labels: list[list[int]], at: Matrix) -> Matrix:
        return [
            [
                (
                    self.side(logits[n][c], sigmoid(self.g(n, c)), y)
                    + self.side(self.g(n, c), sigmoid(at[n][c]), y)
                )
                / 2
                for c, y in enumerate(row)
            ]
            for n, row in enumerate(labels)
        ]

    def added_term(self, logits: Matrix, labels: list[list[int]]) -> float:
        rows, classes = len(labels), len(labels[0])
        estimates = [[self.g(n, c) for c in range(classes)] for n in range(rows)]
        total = 0.0
        for answers in (logits, estimates):
            count = sum(sigmoid(z) for row in answers for z in row) / rows
            total += (count - self.expected_positives) ** 2 / classes**2
        return total / 2
