"""The members of the ensemble: how each is fitted to prepared features and incomplete labels."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from halftruth.labels import PRESENT, UNKNOWN
from halftruth.models.forest import Forest, convert_forests
from halftruth.models.heads import FullLinear
from halftruth.models.neighbours import Neighbours
from halftruth.presence.propensity import frequency_propensities, shows_one
from halftruth.train.ensemble.solver import step_newton

if TYPE_CHECKING:
    from halftruth.train.ensemble.sparse_linear import WideRows

# Variances of the prior on linear weights: from noisy features to many exact ones.
RIDGES = (0.125, 0.5, 2.0, 8.0, 32.0)
# The prior where settings are not compared: the more rows, the less it matters.
RIDGE = 2.0
# Newton steps of the linear member for the first prior, and for each next one.
_FIRST_STEPS, _NEXT_STEPS = 3, 2
TREES, _MOST_DEPTH = 320, 24
# Rows per leaf, one half of the trees each: few for clear signals, more for noisy ones. Which is
# better cannot be seen with incomplete labels.
_LEAF_ROWS = (1, 4)
# With more classes, trees are grown on this many random mixtures of the labels: the splits are
# nearly the same, and the time does not grow with the number of classes.
_MIXTURES = 32
# The most numbers in the tables of a forest and in the rows of the neighbours.
_MOST_NUMBERS = 32_000_000
# The most rows of a forest, of one of its trees, and of the neighbours: more cost time and memory.
_FOREST_ROWS, _TREE_ROWS, _NEIGHBOUR_ROWS = 50_000, 20_000, 20_000


def find_propensity(labels: Tensor) -> np.ndarray | None:
    """Return how likely each class is shown, where rows show one of their classes; else None."""
    values = labels.cpu().numpy()
    return frequency_propensities(values) if shows_one(values) else None


def fit_linear_path(
    x: "Tensor | WideRows",
    labels: Tensor,
    ridges: tuple[float, ...] = RIDGES,
    weights: Tensor | None = None,
    propensity: np.ndarray | None = None,
    soft: Tensor | None = None,
) -> dict[float, FullLinear]:
    """Return one linear layer per ridge, by the loss of `swan` with a prior.

    The loss is that of `halftruth.losses.create("swan")`; its row weights are computed before each
    Newton step and fixed in it, so that the problem is convex. All rows are used in every step.
    `weights`: how much labels count, (N, 1) or (N, K). `propensity` (K,): how likely each class is
    named, where rows show one. `soft`: see `get_targets`.
    """
    rows, dim = x.shape
    present, unknown = get_targets(labels, soft)
    e = None
    if propensity is not None:
        e = torch.from_numpy(propensity).float().to(x.device)
    asked = rows if weights is None else (weights.expand_as(present) > 0).sum(dim=0)
    share = (present.sum(dim=0) + 0.5) / (asked + 1)
    weight = torch.zeros(dim, labels.shape[1], device=x.device)
    bias = torch.logit(share, eps=1e-4)
    z, steps, found = bias.expand_as(present), _FIRST_STEPS, {}
    # From a strong prior to a weak one, each from the solution of the one before.
    for ridge in sorted(ridges):
        for _ in range(steps):
            cell = weigh_cells(torch.sigmoid(z), present, unknown, weights, e)
            weight, bias, z = step_newton(x, present, cell, weight, bias, z, dim / (2 * ridge))
        steps = _NEXT_STEPS
        layer = FullLinear(dim, labels.shape[1])
        layer.load_state_dict({"weight": weight.T.cpu().contiguous(), "bias": bias.cpu()})
        found[ridge] = layer.requires_grad_(False)
    return found


def fit_forest(
    x: Tensor,
    labels: Tensor,
    seed: int,
    jobs: int = 1,
    trees: int = TREES,
    weights: Tensor | None = None,
    soft: Tensor | None = None,
    pairs: np.ndarray | None = None,
) -> tuple[Forest, np.ndarray]:
    """Return random trees, and their out-of-bag label shares; unknown counts as absent.

    A tree has one weight per row (`average_weights`). `pairs` (K, K) corrects the shares: see
    class_pairs.py.
    """
    from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor

    soft = impute_unasked(x, labels, weights, soft)
    x, labels, weights, soft = _draw_rows(_FOREST_ROWS, seed, x, labels, weights, soft)
    trust = None if weights is None else average_weights(weights).cpu().numpy()
    rows, present = x.cpu().numpy(), get_targets(labels, soft)[0].cpu().numpy()
    targets = present
    if present.shape[1] > _MIXTURES:
        mix = np.random.default_rng(seed).normal(size=(present.shape[1], _MIXTURES))
        targets = present @ mix.astype(np.float32)
    # A tree has about one leaf per 2 leaf_rows rows; with many classes, fewer trees fit in memory.
    trees = min(trees, max(50, 2 * _MOST_NUMBERS // present.size))
    least = math.ceil(present.size * trees / (2 * _MOST_NUMBERS))
    # Half of the trees take the best of some thresholds, half take random ones: which is better
    # depends on the data.
    forests = [
        kind(
            max(trees // 4, 1), max_features="sqrt", min_samples_leaf=max(leaf_rows, least),
            max_depth=_MOST_DEPTH, bootstrap=True, max_samples=min(len(rows), _TREE_ROWS),
            random_state=(seed + leaf_rows) % 2**32, n_jobs=jobs,
        ).fit(rows, targets, sample_weight=trust)
        for leaf_rows in _LEAF_ROWS
        for kind in (RandomForestRegressor, ExtraTreesRegressor)
    ]  # fmt: skip
    return convert_forests(forests, rows, present, trust, pairs)


def _draw_rows(most: int, seed: int, x: Tensor, *others: Any) -> Any:
    """Return all rows, or a random part of very many."""
    if len(x) <= most:
        return x, *others
    chosen = np.random.default_rng(seed).choice(len(x), most, replace=False)
    at = torch.from_numpy(np.sort(chosen)).to(x.device)
    return x[at], *(None if table is None else table[at] for table in others)


def fit_neighbours(
    x: Tensor,
    labels: Tensor,
    seed: int,
    weights: Tensor | None = None,
    soft: Tensor | None = None,
    pairs: np.ndarray | None = None,
) -> Neighbours:
    """Return the member that looks up similar training rows; of very many rows, a random part.

    A row has one weight (`average_weights`). `pairs` (K, K) corrects its shares.
    """
    soft = impute_unasked(x, labels, weights, soft)
    most = min(max(_MOST_NUMBERS // x.shape[1], 1000), _NEIGHBOUR_ROWS)
    x, labels, weights, soft = _draw_rows(most, seed, x, labels, weights, soft)
    weighted = weights is not None
    member = Neighbours(
        x.shape[1], labels.shape[1], rows=len(x), weighted=weighted, pairs=pairs is not None,
        soft=soft is not None,
    ).to(x.device)  # fmt: skip
    trust = None if weights is None else average_weights(weights)
    return member.set(x, get_targets(labels, soft)[0], trust, pairs)


# ---------------------------------------------------------------------- label values


def get_targets(labels: Tensor, soft: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return (N, K) how much each label is present, from 0 to 1, and 1 where it is unknown.

    `soft` (N, K): the probability that the class is present, NaN where it is unknown.
    """
    if soft is None:
        return (labels == PRESENT).float(), (labels == UNKNOWN).float()
    return soft.nan_to_num(0.0), soft.isnan().float()


