"""Images by name: of folders, zip files and shards, or given one by one."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from PIL import Image

from halftruth.data.errors import DataError, mask, nearest, some
from halftruth.data.image_archives import (
    Archive,
    ArrowImages,
    RemoteImages,
    is_archive,
    open_archive,
)  # fmt: skip
from halftruth.data.image_file import BadImage, decode_image, is_image_name, may_be_image, to_rgb
from halftruth.data.remote import is_remote, read_bytes, to_url
from halftruth.data.shards import expand_all, holds_shards

GivenImage = str | Path | bytes | Image.Image | np.ndarray


class ImageStore:
    """The images of a folder, a zip file, shards, or several of them.

    Shards are tar files (WebDataset), and Parquet or Arrow files with images, also by a pattern:
    `shards/*.tar`.

    `store.read("a/b.jpg")` returns an RGB image. A name need not be exact: its extension, or
    folders in front of it or of the stored name, may be missing if only one image fits. Names that
    lead outside (`..`, absolute) are refused; symbolic links in the folder are followed. A store
    can be pickled and used after a fork.

    >>> ImageStore("no/photos")
    Traceback (most recent call last):
    ...
    halftruth.data.errors.DataError: no/photos: there is no such folder, zip file or shard of images
    """

    def __init__(
        self, source: str | Path | Sequence[str | Path], *, max_megapixels: float = 100.0
    ) -> None:
        several = [source] if isinstance(source, str | Path) else list(source)
        self.sources = expand_all(several)
        self.max_megapixels = max_megapixels
        if not self.sources:
            raise DataError("no folder or zip file of images was given")
        self._start()
        for path in self.sources:
            if path not in self._folders:
                self._archive(path)

    def names(self) -> list[str]:
        """The names of all files that are or may be images, sorted: see `may_be_image`."""
        names = self._everything
        return sorted(name for name in names if may_be_image(name) or self._is_image(name))

    def __len__(self) -> int:
        return len(self.names())

    def __contains__(self, name: object) -> bool:
        try:
            self.resolve(str(name))
        except BadImage:
            return False
        return True

    def resolve(self, name: str) -> str:
        """The stored name that `name` means; `BadImage` if none or more than one fits."""
        asked = self._inside(name)
        if self._holders(asked):
            return asked
        self._refuse_broken_link(name, asked)
        base = posixpath.basename(asked)
        candidates = self._by_base.get(base, [])
        if not candidates and not is_image_name(base):
            candidates = self._by_stem.get(base, [])
        fitting = [path for path in candidates if _same_place(path, asked)]
        if len(fitting) == 1:
            self._refuse_broken_link(name, fitting[0])
            return fitting[0]
        if fitting:
            raise BadImage(name, f"more than one image fits: {some(sorted(fitting))}")
        raise BadImage(name, f"there is no such image in {self._places()}{self._hint(base)}")

    def read_bytes(self, name: str) -> bytes:
        """Read the bytes of an image file."""
        found = self._inside(name)
        holders = self._holders(found)
        if not holders:
            found = self.resolve(name)
            holders = self._holders(found)
        if len(holders) > 1:
            raise BadImage(name, f"is in more than one place: {some(holders)}")
        path = holders[0]
        if path not in self._folders:
            return self._archive(path).read(found)
        try:
            return (path / found).read_bytes()
        except OSError as error:
            raise BadImage(name, f"cannot be read: {error}") from error

    def read(self, name: str, size: int | None = None) -> Image.Image:
        """Read an image in RGB; with `size`, a large JPEG may be smaller (never below `size`)."""
        return decode_image(
            self.read_bytes(name), name, size=size, max_megapixels=self.max_megapixels
        )

    def by_address(self) -> ImageStore:
        """Return the store; of images behind addresses, one that need not list all files again."""
        found = [one for one in self._archives.values() if isinstance(one, RemoteImages)]
        if not found or len(found) < len(self.sources):
            return self
        files = {name: url for one in found for name, url in one.files.items()}
        return GivenImages([*files.values()], [*files])

    def select(self, names: Sequence[str]) -> ImageStore:
        """Return a store of at least these images, to send to another process."""
        return self

    def _holders(self, name: str) -> list[Path]:
        """The sources that have a file of exactly this name."""
        folders = [path for path in self._folders if os.path.isfile(path / name)]
        return folders + self._by_archive.get(name, [])

    def _refuse_broken_link(self, name: str, stored: str) -> None:
        for path in self._folders:
            file = path / stored
            if os.path.islink(file) and not os.path.exists(file):
                raise BadImage(
                    name,
                    f"is a broken symbolic link: its target {os.readlink(file)!r} does not exist",
                )

    @cached_property
    def _everything(self) -> list[str]:
        """Every safe file name of every source; built once per process, only when needed."""
        names = set(self._by_archive)
        for path in self._folders:
            names.update(_walk(path))
        return list(names)

    @cached_property
    def _by_archive(self) -> dict[str, list[Path]]:
        """The archives that have a file of each name."""
        holding: dict[str, list[Path]] = {}
        for path in self.sources:
            if path not in self._folders:
                for name in self._archive(path).names():
                    holding.setdefault(name, []).append(path)
        return holding

    def _is_image(self, name: str) -> bool:
        """Whether a file is an image: by its ending, or since it is in a column of images."""
        if is_image_name(name):
            return True
        holders = self._by_archive.get(name, [])
        return any(isinstance(self._archive(path), ArrowImages) for path in holders)

    @cached_property
    def _by_base(self) -> dict[str, list[str]]:
        return _group(self._everything, posixpath.basename)

    @cached_property
    def _by_stem(self) -> dict[str, list[str]]:
        images = [name for name in self._everything if self._is_image(name)]
        return _group(images, lambda name: _stem(posixpath.basename(name)))

    def _archive(self, path: Path) -> Archive:
        if path not in self._archives:
            self._archives[path] = open_archive(path)
        return self._archives[path]

    def get_shard(self, name: str) -> int | None:
        """The number of the shard that holds an image; None if it is in a folder or nowhere."""
        try:
            path = self._holders(self.resolve(name))[0]
        except BadImage:
            return None
        return None if path in self._folders else self._number[path]

    def _inside(self, name: str) -> str:
        """The name with plain slashes, relative to its folder; refused if it leads outside."""
        asked = name.strip().replace("\\", "/")
        for folder in self._folders:
            asked = asked.removeprefix(f"{folder.absolute().as_posix()}/")
        if not asked or "\0" in asked:
            raise BadImage(name, "is not a file name")
        if asked.startswith("/") or asked[1:2] == ":" or ".." in asked.split("/"):
            raise BadImage(
                name, "points outside the image folder; names must be relative to it, without '..'"
            )
        return posixpath.normpath(asked)

    def _start(self) -> None:
        self._folders = [path for path in self.sources if path.is_dir()]
        self._archives: dict[Path, Archive] = {}
        self._number = {path: number for number, path in enumerate(self.sources)}

    def _places(self) -> str:
        return " or ".join(str(path) for path in self.sources[:3])

    def _hint(self, base: str) -> str:
        alike = self._by_stem.get(_stem(base))
        if alike:
            return f" (but there is {alike[0]!r})"
        return nearest(base, list(self._by_base)[:2000])

    def __getstate__(self) -> dict[str, object]:
        return {"sources": self.sources, "max_megapixels": self.max_megapixels}

    def __setstate__(self, state: Mapping[str, object]) -> None:
        self.__dict__.update(state)
        self._start()

    def __str__(self) -> str:
        return self._places()

    def __repr__(self) -> str:
        return f"ImageStore({[str(path) for path in self.sources]})"


def _stem(base: str) -> str:
    return posixpath.splitext(base)[0] if is_image_name(base) else base


def _same_place(path: str, asked: str) -> bool:
    """Whether one folder is the end of the other: test/1.jpg never means train/1.jpg."""
    stored, wanted = posixpath.dirname(path), posixpath.dirname(asked)
    longer, shorter = (stored, wanted) if len(stored) >= len(wanted) else (wanted, stored)
    return not shorter or longer == shorter or longer.endswith("/" + shorter)


def _group(names: Sequence[str], key: Callable[[str], str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(key(name), []).append(name)
    return groups


def _walk(folder: Path) -> list[str]:
    """The files below a folder, also those in linked folders."""
    names: list[str] = []
    seen = set()
    top = Path(os.path.realpath(folder))
    for root, folders, files in os.walk(folder, followlinks=True):
        real = Path(os.path.realpath(root))
        # A link to a folder that was read, or to one above, would give the same files again.
        if real in seen or (real != top and top.is_relative_to(real)):
            folders.clear()
            continue
        seen.add(real)
        names += [(Path(root) / file).relative_to(folder).as_posix() for file in files]
        folders.sort(key=lambda name: (os.path.islink(os.path.join(root, name)), name))
    return names


class GivenImages(ImageStore):
    """Image files, PIL images and arrays in the order given, under their names.

    The name of a file is its path, the name of an image in memory its number, unless `names` has
    one per image. An array is (H, W, 3) or (H, W), uint8; bytes are those of a file.
    """

    def __init__(self, images: Sequence[GivenImage], names: Sequence[str] | None = None) -> None:
        if names is None:
            names = [
                mask(to_url(image)) if isinstance(image, str | Path) else str(row)
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
        self.sources, self._archives = [], {}

    def names(self) -> list[str]:
        return list(self._names)

    def read(self, name: str, size: int | None = None) -> Image.Image:
        image = self._images[name]
        if isinstance(image, Image.Image):
            return to_rgb(image, name)
        if isinstance(image, np.ndarray):
            return to_rgb(Image.fromarray(image), name)
        return decode_image(self.read_bytes(name), name, size=size)

    def read_bytes(self, name: str) -> bytes:
        image = self._images[name]
        try:
            if isinstance(image, str | Path):
                return read_bytes(image)
            return image if isinstance(image, bytes) else b""
        except OSError as error:
            raise BadImage(name, f"cannot be read: {error.strerror}") from error
        except DataError as error:
            raise BadImage(name, str(error)) from error

    def select(self, names: Sequence[str]) -> ImageStore:
        # They were checked when this list was made.
        found = GivenImages(())
        found._names, found._images = list(names), {name: self._images[name] for name in names}
        return found

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__

    def __setstate__(self, state: Mapping[str, object]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        return f"a list of {len(self._names):,} images"


def open_images(
    source: GivenImage | Sequence[GivenImage] | ImageStore, names: Sequence[str] | None = None
) -> ImageStore:
    """Images from a folder, zip file or shard, an image file, a PIL image, an array, or a list.

    An array (N, H, W, 3) is N images. `names` are for images that are given one by one.
    """
    if isinstance(source, ImageStore):
        return source
    if isinstance(source, np.ndarray) and source.ndim == 4:
        return GivenImages(list(source), names)
    single = isinstance(source, str | Path | bytes | Image.Image | np.ndarray)
    images: list[GivenImage] = [source] if single else list(source)  # type: ignore[list-item, arg-type]
    paths = [Path(image) for image in images if isinstance(image, str | Path)]
    places = [path for path in paths if is_archive(path) or holds_shards(path) or _is_folder(path)]
    if len(places) == len(images):
        return ImageStore(places)
    if places:
        raise DataError(
            f"expected either image files or folders, zip files and shards, got both: "
            f"{places[0]} and {len(images) - len(places):,} images"
        )
    return GivenImages(images, names)


def _is_folder(path: Path) -> bool:
    if not is_remote(path):
        return path.is_dir()
    return "*" in str(path) or not is_image_name(path.name.partition("?")[0])


def _check(image: GivenImage, name: str) -> None:
    if isinstance(image, str | Path):
        if not is_remote(image) and not Path(image).is_file():
            raise DataError(f"{image}: there is no such image, folder or zip file")
    elif isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or not (
            image.ndim == 2 or (image.ndim == 3 and image.shape[2] in (3, 4))
        ):
            raise DataError(
                f"image {name}: expected an array (height, width, 3) of uint8, 0 to 255, got "
                f"{image.dtype} {image.shape}"
            )
    elif not isinstance(image, Image.Image | bytes):
        raise DataError(
            f"image {name}: expected a file, a PIL image or an array, got {type(image).__name__}"
        )
