"""Links between classes: the scores of other classes improve those of a class (out of sample)."""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from halftruth.labels import PRESENT, UNKNOWN
from halftruth.train.ensemble.solver import minimise

# The precision of the prior of a link: about as many labels of a class must speak for it.
PRIOR = 300.0
# With more classes, the table is large. Rows times pairs of classes bound the time.
_MOST_CLASSES, _MOST_WORK = 500, 200_000_000
_STEPS = 30


def fit_links(
    scores: Tensor, logits: Tensor, labels: Tensor, asked: Tensor | None = None
) -> Tensor | None:
    """Return c (K, K), or None with very many classes.

        logit P(labelled) = z_k + Σ_j c_jk s_j,    c_jk ~ N(0, 1/300)

    s are out-of-sample scores and z their logits (N, K). Unknown labels have the weights of `swan`:
    in rows where many classes are expected, they count less as absent. `asked` (N, K): 0 where a
    label does not count at all.
    """
    if labels.shape[1] > _MOST_CLASSES or labels.shape[1] < 2:
        return None
    most = max(_MOST_WORK // labels.shape[1] ** 2, 200)
    if len(labels) > most:
        some = torch.from_numpy(np.random.default_rng(0).choice(len(labels), most, replace=False))
        scores, logits, labels = scores[some], logits[some], labels[some]
        asked = None if asked is None else asked[some]
    target, unknown = (labels == PRESENT).float(), (labels == UNKNOWN).float()
    unknown = unknown if asked is None else unknown * asked
    shown = target.sum(dim=1, keepdim=True) + 1
    expected = (unknown * torch.sigmoid(logits)).sum(dim=1, keepdim=True)
    cell = 1 - unknown * (1 - shown / (shown + expected))
    cell = cell if asked is None else cell * asked
    links = torch.zeros(labels.shape[1], labels.shape[1], requires_grad=True)
    # The level of each class in these rows. Links must not make up for it.
    level = torch.zeros(labels.shape[1], requires_grad=True)

    def value() -> Tensor:
        moved = logits + scores @ links + level
        value = F.binary_cross_entropy_with_logits(moved, target, cell, reduction="sum")
        return (value + PRIOR / 2 * links.square().sum()) / len(labels)

    minimise([links, level], value, _STEPS)
    return links.detach()


def hold_out_links(
    scores: Tensor, logits: Tensor, labels: Tensor, fold: np.ndarray, asked: Tensor | None = None
) -> Tensor:
    """Return the logits (N, K) with links that were fitted to the rows of other folds."""
    moved = logits.clone()
    if len(np.unique(fold)) == 1:
        fold = np.arange(len(fold)) % 2
    for one in np.unique(fold):
        out = torch.from_numpy(fold == one)
        inside = None if asked is None else asked[~out]
        links = fit_links(scores[~out], logits[~out], labels[~out], inside)
        if links is not None:
            moved[out] = logits[out] + scores[out] @ links
    return moved
