"""Consistency over views (paper 004, eq. 7-8), pair by pair."""

from cases import Matrix, Wrapped, sigmoid
from cases.epr import EPR
from cases.las import LASD


class Consistency(Wrapped):
    name = "consistency"
    default_base = LASD
    defaults = {"weight": None}
    variants = ({"weight": 0.7}, {"views": 2}, {"base": EPR}, {"weight": 0.0})

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)
        self.views = settings.get("views", 3)

    def added_term(self, logits: list[Matrix], labels: list[list[int]]) -> float:
        total = 0.0
        for i in range(len(logits)):
            for j in range(i + 1, len(logits)):
                for a, b in zip(logits[i], logits[j], strict=True):
                    total += sum((sigmoid(x) - sigmoid(y)) ** 2 for x, y in zip(a, b, strict=True))
        entries = len(labels) * len(labels[0])
        weight = 10 / len(labels[0]) if self.weight is None else self.weight
        return weight * total / entries + self.base.added_term(logits[0], labels)
