"""Outputs of a model for many rows, gathered over processes, no row twice."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from halftruth.models.classifier import bare_forward
from halftruth.train.inputs import Inputs


@torch.no_grad()
def outputs(
    forward: Callable[[Tensor], Tensor],
    inputs: Inputs,
    rows: np.ndarray,
    accelerator: Accelerator,
    batch_size: int,
    progress: Callable[[int], None] | None = None,
) -> Tensor:
    """forward(input) of each row, (len(rows), ...) float32 on the device, in the order of `rows`.

    Process r of w takes every w-th row; what they found is then laid together by place. So that
    all have as many, the last place may be filled up with the first row, which is thrown away.
    `progress` hears how many rows are done, over all processes.

    In float32, whatever the precision of training: what is compared, ranked and kept should not
    hang on the third digit, all that bfloat16 has.
    """
    if isinstance(forward, nn.Module):
        forward = bare_forward(forward)
    rows, world, device = np.asarray(rows), accelerator.num_processes, accelerator.device
    if not len(rows):
        return torch.empty(0, device=device)
    places = np.arange(accelerator.process_index, -(-len(rows) // world) * world, world)
    mine = rows[np.where(places < len(rows), places, 0)]
    batches = [mine[at : at + batch_size] for at in range(0, len(mine), batch_size)]
    results = []
    with _tensor_cores(device):
        for raw, index in inputs.load(batches, device):
            results.append(forward(inputs.prepare(raw)).float())
            if progress is not None:
                progress(len(index) * world)
    values = torch.cat(results)
    if world == 1:
        return values
    # Rank after rank, every w-th row each: turned over, they are in the order of the rows.
    gathered = accelerator.gather(values.contiguous())
    return gathered.unflatten(0, (world, -1)).transpose(0, 1).flatten(0, 1)[: len(rows)]


@contextmanager
def _tensor_cores(device: torch.device) -> Iterator[None]:
    """On CUDA, float32 products of factors with ten bits (TF32), as convolutions have them anyway.

    They are several times as fast, and eight times as exact as products in bfloat16.
    """
    if device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
