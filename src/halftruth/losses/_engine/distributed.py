"""What processes that train together tell each other, over `torch.distributed`."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, distributed

# Gathers equally shaped tensors of all processes along the first dimension.
Exchange = Callable[[Tensor], Tensor]


def several() -> bool:
    """Whether `torch.distributed` runs more than this process."""
    return (
        distributed.is_available()
        and distributed.is_initialized()
        and distributed.get_world_size() > 1
    )


def everyone(said: Any) -> list[Any]:
    """What each process says, in the order of their ranks; all have to ask."""
    answers: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(answers, said)
    return answers


def gathering() -> Exchange | None:
    """An exchange over `torch.distributed`, or None where this process is alone."""
    if not several():
        return None
    world = distributed.get_world_size()

    def gather(tensor: Tensor) -> Tensor:
        tensor = tensor.contiguous()
        parts = [torch.empty_like(tensor) for _ in range(world)]
        distributed.all_gather(parts, tensor)
        return torch.cat(parts)

    return gather
