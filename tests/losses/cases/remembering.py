"""Shared by the cases of methods with a memory: an index, and values to remember."""

from collections.abc import Callable
from typing import Any

import torch

from halftruth import losses

Remember = Callable[[losses.Loss, torch.Tensor], None]


def with_index(loss: losses.Loss, remember: Remember | None = None) -> losses.Loss:
    """A loss that can be called with logits and labels only, also if it needs an index.

    A batch is taken for the whole training set. `remember` fills the memory for the first batch;
    after that nothing is written any more, so that the same call gives the same value.
    """
    if not loss.needs_index:
        return loss
    todo = [] if remember is None else [remember]

    def give(module: Any, args: Any, kwargs: Any) -> Any:
        if len(args) > 2 or "index" in kwargs:
            return args, kwargs
        labels = torch.as_tensor(args[1])
        while todo:
            todo.pop()(module, labels)
        return args, {**kwargs, "index": torch.arange(len(labels))}

    loss.register_forward_pre_hook(give, with_kwargs=True)
    return loss.eval()


def pattern(n: int, c: int) -> float:
    """Nine numbers in [0, 0.5] that half precision holds exactly, spread over a table."""
    return (5 * n + 3 * c) % 9 / 16


def table(labels: torch.Tensor) -> torch.Tensor:
    """The pattern as a table of the labels' shape."""
    rows, classes = labels.shape
    values = [[pattern(n, c) for c in range(classes)] for n in range(rows)]
    return torch.tensor(values, dtype=torch.float64).view(rows, classes)
