"""Asymmetric loss (Ridnik et al. 2021; paper 003, eq. 4, with the margin on negatives only)."""

import math

from cases import Case, Golden, log_sigmoid, sigmoid


def detached(**settings: float) -> dict[str, float]:
    return {**settings, "detach_weight": True}


class ASL(Case):
    name = "asl"
    defaults = {"gamma_pos": 0.0, "gamma_neg": 4.0, "margin": 0.05, "detach_weight": False}
    variants = (
        {"detach_weight": True, "gamma_pos": 1.0},
        {"gamma_neg": 2.0, "margin": 0.2},
        {"gamma_neg": 1.0, "margin": 0.0},
        {"gamma_neg": 0.0, "margin": 0.3},
        {"gamma_neg": 0.5, "margin": 0.1, "gamma_pos": 0.5},
        {"gamma_neg": 2.0, "gamma_pos": 2.0, "margin": 0.0, "detach_weight": True},
    )
    golden = tuple(
        Golden("asl", variant, settings, "sum")
        for variant, settings in {
            "default(4,1,.05) detach_focal=True": detached(gamma_pos=1.0),
            "default(4,1,.05) detach_focal=False": {"gamma_pos": 1.0},
            "Optimized default(4,1,.05) detach_focal=False(default)": {"gamma_pos": 1.0},
            "coco train.py(4,0,.05)=ASL-PS detach_focal=True": detached(),
            "coco train.py(4,0,.05)=ASL-PS detach_focal=False": {},
            "ASL no clip(4,0,0) detach_focal=True": detached(margin=0.0),
            "ASL no clip(4,0,0) detach_focal=False": {"margin": 0.0},
            "Focal(2,2,0) detach_focal=True": detached(gamma_pos=2.0, gamma_neg=2.0, margin=0.0),
            "EM paper VOC/COCO/NUS(2,0,.2) detach_focal=True": detached(gamma_neg=2.0, margin=0.2),
            "EM paper VOC/COCO/NUS(2,0,.2) detach_focal=False": {"gamma_neg": 2.0, "margin": 0.2},
            "EM paper CUB(1,0,0) detach_focal=False": {"gamma_neg": 1.0, "margin": 0.0},
            "robust/Asl": detached(),
        }.items()
    ) + (
        Golden("baselines", "ASL-PS g+=0 g-=4 m=0.05 (weight in graph, no eps)"),
        Golden(
            "baselines",
            "ASL-PS g+=0 g-=2 m=0.2 (weight in graph, no eps)",
            {"gamma_neg": 2.0, "margin": 0.2},
        ),
    )

    @property
    def has_constants(self) -> bool:
        return self.detach_weight

    def present(self, z: float, at: float) -> float:
        focus = at if self.detach_weight else z
        return -(sigmoid(-focus) ** self.gamma_pos) * log_sigmoid(z)

    def absent(self, z: float, at: float) -> float:
        focus = at if self.detach_weight else z
        shifted = max(sigmoid(z) - self.margin, 0.0)
        return -(max(sigmoid(focus) - self.margin, 0.0) ** self.gamma_neg) * math.log1p(-shifted)
