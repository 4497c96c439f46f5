"""The model of many classes: a linear layer and the labels of similar rows."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from halftruth.models.classifier import Classifier
from halftruth.models.ensemble import make_preparation
from halftruth.models.heads import FullLinear, Head

# Similar rows that are looked up for each row.
NEIGHBOURS = 40
_LEAST_SHARE = 1e-7
# The number of logits that are held at once.
BLOCK = 8_000_000


class ManyClassHead(Head):
    """Logits for thousands of classes, of

        p_k = (1 − a) σ(w_k x + b_k) + a share_k

    share_k: the share of the nearest training rows, by cosine similarity, that have the label.
    `labels` (rows, most labels of a row) lists the classes of those rows, padded with K. a is found
    on rows that the model was not fitted on.
    """

    only_features: ClassVar[bool] = True
    rows: Tensor
    labels: Tensor
    share: Tensor

    def __init__(self, dim: int, num_classes: int, *, rows: int, most: int) -> None:
        super().__init__(dim, num_classes)
        self.num_classes = num_classes
        self.prepare = make_preparation(dim)
        self.linear = FullLinear(dim, num_classes)
        self.register_buffer("rows", torch.zeros(rows, dim))
        self.register_buffer("labels", torch.full((rows, most), num_classes, dtype=torch.int32))
        self.register_buffer("share", torch.tensor(0.0))

    @property
    def most_rows(self) -> int:
        """How many rows are scored at once, so that memory does not grow with their number."""
        return max(min(BLOCK // max(self.num_classes, len(self.rows)), 2048), 1)

    @property
    def layout(self) -> dict[str, object]:
        """The sizes that the constructor needs."""
        return {"rows": self.rows.shape[0], "most": self.labels.shape[1]}

    def forward(self, features: Tensor) -> Tensor:
        x = self.prepare(features.to(self.rows.dtype))
        return self.score_classes(x, self.find_neighbours(x), 0, self.num_classes)

    def find_neighbours(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the nearest rows of prepared features, (B, count), and their weights."""
        similarity = F.normalize(x, dim=1) @ self.rows.T
        nearest, index = similarity.topk(min(NEIGHBOURS, self.rows.shape[0]), dim=1)
        weight = nearest.clamp(min=1e-3).square()
        return index, weight / (weight.sum(dim=1, keepdim=True) + 1)

    def score_classes(self, x: Tensor, found: tuple[Tensor, Tensor], low: int, high: int) -> Tensor:
        """Return the logits of the classes low to high, from prepared features."""
        z = F.linear(x, self.linear.weight[low:high], self.linear.bias[low:high])
        p = (1 - self.share) * torch.sigmoid(z) + self.share * self.share_labels(found, low, high)
        return torch.logit(p, eps=_LEAST_SHARE)

    def share_labels(self, found: tuple[Tensor, Tensor], low: int, high: int) -> Tensor:
        """Return the weighted share of the nearest rows that have each label, (B, high - low)."""
        index, weight = found
        width = high - low
        columns = self.labels[index].long() - low
        # Other classes, and the padding, go to one more column.
        columns = torch.where((columns < 0) | (columns > width), width, columns)
        votes = torch.zeros_like(weight[:, :1]).expand(-1, width + 1).clone()
        each = weight[:, :, None].expand_as(columns)
        return votes.scatter_add(1, columns.flatten(1), each.flatten(1))[:, :width]


def build_many_classes(dim: int, num_classes: int, layout: dict[str, Any]) -> Classifier:
    """Return an untrained model of many classes.

    >>> model = build_many_classes(4, 3000, {"rows": 10, "most": 2})
    >>> model(torch.zeros(2, 4)).shape
    torch.Size([2, 3000])
    """
    head = ManyClassHead(dim, num_classes, **layout)
    return Classifier(nn.Identity(), head, feature_dim=dim, num_classes=num_classes)
