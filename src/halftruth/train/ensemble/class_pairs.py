"""How much a row that shows one class counts as a row without another class, (K, K).

Where each row shows one of its classes, the others count as absent, though some are present. A
member learns from this which class is *named*, not which is present. Two tables correct it:

- Frequent classes are named first (`find_pairs`): used where labels look biased.
- Classes occur together (`weigh_similar`): if rows that show j have scores for k nearly as high as
  rows that show k, k is probably present there, and was not named. Classes that are only confused
  have a lower score: a model that tells them apart at all gives its own rows more.
"""

import numpy as np
import torch
from torch import Tensor

from halftruth.labels import PRESENT
from halftruth.presence.propensity import shows_one, weigh_pairs

# With more classes, a table of all pairs of classes is too large.
_MOST_PAIRED = 2_000
# Up to this similarity, classes may be confused. From here, a row counts less, down to nothing.
_CONFUSED = 0.5
# The mean score of a class with few rows is drawn towards that of all rows, by as many rows.
_PRIOR_ROWS = 5.0
# The least lead of a class in its own rows, in standard deviations: less is noise.
_LEAST_LEAD = 0.5
# No label counts for nothing: weight 0 would mean that nobody was asked.
_LEAST = 0.001


def can_pair(labels: np.ndarray) -> bool:
    """Return whether rows show one class each, of not too many classes."""
    return labels.shape[1] <= _MOST_PAIRED and shows_one(labels)


def find_pairs(labels: Tensor) -> np.ndarray | None:
    """Return the table for frequent classes that are named first, or None where there is none."""
    values = labels.cpu().numpy()
    return weigh_pairs(values) if can_pair(values) else None


def weigh_similar(labels: Tensor, scores: Tensor) -> np.ndarray:
    """Return the table for classes that occur together, from standardised out-of-sample scores.

        r_jk = (mean of s_k in rows that show j − b_k) / (mean of s_k in rows that show k − b_k)
        w_jk = 1 − clip((r_jk − ½) / ½, 0, 1),    w_kk = 1

    b_k is the mean in rows that do not show k.

    >>> labels = torch.eye(3, dtype=torch.int8).repeat(50, 1)
    >>> scores = torch.tensor([[1.0, 0.9, 0.0], [0.9, 1.0, 0.0], [0.0, 0.0, 1.0]]).repeat(50, 1)
    >>> weigh_similar(labels, scores).round(1).tolist()
    [[1.0, 0.5, 1.0], [0.5, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """
    shown = (labels == PRESENT).float()
    count = shown.sum(dim=0)
    base = ((1 - shown) * scores).sum(dim=0) / (1 - shown).sum(dim=0).clamp(min=1)
    surplus = shown.T @ scores - count[:, None] * base
    lead = (surplus.diagonal() / count.clamp(min=1)).clamp(min=_LEAST_LEAD)
    similar = surplus / (count[:, None] + _PRIOR_ROWS) / lead
    weight = (1 - (similar - _CONFUSED) / (1 - _CONFUSED)).clamp(_LEAST, 1.0)
    return np.asarray(weight.fill_diagonal_(1.0).double().numpy())


def count_as_absent(labels: Tensor, pairs: np.ndarray) -> Tensor:
    """Return (N, K) how much each unknown label counts as absent, by the class its row shows.

    Rows that show nothing, or several classes, count in full.
    """
    present = (labels == PRESENT).float()
    alone = present.sum(dim=1, keepdim=True) == 1
    return torch.where(alone, present @ torch.from_numpy(pairs).float(), 1.0)
