"""Outputs of a model for many rows, gathered over processes, no row twice."""

from collections.abc import Callable

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from halftruth.train.inputs import Inputs
from halftruth.train.order import shard


@torch.no_grad()
def outputs(
    forward: Callable[[Tensor], Tensor],
    inputs: Inputs,
    rows: np.ndarray,
    accelerator: Accelerator,
    batch_size: int,
) -> Tensor:
    """forward(input) of each row, (len(rows), ...) float32 on the device, in the order of `rows`.

    Every process scores its own part; the parts are then laid together by row number.
    """
    mine = shard(np.arange(len(rows)), accelerator.process_index, accelerator.num_processes)
    device = accelerator.device
    results = []
    batches = [mine[at : at + batch_size] for at in range(0, len(mine), batch_size)]
    for raw, _ in inputs.load([rows[batch].tolist() for batch in batches], device):
        with accelerator.autocast():
            out = forward(inputs.prepare(raw))
        results.append(out.float())
    if accelerator.num_processes == 1:
        return torch.cat(results) if results else torch.empty(0, device=device)
    places = torch.as_tensor(mine, device=device)
    together = torch.cat(results) if results else torch.empty(0, device=device)
    return _gathered(together, places, len(rows), accelerator)


def _gathered(values: Tensor, places: Tensor, count: int, accelerator: Accelerator) -> Tensor:
    """Lay the processes' parts together; parts may differ by a row, so they are padded first."""
    world = accelerator.num_processes
    width = -(-count // world)
    short = width - len(values)
    if len(values) == 0:
        raise RuntimeError(f"{count} rows cannot be spread over {world} processes")
    values = torch.cat([values, values[:1].expand(short, *values.shape[1:])])
    places = torch.cat([places, places.new_full((short,), -1)])
    values, places = accelerator.gather(values.contiguous()), accelerator.gather(places)
    result = torch.empty(count, *values.shape[1:], dtype=values.dtype, device=values.device)
    kept = places >= 0
    result[places[kept]] = values[kept]
    return result
