"""Base class of the data sets: a reader, and its entry in datasets.yaml."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from halftruth.bench import read_bench_yaml
from halftruth.data.errors import DataError
from halftruth.data.readers.text_table import read_text
from halftruth.labels import ABSENT, PRESENT, LabelMatrix
from halftruth.registry import Registry


@dataclass(frozen=True)
class Published:
    """A published number, with its printed digits.

    `what` is a key of `Benchmark.statistics`. A number with a label setting or a validation share
    is compared only under that setting or share.
    """

    what: str
    value: str
    source: str
    setting: str | None = None
    val: float | None = None
    # What was counted instead, where that differs.
    found: float | None = None

    def __str__(self) -> str:
        return f"{self.what}: found {self.found:,.6g}, published {self.value} ({self.source})"


@dataclass(frozen=True, eq=False)
class Contents:
    """The content of a data set: complete labels, with the official part of each row in `split`.

    Rows have the order of the published experiments, which draw labels and splits from one random
    stream over the rows. Without "val" rows, validation rows are drawn from "train"; `groups` (one
    patient per row, for example) are then kept whole.
    """

    labels: LabelMatrix
    images: tuple[Path, ...] = ()
    features: np.ndarray | None = None
    groups: np.ndarray | None = None
    notes: tuple[str, ...] = ()


class Dataset:
    """A data set in its official layout; one subclass per data set.

    entry: its key in datasets.yaml. variant: the key of its published numbers, where an option
    changes them. compare: the data set whose published numbers it has, if not its own.
    """

    entry: ClassVar[str]
    variant: str = ""
    compare: str | None = None

    def __init__(self) -> None:
        """Most data sets have no options."""

    def read(self, root: Path) -> Contents:
        """Read the labels below `root`, and find the images."""
        raise NotImplementedError

    def read_measures(self, root: Path, labels: LabelMatrix) -> Mapping[str, np.ndarray]:
        """Read numbers per row and class, (N, K), by which some label settings show labels.

        `halftruth.bench.label_settings.MEASURES` has their names. Most data sets have none.
        """
        return {}

    def published(self) -> tuple[Published, ...]:
        """The published numbers of the data set."""
        if self.compare is not None:
            return registry.create(self.compare).published()
        blocks = read_bench_yaml("datasets.yaml")["datasets"][self.entry].get("published", [])
        if isinstance(blocks, dict):
            blocks = blocks.get(self.variant, [])
        about, found = ("source", "setting", "val"), []
        for block in blocks:
            place = {key: block[key] for key in about if key in block}
            place["source"] = read_bench_yaml("datasets.yaml")["sources"].get(
                place["source"], place["source"]
            )
            numbers = {key: value for key, value in block.items() if key not in about}
            found += [Published(what, value, **place) for what, value in numbers.items()]
        return tuple(found)

    @classmethod
    def explain(cls) -> str:
        """Where to get the data set, and the files that the root must contain."""
        about = read_bench_yaml("datasets.yaml")["datasets"][cls.entry]
        tree = about["tree"].strip().replace("\n", "\n  ")
        return f"{about['title']}: {about['homepage']}\nThe root holds:\n  {tree}"

    def folder(self, root: Path, places: Sequence[str], marker: str) -> Path:
        """The first of `places` below the root that contains the marker file or folder."""
        if not root.exists():
            raise self.incomplete(f"{root}: there is no such folder")
        for place in places:
            if (root / place / marker).exists():
                return root / place
        tried = " or ".join(str(root / place / marker) for place in places)
        raise self.incomplete(f"{tried}: is missing")

    def require_files(self, *files: Path) -> None:
        """Raise an error if a file is missing, as in a partly unpacked copy."""
        missing = [file for file in files if not file.is_file()]
        if missing:
            more = f" (and {len(missing) - 1:,} more files)" if len(missing) > 1 else ""
            raise self.incomplete(f"{missing[0]}{more}: is missing")

    def incomplete(self, what: str) -> DataError:
        """The error for a missing or incomplete copy."""
        return DataError(f"{what}\n{self.explain()}")

    @staticmethod
    def check_choice(name: str, given: str, choices: Sequence[str]) -> str:
        """Return an option of a data set, which must be one of the choices."""
        if given not in choices:
            raise DataError(f"{name} must be one of {tuple(choices)}, got {given!r}")
        return given

    @staticmethod
    def find_existing(*places: Path) -> tuple[Path, ...]:
        """The folders and zip files of images that exist."""
        return tuple(place for place in places if place.exists())

    @staticmethod
    def join(parts: Sequence[LabelMatrix], names: Sequence[str]) -> LabelMatrix:
        """Concatenate labels of the same classes; the name of each part becomes the split."""
        classes = parts[0].classes
        for part, name in zip(parts, names, strict=True):
            if part.classes != classes:
                raise DataError(
                    f"the {name} part has other classes than the {names[0]} part: "
                    f"{part.classes[:5]} ... and {classes[:5]} ..."
                )
        items = [part.items for part in parts if part.items is not None]
        return LabelMatrix(
            np.concatenate([part.values for part in parts]),
            classes,
            np.concatenate(items) if len(items) == len(parts) else None,
            np.repeat(np.asarray(names, dtype=str), [len(part) for part in parts]),
        )


registry: Registry[Dataset] = Registry("data set")
register = registry.register


def classes_of(entry: str) -> tuple[str, ...]:
    """The classes of a data set whose files do not name them."""
    return tuple(read_bench_yaml("datasets.yaml")["datasets"][entry]["classes"])


def read_source_lines(path: Path) -> list[tuple[int, str]]:
    """The stripped non-blank lines of a text file, with their line numbers."""
    lines = enumerate(read_text(path).split("\n"), start=1)
    return [(number, text) for number, line in lines if (text := line.strip())]


def read_source_table(file: Path, columns: Sequence[str]) -> Any:
    """These columns of a CSV file as a data frame; `Filename` is text."""
    import pandas as pd

    frame = pd.read_csv(file, usecols=lambda name: name in columns, dtype={"Filename": str})
    missing = [name for name in columns if name not in frame.columns]
    if missing:
        wanted, lost = ", ".join(columns), ", ".join(missing)
        raise DataError(
            f"{file} line 1: expected the columns {wanted}; these columns are missing: {lost}"
        )
    return frame


def complete(present: np.ndarray) -> np.ndarray:
    """Complete labels from a table of what is present."""
    return np.where(present, PRESENT, ABSENT).astype(np.int8)
