"""A WebDataset tar shard: files are read at their places; those that share a key are a sample."""

from __future__ import annotations

import os
import posixpath
import tarfile
from pathlib import Path

from halftruth.data.errors import DataError
from halftruth.data.image_file import BadImage, is_image_name
from halftruth.data.readers.cells import parse_object
from halftruth.data.remote import local_file

MAX_BYTES = 1 << 30


class TarShard:
    """An uncompressed tar file: its headers are read once, files at their places in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # A copy of a shard behind an address lives as long as it is open.
        with local_file(path) as local:
            self.places = list_tar(local)
            self._descriptor = os.open(local, os.O_RDONLY)

    def names(self) -> list[str]:
        return list(self.places)

    def read(self, name: str) -> bytes:
        start, size = self.places[name]
        if size > MAX_BYTES:
            raise BadImage(name, "is larger than 1 GiB")
        # Without a position that threads and forked processes would share.
        data = os.pread(self._descriptor, size, start)
        if len(data) < size:
            raise BadImage(name, f"cannot be read: {self.path} ends before it")
        return data

    def __del__(self) -> None:
        descriptor = getattr(self, "_descriptor", None)
        if descriptor is not None:
            os.close(descriptor)


def list_tar(path: Path) -> dict[str, tuple[int, int]]:
    """Return the place and size of each file in a tar file, by name."""
    places: dict[str, tuple[int, int]] = {}
    try:
        with tarfile.open(path, "r:") as archive:
            for member in archive:
                name = member.name.removeprefix("./")
                if not member.isreg() or not is_inside(name):
                    continue
                if name in places:
                    raise DataError(
                        f"{path}: holds {name!r} more than once; every file of a shard needs its "
                        "own name"
                    )
                places[name] = member.offset_data, member.size
    except (tarfile.TarError, OSError, EOFError) as error:
        raise DataError(f"{path}: cannot be read as a tar file: {error}") from error
    if not places:
        raise DataError(f"{path}: holds no files; remove the empty shard")
    return places


def is_inside(name: str) -> bool:
    """Return whether a name is that of a file, and does not lead outside."""
    return not (name.endswith("/") or name.startswith("/") or ".." in name.split("/"))


def read_tar_samples(path: Path) -> dict[str, dict[str, object]]:
    """Return the fields of each sample by its key: `image`, those of .json, and text files.

    The key is the name before the first dot of its last part. `image` is the name of the image in
    the shard; every other file but .json is a field with its ending as name (cls, txt). A sample
    without an image, or without a field that the others have, is an error.
    """
    shard = TarShard(path)
    samples: dict[str, dict[str, object]] = {}
    for name in shard.names():
        folder, base = posixpath.split(name)
        stem, _, ending = base.partition(".")
        fields = samples.setdefault(posixpath.join(folder, stem), {})
        place = f"{path}: {name}"
        if is_image_name(base):
            if "image" in fields:
                raise DataError(
                    f"{place}: is the second image of this sample, after {fields['image']}"
                )
            fields["image"] = name
            continue
        text = _decode(shard.read(name), place)
        if ending.lower() != "json":
            # A .cls of webdataset is the number of a class, never a label.
            number = ending.lower() == "cls" and text.strip().isdigit()
            fields[ending.lower()] = [text.strip()] if number else text.strip()
            continue
        values = parse_object(text, place)
        values.pop("image", None)
        fields.update(values)
    _check_complete(samples, path)
    return samples


def _decode(data: bytes, place: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(
            f"{place}: expected UTF-8 text or an image with its usual ending; leave other files out"
        ) from None


def _check_complete(samples: dict[str, dict[str, object]], path: Path) -> None:
    """Refuse samples without an image, and samples with no field at all where others have some."""
    for key, fields in samples.items():
        if "image" not in fields:
            raise DataError(f"{path}: the sample {key!r} has no image")
    bare = [key for key, fields in samples.items() if len(fields) == 1]
    if bare and len(bare) < len(samples):
        raise DataError(
            f"{path}: {len(bare):,} of {len(samples):,} samples have no labels (.json or .cls), "
            f"the first is {bare[0]!r}; add an empty list of labels, or remove them"
        )
    if bare:
        raise DataError(
            f"{path}: no sample has labels (.json or .cls); give a label file that names the images"
        )
