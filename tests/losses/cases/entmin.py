"""Entropy minimisation (Grandvalet and Bengio 2004, in paper 001 C.2)."""

from cases import Case, Golden
from cases.em import entropy


class EntropyMin(Case):
    name = "entmin"
    defaults = {"weight": 0.01}
    variants = ({"weight": 0.9},)
    golden = (
        Golden("baselines", "EntMin a=0.01"),
        Golden("baselines", "EntMin a=0.4", {"weight": 0.4}),
    )

    def unknown(self, z: float, at: float) -> float:
        return self.weight * entropy(z)
