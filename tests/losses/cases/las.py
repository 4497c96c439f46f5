"""Leveraged asymmetric losses (paper 004, eq. 4-6 and Theorem 5.4)."""

from cases import Case, Golden, log_sigmoid, sigmoid


class LAS(Case):
    name = "las"
    defaults = {"lam": None, "gamma_pos": 0.0, "gamma_neg": 4.0}
    variants = ({"lam": 0.05}, {"lam": 1.0}, {"lam": 0.5, "gamma_pos": 1.0, "gamma_neg": 2.0})
    golden = (
        Golden("lasd", "LAS lambda=0.05 g+=0 g-=4", {"lam": 0.05}),
        Golden("lasd", "LAS lambda=1.0 g+=0 g-=4", {"lam": 1.0}),
    )

    def present(self, z: float, at: float) -> float:
        return -(sigmoid(-z) ** self.gamma_pos) * log_sigmoid(z)

    def absent(self, z: float, at: float) -> float:
        return -(sigmoid(z) ** self.gamma_neg) * log_sigmoid(-z)

    def unknown(self, z: float, at: float) -> float:
        lam = 1 / max(self.classes - 1, 1) if self.lam is None else self.lam
        return lam * self.absent(z, at)


class LASD(LAS):
    name = "lasd"
    defaults = {
        "expected_positives": None,
        "lam_pos": 0.1,
        "lam_neg": None,
        "tau": 0.9,
        "gamma_pos": 0.0,
        "gamma_neg": 4.0,
    }
    variants = (
        {"expected_positives": 1.46, "tau": 0.6},
        {"lam_pos": 1.0, "lam_neg": 1.0, "tau": 0.6, "gamma_pos": 2.0, "gamma_neg": 2.0},
        {"tau": 1.0},
        {"tau": 0.0, "lam_neg": 0.0},
    )
    golden = (
        Golden(
            "lasd",
            "LASD VOC12 tau=0.9 l+=0.1 l-=0.056419",
            {"expected_positives": 1.46},
        ),
        Golden(
            "lasd",
            "LASD NUS tau=0.95 l+=0.015 l-=0.012809",
            {"tau": 0.95, "lam_pos": 0.015, "lam_neg": 0.012809379345215522},
        ),
        Golden(
            "lasd",
            "LASD reduces to focal-SPLC-like tau=.6 l+=l-=1 g+=2 g-=2",
            {"tau": 0.6, "lam_pos": 1.0, "lam_neg": 1.0, "gamma_pos": 2.0, "gamma_neg": 2.0},
        ),
    )

    def balanced(self) -> float:
        if self.lam_neg is not None:
            return self.lam_neg
        y = 1.0 if self.expected_positives is None else self.expected_positives
        if self.classes == 1:
            return 1.0
        return (1 + self.lam_pos * (y - 1)) / (self.classes - y)

    def unknown(self, z: float, at: float) -> float:
        if sigmoid(at) > self.tau:
            return self.lam_pos * self.present(z, at)
        return self.balanced() * self.absent(z, at)
