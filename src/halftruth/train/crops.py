"""Which part of a picture an augmented view shows."""

import torch
from torch import Tensor

from halftruth.data.transforms import _ASPECT, Augment


def crop_boxes(augment: Augment, keys: Tensor) -> Tensor:
    """(B, 4) left, top, width, height of the view that `augment(images, keys=keys)` makes.

    Shares of the picture's sides; where it is flipped, left is the edge on the right and the width
    is negative. The same draws and the same rule as in :class:`Augment`; a test compares them.
    """
    draws = augment._draws(keys, 1, None, keys)[0]
    flipped = draws["flip"] < (0.5 if augment.flip else 0.0)
    if augment.crop_scale is None:
        width = height = torch.ones_like(draws["area"])
    else:
        low, high = augment.crop_scale
        area = low + (high - low) * draws["area"]
        bound = (-area.log()).clamp(max=_ASPECT)
        aspect = ((2 * draws["aspect"] - 1) * bound).exp()
        width, height = (area * aspect).sqrt(), (area / aspect).sqrt()
    left, top = (1 - width) * draws["x"], (1 - height) * draws["y"]
    start = torch.where(flipped, left + width, left)
    return torch.stack([start, top, torch.where(flipped, -width, width), height], dim=1)
