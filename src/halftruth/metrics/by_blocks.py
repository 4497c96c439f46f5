"""Metrics that are added up over blocks of rows: no (N, K) matrix is needed."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from halftruth.labels import PRESENT
from halftruth.metrics.counts import Counts, count
from halftruth.metrics.evaluate import summarize_counts


class RowBlockMetrics:
    """Precision at k, propensity-scored precision at k, and the scores of decisions.

    propensity: (K,) see `propensities`. Unknown labels count as absent; propensity-scored precision
    corrects for that, if the propensities are right. Rows without a present label do not count in
    precision at k.

    >>> metrics = RowBlockMetrics([0.8, 0.8, 0.4], ks=(1,))
    >>> scores, labels = torch.tensor([[0.9, 0.2, 0.1]]), torch.tensor([[1, 0, 0]])
    >>> metrics.add(scores, labels, scores > 0.5)
    >>> metrics.compute()["P@1"]
    1.0
    """

    def __init__(self, propensity: Sequence[float] | np.ndarray, ks: Sequence[int] = (1, 3, 5)):
        self.weights = 1 / torch.as_tensor(np.asarray(propensity), dtype=torch.float64)
        self.ks = [k for k in ks if k <= len(self.weights)]
        self.rows = 0
        self.hits = dict.fromkeys(self.ks, 0.0)
        self.gained = dict.fromkeys(self.ks, 0.0)
        self.best = dict.fromkeys(self.ks, 0.0)
        none = torch.zeros(len(self.weights), dtype=torch.int64)
        self.counts = Counts(none, none, none, none, torch.zeros(4, dtype=torch.int64))

    def add(self, scores: Tensor, labels: Tensor, chosen: Tensor | np.ndarray) -> None:
        """Add rows: scores and labels (B, K), and which labels are predicted."""
        self.counts += count(torch.as_tensor(chosen).float(), labels, 0.5)
        present = labels == PRESENT
        filled = present.any(dim=1)
        if not self.ks or not bool(filled.any()):
            return
        self.rows += int(filled.sum())
        top = scores[filled].topk(max(self.ks), dim=1).indices
        hit = present[filled].gather(1, top).double()
        value = hit * self.weights[top]
        best = torch.where(present[filled], self.weights, 0.0).topk(max(self.ks), dim=1).values
        for k in self.ks:
            self.hits[k] += float(hit[:, :k].sum()) / k
            self.gained[k] += float(value[:, :k].sum())
            self.best[k] += float(best[:, :k].sum())

    def compute(self) -> dict[str, float]:
        """Return P@k and PSP@k, and what `summarize_counts` returns."""
        nan = float("nan")
        found = {f"P@{k}": self.hits[k] / self.rows if self.rows else nan for k in self.ks}
        found |= {
            f"PSP@{k}": self.gained[k] / self.best[k] if self.best[k] else nan for k in self.ks
        }
        return found | summarize_counts(self.counts)