def weigh_cells(
    p: Tensor, present: Tensor, unknown: Tensor, weights: Tensor | None, e: Tensor | None
) -> Tensor:
    """Return (..., N, K) how much each label counts in the loss of `swan` at probabilities `p`.

    `present`, `unknown`: see `get_targets`. `e`: how likely each class is named.
    """
    # A class that nobody was asked about is not a class that was left out.
    left_out = unknown if weights is None else unknown * (weights > 0)
    shown = present.sum(dim=-1, keepdim=True) + 1
    if e is None:
        share = shown / (shown + (left_out * p).sum(dim=-1, keepdim=True))
    else:
        others = ((present + left_out * p) * e).sum(dim=-1, keepdim=True)
        share = (shown * e / (others + e)).clamp(max=1.0)
    cell = 1 - left_out * (1 - share)
    return cell if weights is None else cell * weights


def average_weights(weights: Tensor) -> Tensor:
    """Return one weight per row (N,): the mean over the labels that count at all."""
    return weights.sum(dim=1) / (weights > 0).sum(dim=1).clamp(min=1)


def impute_unasked(
    x: Tensor, labels: Tensor, weights: Tensor | None, soft: Tensor | None
) -> Tensor | None:
    """Return soft labels: predictions of the linear member where labels have weight 0.

    For members that take one weight per row: a class that nobody was asked about would be absent.
    The linear member was not fitted to these labels.
    """
    unknown = labels == UNKNOWN if soft is None else soft.isnan()
    unannotated = None if weights is None else unknown & (weights <= 0)
    if unannotated is None or not bool(unannotated.any()):
        return soft
    layer = fit_linear_path(x, labels, (RIDGE,), weights, soft=soft)[RIDGE].to(x.device)
    known = get_targets(labels, soft)[0]
    known = torch.where(unknown, torch.nan, known)
    with torch.no_grad():
        return torch.where(unannotated, torch.sigmoid(layer(x)), known)
