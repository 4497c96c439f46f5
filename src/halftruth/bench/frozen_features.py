"""Features of images by a backbone that is not trained: computed once, kept on disk."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch

from halftruth.bench.datasets import Benchmark
from halftruth.data import DataError
from halftruth.data.decode_images import describe_bad
from halftruth.data.transforms import Augment
from halftruth.models import build_image_model
from halftruth.train.inputs import Images, decode, stamp
from halftruth.train.one_process import OneProcess
from halftruth.train.scoring import outputs

_BATCH = 128


def frozen_features(
    read: Benchmark, settings: dict[str, Any] | None, root: Path, cache: Path, device: str
) -> np.ndarray:
    """(N, D) pooled features of a data set's images.

    settings: backbone (any of timm's), weights ("pretrained" or a file below the root), image_size.
    """
    if settings is None:
        raise DataError(
            f"{read.name} has images and no features; say `frozen: {{backbone: ...}}` in the grid "
            "to extract some, or leave it to be trained end to end"
        )
    settings = dict(settings)
    weights = str(settings.pop("weights", "pretrained"))
    if weights not in ("pretrained", "none"):
        weights = str(root / weights)
    store, names = read.store(), [str(item) for item in read.observed.items]  # type: ignore[union-attr]
    facts = [settings, weights, names, stamp(store)]
    key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
    path = cache / f"frozen-{key}.npy"
    if path.exists():
        found: np.ndarray = np.load(path)
        return found
    torch.manual_seed(0)
    backbone = settings.pop("backbone")
    model = build_image_model(backbone, len(read.classes), weights=weights, **settings)
    size = model.image_size
    pixels, bad = decode(
        store, names, size, cache="memory", folder=cache, workers=os.cpu_count() or 1
    )
    if bad:
        raise DataError(describe_bad(bad, len(names)))
    augment = Augment.preset("none", size, model.mean, model.std)
    inputs = Images(store, names, size, augment=augment, workers=0, pixels=pixels)
    machine = OneProcess(device)
    model.to(machine.device).eval()
    rows = np.arange(len(names))
    found = outputs(model.features, inputs, rows, machine, _BATCH).cpu().numpy()  # type: ignore[arg-type]
    cache.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}.npy")
    np.save(new, found)
    os.replace(new, path)
    return found
