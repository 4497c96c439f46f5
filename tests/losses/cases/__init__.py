"""One case per method: its expected values, computed entry by entry with Python numbers.

A case is written from the papers, not from the library. It holds the documented defaults, the three
costs of one entry, terms over a row or a batch where there are any, gradients in closed form where
a paper states them, and the reference values that apply. The tests in the folder above run over all
of them, so a method is tested once it has a file here.
"""

import importlib
import math
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch

from cases.remembering import with_index
from halftruth import losses

Matrix = list[list[float]]
PRESENT, UNKNOWN, ABSENT = 1, 0, -1


def sigmoid(z: float) -> float:
    return 1 / (1 + math.exp(-z)) if z > -700 else 0.0


def log_sigmoid(z: float) -> float:
    return -math.log1p(math.exp(-z)) if z > 0 else z - math.log1p(math.exp(z))


@dataclass(frozen=True)
class Golden:
    """Reference values: `variant` of tests/golden/losses/`file`.npz and the settings behind it."""

    file: str
    variant: str
    settings: dict[str, Any] = field(default_factory=dict)
    reduction: str = "mean"
    eps: float = 0.0
    labels: str = "single"
    tolerance: float = 1e-12


class Case:
    """A method with its settings. By default the costs are cross-entropy.

    A cost takes the logit z and the logit `at` where everything that is a constant to the gradient
    is taken, so that differences of the cost at a fixed `at` are the gradient that is meant.
    """

    name: ClassVar[str]
    defaults: ClassVar[dict[str, Any]] = {}
    needed: ClassVar[dict[str, Any]] = {}
    variants: ClassVar[tuple[dict[str, Any], ...]] = ()
    golden: ClassVar[tuple[Golden, ...]] = ()
    epoch, epochs = 0, 10
    views = 1
    coupled = False
    # Whether some factors are constants to the gradient, so that it is not the derivative.
    has_constants = False

    def __init__(self, **settings: Any) -> None:
        self.settings = {**self.needed, **settings}
        for key, value in {**self.defaults, **self.settings}.items():
            # An argument with the name of a cost (`unknown`) must not replace the method.
            if not callable(getattr(self, key, None)):
                setattr(self, key, value)
        self.settings = {k: v for k, v in self.settings.items() if k not in ("epoch", "epochs")}

    def build(self, **options: Any) -> losses.Loss:
        """The library's loss with these settings, at the case's epoch."""
        loss = losses.create(self.name, **self.settings, **options)
        loss.start_epoch(self.epoch, self.epochs)
        return with_index(loss, self.remember)

    def remember(self, loss: losses.Loss, labels: torch.Tensor) -> None:
        """Fill the memory of a method that has one, for these labels."""

    # The cost of one entry.

    def present(self, z: float, at: float) -> float:
        return -log_sigmoid(z)

    def absent(self, z: float, at: float) -> float:
        return -log_sigmoid(-z)

    def unknown(self, z: float, at: float) -> float:
        return self.absent(z, at)

    def corrected(self, z: float, at: float) -> float:
        return self.present(z, at)

    # The cost of a batch.

    def entries(self, logits: Matrix, labels: list[list[int]], at: Matrix) -> Matrix:
        self.classes = len(labels[0])
        cost = {PRESENT: self.present, UNKNOWN: self.unknown, ABSENT: self.absent}
        return [
            [cost[y](z, a) for z, y, a in zip(*row, strict=True)]
            for row in zip(logits, labels, at, strict=True)
        ]

    def rows(self, logits: Matrix, labels: list[list[int]], at: Matrix) -> list[float]:
        return [math.fsum(row) for row in self.entries(logits, labels, at)]

    def added_term(self, logits: Any, labels: list[list[int]]) -> float:
        """A term added to the sum over entries, in units of the mean; it gets every view."""
        return 0.0

    def divisor(self, labels: list[list[int]]) -> float:
        return len(labels) * len(labels[0])

    def mean(self, logits: Any, labels: list[list[int]], at: Any = None) -> float:
        at = logits if at is None else at
        first, first_at = (logits, at) if self.views == 1 else (logits[0], at[0])
        total = math.fsum(self.rows(first, labels, first_at))
        return total / self.divisor(labels) + self.added_term(logits, labels)

    def gradient(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Central differences of the mean, with fixed constants."""
        step, at, y = 1e-5, logits.tolist(), labels.tolist()
        found = torch.empty(logits.numel(), dtype=torch.float64)
        for i in range(logits.numel()):
            ends = []
            for sign in (1, -1):
                moved = logits.clone()
                moved.view(-1)[i] += sign * step
                ends.append(self.mean(moved.tolist(), y, at))
            found[i] = (ends[0] - ends[1]) / (2 * step)
        return found.view(logits.shape)

    def closed_form(self, logits: Matrix, labels: list[list[int]]) -> Matrix | None:
        """The gradient of the sum as a paper states it."""
        return None

    def __repr__(self) -> str:
        place = [f"epoch {self.epoch} of {self.epochs}"] if self.epoch else []
        return ", ".join([self.name, *(f"{k}={v}" for k, v in self.settings.items()), *place])


class Wrapped(Case):
    """A case that wraps another one, made by `base`; both are at the same epoch."""

    base: Case
    default_base: ClassVar[type[Case]]

    def __init__(self, base: Callable[[], Case] | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self.base = (base or self.default_base)()
        self.base_is_given = base is not None
        self.base.epoch, self.base.epochs = self.epoch, self.epochs
        self.views, self.coupled = self.base.views, self.base.coupled
        self.has_constants = self.base.has_constants

    def build(self, **options: Any) -> losses.Loss:
        if self.base_is_given:
            options["base"] = self.base.build()
        return super().build(**options)

    def remember(self, loss: losses.Loss, labels: torch.Tensor) -> None:
        self.base.remember(loss.base, labels)

    def present(self, z: float, at: float) -> float:
        return self.base.present(z, at)

    def absent(self, z: float, at: float) -> float:
        return self.base.absent(z, at)

    def unknown(self, z: float, at: float) -> float:
        return self.base.unknown(z, at)

    def corrected(self, z: float, at: float) -> float:
        return self.base.corrected(z, at)

    def entries(self, logits: Matrix, labels: list[list[int]], at: Matrix) -> Matrix:
        return self.base.entries(logits, labels, at)

    def rows(self, logits: Matrix, labels: list[list[int]], at: Matrix) -> list[float]:
        return self.base.rows(logits, labels, at)

    def added_term(self, logits: Any, labels: list[list[int]]) -> float:
        return self.base.added_term(logits, labels)

    def divisor(self, labels: list[list[int]]) -> float:
        return self.base.divisor(labels)

    def __repr__(self) -> str:
        return super().__repr__() + (f" over {self.base!r}" if self.base_is_given else "")


def _found() -> dict[str, type[Case]]:
    cases = {}
    for module in pkgutil.iter_modules(__path__):
        for value in vars(importlib.import_module(f"{__name__}.{module.name}")).values():
            if isinstance(value, type) and issubclass(value, Case) and hasattr(value, "name"):
                cases[value.name] = value
    return cases


CASES = _found()
