"""Large loss matters: LL-R and LL-Ct (Kim et al. 2022), counted as in its code."""

import math
from fractions import Fraction

from cases import UNKNOWN, Case, Golden, Matrix


def published(method: str, *epochs: int, delta: float = 0.005, file: str = "ll") -> list[Golden]:
    # The code computes the cost of a corrected entry in float32.
    tolerance = 1e-12 if method == "LL-R" else 1e-7
    return [
        Golden(
            file,
            f"{method} delta={delta} epoch={epoch}",
            {"delta": delta, "epoch": epoch - 1, "peer_rounding": True},
            tolerance=tolerance,
        )
        for epoch in epochs
    ]


def observed_negatives(method: str) -> Golden:
    settings = {"delta": 0.02, "epoch": 4}
    # These were computed in float32.
    return Golden("ll", f"obsneg/{method}", settings, labels="obsneg", tolerance=1e-6)


class LargeLossRejected(Case):
    name = "ll-r"
    defaults = {"delta": 0.002, "peer_rounding": False}
    variants = (
        {"delta": 0.03, "epoch": 3},
        {"delta": 0.1, "epoch": 9},
        {"delta": 0.02, "epoch": 9, "peer_rounding": True},
        {"delta": 1.0, "epoch": 5},
    )
    golden = (
        *published("LL-R", 1, 2, 5, 10),
        *published("LL-R", 2, 10, delta=0.02),
        *published("LL-R", 5, file="ll_boostlu"),
        observed_negatives("LL-R"),
    )

    def instead(self, z: float, at: float) -> float:
        return 0.0

    def share(self) -> float | Fraction:
        if self.peer_rounding:
            clean = 1.0
            for _ in range(self.epoch):
                clean = clean - self.delta
            return 1 - clean
        return Fraction(str(self.delta)) * self.epoch

    def entries(self, logits: Matrix, labels: list[list[int]], at: Matrix) -> Matrix:
        values = super().entries(logits, labels, at)
        open_ = [
            (at[n][c], n, c)
            for n, row in enumerate(labels)
            for c, y in enumerate(row)
            if y == UNKNOWN
        ]
        count = math.ceil(len(labels) * len(labels[0]) * self.share())
        largest = sorted((self.absent(z, z) for z, _, _ in open_), reverse=True)[:count]
        for z, n, c in open_:
            if largest and self.absent(z, z) >= largest[-1]:
                values[n][c] = self.instead(logits[n][c], z)
        return values


class LargeLossCorrected(LargeLossRejected):
    name = "ll-ct"
    golden = (
        *published("LL-Ct", 1, 2, 5, 10),
        *published("LL-Ct", 2, 10, delta=0.02),
        *published("LL-Ct", 5, delta=0.002, file="ll_boostlu"),
        observed_negatives("LL-Ct"),
    )

    def instead(self, z: float, at: float) -> float:
        return self.present(z, at)
