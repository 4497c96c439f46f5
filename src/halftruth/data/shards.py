"""Data sets in many files (shards): patterns of names, and folders that hold shards.

Shards are WebDataset tar files, Parquet files and Arrow files, as Hugging Face datasets
saves them.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable
from pathlib import Path

from halftruth.data.errors import DataError
from halftruth.data.image_file import is_image_name
from halftruth.data.remote import file_exists, is_remote, list_remote, to_url

TAR = (".tar",)
PARQUET = (".parquet", ".pq")
ARROW = (".arrow", ".feather")
SHARDS = (*TAR, *PARQUET, *ARROW)
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")


def expand_shards(source: str | Path) -> list[Path]:
    """Return the files of a pattern or of a folder of shards; any other path by itself.

    A pattern has `*`, `?` or a range of numbers: `train-{000..127}.tar`. Tables called metadata
    belong to a folder of images and are not shards.

    >>> [path.name for path in expand_shards("s-{08..10}.tar")]
    ['s-08.tar', 's-09.tar', 's-10.tar']
    """
    path = Path(source)
    if is_remote(path):
        return [one for text in _expand_ranges(to_url(path)) for one in _expand_remote(text)]
    if path.is_dir():
        return _list_folder(path) or [path]
    if path.exists():
        return [path]
    found = []
    for text in _expand_ranges(str(source)):
        if "*" not in text and "?" not in text:
            found.append(Path(text))
            continue
        matches = sorted(Path(name) for name in glob.glob(text))
        if not matches:
            raise DataError(f"{source}: no file fits this pattern")
        found += matches
    return found


def expand_all(sources: Iterable[str | Path]) -> list[Path]:
    """Return the files of several patterns, folders and paths, each once."""
    return list(dict.fromkeys(path for source in sources for path in expand_shards(source)))


def exists(source: str | Path) -> bool:
    """Return whether a path or pattern names files or a folder."""
    try:
        return all(file_exists(path) or "*" in str(path) for path in expand_shards(source))
    except DataError:
        return False


def holds_shards(source: str | Path) -> bool:
    """Return whether a path is a pattern, or a folder that holds shards and no images."""
    path = Path(source)
    if is_remote(path):
        return expand_shards(path) != [path]
    return bool(_list_folder(path)) if path.is_dir() else not path.exists() and exists(source)


def _expand_remote(address: str) -> list[Path]:
    """The shards of a pattern or folder behind an address; one of images is a folder by itself."""
    if "*" not in address and Path(address).suffix:
        return [Path(address)]
    files = [Path(name) for name in list_remote(address)]
    if not files:
        raise DataError(f"{address}: there is no such file, and none fits such a pattern")
    if "*" in address and not any(is_image_name(path.name) for path in files):
        return files
    return _choose_shards(address, files) or [Path(address)]


def _list_folder(folder: Path) -> list[Path]:
    """The shards directly in a folder; none if it has images or shards of several kinds."""
    return _choose_shards(folder, sorted(path for path in folder.iterdir() if path.is_file()))


def _choose_shards(folder: str | Path, files: list[Path]) -> list[Path]:
    found = [path for path in files if path.name.lower().endswith(SHARDS)]
    found = [path for path in found if not path.name.startswith("metadata.")]
    if any(is_image_name(path.name) for path in files):
        return []
    if len({path.suffix.lower() for path in found}) > 1:
        raise DataError(
            f"{folder}: holds shards of several kinds ({found[0].name}, {found[-1].name}); name "
            "those to read by a pattern, such as 'shards/*.tar'"
        )
    return found


def _expand_ranges(text: str) -> list[str]:
    """Replace `{000..127}` by the numbers of this range."""
    match = _RANGE.search(text)
    if match is None:
        return [text]
    first, last = match[1], match[2]
    numbers = range(int(first), int(last) + 1)
    if not numbers:
        raise DataError(f"{text}: expected a range from a smaller to a larger number")
    return [
        rest
        for number in numbers
        for rest in _expand_ranges(
            text[: match.start()] + str(number).zfill(len(first)) + text[match.end() :]
        )
    ]
