"""What `load` returns: labels, truth, parts and inputs, and how they compare with the papers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path

import numpy as np

from halftruth.data.errors import DataError
from halftruth.data.images import ImageStore
from halftruth.data.splits import Splits
from halftruth.labels import PRESENT, LabelMatrix


class BenchmarkWarning(UserWarning):
    """What was read differs from what a paper says of the data set."""


@dataclass(frozen=True)
class Published:
    """A number of a paper, with the digits it is printed with.

    `what` is a key of `Benchmark.statistics`. A number that belongs to one label setting or to
    one validation share is compared only there.
    """

    what: str
    value: str
    source: str
    setting: str | None = None
    val: float | None = None


@dataclass(frozen=True)
class Difference:
    """A statistic that is not what a paper says."""

    what: str
    found: float
    published: str
    source: str

    def __str__(self) -> str:
        return f"{self.what}: found {self.found:,.6g}, published {self.published} ({self.source})"


@dataclass(frozen=True, eq=False)
class Benchmark:
    """A data set ready to train on.

    observed: what a method may see, (N, K): the label setting in the training and validation rows,
        complete labels in the test rows; its `split` names each row's part.
    truth: (N, K) int8, every label as far as the data set knows it; for selection and measuring.
    splits: the rows of train, val and test.
    images: the folders and zip files that hold images and exist; `store()` opens them.
    features: (N, D) float32 instead of images, where the data set is one of features.
    groups: (N,) which rows belong together (a patient's), where that is known.
    setting, val: the label setting and the share held out (None: the published validation part).
    notes: what was odd in the files.
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
                f"{self.name}: no folder or zip file of images was found beside the labels; "
                f"halftruth.bench.datasets.explain({self.name!r}) shows where they belong"
            )
        return ImageStore(self.images)

    def check(self) -> list[Difference]:
        """The published numbers that what was read does not agree with."""
        counted = self.statistics
        return [
            Difference(entry.what, counted[entry.what], entry.value, entry.source)
            for entry in self.published
            if entry.what in counted
            and entry.setting in (None, self.setting)
            and entry.val in (None, self.val)
            and not agrees(counted[entry.what], entry.value)
        ]

    def describe(self) -> str:
        """What was read, in a few lines."""
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
        return "\n".join(lines + [f"differs: {entry}" for entry in self.check()])

    @cached_property
    def statistics(self) -> Mapping[str, float]:
        """The numbers that papers print of a data set, counted here.

        `positives_per_image` and `observed_labels` are over the training and validation rows,
        `cardinality` (the positives a row) over all rows.
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
    """Whether a number rounds to what is printed, with as many digits as are printed.

    >>> agrees(1.4572, "1.46"), agrees(1.4572, "1.4"), agrees(5717, "5,717")
    (True, False, True)
    """
    printed = Decimal(published.replace(",", ""))
    # Half a unit of the last digit, either way: papers round halves up as well as to even.
    slack = printed.as_tuple().exponent
    return abs(Decimal(found) - printed) <= Decimal("0.5").scaleb(int(slack))
