"""Two-stage pseudo-labels over any base (Lee 2013, a baseline of paper 003)."""

from typing import Any

import torch

from cases import UNKNOWN, Matrix, Wrapped
from cases.any_class import AnyClass
from cases.bce import BCE
from cases.remembering import pattern, table
from cases.wan import WeakNegative
from halftruth import losses


class PseudoLabel(Wrapped):
    name = "pseudo-label"
    default_base = BCE
    needed = {"tau": 0.4}
    defaults = {"tau_neg": None}
    variants = (
        {"tau": 0.3, "tau_neg": 0.1},
        {"base": WeakNegative},
        {"base": AnyClass, "tau_neg": 0.2},
    )

    def remember(self, loss: losses.Loss, labels: torch.Tensor) -> None:
        """The predictions of the first model are the pattern."""
        loss.begin(labels)
        loss.relabel(torch.logit(table(labels)))
        self.base.remember(loss.base, loss.relabelled(torch.arange(len(labels))))

    def filled_in(self, labels: list[list[int]]) -> list[list[int]]:
        new = [list(row) for row in labels]
        for n, row in enumerate(labels):
            for c, y in enumerate(row):
                if y == UNKNOWN and pattern(n, c) > self.tau:
                    new[n][c] = 1
                elif y == UNKNOWN and self.tau_neg is not None and pattern(n, c) < self.tau_neg:
                    new[n][c] = -1
        return new

    def entries(self, logits: Matrix, labels: list[list[int]], at: Matrix) -> Matrix:
        return self.base.entries(logits, self.filled_in(labels), at)

    def rows(self, logits: Matrix, labels: list[list[int]], at: Matrix) -> list[float]:
        return self.base.rows(logits, self.filled_in(labels), at)

    def added_term(self, logits: Any, labels: list[list[int]]) -> float:
        return self.base.added_term(logits, self.filled_in(labels))

    def divisor(self, labels: list[list[int]]) -> float:
        return self.base.divisor(self.filled_in(labels))
