"""Files behind an address, such as s3://bucket/photos: fsspec reads and writes them.

Credentials are those of the usual variables (AWS_ACCESS_KEY_ID, GOOGLE_APPLICATION_CREDENTIALS,
HF_TOKEN); messages show no password and no signature. A `Path` may hold an address: it writes
s3:/bucket, which is understood here.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from halftruth.data.errors import DataError, mask

# A letter and a colon is a drive of Windows.
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+):/+(.*)", re.DOTALL)
_PACKAGES = {
    "s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "hf": "huggingface_hub", "http": "aiohttp",
    "https": "aiohttp", "abfs": "adlfs", "az": "adlfs",
}  # fmt: skip


def is_remote(path: object) -> bool:
    """Return whether a path is an address.

    >>> is_remote("s3://bucket/a.csv"), is_remote(Path("https://host/a.csv")), is_remote("C:/a.csv")
    (True, True, False)
    """
    return isinstance(path, str | Path) and _ADDRESS.fullmatch(str(path)) is not None


def to_url(path: str | Path) -> str:
    """Return an address with both slashes, which a `Path` drops; another path as it is."""
    match = _ADDRESS.fullmatch(str(path))
    return str(path) if match is None else f"{match[1]}://{match[2]}"


@contextmanager
def _opened(path: str | Path) -> Iterator[tuple[Any, str]]:
    """Yield the file system of an address and the path in it; errors are one plain sentence."""
    url = to_url(path)
    scheme = url.partition(":")[0]
    try:
        from fsspec.core import url_to_fs

        yield url_to_fs(url)
    except DataError:
        raise
    except ImportError as error:
        package = "fsspec" if error.name == "fsspec" else _PACKAGES.get(scheme, error.name)
        raise DataError(f"{url}: {scheme}:// needs {package}: pip install {package}") from None
    except FileNotFoundError:
        raise DataError(f"{url}: there is no such file or folder") from None
    # The chain of errors would show the address as it was given.
    except Exception as error:
        said = f"{type(error).__name__}: {mask(error)[:200]}"
        words = ("Permission", "Credential", "AccessDenied", "403", "401")
        advice = ""
        if "Protocol not known" in said:
            advice = "; expected s3://, gs://, hf://, https:// or a path"
        elif any(word in said for word in words):
            advice = (
                "; give credentials by the usual variables, such as AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, GOOGLE_APPLICATION_CREDENTIALS or HF_TOKEN"
            )
        raise DataError(f"{url}: access failed ({said}){advice}") from None


def list_remote(path: str | Path) -> dict[str, tuple[int, str]]:
    """Return the files of a pattern or below a folder: address -> (size, stamp), sorted."""
    with _opened(path) as (system, inner):
        found = (system.glob if "*" in inner else system.find)(inner, detail=True)
    files = {
        name: facts for name, facts in sorted(found.items()) if facts.get("type", "file") == "file"
    }
    start = to_url(path).partition("://")[0] + "://"
    return {
        name if "://" in name else start + name.lstrip("/"): _describe(facts)
        for name, facts in files.items()
    }


def _describe(facts: dict[str, Any]) -> tuple[int, str]:
    """The size of a file, and what changes with it, as far as its store says so."""
    keys = ("ETag", "etag", "md5Hash", "blob_id", "LastModified", "last_modified", "mtime")
    stamp = str(next((facts[key] for key in keys if facts.get(key)), ""))
    return int(facts.get("size") or 0), stamp


def describe_file(path: str | Path) -> tuple[int, str]:
    """Return the size of a file and what changes with it; of a local file, the time."""
    if not is_remote(path):
        facts = Path(path).stat()
        return facts.st_size, str(facts.st_mtime_ns)
    with _opened(path) as (system, inner):
        return _describe(system.info(inner))


def file_exists(path: str | Path) -> bool:
    """Return whether there is a file or folder."""
    if not is_remote(path):
        return Path(path).exists()
    with _opened(path) as (system, inner):
        return bool(system.exists(inner))


def list_folder(folder: str | Path) -> set[str]:
    """Return the names of the files directly in a folder; none if there is no folder."""
    if not is_remote(folder):
        return {one.name for one in Path(folder).iterdir()} if Path(folder).is_dir() else set()
    with _opened(folder) as (system, inner):
        system.invalidate_cache()
        found = system.ls(inner, detail=False) if system.exists(inner) else []
    return {name.rstrip("/").rpartition("/")[2] for name in found}


def read_bytes(path: str | Path) -> bytes:
    """Return the bytes of a file."""
    if not is_remote(path):
        return Path(path).read_bytes()
    with _opened(path) as (system, inner):
        return bytes(system.cat_file(inner))


def remove_file(path: str | Path) -> None:
    """Remove a file."""
    if not is_remote(path):
        return Path(path).unlink()
    with _opened(path) as (system, inner):
        system.rm_file(inner)


def open_remote(path: Path) -> Any:
    """Return an open file that is read at its places, by what Arrow asks for."""
    with _opened(path) as (system, inner):
        return system.open(inner, "rb")


@contextmanager
def local_file(path: Path) -> Iterator[Path]:
    """Yield a file that is on this machine: a copy, while it is used, of one behind an address."""
    if not is_remote(path):
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="halftruth-") as folder:
        copy = Path(folder) / path.name.partition("?")[0]
        with _opened(path) as (system, inner):
            system.get_file(inner, str(copy))
        try:
            yield copy
        except DataError as error:
            raise DataError(str(error).replace(str(copy), to_url(path))) from error


def upload(copy: Path, path: Path) -> None:
    """Write a file to an address; it appears there when it is complete."""
    with _opened(path) as (system, inner):
        if not hasattr(system, "bucket"):
            system.makedirs(inner.rpartition("/")[0], exist_ok=True)
        system.put_file(str(copy), inner)
