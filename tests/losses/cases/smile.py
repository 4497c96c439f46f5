"""Label enhancement (Xu et al. 2022), with given degrees."""

import torch

from cases import PRESENT, UNKNOWN, Case, Matrix, log_sigmoid
from cases.remembering import pattern, table
from halftruth import losses


class SMILE(Case):
    name = "smile"
    defaults = {"mu": 0.5, "prior": 0.05, "rate": None, "decay": 0.9}
    variants = ({"mu": 0.9, "prior": 0.1, "rate": 0.7}, {"mu": 0.0}, {"mu": 1.0, "rate": 0.0})

    def seen(self, n: int, c: int) -> bool:
        return pattern(n, c) < 0.45

    def remember(self, loss: losses.Loss, labels: torch.Tensor) -> None:
        loss.begin(labels)
        learnt = table(labels)
        loss.memory.values.copy_(torch.where(learnt < 0.45, learnt, -1))

    def entries(self, logits: Matrix, labels: list[list[int]], at: Matrix) -> Matrix:
        values = super().entries(logits, labels, at)
        rate = 1 / (len(labels[0]) - 1) if self.rate is None else self.rate
        for n, row in enumerate(labels):
            for c, y in enumerate(row):
                if y not in (PRESENT, UNKNOWN):
                    continue
                degree = 1.0 if y == PRESENT else self.prior
                if self.seen(n, c):
                    degree = self.mu * pattern(n, c) + (1 - self.mu) * degree
                z = logits[n][c]
                cost = -degree * log_sigmoid(z) - (1 - degree) * log_sigmoid(-z)
                values[n][c] = cost if y == PRESENT else rate * cost
        return values
