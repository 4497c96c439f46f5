"""Large loss matters with permanent corrections: LL-Cp (Kim et al. 2022)."""

from fractions import Fraction

import torch

from cases import UNKNOWN, Matrix
from cases.large_loss import LargeLossCorrected
from cases.remembering import pattern, table
from halftruth import losses


class LargeLossPermanent(LargeLossCorrected):
    name = "ll-cp"
    defaults = {"delta": 0.002, "peer_rounding": False, "strict": False}
    epoch, epochs = 1, 10
    variants = ({"epoch": 0}, {"delta": 0.1, "epoch": 7}, {"delta": 1.0}, {"strict": True})
    golden = ()

    def remember(self, loss: losses.Loss, labels: torch.Tensor) -> None:
        loss.begin(labels)
        loss.memory.write(torch.arange(len(labels)), table(labels) > 0.4)

    def share(self) -> Fraction:
        return Fraction(str(self.delta)) if self.epoch else Fraction(0)

    def entries(self, logits: Matrix, labels: list[list[int]], at: Matrix) -> Matrix:
        """Entries corrected before are positive, and cannot be corrected again."""
        corrected = [
            [1 if y == UNKNOWN and pattern(n, c) > 0.4 else y for c, y in enumerate(row)]
            for n, row in enumerate(labels)
        ]
        return super().entries(logits, corrected, at)
