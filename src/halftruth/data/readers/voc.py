"""A PASCAL VOC folder: Annotations/*.xml and, if it exists, ImageSets/Main."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import numpy as np

from halftruth.data.errors import DataError, check_choice
from halftruth.data.readers.cell_codes import Coding
from halftruth.data.readers.duplicates import resolve_duplicates
from halftruth.data.readers.label_lists import matrix_of_lists, sort_names
from halftruth.data.readers.text_table import read_text, read_xml
from halftruth.labels import ABSENT, PRESENT, UNKNOWN, LabelMatrix
from halftruth.reading import Difficult


def read_voc(
    folder: Path,
    coding: Coding,
    *,
    classes: Sequence[str] | None = None,
    difficult: Difficult = "unlisted",
) -> LabelMatrix:
    """Read the labels of a VOC folder; lists in ImageSets/Main give the rows and the splits.

    By default, a class whose objects are all marked difficult counts as not listed, as in the
    papers; `difficult` can make it unknown, absent or present instead.
    """
    check_choice("difficult", difficult, get_args(Difficult))
    folder = folder.parent if folder.name == "Annotations" else folder
    stems, split = _rows(folder)
    files = [folder / "Annotations" / f"{stem}.xml" for stem in stems]
    items, certain, doubtful = [], [], []
    for file in files:
        name, objects = _read_annotation(file)
        easy = {kind for kind, is_difficult in objects if not is_difficult}
        hard = {kind for kind, is_difficult in objects if is_difficult} - easy
        items.append(name)
        certain.append(sorted(easy | hard) if difficult == "present" else sorted(easy))
        doubtful.append(sorted(hard))
    if classes is None:
        classes = sort_names({kind for row in certain + doubtful for kind in row})
    if not classes:
        raise DataError(f"{folder / 'Annotations'}: no file has an object")

    def where(row: int) -> str:
        return str(files[row])

    values, names = matrix_of_lists(certain, coding, where=where, classes=classes)
    if difficult in ("unknown", "absent"):
        marked, _ = matrix_of_lists(doubtful, Coding(), where=where, classes=classes)
        values[marked == PRESENT] = UNKNOWN if difficult == "unknown" else ABSENT
    labels = LabelMatrix(values, names, np.array(items, dtype=str), split)
    return resolve_duplicates(labels, "error", where=where, listed=True)


def _rows(folder: Path) -> tuple[list[str], np.ndarray | None]:
    """File stems and splits from ImageSets/Main, or all annotations if there are no lists."""
    lists = {
        part: _read_stems(file)
        for part in ("train", "val", "trainval", "test")
        if (file := folder / "ImageSets" / "Main" / f"{part}.txt").is_file()
    }
    if "train" in lists or "val" in lists:
        lists.pop("trainval", None)
    if not lists:
        stems = sorted(file.stem for file in (folder / "Annotations").glob("*.xml"))
        if not stems:
            raise DataError(f"{folder / 'Annotations'}: holds no .xml file")
        return stems, None
    stems = [stem for part in lists.values() for stem in part]
    if len(set(stems)) != len(stems):
        raise DataError(f"{folder / 'ImageSets' / 'Main'}: an image is listed twice")
    missing = [stem for stem in stems if not (folder / "Annotations" / f"{stem}.xml").is_file()]
    if missing:
        raise DataError(
            f"{folder / 'ImageSets' / 'Main'} lists {len(missing):,} images without an annotation, "
            f"the first being {missing[0]!r}; remove the list they are in, or add the .xml files"
        )
    return stems, np.array([part for part, rows in lists.items() for _ in rows], dtype=str)


def _read_stems(file: Path) -> list[str]:
    stems = []
    for number, line in enumerate(read_text(file).split("\n"), start=1):
        words = line.split()
        if len(words) > 1 or any(mark in line for mark in ("/", "\\")):
            raise DataError(f"{file} line {number}: expected one image name, got {line[:60]!r}")
        stems += words
    return stems


def _read_annotation(file: Path) -> tuple[str, list[tuple[str, bool]]]:
    """The image's file name, and (class, difficult) of each object."""
    root = read_xml(file, "XML")
    objects = []
    for entry in root.iter("object"):
        name = (entry.findtext("name") or "").strip()
        flag = (entry.findtext("difficult") or "0").strip()
        if not name or flag not in ("0", "1"):
            raise DataError(
                f"{file}: an object needs a <name> and a <difficult> of 0 or 1, got {name!r} and "
                f"{flag!r}"
            )
        objects.append((name, flag == "1"))
    return (root.findtext("filename") or "").strip() or file.stem, objects
