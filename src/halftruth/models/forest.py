"""A random forest as tensors: predictions, exports and checkpoints need no pickle."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

# Label shares of leaves are stored in 8 bits: the mean over many trees is exact to about 1e-4.
_STEPS = 255
# Trees whose leaves are looked up at once; bounds the memory of a batch.
_TREES_AT_ONCE = 16


class Forest(nn.Module):
    """The logit of the mean label share of the leaves that a row reaches.

    `feature`, `threshold`, `left` and `right` hold the trees, one per row, padded to the same
    number of nodes. A leaf points to itself; `leaf` is its row in `shares`, the table (leaves, K).
    `pairs` (K, K), if any, corrects the shares (`correct_shares`).
    """

    feature: Tensor
    threshold: Tensor
    left: Tensor
    right: Tensor
    leaf: Tensor
    shares: Tensor
    pairs: Tensor | None

    def __init__(
        self,
        num_classes: int,
        *,
        trees: int,
        nodes: int,
        leaves: int,
        depth: int,
        pairs: bool = False,
    ) -> None:
        super().__init__()
        self.depth = depth
        self.register_buffer("pairs", torch.ones(num_classes, num_classes) if pairs else None)
        for name, dtype in (
            ("feature", torch.int32),
            ("threshold", torch.float32),
            ("left", torch.int32),
            ("right", torch.int32),
            ("leaf", torch.int32),
        ):
            self.register_buffer(name, torch.zeros(trees, nodes, dtype=dtype))
        self.register_buffer("shares", torch.zeros(leaves, num_classes, dtype=torch.uint8))

    @property
    def layout(self) -> dict[str, Any]:
        """The sizes that the constructor needs."""
        trees, nodes = self.feature.shape
        sizes = {"trees": trees, "nodes": nodes, "leaves": len(self.shares), "depth": self.depth}
        return sizes if self.pairs is None else {**sizes, "pairs": True}

    def find_leaves(self, features: Tensor) -> Tensor:
        """Return the row of `shares` that each row reaches in each tree, (B, trees)."""
        # The trees were grown on float32, and a value may equal a threshold.
        x = features.float()
        trees, nodes = self.feature.shape
        offset = torch.arange(trees, device=x.device) * nodes
        tables = [t.flatten() for t in (self.feature, self.threshold, self.left, self.right)]
        node = torch.zeros(x.shape[0], trees, dtype=torch.long, device=x.device)
        for _ in range(self.depth):
            feature, threshold, left, right = (table[node + offset] for table in tables)
            below = x.gather(1, feature.long()) <= threshold
            node = torch.where(below, left, right).long()
        return self.leaf.flatten()[node + offset]

    def forward(self, features: Tensor) -> Tensor:
        reached = self.find_leaves(features).long()
        total = torch.zeros(
            reached.shape[0], self.shares.shape[1], dtype=torch.float32, device=reached.device
        )
        for some in reached.split(_TREES_AT_ONCE, dim=1):
            total = total + self.shares[some].float().sum(dim=1)
        share = correct_shares(total / (_STEPS * reached.shape[1]), self.pairs)
        return share_to_logit(share).to(features.dtype)


def share_to_logit(share: Tensor) -> Tensor:
    """Return the logit of a share of labels, bounded: a share of 0 is not certainty."""
    return torch.logit(share, eps=1 / 400)


def correct_shares(share: Tensor, pairs: Tensor | None) -> Tensor:
    """Return shares of labels (N, K) for rows that show one of their classes.

        share_k / (Σ_j share_j w_jk + share of rows that show nothing)

    A row that shows class j counts as a row without class k by w_jk (`pairs`) only: k may be
    present, and j was named first. Without `pairs`, shares stay as they are.

    >>> pairs = torch.tensor([[1.0, 0.1], [1.0, 1.0]])
    >>> correct_shares(torch.tensor([[0.5, 0.5]]), pairs)
    tensor([[0.5000, 0.9091]])
    """
    if pairs is None:
        return share
    blank = (1 - share.sum(dim=1, keepdim=True)).clamp(min=0)
    return share / (share @ pairs.to(share.dtype) + blank).clamp(min=1e-9)


def convert_forests(
    fitted: Sequence[Any],
    x: np.ndarray,
    labels: np.ndarray,
    weights: np.ndarray | None = None,
    pairs: np.ndarray | None = None,
) -> tuple[Forest, np.ndarray]:
    """Return fitted scikit-learn forests as one module, and their out-of-bag label shares (N, K).

    The shares of a leaf are those of the rows its tree was grown on. `labels` (N, K) are 0 and 1;
    the trees may have been grown on other targets. `weights` (N,): how much each row counts.
    `pairs` (K, K): see `correct_shares`. Rows that every tree has seen get NaN.
    """
    from scipy.sparse import csr_matrix

    trees = [one.tree_ for forest in fitted for one in forest.estimators_]
    nodes = max(tree.node_count for tree in trees)
    leaves = sum(int((tree.children_left < 0).sum()) for tree in trees)
    depth = max(tree.max_depth for tree in trees)
    layout = {"trees": len(trees), "nodes": nodes, "leaves": leaves, "depth": depth}
    module = Forest(labels.shape[1], **layout, pairs=pairs is not None)
    if pairs is not None:
        module.pairs = torch.from_numpy(pairs).float()
    sparse = csr_matrix(labels, dtype=np.float32)
    reached = np.hstack([forest.apply(x) for forest in fitted])
    # The property draws all samples again whenever it is read.
    samples = [rows for forest in fitted for rows in forest.estimators_samples_]
    total, seen, first = np.zeros(labels.shape, np.float32), np.zeros(len(x)), 0
    for number, tree in enumerate(trees):
        own = np.arange(tree.node_count)
        is_leaf = tree.children_left < 0
        row_of_node = np.cumsum(is_leaf) - 1
        # A leaf leads to itself: rows that arrive early stay there.
        for name, values in (
            ("feature", np.where(is_leaf, 0, tree.feature)),
            ("threshold", _round_down(tree.threshold)),
            ("left", np.where(is_leaf, own, tree.children_left)),
            ("right", np.where(is_leaf, own, tree.children_right)),
            ("leaf", first + row_of_node),
        ):
            table = getattr(module, name)
            table[number, : len(own)] = torch.from_numpy(values).to(table.dtype)
        drawn = np.bincount(samples[number], minlength=len(x))
        at = row_of_node[reached[:, number]]
        count = int(is_leaf.sum())
        counts = drawn if weights is None else drawn * weights
        member = csr_matrix((counts.astype(np.float32), (at, np.arange(len(x)))), (count, len(x)))
        rows_in_leaf = np.asarray(member.sum(axis=1))
        rows_in_leaf = np.where(rows_in_leaf > 0, rows_in_leaf, 1)
        shares = (member @ sparse).toarray() / rows_in_leaf
        out = drawn == 0
        total[out] += shares[at[out]]
        seen += out
        module.shares[first : first + count] = torch.from_numpy(np.rint(shares * _STEPS)).byte()
        first += count
    with np.errstate(invalid="ignore"):
        shares = total / np.where(seen == 0, np.nan, seen)[:, None]
    return module, correct_shares(torch.from_numpy(shares), module.pairs).numpy()


def _round_down(threshold: np.ndarray) -> np.ndarray:
    """Return float32 thresholds t' such that x <= t' just where x <= t, for x in float32."""
    rounded = threshold.astype(np.float32)
    return np.where(rounded > threshold, np.nextafter(rounded, np.float32(-np.inf)), rounded)
