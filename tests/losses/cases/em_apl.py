"""Entropy maximisation with asymmetric pseudo-labels (paper 001, eq. 6-8)."""

import torch

from cases import UNKNOWN, Matrix, log_sigmoid
from cases.em import EM
from cases.remembering import pattern, table
from halftruth import losses


class EMAPL(EM):
    name = "em-apl"
    defaults = {
        "alpha": 0.1,
        "shift": False,
        "beta": 0.9,
        "theta": 0.9,
        "warmup": 5,
        "hard": False,
        "theta_pos": 0.0,
    }
    variants = (
        {"alpha": 0.2, "beta": 0.02},
        {"beta": 0.0},
        {"shift": True, "epoch": 6},
        {"hard": True},
        {"theta_pos": 0.1},
        {"theta_pos": 0.1, "hard": True},
    )
    golden = ()

    def given(self, n: int, c: int) -> bool:
        """Which unknown labels have a pseudo-label here."""
        return pattern(n, c) > 0.2

    def remember(self, loss: losses.Loss, labels: torch.Tensor) -> None:
        loss.begin(labels)
        soft = table(labels)
        where = (labels == UNKNOWN) & (soft > 0.2)
        # A positive pseudo-label is stored three higher.
        stored = soft + 3 * ((soft > 0.4) & (self.theta_pos > 0))
        loss.memory.values[where] = stored[where].to(loss.memory.values)

    def entries(self, logits: Matrix, labels: list[list[int]], at: Matrix) -> Matrix:
        values = super().entries(logits, labels, at)
        for n, row in enumerate(labels):
            for c, y in enumerate(row):
                if y == UNKNOWN and self.given(n, c):
                    z, p = logits[n][c], pattern(n, c)
                    if self.hard:
                        p = float(self.theta_pos > 0 and p > 0.4)
                    values[n][c] = -self.beta * (p * log_sigmoid(z) + (1 - p) * log_sigmoid(-z))
        return values

    def closed_form(self, logits: Matrix, labels: list[list[int]]) -> None:
        return None
