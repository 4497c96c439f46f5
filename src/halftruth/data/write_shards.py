"""Write tar shards (WebDataset) from a stream of samples, such as a Hugging Face data set."""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from halftruth.data.errors import DataError, some
from halftruth.data.readers.arrow_file import find_class_names

_ENDINGS = {"JPEG": ".jpg", "PNG": ".png", "WEBP": ".webp", "GIF": ".gif", "BMP": ".bmp"}


def write_shards(
    samples: Iterable[Mapping[str, Any]],
    folder: str | Path,
    *,
    image: str = "image",
    per_shard: int = 1000,
) -> int:
    """Write samples to tar shards in a new folder, one after the other; return their number.

    samples: dicts with an image and other fields, for instance a streaming data set of Hugging
        Face. An image is a PIL image, an array (H, W, 3) of uint8, bytes, a file, or a dict with
        bytes and path. Bytes are copied, so that nothing is compressed twice.
    image: the name of the field with the image; all others go to a .json file. Numbers of classes
        become names, where the data set says them.

    Memory holds one sample at a time. A shard appears when it is complete.

        dataset = datasets.load_dataset("user/photos", split="train", streaming=True)
        halftruth.data.write_shards(dataset, "shards")
        # halftruth train shards/ --images shards/ --label-column labels
    """
    folder = Path(folder)
    if per_shard < 1:
        raise DataError(f"per_shard: expected at least 1, got {per_shard}")
    if folder.exists() and any(folder.iterdir()):
        raise DataError(f"{folder}: expected a new or an empty folder")
    folder.mkdir(parents=True, exist_ok=True)
    names = _list_class_names(samples)
    samples = _keep_bytes(samples, image)
    shard: tarfile.TarFile | None = None
    count = 0
    try:
        for count, sample in enumerate(samples, start=1):
            if image not in sample:
                raise DataError(
                    f"sample {count - 1}: has no field {image!r} with the image; the fields are "
                    f"{some(list(sample))}; name it with image="
                )
            if shard is None:
                new = folder / f".new-{count // per_shard:05d}.tar"
                shard = tarfile.open(new, "w")  # noqa: SIM115 (closed when it is full)
            key, number = f"{count - 1:09d}", count - 1
            data, ending = _encode(sample[image], number)
            fields = {name: value for name, value in sample.items() if name != image}
            _add(shard, key + ending, data)
            _add(shard, key + ".json", _to_json(fields, names, number))
            if count % per_shard == 0:
                _finish(shard)
                shard = None
        if shard is not None:
            _finish(shard)
    except BaseException:
        if shard is not None:
            shard.close()
            os.unlink(str(shard.name))
        raise
    if not count:
        raise DataError("samples: expected at least one sample, got none")
    return count


def _finish(shard: tarfile.TarFile) -> None:
    shard.close()
    path = Path(str(shard.name))
    os.replace(path, path.with_name(path.name.replace(".new-", "shard-")))


def _add(shard: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    shard.addfile(info, io.BytesIO(data))


def _encode(value: object, number: int) -> tuple[bytes, str]:
    """The bytes of an image file, and its ending."""
    if isinstance(value, Mapping):
        value = value.get("bytes") or value.get("path")
    if isinstance(value, str | Path):
        value = Path(value).read_bytes()
    if isinstance(value, bytes):
        try:
            with Image.open(io.BytesIO(value)) as found:
                kind = found.format or "PNG"
        except OSError:
            # It is listed as bad when the shards are read.
            kind = "JPEG"
        return value, _ENDINGS.get(kind, ".png")
    if isinstance(value, np.ndarray) and value.dtype == np.uint8:
        value = Image.fromarray(value)
    if not isinstance(value, Image.Image):
        raise DataError(
            f"sample {number}: expected an image (PIL, uint8 array, bytes or a file), got "
            f"{type(value).__name__}"
        )
    file = io.BytesIO()
    value.save(file, "PNG")
    return file.getvalue(), ".png"


def _to_json(fields: dict[str, Any], names: dict[str, list[str]], number: int) -> bytes:
    for name, value in fields.items():
        if isinstance(value, np.ndarray | np.generic):
            value = value.tolist()
        if name in names:
            known = names[name]
            value = [known[k] for k in value] if isinstance(value, list) else known[value]
        fields[name] = value
    try:
        return json.dumps(fields, ensure_ascii=False).encode()
    except TypeError as error:
        raise DataError(
            f"sample {number}: a field is neither text, a number nor a list of these: {error}; "
            "remove it before"
        ) from None


def _list_class_names(samples: object) -> dict[str, list[str]]:
    """The names of classes by column, where a data set of Hugging Face has them."""
    features: Any = getattr(samples, "features", None)
    return find_class_names(features.to_dict()) if hasattr(features, "to_dict") else {}


def _keep_bytes(samples: object, image: str) -> Any:
    """A data set of Hugging Face whose images are not decoded."""
    kind = (getattr(samples, "features", None) or {}).get(image)
    if kind is None or not hasattr(kind, "decode") or not hasattr(samples, "cast_column"):
        return samples
    return samples.cast_column(image, type(kind)(decode=False))
