"""The first stage of LAGC (Xie et al. 2022): a second view follows sure predictions."""

from cases import ABSENT, PRESENT, Case, Matrix, log_sigmoid, sigmoid


class LAGC(Case):
    name = "lagc"
    defaults = {"weight": 1.0, "tau": 0.6}
    variants = ({"weight": 0.3, "tau": 0.9}, {"tau": 0.5}, {"weight": 0.0})
    views = 2
    has_constants = True

    def mean(self, logits, labels, at=None):
        self.at = (logits if at is None else at)[0]
        return super().mean(logits, labels, at)

    def added_term(self, logits: list[Matrix], labels: list[list[int]]) -> float:
        costs = []
        fixed = getattr(self, "at", logits[0])
        for first, second, row in zip(fixed, logits[1], labels, strict=True):
            for z, other, y in zip(first, second, row, strict=True):
                sure = sigmoid(z) + (y == PRESENT)
                if sure >= self.tau and y != ABSENT:
                    costs.append(-log_sigmoid(other))
                elif sure < 1 - self.tau or y == ABSENT:
                    costs.append(-log_sigmoid(-other))
        return self.weight * sum(costs) / max(len(costs), 1)
