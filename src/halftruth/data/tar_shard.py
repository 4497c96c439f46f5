"""A WebDataset tar shard: files are read at their places, without unpacking."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

from halftruth.data.errors import DataError
from halftruth.data.image_file import BadImage

MAX_BYTES = 1 << 30


class TarShard:
    """An uncompressed tar file: its headers are read once, files at their places in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.places = list_tar(path)
        self._descriptor = os.open(path, os.O_RDONLY)

    def names(self) -> list[str]:
        return list(self.places)

    def __contains__(self, name: object) -> bool:
        return name in self.places

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
