"""Random numbers that hang on a key alone: not on the batch, the device or the process."""

import torch
from torch import Tensor


def keyed_uniform(keys: Tensor, count: int) -> Tensor:
    """(B, count) numbers in [0, 1) that depend on each row's integer key alone (SplitMix64).

    >>> one, two = keyed_uniform(torch.tensor([7, 8]), 3), keyed_uniform(torch.tensor([8]), 3)
    >>> bool((one[1] == two[0]).all())
    True
    """
    step = torch.arange(1, count + 1, device=keys.device)
    z = keys.long()[:, None] + step * -0x61C8864680B583EB
    for bits, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
        z = (z ^ ((z >> bits) & ((1 << (64 - bits)) - 1))) * factor
    z = z ^ ((z >> 31) & ((1 << 33) - 1))
    return ((z >> 40) & 0xFFFFFF).float() / (1 << 24)
