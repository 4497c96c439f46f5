"""The data of a run: read once per process; hidden labels are removed before training."""

import dataclasses
import glob
import hashlib
import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from halftruth.bench import datasets as benchmarks
from halftruth.bench.cells import Job, is_on_features
from halftruth.bench.datasets import Benchmark, BenchmarkWarning
from halftruth.data import DataError, Splits, write_labels
from halftruth.data.decode_images import describe_bad
from halftruth.labels import PRESENT
from halftruth.train.config import Config
from halftruth.train.inputs.batches import apply_in_blocks, fit_standardization
from halftruth.train.inputs.image_features import ImageFeatures
from halftruth.train.run_folder import replace_file

# Keys of a data set in a grid that are not options of its reader.
_OWN = ("reader", "root", "frozen", "published", "limit")
_PATHS = ("images", "features", "measures")
# A folder with the official copy of VOC 2012 in place of labels.csv and zips.
OFFICIAL = "VOCdevkit"


@dataclass(frozen=True)
class Place:
    """Paths and device of runs."""

    root: Path
    cache: Path
    device: str


@dataclass(frozen=True)
class BenchRows:
    """All rows of a data set, with the visible labels (N, K), and features or files of images.

    In training rows these are the labels that the label setting shows: no training process has a
    hidden label in memory. In other rows they are complete, for selection and evaluation.

    features: as they are; x: standardised, on the device. files: settings of a run on images.
    """

    labels: np.ndarray
    splits: Splits
    prior: float
    features: Any = None
    x: Any = None
    groups: np.ndarray | None = None
    files: dict[str, Any] | None = None


def load_rows(job: Job, place: Place) -> BenchRows:
    """Read the data set of a job: features to the device, or images as files for training."""
    read = load_benchmark(job.source, job.labels, job.label_seed, place.root)
    about: dict[str, Any] = {"groups": read.groups}
    if is_on_features(job.source):
        features = read.features
        if features is None:
            frozen = job.source.get("frozen")
            features = frozen_features(read, frozen, place.root, place.cache)
        scale = fit_standardization(features[read.splits.train])
        x = apply_in_blocks(scale, features).float().to(place.device)
        about |= {"features": features, "x": x}
    else:
        about["files"] = write_files(read, place.cache / f"labels-{source_key(job)}")
    return BenchRows(seen_labels(read), read.splits, prior_of(read), **about)


def load_benchmark(source: Mapping[str, Any], labels: str, seed: int, root: Path) -> Benchmark:
    """Read a data set of a grid; its paths are relative to `root`."""
    reader, place = source["reader"], root / source["root"]
    options = {key: value for key, value in source.items() if key not in _OWN}
    if reader == "table" and not place.exists() and (place.parent / OFFICIAL).exists():
        # The official files of the data set that the table was made of.
        reader, place, options = source.get("compare", reader), place.parent, {}
    options |= {key: _resolve(options[key], root) for key in _PATHS if key in options}
    with warnings.catch_warnings():
        # Reported once, when the grid starts (`describe_source`), not in every process.
        warnings.simplefilter("ignore", BenchmarkWarning)
        read = benchmarks.load(reader, place, labels=labels, seed=seed, **options)
    limit = source.get("limit")
    if limit is None:
        return read
    return take_rows(read, {name: rows[:limit] for name, rows in vars(read.splits).items()})


def write_files(read: Benchmark, folder: Path, complete: bool = False) -> dict[str, Any]:
    """Write shown and complete labels once; return them and the images as settings of a run.

    Hidden labels of training rows are left out, except with `complete`.
    """
    shown, truth = folder / "observed.csv", folder / "truth.csv"
    # The second file is the last one written.
    if not truth.exists():
        write_labels_and_truth(read, shown, truth, read.truth if complete else seen_labels(read))
    images = [str(path) for path in read.images]
    return {"labels": str(shown), "truth": str(truth), "images": images}


def write_labels_and_truth(read: Benchmark, shown: Path, truth: Path, known: np.ndarray) -> None:
    """Write two label files; processes that need the same ones may write them at the same time."""
    for path, values in ((shown, read.observed.values), (truth, known)):
        with replace_file(path, shared=True) as new:
            write_labels(dataclasses.replace(read.observed, stored=values), new)


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


def take_rows(read: Benchmark, parts: Mapping[str, np.ndarray]) -> Benchmark:
    """The data set with these rows, in their order, as the rows of each part.

    It is no longer compared with published numbers.
    """
    kept = np.sort(np.concatenate(list(parts.values())))
    names = np.full(len(read.truth), "train", dtype="<U5")
    for name, rows in parts.items():
        names[rows] = name
    return dataclasses.replace(
        read,
        observed=dataclasses.replace(read.observed.select(kept), split=names[kept]),
        truth=read.truth[kept],
        published=(),
        splits=Splits(**{name: np.searchsorted(kept, rows) for name, rows in parts.items()}),
        features=None if read.features is None else read.features[kept],
        groups=None if read.groups is None else read.groups[kept],
    )


def source_key(job: Job) -> str:
    """A name for files that depend on a data set, a label setting and a seed."""
    text = json.dumps([job.source, job.labels, job.label_seed], sort_keys=True)
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


def resolve_weights(settings: Mapping[str, Any], root: Path) -> str:
    """The weights of a backbone: "pretrained", "none", or a file below the root."""
    weights = str(settings.get("weights", "pretrained"))
    return weights if weights in ("pretrained", "none") else str(root / weights)


def frozen_features(
    read: Benchmark, settings: dict[str, Any] | None, root: Path, cache: Path
) -> np.ndarray:
    """Pooled features (N, D) of a data set's images, computed once and kept on disk.

    settings: backbone (a timm model), weights ("pretrained" or a file below the root), image_size.
    """
    if settings is None:
        raise DataError(
            f"{read.name} has images and no features; write `frozen: {{backbone: ...}}` in the "
            "grid to extract features, or train it end to end"
        )
    read.store()
    assert read.observed.items is not None
    config = Config(
        **{**settings, "weights": resolve_weights(settings, root)},
        images=[str(path) for path in read.images],
        cache_dir=str(cache),
        workers=os.cpu_count() or 1,
    )
    names = [str(item) for item in read.observed.items]
    found, bad = ImageFeatures.create(config).read(config, names)
    if bad:
        raise DataError(describe_bad(bad, len(names)))
    return found
