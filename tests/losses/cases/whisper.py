"""Weak negatives of weight 1/sqrt(2K): our own default (docs/auto.md)."""

from cases import Case


class Whisper(Case):
    name = "whisper"
    defaults = {"weight": None}
    variants = ({"weight": 0.1},)

    def unknown(self, z: float, at: float) -> float:
        weight = (2 * self.classes) ** -0.5 if self.weight is None else self.weight
        return weight * self.absent(z, at)
