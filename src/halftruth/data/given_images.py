"""Images given one by one: files, PIL images and arrays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from halftruth.data.errors import DataError
from halftruth.data.image_archives import is_archive
from halftruth.data.image_file import BadImage, decode_image, to_rgb
from halftruth.data.images import ImageStore
from halftruth.data.shards import holds_shards

GivenImage = str | Path | Image.Image | np.ndarray


class GivenImages(ImageStore):
    """Image files, PIL images and arrays in the order given, under their names.

    The name of a file is its path, the name of an image in memory its number, unless `names` has
    one per image. An array is (H, W, 3) or (H, W), uint8.
    """

    def __init__(self, images: Sequence[GivenImage], names: Sequence[str] | None = None) -> None:
        if names is None:
            names = [
                str(image) if isinstance(image, str | Path) else str(row)
                for row, image in enumerate(images)
            ]
        if len(names) != len(images):
            raise DataError(f"expected {len(images):,} items, one per image, got {len(names):,}")
        self._names = list(names)
        self._images: dict[str, GivenImage] = {}
        for name, image in zip(names, images, strict=True):
            _check(image, name)
            known = self._images.setdefault(name, image)
            if known is not image and (not isinstance(known, str | Path) or known != image):
                raise DataError(f"items: two images have the name {name!r}; give each its own")
        self.sources = []

    def names(self) -> list[str]:
        return list(self._names)

    def read(self, name: str, size: int | None = None) -> Image.Image:
        image = self._images[name]
        if isinstance(image, Image.Image):
            return to_rgb(image, name)
        if isinstance(image, np.ndarray):
            return to_rgb(Image.fromarray(image), name)
        try:
            data = Path(image).read_bytes()
        except OSError as error:
            raise BadImage(name, f"cannot be read: {error.strerror}") from error
        return decode_image(data, name, size=size)

    def __repr__(self) -> str:
        return f"a list of {len(self._names):,} images"


def open_images(
    source: GivenImage | Sequence[GivenImage], names: Sequence[str] | None = None
) -> ImageStore:
    """Images from a folder, zip file or shard, an image file, a PIL image, an array, or a list.

    An array (N, H, W, 3) is N images. `names` are for images that are given one by one.
    """
    if isinstance(source, np.ndarray) and source.ndim == 4:
        return GivenImages(list(source), names)
    images = [source] if isinstance(source, str | Path | Image.Image | np.ndarray) else list(source)
    paths = [Path(image) for image in images if isinstance(image, str | Path)]
    places = [path for path in paths if path.is_dir() or is_archive(path) or holds_shards(path)]
    if len(places) == len(images):
        return ImageStore(places)
    if places:
        raise DataError(
            f"expected either image files or folders, zip files and shards, got both: "
            f"{places[0]} and {len(images) - len(places):,} images"
        )
    return GivenImages(images, names)


def _check(image: GivenImage, name: str) -> None:
    if isinstance(image, str | Path):
        if not Path(image).is_file():
            raise DataError(f"{image}: there is no such image, folder or zip file")
    elif isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or not (
            image.ndim == 2 or (image.ndim == 3 and image.shape[2] in (3, 4))
        ):
            raise DataError(
                f"image {name}: expected an array (height, width, 3) of uint8, 0 to 255, got "
                f"{image.dtype} {image.shape}"
            )
    elif not isinstance(image, Image.Image):
        raise DataError(
            f"image {name}: expected a file, a PIL image or an array, got {type(image).__name__}"
        )
