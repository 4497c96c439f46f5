"""Any-class presence (paper 000, eq. 18-24)."""

from cases import ABSENT, PRESENT, Golden, Matrix, Wrapped, sigmoid
from cases.bce import BCE
from cases.focal import Focal


def paper(variant: str, **settings: object) -> Golden:
    return Golden("anyclass_paper", variant, settings, reduction="batch")


class AnyClass(Wrapped):
    name = "any-class"
    default_base = BCE
    defaults = {"alpha": 1.0, "lam": 0.1, "empty_rows": "all", "normalizer": "mean"}
    variants = (
        {"alpha": 0.5, "lam": 0.0},
        {"lam": 1.0, "normalizer": "labels"},
        {"empty_rows": "verified"},
        {"base": Focal},
    )
    golden = (
        paper("bce alpha=1.0 lambda=0.0", lam=0.0),
        paper("bce alpha=1.0 lambda=0.1"),
        paper("bce alpha=1.0 lambda=1.0", lam=1.0),
        paper("bce alpha=0.5 lambda=0.1", alpha=0.5),
        paper("focal alpha=1.0 lambda=0.1", base=Focal),
        paper("focal alpha=0.5 lambda=0.1", base=Focal, alpha=0.5),
    )

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)
        self.coupled = True

    def weights(self, y: list[int]) -> list[float]:
        if PRESENT not in y:
            return [1.0] * len(y)
        return [1.0 if label == PRESENT else self.lam for label in y]

    def synthesized(self, z: list[float], y: list[int]) -> float:
        """z*, the weighted mean of a row's logits (eq. 22)."""
        w = self.weights(y)
        return sum(a * b for a, b in zip(w, z, strict=True)) / sum(w)

    def counts(self, y: list[int]) -> bool:
        verified = all(label == ABSENT for label in y)
        return PRESENT in y or self.empty_rows == "all" or verified

    def rows(self, logits: Matrix, labels: list[list[int]], at: Matrix) -> list[float]:
        totals = self.base.rows(logits, labels, at)
        for n, y in enumerate(labels):
            if self.counts(y):
                curve = self.base.present if PRESENT in y else self.base.absent
                z, a = self.synthesized(logits[n], y), self.synthesized(at[n], y)
                totals[n] += self.alpha * curve(z, a)
        return totals

    def divisor(self, labels: list[list[int]]) -> float:
        if self.normalizer == "labels":
            return sum(max(y.count(PRESENT), 1) for y in labels)
        return super().divisor(labels)

    def closed_form(self, logits: Matrix, labels: list[list[int]]) -> Matrix | None:
        """Eq. 20, 21 and 24, for a cross-entropy base."""
        if type(self.base) is not BCE:
            return None
        slopes = self.base.closed_form(logits, labels)
        for n, y in enumerate(labels):
            if self.counts(y):
                w = self.weights(y)
                error = sigmoid(self.synthesized(logits[n], y)) - (PRESENT in y)
                for c in range(len(y)):
                    slopes[n][c] += self.alpha * w[c] / sum(w) * error
        return slopes
