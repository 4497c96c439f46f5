"""Pairwise ranking (Cole et al. 2021), pair by pair."""

from cases import PRESENT, Case, Golden, Matrix, sigmoid


class PairwiseRanking(Case):
    name = "pr"
    coupled = True
    golden = (Golden("cole", "cole_pr/default"),)

    def rows(self, logits: Matrix, labels: list[list[int]], at: Matrix) -> list[float]:
        totals = []
        for z, y in zip(logits, labels, strict=True):
            total = 0.0
            for i in range(len(y)):
                for j in range(len(y)):
                    if y[i] == PRESENT and y[j] != PRESENT:
                        total += max(0.0, 1 - sigmoid(z[i]) + sigmoid(z[j]))
            totals.append(total)
        return totals
