"""Losses for wrong labels: Zhang & Sabuncu 2018, Wang et al. 2019, Feng et al. 2020."""

import math

from cases import Case, log_sigmoid, sigmoid


class Symmetric(Case):
    """A loss whose absent side mirrors its present side."""

    def absent(self, z: float, at: float) -> float:
        return self.present(-z, at)


class GCE(Symmetric):
    name = "gce"
    defaults = {"q": 0.7}
    variants = ({"q": 0.01}, {"q": 1.0}, {"q": 0.0}, {"q": 1.5})

    def present(self, z: float, at: float) -> float:
        if self.q == 0:
            return -log_sigmoid(z)
        return -math.expm1(self.q * log_sigmoid(z)) / self.q


class SCE(Symmetric):
    name = "sce"
    defaults = {"alpha": 0.1, "beta": 1.0, "log_zero": -4.0}
    variants = ({"alpha": 6.0, "beta": 0.1}, {"log_zero": -6.0}, {"beta": 0.0})

    def present(self, z: float, at: float) -> float:
        # The reverse term sums over both outcomes: present with y = 1, absent with y = 0.
        reverse = -(sigmoid(z) * math.log(1) + sigmoid(-z) * self.log_zero)
        return -self.alpha * log_sigmoid(z) + self.beta * reverse


class Taylor(Symmetric):
    name = "taylor"
    defaults = {"order": 2}
    variants = ({"order": 1}, {"order": 6})

    def present(self, z: float, at: float) -> float:
        return sum(sigmoid(-z) ** i / i for i in range(1, self.order + 1))


class MSE(Symmetric):
    name = "mse"

    def present(self, z: float, at: float) -> float:
        return sigmoid(-z) ** 2
