"""Label smoothing: AN-LS in the form of Cole's code, N-LS of paper 001 C.2."""

from cases import Case, Golden, log_sigmoid

LS = "LS target-smoothing coef={} (targets 1-coef / coef; Cole code form)"


class LabelSmoothing(Case):
    name = "an-ls"
    defaults = {"smoothing": 0.1, "sides": "both", "halve": False}
    variants = ({"smoothing": 0.3}, {"sides": "negative"}, {"smoothing": 0.4, "halve": True})
    golden = (
        Golden("cole", "cole_an_ls/ls=0.1", {"smoothing": 0.1}, eps=1e-5),
        Golden("cole", "cole_an_ls/ls=0.2", {"smoothing": 0.2}, eps=1e-5),
        Golden("cole", "cole_bce_ls/ls=0.1", {"smoothing": 0.1}, eps=1e-5),
        Golden("baselines", LS.format(0.1)),
        Golden("baselines", LS.format(0.3), {"smoothing": 0.3}),
        Golden("baselines", "LS eps/2 form eps=0.1 (paper form)", {"halve": True}),
        Golden("baselines", "N-LS coef=0.3", {"sides": "negative", "smoothing": 0.3}),
        Golden(
            "baselines",
            "N-LS eps/2 form eps=0.3",
            {"sides": "negative", "smoothing": 0.3, "halve": True},
        ),
    )

    def smoothed(self, z: float, target: float) -> float:
        return -target * log_sigmoid(z) - (1 - target) * log_sigmoid(-z)

    @property
    def off(self) -> float:
        return self.smoothing / 2 if self.halve else self.smoothing

    def present(self, z: float, at: float) -> float:
        return self.smoothed(z, 1.0 if self.sides == "negative" else 1 - self.off)

    def absent(self, z: float, at: float) -> float:
        return self.smoothed(z, self.off)
