"""Unknown labels weighted by the share of present labels that are annotated in the row."""

from cases import PRESENT, UNKNOWN, Case, Matrix, sigmoid


class Swan(Case):
    name = "swan"
    defaults = {"weight": None, "propensity": None}
    variants = ({"weight": 0.1},)

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)
        self.has_constants = self.weight is None

    def share(self, y: list[int], at: list[float]) -> float:
        if self.weight is not None:
            return self.weight
        shown = y.count(PRESENT) + 1
        more = sum(sigmoid(a) for a, label in zip(at, y, strict=True) if label == UNKNOWN)
        return shown / (shown + more)

    def entries(self, logits: Matrix, labels: list[list[int]], at: Matrix) -> Matrix:
        costs = super().entries(logits, labels, at)
        for y, a, cost in zip(labels, at, costs, strict=True):
            share = self.share(y, a)
            cost[:] = [
                c * share if label == UNKNOWN else c for c, label in zip(cost, y, strict=True)
            ]
        return costs
