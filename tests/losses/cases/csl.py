"""Partial ASL (Ben-Baruch et al. 2022): focal curves per kind of label, likely ones left out."""

import math

from cases import UNKNOWN, Case, Matrix, log_sigmoid, sigmoid


class CSL(Case):
    name = "csl"
    defaults = {
        "unknown": "selective",
        "top": 5.0,
        "prior": None,
        "prior_limit": 0.05,
        "gamma_pos": 0.0,
        "gamma_neg": 1.0,
        "gamma_unknown": 2.0,
        "alpha": 1.0,
    }
    has_constants = True
    variants = (
        {"top": 0.4},
        {"unknown": "negative", "gamma_unknown": 4.0, "alpha": 0.3},
        {"unknown": "ignore"},
        {"top": 0.0, "gamma_pos": 1.0, "gamma_neg": 2.0},
    )

    def present(self, z: float, at: float) -> float:
        return -(sigmoid(-z) ** self.gamma_pos) * log_sigmoid(z)

    def absent(self, z: float, at: float) -> float:
        return -(sigmoid(z) ** self.gamma_neg) * log_sigmoid(-z)

    def unknown(self, z: float, at: float) -> float:
        if self.settings.get("unknown") == "ignore":
            return 0.0
        return -self.alpha * sigmoid(z) ** self.gamma_unknown * log_sigmoid(-z)

    def entries(self, logits: Matrix, labels: list[list[int]], at: Matrix) -> Matrix:
        costs = super().entries(logits, labels, at)
        if self.settings.get("unknown", "selective") != "selective":
            return costs
        places = [(n, c) for n, row in enumerate(labels) for c, y in enumerate(row) if y == UNKNOWN]
        likely = sorted(places, key=lambda place: -at[place[0]][place[1]])
        for n, c in likely[: math.ceil(self.top * len(labels))]:
            costs[n][c] = 0.0
        for n, c in places:
            if self.prior is not None and self.prior[c] > self.prior_limit:
                costs[n][c] = 0.0
        return costs
