"""Class-balanced rows (Cui et al. 2019, in the multi-label form of paper 000's code)."""

from cases import PRESENT, Case, Golden, Matrix, Wrapped
from cases.any_class import AnyClass
from cases.bce import BCE
from cases.focal import Focal

# The counts behind the reference values.
COUNTS = [503, 553, 553, 403, 403, 453, 303, 553, 353, 403]
COUNTS += [653, 353, 203, 453, 453, 353, 353, 403, 353, 353]


def peer(base: type[Case], alpha: float, lam: float, beta: float = 0.9999) -> Golden:
    name = f"cb {base.name} alpha={alpha} lambda={lam}"
    if beta == 0:
        name = f"cb_beta=0 {base.name} alpha={alpha:.0f} lambda={lam}"
    settings = {
        "base": lambda: AnyClass(base=base, alpha=alpha, lam=lam),
        "beta": beta,
        "counts": COUNTS,
        "negatives": 500,
        "normalizer": "labels",
    }
    # The reference casts its weights to float32.
    return Golden("anyclass", name, settings, tolerance=1e-6)


class ClassBalanced(Wrapped):
    name = "class-balanced"
    default_base = BCE
    needed = {"counts": [40, 3, 0, 700, 12], "negatives": 90}
    defaults = {"beta": 0.9999, "normalizer": "mean"}
    variants = ({"beta": 0.9}, {"beta": 0.0, "normalizer": "labels"}, {"base": AnyClass})
    golden = (
        peer(BCE, 0.0, 0.0),
        peer(BCE, 0.1, 0.02),
        peer(BCE, 1.0, 0.1),
        peer(Focal, 0.1, 0.0),
        peer(Focal, 1.0, 0.1),
        peer(Focal, 1.0, 1.0),
        peer(BCE, 1.0, 0.1, beta=0),
    )

    def class_weights(self) -> list[float]:
        """One weight per class and a last one for empty rows; their sum is their number."""
        counts = [*self.counts, self.negatives]
        raw = [(1 - self.beta) / (1 - self.beta**n) if n else 0.0 for n in counts]
        seen = sum(n > 0 for n in counts)
        # A class that never occurs has no weight to scale: 1, and it is never used.
        return [w * seen / sum(raw) if n else 1.0 for w, n in zip(raw, counts, strict=True)]

    def rows(self, logits: Matrix, labels: list[list[int]], at: Matrix) -> list[float]:
        weights = self.class_weights()
        totals = self.base.rows(logits, labels, at)
        for n, y in enumerate(labels):
            own = [weights[c] for c, label in enumerate(y) if label == PRESENT]
            totals[n] *= sum(own) if own else weights[-1]
        return totals

    def entries(self, logits: Matrix, labels: list[list[int]], at: Matrix) -> Matrix:
        weights = self.class_weights()
        values = self.base.entries(logits, labels, at)
        for n, y in enumerate(labels):
            own = [weights[c] for c, label in enumerate(y) if label == PRESENT]
            values[n] = [v * (sum(own) if own else weights[-1]) for v in values[n]]
        return values

    def divisor(self, labels: list[list[int]]) -> float:
        if self.normalizer == "labels":
            return sum(max(y.count(PRESENT), 1) for y in labels)
        return super().divisor(labels)
