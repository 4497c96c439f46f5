"""The data of a run: read once a process, hidden labels taken out before training sees them."""

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
from halftruth.bench.frozen_features import frozen_features
from halftruth.data import DataError, Splits
from halftruth.labels import PRESENT
from halftruth.train.one_process import in_blocks, standardization

# Keys of a data set in a grid that its reader does not know.
_OWN = ("reader", "root", "frozen", "published", "limit")
_PATHS = ("images", "features")


@dataclass(frozen=True)
class Matrix:
    """Standardised features (N, D), and the labels that there are to see.

    In the training rows those are what the label setting shows: nothing that a process trains
    with holds a hidden label. In the others they are complete, to choose and measure by.
    """

    x: Tensor
    labels: Tensor
    splits: Splits
    prior: float
    groups: np.ndarray | None = None


def load_benchmark(source: dict[str, Any], labels: str, seed: int, root: Path) -> Benchmark:
    """A data set as a grid names it, its paths taken below `root`."""
    options = {key: value for key, value in source.items() if key not in _OWN}
    for key in _PATHS:
        if key in options:
            options[key] = _found(options[key], root)
    with warnings.catch_warnings():
        # Told once, when the grid starts (`describe_source`), and not in every process.
        warnings.simplefilter("ignore", BenchmarkWarning)
        read = benchmarks.load(
            source["reader"], root / source["root"], labels=labels, seed=seed, **options
        )
    limit = source.get("limit")
    return read if limit is None else first_rows(read, int(limit))


def load_matrix(
    source: dict[str, Any], labels: str, seed: int, root: Path, cache: Path, device: str
) -> Matrix:
    """A data set's features on the device."""
    read = load_benchmark(source, labels, seed, root)
    features = read.features
    if features is None:
        features = frozen_features(read, source.get("frozen"), root, cache, device)
    splits = read.splits
    x = in_blocks(standardization(features[splits.train]), features).float()
    seen = torch.from_numpy(seen_labels(read))
    return Matrix(x.to(device), seen.to(device), splits, prior_of(read), read.groups)


def seen_labels(read: Benchmark) -> np.ndarray:
    """The complete labels of the validation and test rows; what is shown in the training rows."""
    known = read.truth.copy()
    known[read.splits.train] = read.observed.values[read.splits.train]
    return known


def prior_of(read: Benchmark) -> float:
    """Positives a row, counted where labels are complete and may be looked at: validation."""
    rows = read.splits.val
    if not len(rows):
        raise DataError(f"{read.name}: there are no validation rows to choose settings by")
    return float(np.count_nonzero(read.truth[rows] == PRESENT, axis=1).mean())


def describe_source(source: dict[str, Any], labels: str, root: Path) -> str:
    """What a data set holds, in a line or two."""
    read = load_benchmark(source, labels, 1200, root)
    parts = ", ".join(f"{len(rows):,} {name}" for name, rows in vars(read.splits).items())
    told = [*read.notes, *map(str, read.check())] if source.get("limit") is None else []
    return "\n  ".join([f"{parts}; {len(read.classes)} classes", *told])


def first_rows(read: Benchmark, count: int) -> Benchmark:
    """The data set with at most `count` rows a part: for trying out a grid."""
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
    """A name for files made from a data set under a label setting."""
    text = json.dumps([source, labels, seed], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _found(places: Any, root: Path) -> Any:
    """Paths below the root, patterns filled in."""
    if isinstance(places, str):
        pattern = os.path.join(root, places)
        found = sorted(glob.glob(pattern))
        if not found:
            raise DataError(f"{pattern}: there is no such file or folder")
        return found[0] if len(found) == 1 else found
    several = [_found(place, root) for place in places]
    return [path for one in several for path in ([one] if isinstance(one, str) else one)]
