"""Weak assume negative (Cole et al. 2021), DW with a free weight (paper 001 C.2)."""

from cases import Case, Golden


class WeakNegative(Case):
    name = "wan"
    defaults = {"weight": None}
    variants = ({"weight": 0.1}, {"weight": 0.0})
    golden = (
        Golden("cole", "cole_wan/default(1/(K-1))", eps=1e-5),
        Golden("baselines", "WAN 1/(K-1)"),
        Golden("baselines", "DW w=0.1", {"weight": 0.1}),
        Golden("baselines", "DW w=0.02", {"weight": 0.02}),
    )

    def unknown(self, z: float, at: float) -> float:
        if self.weight is None:
            # One positive against K - 1 others; with a single class there is nothing to balance.
            return self.absent(z, at) / (self.classes - 1 if self.classes > 1 else 1)
        return self.weight * self.absent(z, at)
