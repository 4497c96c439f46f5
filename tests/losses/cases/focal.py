"""Focal loss (Lin et al. 2017; paper 003, eq. 3)."""

from cases import Case, Golden, log_sigmoid, sigmoid


class Focal(Case):
    name = "focal"
    defaults = {"gamma": 2.0, "alpha": None}
    variants = ({"gamma": 0.0}, {"gamma": 1.5, "alpha": 0.75}, {"gamma": 5.0})
    golden = (
        Golden("asl", "Focal(2,2,0) detach_focal=False", reduction="sum"),
        Golden("baselines", "FAN focal gamma=2"),
        Golden(
            "baselines",
            "Focal gamma=2 alpha=0.75 (alpha on positives, 1-alpha on negatives)",
            {"alpha": 0.75},
        ),
    )

    def present(self, z: float, at: float) -> float:
        share = 1.0 if self.alpha is None else self.alpha
        return -share * sigmoid(-z) ** self.gamma * log_sigmoid(z)

    def absent(self, z: float, at: float) -> float:
        share = 1.0 if self.alpha is None else 1 - self.alpha
        return -share * sigmoid(z) ** self.gamma * log_sigmoid(-z)
