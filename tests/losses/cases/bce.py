"""Cross-entropy over assumed negatives (Cole et al. 2021; paper 001, eq. 1-2 and 9-10)."""

from cases import PRESENT, UNKNOWN, Case, Golden, Matrix, sigmoid


class BCE(Case):
    name = "bce"
    variants = ({"unknown": "ignore"},)
    golden = (
        Golden("cole", "cole_an/default", eps=1e-5),
        Golden("cole", "cole_bce/default", eps=1e-5),
        Golden("cole", "cole_iu/default", {"unknown": "ignore"}, eps=1e-5, labels="cole_iu"),
        Golden("cole", "cole_iun/intended", {"unknown": "ignore"}, eps=1e-5, labels="iun"),
        Golden("cole", "em_iun/true==0", {"unknown": "ignore"}, eps=1e-5, labels="iun"),
        Golden("gr", "EPR_loss (GR repo)", {"unknown": "ignore"}, eps=1e-7),
        Golden("asl", "BCE(0,0,0) detach_focal=True", reduction="sum"),
        Golden("baselines", "AN/BCE"),
    )

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)
        self.ignored = settings.get("unknown") == "ignore"

    def unknown(self, z: float, at: float) -> float:
        return 0.0 if self.ignored else self.absent(z, at)

    def closed_form(self, logits: Matrix, labels: list[list[int]]) -> Matrix:
        def slope(z: float, y: int) -> float:
            if y == PRESENT:
                return sigmoid(z) - 1  # paper 001, eq. 9
            return 0.0 if y == UNKNOWN and self.ignored else sigmoid(z)  # eq. 10

        return [
            [slope(z, y) for z, y in zip(*row, strict=True)]
            for row in zip(logits, labels, strict=True)
        ]
