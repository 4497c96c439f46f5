"""`load`: read a data set, hide labels, split off validation rows, compare with the papers."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from pathlib import Path

import numpy as np

from halftruth.bench.datasets.dataset import Contents, Published, registry
from halftruth.bench.label_settings import hide, needs_measure
from halftruth.data.errors import DataError
from halftruth.data.images import ImageStore
from halftruth.data.splits import Splits, choose_splits, named_splits
from halftruth.labels import PRESENT, LabelMatrix
from halftruth.seeds import check_seed


class BenchmarkWarning(UserWarning):
    """The data set differs from its published statistics."""


@dataclass(frozen=True, eq=False)
class Benchmark:
    """A data set ready to train on.

    observed: the labels that a method sees, (N, K): the label setting in training and validation
        rows, complete labels in test rows; `split` is the part of each row.
    truth: (N, K) int8, all labels of the data set; for selection and evaluation.
    splits: the rows of train, val and test.
    images: the existing folders and zip files of images; `store()` opens them.
    features: (N, D) float32, for data sets of features instead of images.
    groups: (N,) the group of each row (such as a patient), if known.
    setting, val: the label setting and the share held out (None: the published validation part).
    notes: irregularities in the files.
    """

    name: str
    observed: LabelMatrix
    truth: np.ndarray
    splits: Splits
    images: tuple[Path, ...] = ()
    features: np.ndarray | None = None
    groups: np.ndarray | None = None
    setting: str = "complete"
    val: float | None = None
    published: tuple[Published, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def classes(self) -> tuple[str, ...]:
        return self.observed.classes

    def store(self) -> ImageStore:
        """The images, by the names in `observed.items`."""
        if not self.images:
            raise DataError(
                f"{self.name}: no folder or zip file of images was found next to the labels; "
                f"halftruth.bench.datasets.explain({self.name!r}) shows where they belong"
            )
        return ImageStore(self.images)

    def check(self) -> list[Published]:
        """The statistics that differ from the published numbers."""
        counted = self.statistics
        return [
            replace(entry, found=counted[entry.what])
            for entry in self.published
            if entry.what in counted
            and entry.setting in (None, self.setting)
            and entry.val in (None, self.val)
            and not agrees(counted[entry.what], entry.value)
        ]

    def describe(self) -> str:
        """Describe the data set in a few lines."""
        parts = ", ".join(
            f"{len(rows):,} {part}" for part, rows in vars(self.splits).items() if len(rows)
        )
        inputs = (
            f"features of {self.features.shape[1]:,} numbers"
            if self.features is not None
            else f"images in {', '.join(map(str, self.images)) or '(none found)'}"
        )
        learnt = self.observed.select(np.concatenate([self.splits.train, self.splits.val]))
        lines = [f"{self.name}, {self.setting} labels: {parts}", learnt.describe(), inputs]
        lines += [f"note: {note}" for note in self.notes]
        if not len(self.splits.test):
            lines.append("there is no test part: results are those of the validation part")
        return "\n".join(lines + [f"differs: {entry}" for entry in self.check()])

    @cached_property
    def statistics(self) -> Mapping[str, float]:
        """The statistics that papers publish, counted on this copy.

        `positives_per_image` and `observed_labels` are over the training and validation rows,
        `cardinality` (positives per row) over all rows.
        """
        positives = np.count_nonzero(self.truth == PRESENT, axis=1)
        learnt = np.concatenate([self.splits.train, self.splits.val])
        observed = np.count_nonzero(self.observed.values[learnt] == PRESENT)
        counted = {
            "classes": float(len(self.classes)),
            "images": float(len(self.truth)),
            "positives_per_image": float(positives[learnt].mean()),
            "observed_labels": float(observed),
            "cardinality": float(positives.mean()),
            "positive_rows": float(np.count_nonzero(positives)),
            "negative_rows": float(np.count_nonzero(positives == 0)),
        }
        for part, rows in {**vars(self.splits), "train_and_val": learnt}.items():
            counted[f"images_{part}"] = float(len(rows))
            counted[f"positive_rows_{part}"] = float(np.count_nonzero(positives[rows]))
            counted[f"negative_rows_{part}"] = float(np.count_nonzero(positives[rows] == 0))
        if self.features is not None:
            counted["features"] = float(self.features.shape[1])
        return counted


def agrees(found: float, published: str) -> bool:
    """Whether a number rounds to the published one, with its number of digits.

    >>> agrees(1.4572, "1.46"), agrees(1.4572, "1.4"), agrees(5717, "5,717")
    (True, False, True)
    """
    printed = Decimal(published.replace(",", ""))
    # Half a unit of the last digit, either way: papers round halves up or to even.
    slack = printed.as_tuple().exponent
    return abs(Decimal(found) - printed) <= Decimal("0.5").scaleb(int(slack))


VAL = 0.2


def load(
    name: str,
    root: str | Path,
    *,
    labels: str = "complete",
    seed: int = 1200,
    val: float | None = None,
    split_seed: int = 1200,
    **options: object,
) -> Benchmark:
    """Read a data set from its official files below `root`; nothing is downloaded.

    labels: the label setting, see `hide`; seed: which labels it shows.
    val: the share of the official training rows held out for validation: by default a fifth,
        drawn with `split_seed`, as Cole et al. 2021 and those who follow do (0 holds out none).
        A data set with a published validation part has it by default.
    options: of the data set, such as `split="asl"` for nuswide.

    Labels are hidden in the whole official training part, before validation rows are set aside,
    so that the defaults give the published draws. A
    `BenchmarkWarning` reports statistics that differ from the papers; `Benchmark.check()` lists
    them.
    """
    check_seed(seed)
    check_seed(split_seed, "split_seed")
    dataset = registry.create(name, **options)
    name = registry.resolve(name)
    contents = dataset.read(Path(root))
    splits, val = _parts(name, contents, val, split_seed)
    learnt = np.sort(np.concatenate([splits.train, splits.val]))
    observed, parts = contents.labels.values.copy(), np.full(len(contents.labels), "train")
    measures: Mapping[str, np.ndarray] = {}
    if needs_measure(labels):
        measures = dataset.read_measures(Path(root), contents.labels)
    measures = {measure: table[learnt] for measure, table in measures.items()}
    observed[learnt] = hide(contents.labels.values[learnt], labels, seed, measures)
    parts[splits.val], parts[splits.test] = "val", "test"
    benchmark = Benchmark(
        name=name,
        observed=replace(contents.labels, stored=observed, split=parts),
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
    if len(official.val) and val is not None:
        raise DataError(
            f"{name} has a published validation part of {len(official.val):,} rows; leave out "
            f"val={val}"
        )
    if len(official.val) or val == 0:
        return official, val
    val = VAL if val is None else val
    splits = choose_splits(len(column), column=column, val=val, seed=seed, groups=contents.groups)
    return splits, val
