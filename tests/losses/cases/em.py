"""Entropy maximisation (paper 001, eq. 4-5 and 9-11)."""

import math

from cases import UNKNOWN, Golden, Matrix, log_sigmoid, sigmoid
from cases.bce import BCE


def entropy(z: float) -> float:
    return -sigmoid(z) * log_sigmoid(z) - sigmoid(-z) * log_sigmoid(-z)


class EM(BCE):
    name = "em"
    defaults = {"alpha": 0.1, "shift": False}
    variants = ({"alpha": 1.0}, {"alpha": 0.2, "shift": True})
    golden = (
        Golden("em", "pascal alpha=0.2", {"alpha": 0.2}, eps=1e-5),
        Golden("em", "coco alpha=0.1", eps=1e-5),
        Golden("em", "cub alpha=0.01", {"alpha": 0.01}, eps=1e-5),
        Golden("em", "alpha=1", {"alpha": 1.0}, eps=1e-5),
        Golden("baselines", "EM (no eps) alpha=0.1"),
        Golden("baselines", "EM (no eps) alpha=1.0", {"alpha": 1.0}),
    )

    def unknown(self, z: float, at: float) -> float:
        return -self.alpha * (entropy(z) - (math.log(2) if self.shift else 0.0))

    def closed_form(self, logits: Matrix, labels: list[list[int]]) -> Matrix:
        slopes = super().closed_form(logits, labels)
        for n, row in enumerate(labels):
            for c, y in enumerate(row):
                if y == UNKNOWN:  # eq. 11
                    e = math.exp(-logits[n][c])
                    slopes[n][c] = -self.alpha * e * math.log(e) / (1 + e) ** 2
        return slopes
