"""The general loss of paper 002 (eq. 4-5), with the rows of its Table 1."""

import math

from cases import Case, sigmoid
from cases.bce import BCE
from cases.em import EM
from cases.focal import Focal
from cases.focal_margin import FocalMargin
from cases.hill import Hill
from cases.noise_robust import GCE, MSE

PARTS = {case.name: case for case in (BCE, EM, Focal, FocalMargin, GCE, Hill, MSE)}


class Unified(Case):
    name = "unified"
    defaults = {"positive": "bce", "negative": "bce", "corrected": None, "k": 0.0, "v": 1.0}
    epoch, epochs = 4, 8
    has_constants = True
    variants = (
        {"positive": "focal-margin"},
        {"negative": "mse"},
        {"negative": {"name": "hill", "lam": 1.4}, "k": 0.25, "v": 0.5},
        {"corrected": {"name": "em", "alpha": 0.2, "curve": "unknown"}, "k": 1.0},
        {"k": {"above": 0.6}, "positive": "focal-margin", "negative": "hill"},
        {"v": {"above": 0.7, "low": 1.0, "high": 0.0}},
        {
            "positive": {"name": "gce", "q": 0.01},
            "negative": {"name": "gce", "q": 1.0},
            "k": {"w": (0.0, 10.0), "b": (-2.0, -8.0)},
            "v": {"mu": (0.5, 0.8), "sigma": (2.0, 0.5)},
        },
        {"k": {"above": (0.9, 0.5)}, "v": (1.0, 0.2), "epoch": 6},
    )

    def cost(self, part: str, z: float, at: float) -> float:
        chosen = {**self.defaults, **self.settings}
        what = chosen["positive"] if chosen[part] is None else chosen[part]
        given = {"name": what} if isinstance(what, str) else dict(what)
        curve = given.pop("curve", "absent" if part == "negative" else "present")
        return getattr(PARTS[given.pop("name")](**given), curve)(z, at)

    def now(self, given: object) -> float:
        start, end = given if isinstance(given, tuple) else (given, given)
        return start + (end - start) * self.epoch / self.epochs

    def share(self, p: float) -> float:
        if not isinstance(self.k, dict):
            return self.now(self.k)
        if "above" in self.k:
            return float(p > self.now(self.k["above"]))
        return sigmoid(self.now(self.k["w"]) * p + self.now(self.k["b"]))

    def weight(self, p: float) -> float:
        if not isinstance(self.v, dict):
            return self.now(self.v)
        if "above" in self.v:
            return self.now(self.v["high" if p > self.now(self.v["above"]) else "low"])
        off = p - self.now(self.v["mu"])
        return math.exp(-(off**2) / (2 * self.now(self.v["sigma"]) ** 2))

    def present(self, z: float, at: float) -> float:
        return self.cost("positive", z, at)

    def corrected(self, z: float, at: float) -> float:
        return self.cost("corrected", z, at)

    def absent(self, z: float, at: float) -> float:
        return self.cost("negative", z, at)

    def unknown(self, z: float, at: float) -> float:
        p = sigmoid(at)
        k = self.share(p)
        mixed = k * self.corrected(z, at) + (1 - k) * self.absent(z, at)
        return self.weight(p) * mixed
