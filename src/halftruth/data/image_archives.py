"""Files that hold many images: zip files, tar shards, and Parquet and Arrow files with images.

Each class lists names and reads bytes by name, from several threads and after a fork.
"""

from __future__ import annotations

import os
import threading
import zipfile
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from halftruth.data.errors import DataError, some
from halftruth.data.image_file import BadImage
from halftruth.data.readers.arrow_file import ArrowFile, get_image_names
from halftruth.data.remote import is_remote, list_remote, local_file, read_bytes, to_url
from halftruth.data.shards import ARROW, PARQUET, TAR
from halftruth.data.tar_shard import MAX_BYTES, TarShard, is_inside


class Archive(Protocol):
    """Images of one file, by name."""

    def names(self) -> list[str]:
        """All names of files that do not lead outside."""
        ...

    def read(self, name: str) -> bytes:
        """The bytes of a file; `BadImage` if they cannot be read."""
        ...


def open_archive(path: Path) -> Archive:
    """Open a zip file, a tar shard, or a Parquet or Arrow file of images, by its ending."""
    if is_remote(path) and not is_archive(path):
        return RemoteImages(path)
    if not is_remote(path) and not path.is_file():
        raise DataError(f"{path}: there is no such folder, zip file or shard of images")
    name = path.name.lower()
    if name.endswith(TAR):
        return TarShard(path)
    if name.endswith((*PARQUET, *ARROW)):
        return ArrowImages(path)
    if name.endswith((".tar.gz", ".tgz", ".tar.zst", ".tar.bz2")):
        raise DataError(
            f"{path}: images cannot be read at their places in a compressed tar file; unpack the "
            "compression (the images inside are compressed already)"
        )
    return ZipImages(path)


def is_archive(path: Path) -> bool:
    """Return whether a file holds many images, by its ending or its first bytes."""
    named = path.name.lower().endswith((*TAR, *PARQUET, *ARROW))
    if is_remote(path):
        return "*" not in str(path) and (named or path.name.lower().endswith(".zip"))
    return path.is_file() and (named or zipfile.is_zipfile(path))


class ZipImages:
    """A zip file; a process that was forked opens it again, since a file has one position."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._process, self._zip = os.getpid(), self._open()

    def _open(self) -> zipfile.ZipFile:
        try:
            with local_file(self.path) as path:
                return zipfile.ZipFile(path)
        except (OSError, zipfile.BadZipFile) as error:
            raise DataError(f"{self.path}: is neither a folder nor a zip file: {error}") from error

    @property
    def _file(self) -> zipfile.ZipFile:
        if self._process != os.getpid():
            self._process, self._zip = os.getpid(), self._open()
        return self._zip

    def names(self) -> list[str]:
        listed = self._file.namelist()
        return [name for name in listed if is_inside(name) and not name.startswith("__MACOSX/")]

    def read(self, name: str) -> bytes:
        try:
            if self._file.getinfo(name).file_size > MAX_BYTES:
                raise BadImage(name, "is larger than 1 GiB")
            return self._file.read(name)
        except (OSError, zipfile.BadZipFile, zlib.error, RuntimeError, EOFError) as error:
            raise BadImage(name, f"cannot be read: {error}") from error


class RemoteImages:
    """Image files behind an address: of a folder, or that fit a pattern. Names are below it."""

    def __init__(self, path: Path) -> None:
        self.path, found = path, list_remote(path)
        fixed = to_url(path).partition("*")[0]
        # The folder that the names are in, as far as it is fixed.
        top = fixed.rpartition("/")[0] if "*" in str(path) else fixed
        self.files = {name.removeprefix(top).lstrip("/"): name for name in found}
        if not found:
            raise DataError(f"{to_url(path)}: there are no images")

    def names(self) -> list[str]:
        return list(self.files)

    def read(self, name: str) -> bytes:
        try:
            return read_bytes(self.files[name])
        except DataError as error:
            raise BadImage(name, f"cannot be read: {error}") from error


class ArrowImages:
    """A Parquet or Arrow file with a column of images: bytes, or the struct of Hugging Face."""

    def __init__(self, path: Path) -> None:
        self.file = ArrowFile(path)
        self.column, names = get_image_names(self.file)
        self._rows = {name: row for row, name in enumerate(names)}
        if len(self._rows) < len(names):
            twice = [name for row, name in enumerate(names) if self._rows[name] != row]
            raise DataError(f"{path}: some images have the same name: {some(twice)}")
        self._lock = threading.Lock()

    def names(self) -> list[str]:
        return list(self._rows)

    def read(self, name: str) -> bytes:
        part, row = self.file.locate(self._rows[name])
        with self._lock:
            value = _read_part(self.file, part, self.column)[row].as_py()
        data = value.get("bytes") if isinstance(value, dict) else value
        if data is None:
            raise BadImage(name, "has no bytes in the file; save the data set with its images")
        return bytes(data)


# Rows are mostly asked for in order, so few parts are kept: of all files, since there may be many.
@lru_cache(maxsize=4)
def _read_part(file: ArrowFile, part: int, column: str) -> Any:
    return file.read_part(part, [column])[column]
