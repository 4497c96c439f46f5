"""Hill loss (paper 003, eq. 5 and 11; its gradient in paper 002, eq. 33)."""

from cases import Golden, Matrix, sigmoid
from cases.focal_margin import FocalMargin

BCE_POSITIVES = {"margin": 0.0, "gamma": 0.0}


class Hill(FocalMargin):
    name = "hill"
    defaults = {"lam": 1.5, "margin": 1.0, "gamma": 2.0}
    variants = ({"lam": 2.0, "margin": 0.5}, BCE_POSITIVES)
    golden = (
        Golden("hill", "default red=sum", reduction="sum"),
        Golden("hill", "default red=mean"),
        Golden("hill", "margin=0.5 gamma=2", {"margin": 0.5}, reduction="sum"),
        Golden("hill", "margin=0 gamma=0 (BCE+ / Hill-)", BCE_POSITIVES, reduction="sum"),
        Golden("gr", "hill_loss (GR repo)", BCE_POSITIVES, eps=1e-7),
        Golden("baselines", "Hill- (BCE+)", BCE_POSITIVES),
        Golden("baselines", "Hill (Focal margin+ m=1, Hill-)"),
    )

    def absent(self, z: float, at: float) -> float:
        return (self.lam - sigmoid(z)) * sigmoid(z) ** 2

    def closed_form(self, logits: Matrix, labels: list[list[int]]) -> Matrix | None:
        """For lam = 1.5 and labels that are not PRESENT, as in the paper."""
        if self.lam != 1.5 or any(y > 0 for row in labels for y in row):
            return None
        return [[3 * sigmoid(z) ** 2 * sigmoid(-z) ** 2 for z in row] for row in logits]
