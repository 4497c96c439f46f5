"""Expected positive regularisation (Cole et al. 2021)."""

from cases import Case, Golden, Matrix, sigmoid


class EPR(Case):
    name = "epr"
    needed = {"expected_positives": 1.5}
    defaults = {"weight": 1.0, "positive_sum": False}
    variants = ({"expected_positives": 3.0, "weight": 2.5}, {"positive_sum": True})
    golden = (
        Golden("cole", "cole_epr/k=3.0", {"expected_positives": 3.0}, eps=1e-5),
        Golden("cole", "cole_epr/k=1.5", eps=1e-5),
    )

    def unknown(self, z: float, at: float) -> float:
        return 0.0

    def added_term(self, logits: Matrix, labels: list[list[int]]) -> float:
        counted = sum(sigmoid(z) for row in logits for z in row) / len(logits)
        width = len(labels[0])
        term = self.weight * (counted - self.expected_positives) ** 2 / width**2
        # The paper's positive term is a sum over classes: in units of the mean, K times heavier.
        return term / width if self.positive_sum else term
