"""Truth values as bits, and tensors as bytes: how tables are kept small and sent."""

import torch
from torch import Tensor
from torch.nn.functional import pad


def packed(bits: Tensor) -> Tensor:
    """Truth values as bits, eight to a byte along the last dimension.

    >>> packed(torch.tensor([[True, False, True, False, False, False, False, False, True]]))
    tensor([[5, 1]], dtype=torch.uint8)
    """
    if bits.dim() == 1:
        return bits.to(torch.uint8)
    whole = pad(bits.to(torch.uint8), (0, -bits.shape[-1] % 8))
    places = torch.arange(8, dtype=torch.uint8, device=bits.device)
    return (whole.unflatten(-1, (-1, 8)) << places).sum(dim=-1, dtype=torch.uint8)


def unpacked(values: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The truth values behind `packed`, for samples of the given shape."""
    if not shape:
        return values.bool()
    places = torch.arange(8, dtype=torch.uint8, device=values.device)
    bits = (values.unsqueeze(-1) >> places) & 1
    return bits.flatten(-2)[..., : shape[-1]].bool()


def as_bytes(rows: Tensor) -> Tensor:
    """The same memory as bytes, a line a row: every way of exchanging tensors takes those."""
    return rows.reshape(len(rows), -1).view(torch.uint8)
