"""Weights of the members of an ensemble, found on their out-of-sample scores."""

import math
import warnings

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from halftruth.labels import ABSENT, PRESENT, UNKNOWN
from halftruth.metrics import mean_average_precision, mean_roc_auc
from halftruth.train.ensemble.solver import minimise

# How strongly the weights of a class are regularised towards those of all classes.
_CLASS_PRIOR = 10.0
_MOST_CELLS = 2_000_000
_STEPS = 60
# A part of the weights goes by the scores of the members, to this power: a member that is a tenth
# behind the best has an eighth of its weight there.
_SCORE_POWER = 20
# With this many labels per class, a quarter of the weights goes by the scores; at most a half.
_ENOUGH_LABELS = 10


def score_members(scores: Tensor, labels: Tensor, counts: Tensor | None = None) -> float:
    """Return the criterion: the geometric mean of mAP and AUC; mAP where no label is unknown.

    `counts` (N, K): how much an unknown label counts as absent; below a half, it is left out.
    """
    known = labels
    if counts is not None:
        absent = (labels == UNKNOWN) & (counts >= 0.5)
        known = torch.where(absent, torch.tensor(ABSENT, dtype=labels.dtype), labels)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="No class has")
        ignored = counts is not None
        mean_ap = mean_average_precision(scores, known, ignore_unknown=ignored)
        auc = mean_roc_auc(scores, known, ignore_unknown=ignored)
    value = math.sqrt(mean_ap * auc) if bool((labels == UNKNOWN).any()) else mean_ap
    return value if math.isfinite(value) else -1.0


def find_weights(scores: Tensor, labels: Tensor, counts: Tensor | None = None) -> Tensor:
    """Return the share of each member per class, (M, K), by logistic regression on the labels.

        logit P(labelled) = a_k + Σ_m w_mk z_mk,   w_mk = exp(c_m + d_mk),   d_mk ~ N(0, 1/10)

    `scores` (M, N, K) are standardised out-of-sample scores. Weights are positive and the same for
    all classes, except where a class has enough labels to show otherwise. `counts` (N, K): how much
    an unknown label counts as absent.
    """
    if len(scores) == 1:
        return torch.ones(1, labels.shape[1])
    some = _draw_cells(*labels.shape)
    z, target = scores[:, some], (labels[some] == PRESENT).float()
    cell = None if counts is None else torch.where(labels[some] == UNKNOWN, counts[some], 1.0)
    common = torch.full((len(z), 1), -math.log(len(z)), requires_grad=True)
    own = torch.zeros(len(z), z.shape[2], requires_grad=True)
    offset = torch.logit(target.mean(dim=0), eps=1e-4).requires_grad_()

    def loss() -> Tensor:
        logits = torch.einsum("mk,mnk->nk", (common + own).exp(), z) + offset
        value = F.binary_cross_entropy_with_logits(logits, target, cell, reduction="sum")
        return value + _CLASS_PRIOR / 2 * own.square().sum() + 0.15 * common.square().sum()

    minimise([common, own, offset], lambda: loss() / len(target), _STEPS)
    weight = (common + own).exp().detach()
    return weight / weight.sum(dim=0)


def mix_with_scores(share: Tensor, scores: Tensor, kept: Tensor, labels: Tensor) -> Tensor:
    """Return shares (M, K) that are in part by the scores (M,) of the members; 0 where not kept.

    The logistic regression predicts which labels are *shown*. A member that ranks well on the
    whole keeps some weight, even if others predict better what was shown. With few labels per
    class, scores are noise: their part grows with the labels, up to a half.

    >>> share, score = torch.tensor([[0.8], [0.2]]), torch.tensor([0.5, 0.5])
    >>> mix_with_scores(share, score, torch.tensor([True, True]), torch.ones(10, 1)).flatten()
    tensor([0.7250, 0.2750])
    """
    shown = (labels == PRESENT).sum(dim=0)
    mean = float(shown[shown > 0].float().mean()) if bool((shown > 0).any()) else 0.0
    part = 0.5 * mean / (mean + _ENOUGH_LABELS)
    by_score = torch.where(kept, (scores / scores.max()).clamp(min=0) ** _SCORE_POWER, 0.0)
    mixed = (1 - part) * share + part * (by_score / by_score.sum())[:, None]
    mixed = torch.where(kept[:, None], mixed, 0.0)
    return mixed / mixed.sum(dim=0)


def fit_curve(
    scores: Tensor, labels: Tensor, counts: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return slope and offset per class of logit P(labelled | score); slopes are regularised.

    `counts` (N, K): labels with 0 were not asked for and do not count.
    """
    some = _draw_cells(*labels.shape)
    z, target = scores[some], (labels[some] == PRESENT).float()
    cell = None if counts is None else ((counts[some] > 0) | (labels[some] != UNKNOWN)).float()
    common = torch.zeros(1, requires_grad=True)
    own = torch.zeros(z.shape[1], requires_grad=True)
    offset = torch.logit(target.mean(dim=0), eps=1e-4).requires_grad_()

    def loss() -> Tensor:
        logits = _slope(common + own) * z + offset
        value = F.binary_cross_entropy_with_logits(logits, target, cell, reduction="sum")
        return value + _CLASS_PRIOR / 2 * own.square().sum() + 0.1 * offset.square().sum()

    minimise([common, own, offset], lambda: loss() / len(target), _STEPS)
    return _slope(common + own).detach(), offset.detach()


def _slope(logarithm: Tensor) -> Tensor:
    """Bounded: of scores that know nothing, a step may go so far that nothing finite is left.

    >>> bool(_slope(torch.tensor(200.0)).isfinite())
    True
    """
    return logarithm.clamp(max=8.0).exp()


def _draw_cells(rows: int, classes: int) -> Tensor:
    """Return all rows, or a random part where there are very many labels."""
    most = max(_MOST_CELLS // classes, 200)
    if rows <= most:
        return torch.arange(rows)
    return torch.from_numpy(np.random.default_rng(0).choice(rows, most, replace=False))
