"""Augmentation of whole batches on their device: bytes in, normalised images out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

PRESETS: dict[str, dict[str, object]] = {
    "none": {},
    "flip": {"flip": True},
    "weak": {"flip": True, "crop_scale": (0.55, 1.0), "brightness": 0.2},
    "strong": {
        "flip": True,
        "crop_scale": (0.35, 1.0),
        "brightness": 0.4,
        "contrast": 0.4,
        "saturation": 0.4,
        "erase": 0.25,
    },
}
# Random numbers per image. All are always drawn, so that options do not affect each other.
_DRAWN = ("flip", "area", "aspect", "x", "y", "brightness", "contrast", "saturation", "ex", "ey")
_ASPECT = math.log(4 / 3)
_GREY = (0.299, 0.587, 0.114)


@dataclass(eq=False)
class Augment:
    """uint8 (B, H, W, 3) to float32 (B, 3, size, size), normalised by mean and std (of 0..1).

    `flip`: left-right, with probability 1/2. `crop_scale`: the range of the share of the area that
    a random crop keeps, with an aspect of 3/4 to 4/3. `brightness`, `contrast`, `saturation`: a
    random factor from 1 − j to 1 + j each, clipped once at the end. `erase`: the share of the area
    that a square of the mean colour covers. Without options: resize if needed, and normalise.

    Random numbers come from `generator`, or from `keys`, one integer per image: then the
    augmentation depends on the key only, not on the batch, the device or the number of processes.

    >>> augment = Augment.preset("weak", 32, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    >>> images = torch.zeros(4, 48, 48, 3, dtype=torch.uint8)
    >>> augment(images, torch.Generator().manual_seed(0)).shape
    torch.Size([4, 3, 32, 32])
    """

    size: int
    mean: Sequence[float]
    std: Sequence[float]
    flip: bool = False
    crop_scale: tuple[float, float] | None = None
    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    erase: float = 0.0
    channels_last: bool = False
    _kept: dict[torch.device, list[Tensor]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        self._layout = torch.channels_last if self.channels_last else torch.contiguous_format
        if self.size < 1:
            raise ValueError(f"expected size of at least 1 pixel, got {self.size}")
        if len(self.mean) != 3 or len(self.std) != 3 or min(self.std) <= 0:
            raise ValueError(f"expected 3 means and 3 std > 0, got {self.mean} and {self.std}")
        if self.crop_scale is not None and not 0 < self.crop_scale[0] <= self.crop_scale[1] <= 1:
            raise ValueError(
                f"expected crop_scale with 0 < low <= high <= 1, got {self.crop_scale}"
            )
        for name in ("brightness", "contrast", "saturation", "erase"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"expected 0 <= {name} <= 1, got {getattr(self, name)}")

    @classmethod
    def preset(
        cls, name: str, size: int, mean: Sequence[float], std: Sequence[float], **changes: Any
    ) -> Augment:
        """Create the preset "none", "flip", "weak" or "strong", with `changes` to its options."""
        if name not in PRESETS:
            raise ValueError(f"expected an augmentation in {tuple(PRESETS)}, got {name!r}")
        return cls(size, mean, std, **{**PRESETS[name], **changes})

    @torch.no_grad()
    def __call__(
        self,
        images: Tensor,
        generator: torch.Generator | None = None,
        *,
        keys: Tensor | None = None,
        train: bool = True,
    ) -> Tensor:
        """Return one augmented view; with train=False only resized and normalised."""
        _check(images)
        draws = self._draws(images, 1, generator, keys)[0] if train else None
        return self._view(images, draws)

    @torch.no_grad()
    def views(
        self,
        images: Tensor,
        n: int,
        generator: torch.Generator | None = None,
        *,
        keys: Tensor | None = None,
        plain_first: bool = True,
    ) -> Tensor:
        """(n, B, 3, size, size): the plain image first, then n − 1 augmentations of it.

        With plain_first=False the first view is augmented as well.
        """
        _check(images)
        if n < 1 + plain_first:
            raise ValueError(f"expected at least {1 + plain_first} views, got {n}")
        draws: list[Any] = self._draws(images, n, generator, keys)
        if plain_first:
            draws[0] = None
        return torch.stack([self._view(images, draw) for draw in draws])

    def crop_boxes(self, keys: Tensor) -> Tensor:
        """Return (B, 4) left, top, width, height of the view that `self(images, keys=keys)` makes.

        Shares of the sides of the image; where it is flipped, left is the edge on the right and
        the width is negative.
        """
        draws = self._draws(keys, 1, None, keys)[0]
        return torch.stack(random_boxes(draws, self.crop_scale, self.flip), dim=1)

    def _view(self, images: Tensor, draws: dict[str, Tensor] | None) -> Tensor:
        # Autocast would use half precision for the products, which is too coarse for pixels.
        with torch.autocast(images.device.type, enabled=False):
            scale, shift, grey = self._on(images.device)
            if draws is None:
                pixels = self._whole(images)
            else:
                pixels = self._geometry(images, draws)
                self._colours(pixels, draws, grey)
            torch.addcmul(shift, pixels, scale, out=pixels)
            if draws is not None and self.erase:
                pixels.masked_fill_(self._square(draws), 0.0)
        return pixels.contiguous(memory_format=self._layout)

    def _whole(self, images: Tensor) -> Tensor:
        pixels = images.permute(0, 3, 1, 2).to(torch.float32, memory_format=self._layout)
        if pixels.shape[2:] == (self.size, self.size):
            return pixels
        return F.interpolate(pixels, (self.size, self.size), mode="bilinear", antialias=True)

    def _geometry(self, images: Tensor, draws: dict[str, Tensor]) -> Tensor:
        """Crop, flip and resize; 0..255."""
        if self.crop_scale is None:
            if self.flip:
                flipped = draws["flip"] < 0.5
                images = torch.where(flipped[:, None, None, None], images.flip(2), images)
            return self._whole(images)
        left, top, width, height = random_boxes(draws, self.crop_scale, self.flip)
        batch, high_px, wide_px, _ = images.shape
        if high_px == wide_px:
            # Both sides at once: for a small batch the number of calls decides the time.
            starts, lengths = torch.cat([top, left]), torch.cat([height, width])
            rows, columns = resampling(starts, lengths, high_px, self.size).tensor_split(2)
        else:
            rows = resampling(top, height, high_px, self.size)
            columns = resampling(left, width, wide_px, self.size)
        # Two products of per-image matrices. A GPU multiplies half precision much faster: exact for
        # the bytes, and the result is off by at most a quarter of a grey level.
        kind = torch.float16 if images.is_cuda else torch.float32
        lines = rows.to(kind) @ images.reshape(batch, high_px, wide_px * 3).to(kind)
        lines = lines.view(batch, self.size, wide_px, 3).permute(0, 3, 1, 2)
        lines = lines.reshape(batch, 3 * self.size, wide_px)
        pixels = (lines @ columns.to(kind).transpose(1, 2)).float()
        return pixels.view(batch, 3, self.size, self.size)

    def _colours(self, pixels: Tensor, draws: dict[str, Tensor], grey: Tensor) -> None:
        """b [c (s x + (1 − s) grey(x)) + (1 − c) mean grey], in place."""

        def factor(name: str) -> Tensor:
            return (1 + getattr(self, name) * (2 * draws[name] - 1))[:, None, None, None]

        if self.contrast or self.saturation:
            b, c, s = factor("brightness"), factor("contrast"), factor("saturation")
            greys = (pixels * grey).sum(1, keepdim=True)
            average = greys.mean(dim=(2, 3), keepdim=True)
            pixels.mul_(b * c * s).add_(greys.mul_(b * c * (1 - s)).add_(b * (1 - c) * average))
        elif self.brightness:
            pixels.mul_(factor("brightness"))
        else:
            return
        pixels.clamp_(0, 255)

    def _square(self, draws: dict[str, Tensor]) -> Tensor:
        """(B, 1, size, size): True in a square that covers the share `erase` of the area."""
        side = round(math.sqrt(self.erase) * self.size)
        place = torch.arange(self.size, device=draws["ex"].device)
        spans = []
        for name in ("ey", "ex"):
            start = (draws[name] * (self.size - side + 1)).floor()[:, None]
            spans.append((place >= start) & (place < start + side))
        return (spans[0][:, :, None] & spans[1][:, None, :])[:, None]

    def _draws(
        self, images: Tensor, n: int, generator: torch.Generator | None, keys: Tensor | None
    ) -> list[dict[str, Tensor]]:
        """For each of n views, uniform random numbers by name, one per image."""
        count = len(_DRAWN)
        if keys is not None:
            if keys.shape != (len(images),):
                raise ValueError(f"expected {len(images)} keys, got shape {tuple(keys.shape)}")
            numbers = keyed_uniform(keys.to(images.device), n * count)
        else:
            device = images.device if generator is None else generator.device
            numbers = torch.rand(len(images), n * count, generator=generator, device=device)
            numbers = numbers.to(images.device)
        return [
            dict(zip(_DRAWN, part.unbind(1), strict=True)) for part in numbers.split(count, dim=1)
        ]

    def _on(self, device: torch.device) -> list[Tensor]:
        """Scale and shift from 0..255 to normalised, and grey weights; cached per device."""
        if device not in self._kept:
            mean, std, grey = (
                torch.tensor(tuple(v), dtype=torch.float64).view(1, 3, 1, 1)
                for v in (self.mean, self.std, _GREY)
            )
            values = (1 / (255 * std), -mean / std, grey)
            self._kept[device] = [v.float().to(device) for v in values]
        return self._kept[device]


def _check(images: Tensor) -> None:
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[3] != 3:
        raise ValueError(
            f"expected uint8 images of shape (batch, height, width, 3), "
            f"got {images.dtype} of shape {tuple(images.shape)}"
        )


def keyed_uniform(keys: Tensor, count: int) -> Tensor:
    """(B, count) numbers in [0, 1) that depend only on the integer key of each row (SplitMix64).

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


def random_boxes(
    draws: dict[str, Tensor], scale: tuple[float, float] | None, flip: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Left, top, width, height (B,) as fractions of the image sides, from uniform numbers.

    `scale`: the range of the share of the area that is kept; None: all of it. If an image is
    flipped, left is its right edge and the width is negative.
    """
    if scale is None:
        width = height = torch.ones_like(draws["area"])
    else:
        low, high = scale
        area = low + (high - low) * draws["area"]
        # Only aspects whose box fits are drawn, so the area is exact and nothing is drawn again.
        bound = (-area.log()).clamp(max=_ASPECT)
        aspect = ((2 * draws["aspect"] - 1) * bound).exp()
        width, height = (area * aspect).sqrt(), (area / aspect).sqrt()
    left, top = (1 - width) * draws["x"], (1 - height) * draws["y"]
    if not flip:
        return left, top, width, height
    flipped = draws["flip"] < 0.5
    start = torch.where(flipped, left + width, left)
    return start, top, torch.where(flipped, -width, width), height


def resampling(start: Tensor, length: Tensor, pixels: int, size: int) -> Tensor:
    """(B, size, pixels) weights that resample start .. start + length to `size` points.

    Both are fractions of the side of the image; a negative length is a flip. The weights are those
    of bilinear interpolation; if the image shrinks, the triangle widens (antialias), as in Pillow
    and in `F.interpolate(antialias=True)`.
    """
    points = (torch.arange(size, device=start.device) + 0.5) / size
    centres = (start[:, None] + length[:, None] * points) * pixels
    reach = (length.abs() * pixels / size).clamp(min=1)[:, None, None]
    taps = torch.arange(pixels, device=start.device) + 0.5
    weights = (1 - (taps - centres[:, :, None]).abs() / reach).clamp(min=0)
    return weights / weights.sum(2, keepdim=True)
