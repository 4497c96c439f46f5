"""Focal margin (paper 003, eq. 11), negatives focal as in its code."""

from cases import Case, Golden, log_sigmoid, sigmoid


class FocalMargin(Case):
    name = "focal-margin"
    defaults = {"margin": 1.0, "gamma": 2.0}
    variants = ({"margin": 0.5}, {"margin": 0.0, "gamma": 0.0})
    golden = (
        Golden("baselines", "Focal margin m=0.5 (focal negatives gamma=2)", {"margin": 0.5}),
        Golden("baselines", "Focal margin m=1.0 (focal negatives gamma=2)"),
    )

    def corrected(self, z: float, at: float) -> float:
        return -(sigmoid(-z) ** self.gamma) * log_sigmoid(z)

    def present(self, z: float, at: float) -> float:
        return self.corrected(z - self.margin, at)

    def absent(self, z: float, at: float) -> float:
        return self.corrected(-z, at)
