"""Labels of the most similar training rows, as a module."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from halftruth.models.forest import correct_shares, share_to_logit

# Neighbours of each row; with fewer, labels that are missing among them weigh too much.
NEIGHBOURS = 40
# Similarities closer than this are equal up to rounding.
_SAME = 1e-6


class Neighbours(nn.Module):
    """The logit of the label share among the nearest training rows, by cosine similarity.

        share_k = (Σ s² [k labelled in the neighbour] + share of k in all rows) / (Σ s² + 1)

    s is the similarity; the sums are over the nearest `count` rows, each times the weight of its
    row where rows have weights. Rows that are equally far share the last places. Nothing is
    trained, so nothing can be memorised: a missing label of one row is outvoted by the labels of
    similar rows.
    """

    rows: Tensor
    labels: Tensor
    prior: Tensor
    weights: Tensor | None
    pairs: Tensor | None

    def __init__(
        self,
        dim: int,
        num_classes: int,
        *,
        rows: int,
        count: int = NEIGHBOURS,
        weighted: bool = False,
        pairs: bool = False,
        soft: bool = False,
    ) -> None:
        super().__init__()
        self.count = min(count, rows)
        # Soft labels are stored in 8 bits.
        self.steps = 255 if soft else 1
        self.register_buffer("rows", torch.zeros(rows, dim, dtype=torch.float16))
        self.register_buffer("labels", torch.zeros(rows, num_classes, dtype=torch.uint8))
        self.register_buffer("prior", torch.zeros(num_classes))
        # How much each row counts; rows of runs without weights have no such table.
        self.register_buffer("weights", torch.ones(rows) if weighted else None)
        self.register_buffer("pairs", torch.ones(num_classes, num_classes) if pairs else None)

    @property
    def layout(self) -> dict[str, object]:
        """The sizes that the constructor needs."""
        sizes: dict[str, object] = {"rows": len(self.rows), "count": self.count}
        if self.weights is not None:
            sizes["weighted"] = True
        if self.pairs is not None:
            sizes["pairs"] = True
        if self.steps > 1:
            sizes["soft"] = True
        return sizes

    @torch.no_grad()
    def set(
        self,
        features: Tensor,
        labels: Tensor,
        weights: Tensor | None = None,
        pairs: np.ndarray | None = None,
    ) -> "Neighbours":
        """Store training rows (N, D), labels from 0 to 1, and how much each row counts, (N,).

        `pairs` (K, K) corrects the shares, see `correct_shares`.
        """
        self.rows.copy_(F.normalize(features, dim=1))
        self.labels.copy_((self.steps * labels.float()).round())
        self.prior.copy_(labels.float().mean(dim=0))
        if weights is not None and self.weights is not None:
            self.weights.copy_(weights)
            total = weights.sum().clamp(min=1e-12)
            self.prior.copy_((weights[:, None] * labels.float()).sum(dim=0) / total)
        if pairs is not None and self.pairs is not None:
            self.pairs.copy_(torch.from_numpy(pairs))
        return self

    def _apply(self, fn: object, recurse: bool = True) -> "Neighbours":
        """Keep the rows in 16 bits, also in a model of double precision."""
        super()._apply(fn, recurse)
        self.rows = self.rows.half()
        return self

    def forward(self, features: Tensor) -> Tensor:
        dtype = features.dtype
        similarity = (F.normalize(features, dim=1).float() @ self.rows.float().T).to(dtype)
        weight = weigh_nearest(similarity, self.count)
        if self.weights is not None:
            weight = weight * self.weights.to(dtype)
        votes = weight @ self.labels.to(dtype)
        share = (votes / self.steps + self.prior) / (weight.sum(dim=1, keepdim=True) + 1)
        return share_to_logit(correct_shares(share, self.pairs))


def weigh_nearest(similarity: Tensor, count: int) -> Tensor:
    """Return s² (B, N) of the `count` nearest rows, and 0 of all others.

    Rows that are equally far share the last places. Sparse and categorical features have many equal
    rows, and any choice among them would depend on the device and on the order of the rows.

    >>> weigh_nearest(torch.tensor([[0.9, 0.5, 0.5, 0.1]]), 2)
    tensor([[0.8100, 0.1250, 0.1250, 0.0000]])
    """
    if torch.compiler.is_compiling():
        return _share_last_places(similarity, similarity.topk(count, dim=1).values[:, -1:], count)
    nearest, index = similarity.topk(min(count + 1, similarity.shape[1]), dim=1)
    squares = nearest[:, :count].clamp(min=1e-3).square()
    weight = torch.zeros_like(similarity).scatter(1, index[:, :count], squares)
    # Few rows have ties at the end, and to look through all rows takes twice the time.
    last = nearest[:, count - 1 : count]
    at = torch.nonzero((nearest[:, count:] >= last - _SAME).any(dim=1)).flatten()
    weight[at] = _share_last_places(similarity[at], last[at], count)
    return weight


def _share_last_places(similarity: Tensor, last: Tensor, count: int) -> Tensor:
    # Products of equal rows may differ in their last digits.
    nearer, tied = similarity > last + _SAME, similarity >= last - _SAME
    places = count - nearer.sum(dim=1, keepdim=True)
    share = places / (tied.sum(dim=1, keepdim=True) - count + places)
    return similarity.clamp(min=1e-3).square() * torch.where(nearer, 1, tied * share)
