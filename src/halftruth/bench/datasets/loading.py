"""`load`: read a data set, hide labels, set validation rows aside, compare with the papers."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from halftruth.bench.datasets.base import Contents, registry
from halftruth.bench.datasets.benchmark import Benchmark, BenchmarkWarning
from halftruth.bench.datasets.label_settings import hide
from halftruth.data.errors import DataError
from halftruth.data.splits import Splits, choose_splits, named_splits

VAL = 0.2


def load(
    name: str,
    root: str | Path,
    *,
    labels: str = "complete",
    seed: int = 1200,
    val: float | None = None,
    split_seed: int = 1200,
    **options: Any,
) -> Benchmark:
    """A data set from its official files below `root`; nothing is downloaded.

    labels: the label setting, see `hide`; seed: which labels it shows.
    val: the share of the official training rows held out for validation: by default a fifth,
        drawn with `split_seed`, as Cole et al. 2021 and those who follow do (0 holds out none).
        A data set with a published validation part has it by default.
    options: of the data set, such as `split="asl"` for nuswide.

    Labels are hidden in the whole official training part, before validation rows are set aside,
    so that the defaults give the published draws. Numbers that differ from the papers' are
    warned of (`BenchmarkWarning`); `Benchmark.check()` lists them.
    """
    dataset = registry.create(name, **options)
    name = registry.resolve(name)
    contents = dataset.read(Path(root))
    splits, val = _parts(name, contents, val, split_seed)
    learnt = np.sort(np.concatenate([splits.train, splits.val]))
    observed = contents.labels.values.copy()
    observed[learnt] = hide(contents.labels.values[learnt], labels, seed)
    benchmark = Benchmark(
        name=name,
        observed=replace(contents.labels, values=observed, split=_names(splits, len(observed))),
        truth=contents.labels.values,
        splits=splits,
        images=contents.images,
        features=contents.features,
        groups=contents.groups,
        setting=labels,
        val=val,
        published=dataset.published(),
        notes=contents.notes,
    )
    told = [*contents.notes, *map(str, benchmark.check())]
    if told:
        lines = "\n  ".join(told)
        warnings.warn(f"{name} in {root}:\n  {lines}", BenchmarkWarning, stacklevel=2)
    return benchmark


def _parts(
    name: str, contents: Contents, val: float | None, seed: int
) -> tuple[Splits, float | None]:
    column = contents.labels.split
    assert column is not None
    official = named_splits(column)
    if len(official.val):
        if val is not None:
            raise DataError(
                f"{name} has a published validation part of {len(official.val):,} rows; leave out "
                f"val={val}"
            )
        return official, None
    val = VAL if val is None else val
    if val == 0:
        return official, val
    n = len(column)
    return choose_splits(n, column=column, val=val, seed=seed, groups=contents.groups), val


def _names(splits: Splits, rows: int) -> np.ndarray:
    column = np.full(rows, "train", dtype="<U5")
    column[splits.val] = "val"
    column[splits.test] = "test"
    return column
