"""The losses in their published code style, as the reference for `benchmarks/losses.py`.

Written from the papers' formulas, in the common style of the public codes: sigmoid first, a guard
inside the logarithms, both sides computed for every entry and then masked and added (or written
into a matrix through boolean indices), autograd keeping every step. Targets are floats, 1 present
and 0 not labelled; any other entry adds nothing. Reductions are the published ones.
"""

import torch
from torch import Tensor
from torch.nn import functional as F


def bce(logits: Tensor, targets: Tensor, eps: float = 1e-5) -> Tensor:
    """Assume negative, by boolean indices; mean."""
    p = torch.sigmoid(logits)
    losses = torch.zeros_like(targets)
    losses[targets == 1] = -torch.log(p[targets == 1] + eps)
    losses[targets == 0] = -torch.log(1 - p[targets == 0] + eps)
    return losses.mean()


def em(logits: Tensor, targets: Tensor, alpha: float = 0.1, eps: float = 1e-5) -> Tensor:
    """Entropy maximisation, by boolean indices; mean."""
    p = torch.sigmoid(logits)
    losses = torch.zeros_like(targets)
    losses[targets == 1] = -torch.log(p[targets == 1] + eps)
    p_unknown = p[targets == 0]
    entropy = -(
        p_unknown * torch.log(p_unknown + eps) + (1 - p_unknown) * torch.log(1 - p_unknown + eps)
    )
    losses[targets == 0] = -alpha * entropy
    return losses.mean()


def asl(
    logits: Tensor,
    targets: Tensor,
    gamma_pos: float = 0.0,
    gamma_neg: float = 4.0,
    margin: float = 0.05,
    detach_weight: bool = False,
) -> Tensor:
    """Asymmetric loss: clamped logarithms, one power with an exponent for each label; sum."""
    present, absent = targets, 1 - targets
    p = torch.sigmoid(logits)
    q = (1 - p + margin).clamp(max=1)
    logs = present * torch.log(p.clamp(min=1e-8)) + absent * torch.log(q.clamp(min=1e-8))
    sure = p * present + q * absent
    if detach_weight:
        sure = sure.detach()
    weight = torch.pow(1 - sure, gamma_pos * present + gamma_neg * absent)
    return -(logs * weight).sum()


def hill(logits: Tensor, targets: Tensor, lam: float = 1.5, margin: float = 1.0) -> Tensor:
    """Hill with focal-margin positives, plain logarithms; sum."""
    p = torch.sigmoid(logits)
    shifted = torch.sigmoid(logits - margin)
    present = -((1 - shifted) ** 2) * torch.log(shifted)
    absent = (lam - p) * p**2
    return (targets * present + (1 - targets) * absent).sum()


def splc(
    logits: Tensor, targets: Tensor, tau: float = 0.6, margin: float = 1.0, gamma: float = 2.0
) -> Tensor:
    """Focal margin with self-paced correction, after its first epoch; sum."""
    shifted = torch.where(targets == 1, logits - margin, logits)
    corrected = torch.where(torch.sigmoid(logits) > tau, torch.ones_like(targets), targets)
    p = torch.sigmoid(shifted)
    present = (1 - p) ** gamma * F.logsigmoid(shifted)
    absent = p**gamma * F.logsigmoid(-shifted)
    return -(corrected * present + (1 - corrected) * absent).sum()


def gr(
    logits: Tensor,
    targets: Tensor,
    w: float = 0.0,
    b: float = -2.0,
    mu: float = 0.5,
    sigma: float = 2.0,
    q2: float = 0.01,
    q3: float = 1.0,
) -> Tensor:
    """Generalised robust loss at one place of its schedule; mean."""
    p = torch.sigmoid(logits)
    fixed = p.detach()
    k = 1 / (1 + torch.exp(-(w * fixed + b)))
    v = torch.exp(-((fixed - mu) ** 2) / (2 * sigma**2))
    present = -torch.log(p + 1e-7)
    unknown = v * (k * (1 - p**q2) / q2 + (1 - k) * (1 - (1 - p) ** q3) / q3)
    return ((targets == 1) * present + (targets == 0) * unknown).mean()


def lasd(
    logits: Tensor,
    targets: Tensor,
    lam_pos: float = 0.1,
    lam_neg: float = 0.05,
    tau: float = 0.9,
    gamma_neg: float = 4.0,
    eps: float = 1e-5,
) -> Tensor:
    """Leveraged asymmetric loss with disambiguation (no public code: the paper's eq. 6); mean."""
    p = torch.sigmoid(logits)
    present = -torch.log(p + eps)
    absent = -(p**gamma_neg) * torch.log(1 - p + eps)
    above = (p > tau).float()
    unknown = above * lam_pos * present + (1 - above) * lam_neg * absent
    return (targets * present + (1 - targets) * unknown).mean()


def any_class(logits: Tensor, targets: Tensor, alpha: float = 1.0, lam: float = 0.1) -> Tensor:
    """Cross-entropy with the any-class term; mean over rows of the sum over classes."""
    base = F.binary_cross_entropy_with_logits(logits, targets, reduction="none").sum(dim=1)
    any_target = (targets.sum(dim=1) > 0).float()
    positive = any_target.unsqueeze(1)
    weights = positive * (targets + lam * (1 - targets)) + (1 - positive)
    mean = (weights * logits).sum(dim=1) / weights.sum(dim=1)
    extra = F.binary_cross_entropy_with_logits(mean, any_target, reduction="none")
    return (base + alpha * extra).mean()
