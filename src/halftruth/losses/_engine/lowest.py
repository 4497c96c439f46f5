"""The lowest so many of each column, as a bound that any row can be held against.

Methods that rank all samples of a class keep two numbers a class, not a mask of all samples.
"""

import torch
from torch import Tensor


def lowest(values: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Where the `counts` lowest values of each column end, as (value, row): see `up_to`.

    Of equal values the ones of the first rows count as lower, so that exactly so many are found.

    >>> lowest(torch.tensor([[0.3], [0.1], [0.3], [0.2]]), torch.tensor([3]))
    (tensor([0.3000]), tensor([0]))
    """
    ordered, rows = values.T.contiguous().sort(dim=1, stable=True)
    last = (counts - 1).clamp(min=0).unsqueeze(1)
    value, row = ordered.gather(1, last).squeeze(1), rows.gather(1, last).squeeze(1)
    none = counts <= 0
    return value.masked_fill(none, -torch.inf), row.masked_fill(none, -1)


def up_to(values: Tensor, rows: Tensor, value: Tensor, row: Tensor) -> Tensor:
    """Whether entries come no later than (value, row) of their column; ties go by row number."""
    return (values < value) | ((values == value) & (rows.unsqueeze(1) <= row))
