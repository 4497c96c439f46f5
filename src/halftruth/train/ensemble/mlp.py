"""The MLP of the ensemble, trained for all folds and for all rows at once, as batched tensors.

A step of a small network takes as long as the calls that start it, above all on a GPU. Networks
that are trained side by side share the calls.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from halftruth.labels import PRESENT
from halftruth.models.ensemble import MLP_WIDTH, build_mlp
from halftruth.train.devices import limit_threads
from halftruth.train.ensemble.members import get_targets, weigh_cells
from halftruth.train.ensemble.negative_weights import weigh_unknown
from halftruth.train.step import compute_learning_rate_factor, make_optimizer, scale_rates

# Small data gets as many steps as large data.
_STEPS, _LEAST_EPOCHS = 2000, 3
_KEPT, _LEARNING_RATE, _WARMUP = 0.2, 1e-3, 0.2
# Decay of the moving average of the weights.
_AVERAGE = 0.99
# Dropout takes parts of one random sequence of this length, the same on every device.
_NOISE = 1 << 22


@dataclass(frozen=True)
class MlpTask:
    """What some MLPs are fitted to: one per entry of `parts`.

    x: (N, D). labels: (N, K). parts: the rows of each, P of them. weights: (N, 1) or (N, K), how
    much labels count. soft: see `get_targets`. pairs: (P, K, K), how much an unknown label counts
    in a row that shows one class. propensity: (P, K), how likely each class is named.
    """

    x: Tensor
    labels: Tensor
    parts: Sequence[Tensor]
    weights: Tensor | None = None
    soft: Tensor | None = None
    pairs: Tensor | None = None
    propensity: Tensor | None = None

    def describe_cells(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return presence, 1 where unknown, and weights of rows (P, B), as `weigh_cells` does."""
        shown = self.labels[rows]
        present, unknown = get_targets(shown, None if self.soft is None else self.soft[rows])
        weights = None if self.weights is None else self.weights[rows]
        if self.pairs is not None:
            counts = weigh_unknown((shown == PRESENT).float(), self.pairs)
            weights = counts if weights is None else counts * weights
        return present, unknown, weights


def fit_mlps(task: MlpTask, seed: int) -> list[nn.Sequential]:
    """Return one MLP per part, each trained by the loss of `swan` on its rows."""
    device, count, largest = task.x.device, len(task.parts), max(map(len, task.parts))
    size = int(2 ** round(math.log2(min(max(largest / 300, 32), 1024))))
    steps = max(_STEPS, _LEAST_EPOCHS * math.ceil(largest / size))
    random = torch.Generator().manual_seed(seed)
    networks = _Networks(task.x.shape[1], task.labels.shape[1], count, random, device)
    order = torch.stack([_draw(part.cpu(), size * steps, random) for part in task.parts])
    order = order.view(count, steps, size).to(device)
    e = None if task.propensity is None else task.propensity[:, None]
    noise = _make_noise(count * size * MLP_WIDTH, random).to(device)
    starts = torch.randint(len(noise) - count * size * MLP_WIDTH + 1, (steps,), generator=random)
    with limit_threads(count * size * networks.size, device), torch.no_grad():
        for step, start in enumerate(starts.tolist()):
            rows = order[:, step]
            present, unknown, weights = task.describe_cells(rows)
            mask = noise[start : start + count * size * MLP_WIDTH].view(count, size, MLP_WIDTH)
            x = task.x[rows]
            hidden, z = networks.forward(x, mask)
            p = torch.sigmoid(z)
            slope = weigh_cells(p, present, unknown, weights, e) * (p - present)
            networks.backward(slope / slope[0].numel(), hidden, mask, x)
            networks.update(compute_learning_rate_factor("one-cycle", step, steps, _WARMUP))
    return networks.split()


class _Networks:
    """Networks of one shape side by side: the first axis of each tensor is the network."""

    def __init__(
        self, dim: int, classes: int, count: int, random: torch.Generator, device: torch.device
    ) -> None:
        bound = dim**-0.5
        first = torch.empty(dim + 1, MLP_WIDTH).uniform_(-bound, bound, generator=random)
        last = torch.empty(MLP_WIDTH, classes).normal_(std=0.01, generator=random)
        tensors = first[:-1], first[-1:], last, torch.zeros(1, classes)
        # All start with the same weights: only their rows differ.
        self.weights = [nn.Parameter(one.to(device).repeat(count, 1, 1)) for one in tensors]
        self.average = [one.detach().clone() for one in self.weights]
        group = {"params": self.weights, "lr": _LEARNING_RATE, "full_lr": _LEARNING_RATE}
        self.optimizer = make_optimizer("adam", [group], device)
        self.updates, self.size = 0, first.numel() + last.numel()

    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the hidden layer after dropout and the logits of rows (P, B, D)."""
        a, b, c, d = self.weights
        hidden = torch.baddbmm(b, x, a).relu_().mul_(mask)
        return hidden, torch.baddbmm(d, hidden, c)

    def backward(self, slope: Tensor, hidden: Tensor, mask: Tensor, x: Tensor) -> None:
        """Set the gradients, by the slopes of the loss in the logits (P, B, K)."""
        a, b, c, d = self.weights
        c.grad, d.grad = hidden.mT @ slope, slope.sum(dim=1, keepdim=True)
        # Where a unit is 0, by dropout or by the layer, its slope is 0.
        inner = (slope @ c.mT).mul_(mask).mul_(hidden > 0)
        a.grad, b.grad = x.mT @ inner, inner.sum(dim=1, keepdim=True)

    def update(self, rate: float) -> None:
        """Take a step of Adam, at a share of the full learning rate, and average the weights."""
        scale_rates(self.optimizer, rate)
        self.optimizer.step()
        decay = min(_AVERAGE, (1 + self.updates) / (10 + self.updates))
        torch._foreach_lerp_(self.average, [one.detach() for one in self.weights], 1 - decay)
        self.updates += 1

    def split(self) -> list[nn.Sequential]:
        """Return the networks with averaged weights as modules, on the CPU."""
        found = []
        for a, b, c, d in zip(*(one.cpu() for one in self.average), strict=True):
            mlp = build_mlp(len(a), c.shape[1])
            state = {"0.weight": a.T, "0.bias": b[0], "3.weight": c.T, "3.bias": d[0]}
            mlp.load_state_dict({name: one.contiguous() for name, one in state.items()})
            found.append(mlp.eval().requires_grad_(False))
        return found


def _draw(rows: Tensor, count: int, random: torch.Generator) -> Tensor:
    """Return so many of the rows: all of them in random order, again and again."""
    rounds = math.ceil(count / len(rows))
    order = [torch.randperm(len(rows), generator=random) for _ in range(rounds)]
    return rows[torch.cat(order)[:count]]


def _make_noise(least: int, random: torch.Generator) -> Tensor:
    """Return a long sequence of factors of dropout, each 0 or 1 / the share that is kept."""
    count = max(_NOISE, 4 * least)
    return (torch.rand(count, generator=random) < _KEPT).float() / _KEPT
