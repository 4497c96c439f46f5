"""Generalised robust loss (paper 002, eq. 5, 7, 9-14 and 18)."""

import math

from cases import UNKNOWN, Case, Golden, Matrix, log_sigmoid, sigmoid

COCO = {"w": (0.0, 10.0), "b": (-2.0, -8.0)}
CUB = {**COCO, "q3": 1.5}


def at_end(w: float, b: float, **more: float) -> dict[str, object]:
    """The last point of the schedule, which training stops one epoch short of."""
    spans = {"w": (w, w), "b": (b, b), "mu": (0.8, 0.8), "sigma": (0.5, 0.5)}
    return {**spans, **more}


def peer(variant: str, settings: dict, epoch: int, epochs: int) -> Golden:
    place = {"epoch": epoch, "epochs": epochs}
    return Golden("gr", variant, {**settings, **place}, eps=1e-7)


def paper(variant: str, settings: dict, epoch: int, epochs: int) -> Golden:
    settings = {**settings, "q1": 0.01, "epoch": epoch, "epochs": epochs}
    return Golden("gr_paper", variant, settings)


def code(settings: dict) -> dict:
    return {**settings, "schedule": "code"}


class GR(Case):
    name = "gr"
    defaults = {
        "w": (0.0, 2.0),
        "b": (-2.0, -2.0),
        "mu": (0.5, 0.8),
        "sigma": (2.0, 0.5),
        "q1": None,
        "q2": 0.01,
        "q3": 1.0,
        "schedule": "paper",
        "trainable": False,
    }
    epoch, epochs = 3, 8
    has_constants = True
    variants = (
        {"epoch": 0},
        {"epoch": 7},
        {"epoch": 5, "schedule": "code", **CUB},
        {"q1": 0.01, "q2": 0.7, "q3": 0.5, **COCO},
        {"q2": 1.0, "q3": 0.0},
        {"q1": (0.5, 0.0), "q2": (0.0, 0.4), "q3": (0.5, 1.5)},
        {"trainable": True, "w": (3.0, 9.0)},
    )
    golden = (
        peer("pascal/code epoch=1", code({}), 0, 8),
        peer("pascal/code epoch=4", code({}), 3, 8),
        peer("pascal/code epoch=8", code({}), 7, 8),
        peer("pascal/paper t=0", {}, 0, 8),
        peer("pascal/paper t=4", {}, 4, 8),
        peer("pascal/paper t=8", at_end(2.0, -2.0), 0, 8),
        peer("coco(paper wT,bT; code w0,b0)/code epoch=4", code(COCO), 3, 8),
        peer("coco(paper wT,bT; code w0,b0)/code epoch=8", code(COCO), 7, 8),
        peer("coco(paper wT,bT; code w0,b0)/paper t=4", COCO, 4, 8),
        peer("coco(paper wT,bT; code w0,b0)/paper t=8", at_end(10.0, -8.0), 0, 8),
        peer("cub(paper)/code epoch=5", code(CUB), 4, 10),
        peer("cub(paper)/paper t=5", CUB, 5, 10),
        peer("cub(paper)/paper t=10", at_end(10.0, -8.0, q3=1.5), 0, 10),
        peer("q1-like: q2=q3=0.01, w=0,b=-2", {"q3": 0.01}, 0, 8),
        paper("pascal/t=0", {}, 0, 8),
        paper("pascal/t=4", {}, 4, 8),
        paper("coco(paper wT,bT; code w0,b0)/t=8", at_end(10.0, -8.0), 0, 8),
        paper("cub(paper)/t=5", CUB, 5, 10),
    )

    def place(self, name: str) -> float:
        given = getattr(self, name)
        start, end = given if isinstance(given, tuple) else (given or 0.0, given or 0.0)
        # Trained numbers stay at their start until an optimiser moves them.
        t = 0 if self.trainable and name in ("w", "b", "mu", "sigma") else self.epoch
        if self.schedule == "code" and name in ("mu", "sigma"):
            t += 1  # counted from 1, and not shifted back as w and b are
        return start + (end - start) * t / self.epochs

    def k(self, at: float) -> float:
        return sigmoid(self.place("w") * sigmoid(at) + self.place("b"))

    def v(self, at: float) -> float:
        off = sigmoid(at) - self.place("mu")
        return math.exp(-(off**2) / (2 * self.place("sigma") ** 2))

    @staticmethod
    def robust(z: float, q: float | None) -> float:
        return -math.expm1(q * log_sigmoid(z)) / q if q else -log_sigmoid(z)

    def present(self, z: float, at: float) -> float:
        return self.robust(z, self.place("q1"))

    def unknown(self, z: float, at: float) -> float:
        there = self.robust(z, self.place("q2"))
        not_there = self.robust(-z, self.place("q3"))
        return self.v(at) * (self.k(at) * there + (1 - self.k(at)) * not_there)

    def closed_form(self, logits: Matrix, labels: list[list[int]]) -> Matrix | None:
        """Eq. 18 times the constant v: for UNKNOWN entries."""
        if any(y != UNKNOWN for row in labels for y in row):
            return None

        def slope(z: float) -> float:
            p, q, k = sigmoid(z), sigmoid(-z), self.k(z)
            q2, q3 = self.place("q2"), self.place("q3")
            return self.v(z) * ((1 - k) * q**q3 * p - k * p**q2 * q)

        return [[slope(z) for z in row] for row in logits]
