"""Fit the model of many classes: each step uses a sample of the classes."""

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from halftruth.data.wide_matrix import Matrix
from halftruth.labels import PRESENT, UNKNOWN, SparseLabels
from halftruth.models import Classifier
from halftruth.models.ensemble import make_preparation
from halftruth.models.many_classes import ManyClassHead, build_many_classes
from halftruth.train.devices import limit_threads
from halftruth.train.inputs.batches import fit_standardization, share_scale, to_dense

# Rows that give means and deviations of the features, and rows that are looked up as neighbours.
_SCALE_ROWS, NEIGHBOUR_ROWS = 50_000, 50_000
# Features with more values further from their mean (in deviations) are compressed by a logarithm.
_FAR, _FAR_SHARE = 4.0, 1e-3
# Rows of a step, steps and epochs; a step draws this share of the classes, but not fewer than this.
_LEAST_BATCH, _MOST_BATCH, _STEPS = 64, 256, 2_000
_LEAST_EPOCHS, _MOST_EPOCHS = 5, 20
_DRAWN_SHARE, _LEAST_DRAWN = 1 / 32, 300
# The learning rate is for the largest batch.
_LEARNING_RATE, _RIDGE = 0.01, 0.1
# Labels of held-out rows on which the share of the neighbours is found.
_TUNING_CELLS = 30_000_000
_SHARES = (0.0, 0.2, 0.4, 0.6, 0.8)
Log = Callable[[str], None]


def fit_many_classes(
    features: Matrix,
    labels: SparseLabels,
    train: np.ndarray,
    held: np.ndarray,
    *,
    seed: int = 0,
    weights: np.ndarray | None = None,
    one_scale: np.ndarray | None = None,
    log: Log = lambda text: None,
) -> Classifier:
    """Fit the model to features (N, D) and sparse labels (N, K).

    `held`: rows on which the share of the neighbours is found. `weights`: how much each of all rows
    counts, (N,) or (N, 1).
    """
    started = time.monotonic()
    prepare = _fit_preparation(features, train, seed, one_scale)
    # Small steps would only wait for each other in several threads.
    work = _MOST_BATCH * features.shape[1] * _count_drawn(labels.classes)
    with limit_threads(work, torch.device("cpu")):
        linear = fit_sampled_linear(features, labels, train, prepare, seed, weights, log)
    model = _assemble(features, labels, train, prepare, linear, seed)
    head: Any = model.head
    share = _find_share(head, features, labels, held, seed)
    head.share.fill_(share)
    parts = f"{1 - share:.0%} and {share:.0%}".replace("%", " %")
    log(
        f"many classes: linear layer and the labels of similar rows, {parts}; fitted in "
        f"{time.monotonic() - started:.0f} s"
    )
    return model


def _fit_preparation(
    features: Matrix, train: np.ndarray, seed: int, one_scale: np.ndarray | None
) -> nn.Sequential:
    """Return the steps from raw to prepared features, fitted to a part of very many rows."""
    x = np.asarray(to_dense(features[draw(train, _SCALE_ROWS, seed)]), dtype=np.float64)
    steps = make_preparation(x.shape[1]).double()
    steps[0] = share_scale(fit_standardization(x), one_scale)
    far = (steps[0](torch.from_numpy(x)).abs() > _FAR).double().mean(dim=0)
    straight = far < _FAR_SHARE
    if one_scale is not None:
        straight &= ~torch.from_numpy(one_scale)
    # The logarithm of small numbers is a straight line.
    scale: Any = steps[0]
    scale.std *= torch.where(straight, 100.0, 1.0)
    with torch.no_grad():
        middle = steps[:2](torch.from_numpy(x)).numpy()
    steps[2] = share_scale(fit_standardization(middle), one_scale)
    return steps.requires_grad_(False)


@torch.no_grad()
def prepare_rows(prepare: nn.Module, features: Matrix, rows: np.ndarray) -> Tensor:
    """Return the prepared features of some rows in float32."""
    x = np.array(to_dense(features[rows]), dtype=np.float64)
    return prepare(torch.from_numpy(x)).float()


# ---------------------------------------------------------------------- the linear layer


