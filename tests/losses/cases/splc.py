"""Self-paced loss correction (paper 003, eq. 10), margins as in its code."""

from cases import UNKNOWN, Golden, Matrix, Wrapped, sigmoid
from cases.asl import ASL
from cases.bce import BCE
from cases.focal import Focal
from cases.focal_margin import FocalMargin
from cases.hill import Hill


class SPLC(Wrapped):
    name = "splc"
    default_base = FocalMargin
    defaults = {"tau": 0.6, "start": 1, "margin_on_corrected": False}
    epoch, epochs = 1, 10
    variants = (
        {"epoch": 0},
        {"epoch": 2, "start": 3},
        {"epoch": 3, "start": 3, "tau": 0.65},
        {"margin_on_corrected": True},
        {"start": 0, "epoch": 0, "tau": 0.3},
        {"tau": [0.3, 0.9, 0.5, 0.0, 1.0]},
    )
    golden = (
        Golden("splc", "default epoch=0 red=sum", {"epoch": 0}, "sum"),
        Golden("splc", "default epoch=1 red=sum", {}, "sum"),
        Golden("splc", "default epoch=1 red=mean"),
        Golden("splc", "default epoch=5 red=sum", {"epoch": 5}, "sum"),
        Golden("splc", "tau=0.65 epoch=1", {"tau": 0.65}, "sum"),
        Golden("splc", "BCE+SPLC (margin=0,gamma=0) epoch=1", {"base": BCE}, "sum"),
        Golden("splc", "Focal+SPLC (margin=0,gamma=2) epoch=1", {"base": Focal}, "sum"),
        Golden("splc", "change_epoch=3, epoch=2", {"start": 3, "epoch": 2}, "sum"),
        Golden("splc", "change_epoch=3, epoch=3", {"start": 3, "epoch": 3}, "sum"),
        Golden(
            "baselines",
            "SPLC eq.10 Focal margin incl. margin on corrected labels tau=0.6",
            {"margin_on_corrected": True},
        ),
        Golden("baselines", "SPLC ASL(0,4,.05) tau=0.6", {"base": ASL}),
        Golden(
            "baselines",
            "SPLC pos=Focal margin neg=Hill (GR paper Table 1 reading) tau=0.6",
            {"base": Hill, "margin_on_corrected": True},
        ),
    )

    def entries(self, logits: Matrix, labels: list[list[int]], at: Matrix) -> Matrix:
        values = self.base.entries(logits, labels, at)
        there = self.base.present if self.margin_on_corrected else self.base.corrected
        if self.epoch >= self.start:
            for n, row in enumerate(labels):
                for c, y in enumerate(row):
                    tau = self.tau[c] if isinstance(self.tau, list) else self.tau
                    if y == UNKNOWN and sigmoid(at[n][c]) > tau:
                        values[n][c] = there(logits[n][c], at[n][c])
        return values

    def rows(self, logits: Matrix, labels: list[list[int]], at: Matrix) -> list[float]:
        return [sum(row) for row in self.entries(logits, labels, at)]
