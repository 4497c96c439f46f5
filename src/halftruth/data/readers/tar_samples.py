"""Samples of a WebDataset tar shard: files that share a key, such as 0001.jpg and 0001.json."""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import Any

from halftruth.data.errors import DataError
from halftruth.data.image_file import is_image_name
from halftruth.data.readers.cells import parse_object
from halftruth.data.tar_shard import TarShard


def read_tar_samples(path: Path) -> dict[str, dict[str, Any]]:
    """Return the fields of each sample by its key: `image`, those of .json, and text files.

    The key is the name before the first dot of its last part. `image` is the name of the image in
    the shard; every other file but .json is a field with its ending as name (cls, txt). A sample
    without an image, or without a field that the others have, is an error.
    """
    shard = TarShard(path)
    samples: dict[str, dict[str, Any]] = {}
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
            fields[ending.lower()] = text.strip()
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


def _check_complete(samples: dict[str, dict[str, Any]], path: Path) -> None:
    """Refuse samples without an image, and samples with no field at all where others have some."""
    for key, fields in samples.items():
        if "image" not in fields:
            raise DataError(f"{path}: the sample {key!r} has no image")
    labelled = any(len(fields) > 1 for fields in samples.values())
    bare = [key for key, fields in samples.items() if len(fields) == 1]
    if bare and labelled:
        raise DataError(
            f"{path}: {len(bare):,} of {len(samples):,} samples have no labels (.json or .cls), "
            f"the first is {bare[0]!r}; add an empty list of labels, or remove them"
        )
    if bare:
        raise DataError(
            f"{path}: no sample has labels (.json or .cls); give a label file that names the images"
        )
