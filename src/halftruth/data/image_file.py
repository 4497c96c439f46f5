"""Decode the bytes of one image file into an upright RGB image, or give the reason it fails."""

from __future__ import annotations

import contextlib
import io
import os
import warnings
from functools import cache
from typing import Literal

import numpy as np
from PIL import Image, ImageOps

Fit = Literal["squash", "crop"]
# Pillow also opens formats that start other programs (EPS) or are not images; these are safe.
FORMATS = ("JPEG", "MPO", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "JPEG2000", "AVIF")
EXTENSIONS = {
    ".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".apng", ".gif", ".bmp", ".tif", ".tiff",
    ".webp", ".ppm", ".pgm", ".pbm", ".pnm", ".jp2", ".avif",
}  # fmt: skip
# Endings of images that cannot be read; files without an ending may be images, too.
_FOREIGN = {"", ".heic", ".heif", ".jxl", ".svg", ".dcm", ".dng", ".cr2", ".nef", ".arw", ".psd"}
BACKGROUND = (255, 255, 255)
# The highest value of 12 bits, which many devices store in 16.
_MAX_12_BIT = 4095


class BadImage(ValueError):
    """An image that cannot be used: its name and the reason."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return f"image {self.name!r}: {self.reason}"


def is_image_name(name: str) -> bool:
    """Whether a name has the extension of an image file."""
    return os.path.splitext(name)[1].lower() in EXTENSIONS


def may_be_image(name: str) -> bool:
    """Whether a file of a folder is worth reading as an image, though its format may be foreign."""
    base = os.path.basename(name)
    ending = os.path.splitext(base)[1].lower()
    return ending in EXTENSIONS or (ending in _FOREIGN and not base.startswith("."))


@cache
def list_formats() -> tuple[str, ...]:
    """The formats that are read, as far as this Pillow knows them."""
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def decode_image(
    data: bytes, name: str, *, size: int | None = None, max_megapixels: float = 100.0
) -> Image.Image:
    """Decode to RGB: upright (EXIF), first frame, 16 bit scaled to 8, transparency over white.

    With `size`, a JPEG may be decoded at 1/2, 1/4 or 1/8 as long as both sides stay at least
    `size` pixels long, which is faster and allows images beyond `max_megapixels`.
    """
    if not data:
        raise BadImage(name, "the file is empty (zero bytes)")
    try:
        with Image.open(io.BytesIO(data), formats=list_formats()) as image:
            if size is not None:
                image.draft("RGB", (size, size))
            megapixels = image.width * image.height / 1e6
            if megapixels > max_megapixels:
                raise BadImage(
                    name,
                    f"{image.width} x {image.height} pixels are more than the limit of "
                    f"{max_megapixels:g} megapixels",
                )
            image.seek(0)
            image.load()
            return to_rgb(image, name)
    except BadImage:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise BadImage(
            name, f"beyond Pillow's own limit (PIL.Image.MAX_IMAGE_PIXELS): {error}"
        ) from None
    except Image.UnidentifiedImageError:
        start = data[:16]
        raise BadImage(name, f"not an image of a known format; it starts with {start!r}") from None
    # Pillow raises many kinds of exceptions on damaged files, not only OSError.
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise BadImage(name, f"damaged or truncated: {reason}") from error


def to_rgb(image: Image.Image, name: str) -> Image.Image:
    """Convert any image to RGB: upright (EXIF), 16 bit scaled to 8, transparency over white.

    16 bits without a value above 4095 are taken for 12 bits.
    """
    is_16_bit = image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PNG")
    with contextlib.suppress(Exception):  # a damaged EXIF block
        image = ImageOps.exif_transpose(image)
    mode = image.mode
    if is_16_bit:
        pixels = np.asarray(image).astype(np.float64)
        highest = 65535
        if pixels.max(initial=0) <= _MAX_12_BIT:
            highest = _MAX_12_BIT
            warnings.warn(
                "16-bit images with no value above 4095 are read as 12-bit images (4095 is white)",
                stacklevel=2,
            )
        scaled = np.rint(pixels / (highest / 255))
        return Image.fromarray(scaled.astype(np.uint8)).convert("RGB")
    if mode in ("I", "F"):
        raise BadImage(
            name, f"its pixels are 32-bit numbers (mode {mode}) of unknown range; save it as 8 bit"
        )
    if mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        background = Image.new("RGBA", rgba.size, (*BACKGROUND, 255))
        return Image.alpha_composite(background, rgba).convert("RGB")
    return image.convert("RGB")


def resize(image: Image.Image, size: int, fit: Fit = "squash") -> Image.Image:
    """Resize to a square: squash the whole image, or scale the short side and crop the centre."""
    if fit == "squash":
        return image.resize((size, size), Image.Resampling.BICUBIC)
    if fit == "crop":
        return ImageOps.fit(image, (size, size), Image.Resampling.BICUBIC)
    raise ValueError(f"fit must be 'squash' or 'crop', got {fit!r}")
