"""The data of a run: read once per process; hidden labels are removed before training."""

import dataclasses
import glob
import hashlib
import json
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from halftruth.bench import datasets as benchmarks
from halftruth.bench.datasets import Benchmark, BenchmarkWarning
from halftruth.data import DataError, Splits
from halftruth.data.decode_images import describe_bad
from halftruth.data.transforms import Augment
from halftruth.labels import PRESENT
from halftruth.models import build_image_model
from halftruth.train.devices import OneProcess
from halftruth.train.inputs.batches import apply_in_blocks, fit_standardization
from halftruth.train.inputs.cache_keys import digest_image_files
from halftruth.train.inputs.image_inputs import Images, decode
from halftruth.train.scoring import score_rows

# Keys of a data set in a grid that are not options of its reader.
_OWN = ("reader", "root", "frozen", "published", "limit")
_PATHS = ("images", "features", "measures")
# Images per batch of a frozen backbone.
_BATCH = 128


@dataclass(frozen=True)
class Matrix:
    """Features (N, D), standardised and as they are, and the visible labels.

    In training rows these are the labels that the label setting shows: no training process has a
    hidden label in memory. In other rows they are complete, for selection and evaluation.
    """

    x: Tensor
    labels: Tensor
    splits: Splits
    prior: float
    features: np.ndarray
    groups: np.ndarray | None = None


def load_benchmark(source: dict[str, Any], labels: str, seed: int, root: Path) -> Benchmark:
    """Read a data set of a grid; its paths are relative to `root`."""
    options = {key: value for key, value in source.items() if key not in _OWN}
    for key in _PATHS:
        if key in options:
            options[key] = _resolve(options[key], root)
    with warnings.catch_warnings():
        # Reported once, when the grid starts (`describe_source`), not in every process.
        warnings.simplefilter("ignore", BenchmarkWarning)
        read = benchmarks.load(
            source["reader"], root / source["root"], labels=labels, seed=seed, **options
        )
    limit = source.get("limit")
    return read if limit is None else first_rows(read, int(limit))


def load_matrix(
    source: dict[str, Any], labels: str, seed: int, root: Path, cache: Path, device: str
) -> Matrix:
    """Read a data set's features to the device."""
    read = load_benchmark(source, labels, seed, root)
    features = read.features
    if features is None:
        features = frozen_features(read, source.get("frozen"), root, cache, device)
    splits = read.splits
    x = apply_in_blocks(fit_standardization(features[splits.train]), features).float()
    seen = torch.from_numpy(seen_labels(read))
    return Matrix(x.to(device), seen.to(device), splits, prior_of(read), features, read.groups)


def seen_labels(read: Benchmark) -> np.ndarray:
    """Complete labels in validation and test rows, shown labels in training rows."""
    known = read.truth.copy()
    known[read.splits.train] = read.observed.values[read.splits.train]
    return known


def prior_of(read: Benchmark) -> float:
    """Mean number of positives per validation row."""
    rows = read.splits.val
    if not len(rows):
        raise DataError(f"{read.name}: there are no validation rows to select settings on")
    return float(np.count_nonzero(read.truth[rows] == PRESENT, axis=1).mean())


def describe_source(source: dict[str, Any], labels: str, root: Path) -> str:
    """Describe a data set in one or two lines."""
    read = load_benchmark(source, labels, 1200, root)
    parts = ", ".join(f"{len(rows):,} {name}" for name, rows in vars(read.splits).items())
    notes = [*read.notes, *map(str, read.check())] if source.get("limit") is None else []
    if not len(read.splits.test):
        notes.append("there is no test part: results are those of the validation part")
    return "\n  ".join([f"{parts}; {len(read.classes)} classes", *notes])


def first_rows(read: Benchmark, count: int) -> Benchmark:
    """The data set with at most `count` rows per part, to test a grid quickly."""
    parts = [rows[:count] for rows in vars(read.splits).values()]
    kept = np.sort(np.concatenate(parts))
    splits = Splits(*(np.searchsorted(kept, rows) for rows in parts))
    return dataclasses.replace(
        read,
        observed=read.observed.select(kept),
        truth=read.truth[kept],
        splits=splits,
        features=None if read.features is None else read.features[kept],
        groups=None if read.groups is None else read.groups[kept],
    )


def source_key(source: dict[str, Any], labels: str, seed: int) -> str:
    """A name for files that depend on a data set, a label setting and a seed."""
    text = json.dumps([source, labels, seed], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _resolve(places: Any, root: Path) -> Any:
    """Paths below the root, with patterns expanded."""
    if isinstance(places, str):
        pattern = os.path.join(root, places)
        found = sorted(glob.glob(pattern))
        if not found:
            raise DataError(f"{pattern}: there is no such file or folder")
        return found[0] if len(found) == 1 else found
    several = [_resolve(place, root) for place in places]
    return [path for one in several for path in ([one] if isinstance(one, str) else one)]


def frozen_features(
    read: Benchmark, settings: dict[str, Any] | None, root: Path, cache: Path, device: str
) -> np.ndarray:
    """Pooled features (N, D) of a data set's images, computed once and kept on disk.

    settings: backbone (a timm model), weights ("pretrained" or a file below the root), image_size.
    """
    if settings is None:
        raise DataError(
            f"{read.name} has images and no features; write `frozen: {{backbone: ...}}` in the "
            "grid to extract features, or train it end to end"
        )
    settings = dict(settings)
    weights = str(settings.pop("weights", "pretrained"))
    if weights not in ("pretrained", "none"):
        weights = str(root / weights)
    store, names = read.store(), [str(item) for item in read.observed.items]  # type: ignore[union-attr]
    facts = [settings, weights, names, digest_image_files(store)]
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
    found = score_rows(model.features, inputs, rows, machine, _BATCH).cpu().numpy()  # type: ignore[arg-type]
    cache.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}.npy")
    np.save(new, found)
    os.replace(new, path)
    return found
