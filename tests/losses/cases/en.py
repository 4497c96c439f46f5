"""Expected negatives (Verelst et al. 2023, as paper 002, eq. 20, restates it)."""

import torch

from cases import PRESENT, UNKNOWN, Case, Matrix
from cases.remembering import pattern, table
from halftruth import losses


class ExpectedNegative(Case):
    name = "en"
    needed = {"expected_positives": 0.8}
    defaults = {"decay": 0.8}
    variants = ({"expected_positives": 2.5}, {"expected_positives": 0.0}, {"epoch": 3})

    def remember(self, loss: losses.Loss, labels: torch.Tensor) -> None:
        loss.begin(labels)
        loss.memory.write(torch.arange(len(labels)), table(labels))
        loss.end_epoch()

    def unknown(self, z: float, at: float) -> float:
        return 0.0

    def negatives(self, labels: list[list[int]], c: int) -> list[int]:
        """The rows of a class that count as negative: N − N_c of them, by average, then by row."""
        rows = len(labels)
        counts = [sum(row[k] == PRESENT for row in labels) for k in range(len(labels[0]))]
        share = counts[c] / max(sum(counts), 1)
        positives = min(round(rows * self.expected_positives * share), rows)
        return sorted(range(rows), key=lambda n: (pattern(n, c), n))[: rows - positives]

    def entries(self, logits: Matrix, labels: list[list[int]], at: Matrix) -> Matrix:
        values = super().entries(logits, labels, at)
        for c in range(len(labels[0])):
            for n in self.negatives(labels, c):
                if labels[n][c] == UNKNOWN:
                    values[n][c] = self.absent(logits[n][c], at[n][c])
        return values
