"""Random boxes of pictures, and the weights that resample what is in them."""

import math

import torch
from torch import Tensor

ASPECT = math.log(4 / 3)


def random_boxes(
    draws: dict[str, Tensor], scale: tuple[float, float] | None, flip: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Left, top, width, height (B,) as shares of the picture's sides, from uniform numbers.

    `scale`: the share of the area that is kept, from low to high; None: all of it. Where a picture
    is flipped, left is the edge on the right and the width is negative.
    """
    if scale is None:
        width = height = torch.ones_like(draws["area"])
    else:
        low, high = scale
        area = low + (high - low) * draws["area"]
        # Aspects are drawn among those whose box fits: the area is exact, and never redrawn.
        bound = (-area.log()).clamp(max=ASPECT)
        aspect = ((2 * draws["aspect"] - 1) * bound).exp()
        width, height = (area * aspect).sqrt(), (area / aspect).sqrt()
    left, top = (1 - width) * draws["x"], (1 - height) * draws["y"]
    if not flip:
        return left, top, width, height
    flipped = draws["flip"] < 0.5
    start = torch.where(flipped, left + width, left)
    return start, top, torch.where(flipped, -width, width), height


def resampling(start: Tensor, length: Tensor, pixels: int, size: int) -> Tensor:
    """(B, size, pixels) weights that resample the span start .. start + length to `size` points.

    Spans are shares of the picture's side; a negative length runs backwards, which is a flip. The
    weights are those of bilinear interpolation; where the span shrinks, the triangle widens with
    it (antialias), as in Pillow and in `F.interpolate(antialias=True)`.
    """
    points = (torch.arange(size, device=start.device) + 0.5) / size
    centres = (start[:, None] + length[:, None] * points) * pixels
    reach = (length.abs() * pixels / size).clamp(min=1)[:, None, None]
    taps = torch.arange(pixels, device=start.device) + 0.5
    weights = (1 - (taps - centres[:, :, None]).abs() / reach).clamp(min=0)
    return weights / weights.sum(2, keepdim=True)
