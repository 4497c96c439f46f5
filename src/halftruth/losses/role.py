"""Regularised online label estimation: a table of estimated labels that learns with the model."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from halftruth import labels as label_codes
from halftruth.losses import curves
from halftruth.losses._engine.logit import Logit
from halftruth.losses._engine.one_pass import compute_dtype
from halftruth.losses.base import Loss, Options, register, require
from halftruth.losses.curves import Curve
from halftruth.losses.epr import count_gap
from halftruth.losses.memory import Memory, checked_index
from halftruth.seeds import check_seed

# The first estimate of a known label, and the distance of loaded estimates from 0 and 1.
SURE, CLAMP = 0.995, 1e-5
# The step of a row per visit under Adam (beta2 = 0.999, eps = 1e-8), summed until the next visit.
ROOT, GUARD = math.sqrt(1 - 0.999), 1e-8
ROWS = 1 << 12
# The largest size of all tables without an explicit `light=False`.
MOST_BYTES = 2.5e9


def logit_of(p: float) -> float:
    return math.log(p / (1 - p))


@register("role")
class ROLE(Loss):
    """Model and estimated labels learn from each other and from the expected number of positives.

        L = ½ [F(p | q) + F(q | p)]
        F(p | q) = mean of  [y=+1] (−log p) + [y=−1] (−log(1−p)) − q log p − (1−q) log(1−p)
                   + ((1/B) Σ p − k)² / K²            the second argument having no gradient

    q = σ(g) is a table of N × K estimates: g starts at ±logit(.995) for known labels and uniformly
    within ±logit(`init`) for unknown ones. It is a parameter of the loss: give the optimiser
    `loss.parameter_groups(lr)`, which trains it at `lr_mult` times the learning rate. Dense Adam,
    as published, keeps four tables and updates all rows at every step; several processes average
    its gradient like that of the model. Above 2.5 GB it needs an explicit `light=False`.
    `light=True` keeps one table, in half precision, and updates the rows of the batch as far as one
    visit under Adam does, g ← g − rate · d / (√.001 |d| + 1e-8) with d = ∂L/∂g. Cole et al.,
    CVPR 2021; k as in `epr`.
    UNKNOWN: as estimated. Needs: index, begin(), `expected_positives` (k).

    Args:
        expected_positives: k, the mean number of positives per row.
        init: the largest first estimate of an unknown label, in [0.5, 1).
        lr_mult: the learning rate of the estimates, in units of that of the head.
        light: whether to keep one table instead of four; None: four, up to 2.5 GB.
        rate: the step of the estimates with `light`; None: `lr_mult` times the learning rate.
        seed: of the first estimates.

    >>> loss, labels = ROLE(expected_positives=1.5), torch.tensor([[1, 0, -1]])
    >>> loss.begin(labels)
    >>> [group["lr"] for group in loss.parameter_groups(lr=0.001)]
    [0.01]
    >>> value = loss(torch.zeros(1, 3), labels, index=torch.tensor([0]))
    """

    paper = "Cole et al. 2021"
    unknown_is = "estimated per sample"
    needs_index = True

    def __init__(
        self,
        expected_positives: float,
        init: float = 0.6,
        lr_mult: float = 10.0,
        light: bool | None = None,
        rate: float | None = None,
        memory_dtype: str | None = None,
        seed: int = 0,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(**options)
        self.expected_positives = require(
            expected_positives > 0, expected_positives, "expected_positives", "> 0"
        )
        self.init = require(0.5 <= init < 1, init, "init", "in [0.5, 1)")
        self.lr_mult = require(lr_mult > 0, lr_mult, "lr_mult", "> 0")
        self.rate = self.own_rate = require(rate is None or rate > 0, rate, "rate", "> 0 or None")
        if rate is not None and not light:
            raise ValueError(
                f"expected rate only with light=True, got {rate}: otherwise the estimates are "
                "trained with lr_mult times the learning rate of the optimiser"
            )
        self.light, self.seed = light, check_seed(seed)
        self.memory = Memory(memory_dtype or "float16") if light else None
        if self.memory is None:
            kind = Memory(memory_dtype or "float32").dtype
            self.estimator = nn.Parameter(torch.empty(0, dtype=kind))
        # From `prepare` to `extra`. A list: a changed attribute would be a new trace in every step.
        self._rest: list[Tensor] = []

    # The table of estimates, as logits g.

    @property
    def table(self) -> Tensor:
        return self.estimator.data if self.memory is None else self.memory.values

    def begin(self, labels: Tensor) -> None:
        labels = label_codes.check(torch.as_tensor(labels))
        if self.memory is None:
            self._refuse_size(labels)
            fresh = torch.empty(labels.shape, dtype=self.table.dtype, device=self.table.device)
            self.estimator = nn.Parameter(fresh)
        else:
            self.memory.allocate(*labels.shape)
        # The same random numbers in every process and on every device.
        random = torch.Generator().manual_seed(self.seed)

        def start(part: Tensor) -> Tensor:
            guess = (2 * torch.rand(part.shape, generator=random) - 1) * logit_of(self.init)
            return torch.where(part == 0, guess.to(part.device), part.float() * logit_of(SURE))

        self._fill(labels, start)

    def _fill(self, values: Tensor, entries: Callable[[Tensor], Tensor]) -> None:
        """Fill the table from values (N, K), some rows at a time."""
        with nullcontext(True) if self.memory is None else self.memory.whole() as mine:
            for part, into in zip(values.split(ROWS), self.table.split(ROWS), strict=True):
                if mine:
                    into.copy_(entries(part))

    def _refuse_size(self, labels: Tensor) -> None:
        tables = 4 * labels.numel() * self.table.element_size()
        if tables > MOST_BYTES and self.light is None:
            raise ValueError(
                f"role would keep four tables for {len(labels):,} samples, {tables / 1e9:.1f} GB "
                f"under Adam, expected at most {MOST_BYTES / 1e9:g}: give light=True, which keeps "
                f"one of {2 * labels.numel() / 1e9:.1f} GB, or light=False if there is room"
            )

    def estimates(self) -> Tensor:
        """The estimates q of all samples, (N, K), in the dtype of g."""
        if self.memory is None or not self.memory.in_host:
            return torch.sigmoid(self.table)
        return torch.cat([torch.sigmoid(part).cpu() for part in self.table.split(ROWS)])

    def load_estimates(self, estimates: Tensor) -> None:
        """Continue from the q (N, K) of an earlier stage (LinearInit); call it after begin()."""
        q = torch.as_tensor(estimates)
        if q.shape != self.table.shape:
            raise ValueError(
                f"expected estimates of shape {tuple(self.table.shape)}, as the labels given to "
                f"begin(), got {tuple(q.shape)}"
            )

        def as_logits(part: Tensor) -> Tensor:
            wide = part.to(torch.promote_types(part.dtype, torch.float32)).clamp(CLAMP, 1 - CLAMP)
            return torch.log(wide / (1 - wide))

        self._fill(q, as_logits)

    def carried_state(self) -> dict[str, Tensor]:
        return {"estimates": self.estimates()}

    def load_carried_state(self, state: dict[str, Tensor]) -> None:
        if "estimates" in state:
            self.load_estimates(state["estimates"])

    def parameter_groups(self, lr: float) -> list[dict[str, object]]:
        if self.memory is not None:
            self.rate = self.own_rate or lr * self.lr_mult
            return []
        if not self.estimator.numel():
            raise ValueError("call begin(labels of the training set) before parameter_groups(lr)")
        return [{"params": [self.estimator], "lr": lr * self.lr_mult, "weight_decay": 0.0}]

    # The loss.

    def prepare(self, logits: Tensor, labels: Tensor, index: Tensor | None) -> object:
        assert index is not None
        dtype = compute_dtype(logits)
        g = self._rows(index).to(logits.device, dtype)
        count, classes = labels.shape
        s, estimate = Logit(logits.to(dtype), self.eps), Logit(g.detach(), self.eps)
        excess = (estimate.p.sum() / max(count, 1) - self.expected_positives) / classes
        _, slope = self._side(estimate, s.p, labels)
        slope = slope / max(labels.numel(), 1) + 2 * excess / max(count, 1) / classes * estimate.pq
        half = 0.5 * slope
        # `terms` has the value of the estimates' side; its gradient and its count term are here.
        rest = 0.5 * excess.square() if count else excess * 0
        if self.memory is None:
            if self.training:
                rest = rest + (half * (g - g.detach())).sum()
        elif self.training:
            step = self._checked_rate() * half / (ROOT * half.abs() + GUARD)
            self.memory.write(index, g - step)
        self._rest[:] = [rest]
        return g.detach()

    def _rows(self, index: Tensor) -> Tensor:
        if self.memory is not None:
            return self.memory.read(index)
        return self.estimator[checked_index(index, len(self.estimator))]

    def _checked_rate(self) -> float:
        if self.rate is None:
            raise ValueError(
                "role with light=True updates its estimates itself and needs a rate: call "
                "parameter_groups(lr), which sets lr_mult * lr, or give rate="
            )
        return float(self.rate)

    def _side(self, s: Logit, target: Tensor, labels: Tensor) -> Curve:
        """F without the term of the expected number: the cost of one side given the other."""
        curve = curves.toward(s, target)
        for label, cost in ((labels > 0, self.present), (labels < 0, self.absent)):
            known = curves.scaled(cost(s), label.to(s.z.dtype))
            curve = curves.added(curve, known)
        return curve

    def terms(self, s: Logit, labels: Tensor, context: Any, rows: slice) -> Curve:
        estimate = Logit(context[rows], s.eps)
        value, slope = self._side(s, estimate.p, labels)
        other, _ = self._side(estimate, s.p, labels)
        return 0.5 * (value + other), 0.5 * slope

    def extra(self, logits: Tensor, labels: Tensor) -> Tensor | None:
        term = 0.5 * count_gap(logits, labels.shape[1], self.expected_positives)
        return term + self._rest.pop() if self._rest else term