@torch.no_grad()
def fit_sampled_linear(
    features: Matrix,
    labels: SparseLabels,
    train: np.ndarray,
    prepare: nn.Module,
    seed: int,
    weights: np.ndarray | None = None,
    log: Log = lambda text: None,
) -> Tensor:
    """Return weights and biases (K, D + 1) by the loss of `swan` on a sample of the classes.

    A step has the classes that are present in one of its rows, and a random part of the others. A
    negative of class k counts 1/π_k, where π_k is the probability that the class is in the step.
    So the gradient has the expectation of the gradient over all classes, and a step costs as much
    as its classes, not as all.
    """
    rng = np.random.default_rng(seed)
    rows, count = len(train), labels.classes
    shown = labels.select(train).count_per_class()
    size = int(min(max(2 ** round(math.log2(max(rows, 1) / 300 + 1)), _LEAST_BATCH), _MOST_BATCH))
    per_epoch = max(rows // size, 1)
    epochs = min(max(math.ceil(_STEPS / per_epoch), _LEAST_EPOCHS), _MOST_EPOCHS)
    drawn = _count_drawn(count)
    chance = 1 - (1 - shown / rows) ** (size - 1) * (1 - drawn / count)
    inverse = torch.from_numpy(1 / np.maximum(chance, 1e-9)).float()
    scale = None
    if weights is not None:
        scale = torch.from_numpy(np.asarray(weights, np.float32).ravel())
        scale = scale / scale[torch.from_numpy(train)].mean()
    dim = features.shape[1]
    table = torch.zeros(count, dim + 1)
    table[:, -1] = torch.logit(torch.from_numpy((shown + 0.5) / (rows + 1)).float())
    rate = _LEARNING_RATE * math.sqrt(size / _MOST_BATCH)
    optimizer = _LazyAdam(table, per_epoch * epochs, rate)
    started = time.monotonic()
    for epoch in range(epochs):
        order = rng.permutation(rows)
        for at in range(0, per_epoch * size, size):
            batch = train[order[at : at + size]]
            some = labels.select(batch)
            classes = np.union1d(some.columns, rng.choice(count, drawn, replace=False))
            target, unknown = _make_targets(some, classes)
            x = prepare_rows(prepare, features, batch)
            index = torch.from_numpy(classes)
            own = table[index]
            slope = _slope_of_swan(
                torch.addmm(own[:, -1], x, own[:, :-1].T), target, unknown, inverse[index]
            )
            if scale is not None:
                slope = slope * scale[torch.from_numpy(batch)][:, None]
            slope /= len(batch)
            gradient = torch.cat([slope.T @ x, slope.sum(dim=0)[:, None]], dim=1)
            gradient[:, :-1] += _RIDGE * dim / (2 * rows) * inverse[index][:, None] * own[:, :-1]
            optimizer.step(index, own, gradient)
        seconds = (time.monotonic() - started) / (epoch + 1)
        if epoch == 0:
            log(
                f"many classes: {epochs} epochs of {seconds:.1f} s, {rows / seconds:,.0f} rows per "
                f"second; about {len(classes):,} of {count:,} classes per step"
            )
    return table


def _count_drawn(classes: int) -> int:
    """Return the number of classes that a step draws at random."""
    return min(max(_LEAST_DRAWN, int(classes * _DRAWN_SHARE)), classes)


def _make_targets(labels: SparseLabels, classes: np.ndarray) -> tuple[Tensor, Tensor]:
    """Return 1 where PRESENT, and 1 where UNKNOWN, for a batch and some sorted classes."""
    place = np.searchsorted(classes, labels.columns)
    codes = np.full((len(labels), len(classes)), labels.rest, dtype=np.int8)
    # Every class of the batch is among the classes of the step.
    codes[labels.row_of_entries(), place] = labels.codes
    return torch.from_numpy(codes == PRESENT).float(), torch.from_numpy(codes == UNKNOWN).float()


def _slope_of_swan(logits: Tensor, target: Tensor, unknown: Tensor, inverse: Tensor) -> Tensor:
    """Return the slope of the loss of `swan` by the logits, with negatives weighted by `inverse`.

    With all classes and weights of 1 it is that of `halftruth.losses.create("swan")`.
    """
    p = torch.sigmoid(logits)
    shown = target.sum(dim=1, keepdim=True) + 1
    expected = ((unknown * p) @ inverse)[:, None]
    cell = torch.where(unknown > 0, shown / (shown + expected), 1.0)
    return (p - target) * torch.where(target > 0, 1.0, cell * inverse)


class _LazyAdam:
    """Adam for some rows of a table per step, with a learning rate that rises and then falls."""

    def __init__(self, table: Tensor, steps: int, rate: float) -> None:
        self.table, self.steps, self.rate, self.done = table, steps, rate, 0
        self.mean, self.square = torch.zeros_like(table), torch.zeros_like(table)

    def step(self, index: Tensor, own: Tensor, gradient: Tensor) -> None:
        """Change the rows `index`, which are `own`."""
        part = self.done / self.steps
        rate = self.rate * min(part / 0.2, 1.0)
        rate *= 0.5 * (1 + math.cos(math.pi * max(0.0, (part - 0.2) / 0.8)))
        self.done += 1
        mean = self.mean[index].mul_(0.9).add_(gradient, alpha=0.1)
        square = self.square[index].mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        self.mean[index], self.square[index] = mean, square
        deviation = (square / (1 - 0.999**self.done)).sqrt_().add_(1e-8)
        self.table[index] = own.addcdiv(mean, deviation, value=-rate / (1 - 0.9**self.done))


def _assemble(
    features: Matrix,
    labels: SparseLabels,
    train: np.ndarray,
    prepare: nn.Sequential,
    linear: Tensor,
    seed: int,
) -> Classifier:
    """Return the model with its linear layer, and training rows to look up."""
    some = draw(train, NEIGHBOUR_ROWS, seed)
    listed = labels.select(some)
    present = listed.codes == PRESENT
    row_of, columns = listed.row_of_entries()[present], listed.columns[present]
    length = np.bincount(row_of, minlength=len(some))
    place = np.arange(len(row_of)) - np.repeat(np.cumsum(length) - length, length)
    most = max(int(length.max()), 1)
    model = build_many_classes(features.shape[1], labels.classes, {"rows": len(some), "most": most})
    head: Any = model.head
    head.prepare = prepare.float()
    with torch.no_grad():
        head.linear.weight.copy_(linear[:, :-1])
        head.linear.bias.copy_(linear[:, -1])
        for at in range(0, len(some), 4096):
            x = prepare_rows(prepare.double(), features, some[at : at + 4096])
            head.rows[at : at + 4096] = F.normalize(x, dim=1)
    prepare.float()
    head.labels[torch.from_numpy(row_of), torch.from_numpy(place)] = torch.from_numpy(columns)
    return model.eval().requires_grad_(False)


# ---------------------------------------------------------------------- on held-out rows


@torch.no_grad()
def _find_share(
    head: ManyClassHead, features: Matrix, labels: SparseLabels, held: np.ndarray, seed: int
) -> float:
    """Return the share of the neighbours with the highest precision at 1, 3 and 5."""
    held = draw(held, max(_TUNING_CELLS // labels.classes, 100), seed)
    hits = np.zeros(len(_SHARES))
    for rows, x in prepared_blocks(head, features, held[labels.select(held).count_per_row() > 0]):
        present = torch.from_numpy(labels.to_dense(rows) == PRESENT)
        linear = torch.sigmoid(F.linear(x, head.linear.weight, head.linear.bias))
        near = head.share_labels(head.find_neighbours(x), 0, labels.classes)
        for i, share in enumerate(_SHARES):
            first = torch.lerp(linear, near, share).topk(min(5, labels.classes), dim=1).indices
            hit = present.gather(1, first).double()
            hits[i] += float(sum((hit[:, :k].sum() / k for k in (1, 3, 5)), torch.zeros(())))
    return _SHARES[int(hits.argmax())]


def draw(rows: np.ndarray, most: int, seed: int = 0) -> np.ndarray:
    """Return at most `most` of the rows."""
    if len(rows) <= most:
        return rows
    return np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))


@torch.no_grad()
def score_blocks(
    head: ManyClassHead, features: Matrix, rows: np.ndarray
) -> Iterator[tuple[np.ndarray, Tensor]]:
    """Yield blocks of rows with their logits, (B, K)."""
    for some, x in prepared_blocks(head, features, rows):
        yield some, head.score_classes(x, head.find_neighbours(x), 0, head.num_classes).cpu()


def prepared_blocks(
    head: ManyClassHead, features: Matrix, rows: np.ndarray
) -> Iterator[tuple[np.ndarray, Tensor]]:
    """Yield blocks of rows with their prepared features."""
    size = head.most_rows
    for at in range(0, len(rows), size):
        some = rows[at : at + size]
        x = torch.from_numpy(np.array(to_dense(features[some]), dtype=np.float32))
        yield some, head.prepare(x.to(head.rows.device))
