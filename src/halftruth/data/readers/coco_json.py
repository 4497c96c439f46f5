"""COCO instances JSON, and LVIS, whose verified negatives become ABSENT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from halftruth.data.errors import DataError
from halftruth.data.readers.cell_codes import Coding
from halftruth.data.readers.cells import parse_json
from halftruth.data.readers.duplicates import resolve_duplicates
from halftruth.data.readers.label_lists import matrix_of_lists
from halftruth.data.readers.text_table import read_text
from halftruth.labels import ABSENT, PRESENT, LabelMatrix
from halftruth.reading import Duplicates


def read_coco(
    path: Path,
    coding: Coding,
    *,
    classes: Sequence[str] | None = None,
    keep_empty: bool = True,
    duplicates: Duplicates = "error",
) -> LabelMatrix:
    """Read the labels of an instances file: images in the order of the file, classes by id.

    Images without annotations are rows without labels unless `keep_empty=False`. LVIS lists
    categories verified as absent (`neg_category_ids`); those are ABSENT for any `zero`.
    """
    images, annotations, categories = _sections(path)
    ordered = sorted(categories, key=lambda entry: _field(entry, "id", int, f"{path}: categories"))
    category = {entry["id"]: _field(entry, "name", str, f"{path}: categories") for entry in ordered}
    if len(category) != len(categories) or len(set(category.values())) != len(category):
        raise DataError(f"{path}: two categories share an id or a name")
    names = list(category.values()) if classes is None else list(classes)
    row_of = {_field(image, "id", int, f"{path}: images"): row for row, image in enumerate(images)}
    if len(row_of) != len(images):
        raise DataError(f"{path}: two images share an id")

    lists: list[list[str]] = [[] for _ in images]
    for number, annotation in enumerate(annotations):
        place = f"{path}: annotations[{number}]"
        image = _field(annotation, "image_id", int, place)
        kind = _field(annotation, "category_id", int, place)
        if image not in row_of or kind not in category:
            what = f"image_id {image}" if image not in row_of else f"category_id {kind}"
            raise DataError(f"{path}: annotations[{number}] has {what}, which is not defined")
        lists[row_of[image]].append(category[kind])

    def where(row: int) -> str:
        return f"{path} images[{row}]"

    values, names_found = matrix_of_lists(lists, coding, where=where, classes=names)
    _mark_verified_absent(values, images, category, names, path)
    items = np.array([_file_name(image, path, row) for row, image in enumerate(images)], dtype=str)
    labels = LabelMatrix(values, names_found, items, None)
    labels = resolve_duplicates(labels, duplicates, where=where, listed=True)
    if keep_empty:
        return labels
    return labels.select(np.flatnonzero((labels.values == PRESENT).any(axis=1)))


def _sections(path: Path) -> list[list[dict[str, Any]]]:
    content = parse_json(read_text(path), path)
    if isinstance(content, list):
        raise DataError(
            f"{path}: expected COCO instances JSON, an object with the lists images, annotations "
            "and categories, but this is a list; from Label Studio export CSV or COCO, and save "
            "rows as JSON lines (.jsonl)"
        )
    sections = []
    for name in ("images", "annotations", "categories"):
        section = content.get(name) if isinstance(content, dict) else None
        if not isinstance(section, list) or not all(isinstance(entry, dict) for entry in section):
            raise DataError(
                f"{path}: expected COCO instances JSON with the lists images, annotations and "
                f"categories, but {name!r} is missing or not a list of objects"
            )
        if not section and name != "annotations":
            raise DataError(f"{path}: the list {name!r} is empty")
        sections.append(section)
    return sections


def _field(entry: Mapping[str, object], key: str, kind: type, place: str) -> Any:
    """A whole number (int) or a text (str) of an entry."""
    value = entry.get(key)
    if not isinstance(value, kind) or isinstance(value, bool) or not str(value).strip():
        what = "a whole number" if kind is int else "a text"
        raise DataError(f"{place}: expected {what} as {key!r}, got {value!r}")
    return str(value).strip() if kind is str else value


def _file_name(image: Mapping[str, object], path: Path, row: int) -> str:
    """The file name of an image; LVIS has only its URL, which ends with the file name."""
    value = image.get("file_name") or PurePosixPath(str(image.get("coco_url") or "")).name
    if not isinstance(value, str) or not value:
        raise DataError(f"{path}: images[{row}] has no 'file_name'")
    return value


def _mark_verified_absent(
    values: np.ndarray,
    images: list[dict[str, Any]],
    category: dict[int, str],
    names: list[str],
    path: Path,
) -> None:
    column = {name: k for k, name in enumerate(names)}
    for row, image in enumerate(images):
        listed = image.get("neg_category_ids") or []
        if not isinstance(listed, list) or not all(
            isinstance(kind, int) and kind in category for kind in listed
        ):
            raise DataError(f"{path}: images[{row}] has neg_category_ids that are not categories")
        wrong = [column[category[k]] for k in listed if category[k] in column]
        if (values[row, wrong] == PRESENT).any():
            raise DataError(
                f"{path}: images[{row}]: an annotated category is also listed as absent"
            )
        values[row, wrong] = ABSENT
