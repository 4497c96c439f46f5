"""`check_data`: what is in a label matrix, its images and features, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from halftruth.data.advice import suggest_method
from halftruth.data.check_report import ClassCount, Report
from halftruth.data.decode_images import check_images
from halftruth.data.errors import DataError, option, some
from halftruth.data.features import check_features
from halftruth.data.image_file import BadImage
from halftruth.data.images import ImageStore
from halftruth.data.readers.duplicates import repeated_rows
from halftruth.data.splits import Splits, check_leakage, named_splits
from halftruth.labels import ABSENT, PRESENT, UNKNOWN, LabelMatrix

RARE = 5
NOTHING = {"no finding", "no findings", "normal", "none", "nothing", "negative", "background"}


def check_data(
    labels: LabelMatrix,
    store: ImageStore | None = None,
    features: np.ndarray | None = None,
    *,
    groups: np.ndarray | None = None,
    decode: bool = True,
    workers: int = 2,
    progress: Callable[[int], None] | None = None,
) -> Report:
    """Count and check labels, and the images or features that belong to them.

    Read the labels with `duplicates="keep"`, so that repeated rows are reported here.
    `decode=False` looks only for missing images. `groups` are checked not to cross the splits.
    """
    if not labels.values.size:
        raise DataError(f"expected at least one row and one class, got {labels.values.shape}")
    parts, split_error = _parts(labels)
    taught = labels if parts is None or not len(parts.train) else labels.select(parts.train)
    dim = features.shape[1] if features is not None and features.ndim == 2 else None
    positives = (labels.values == PRESENT).sum(axis=1)
    counts = [(labels.values == code).sum(axis=0) for code in (PRESENT, ABSENT, UNKNOWN)]
    classes = [
        ClassCount(name, int(counts[0][k]), int(counts[1][k]), int(counts[2][k]))
        for k, name in enumerate(labels.classes)
    ]
    report = Report(
        labels=str(labels.describe()),
        rows=len(labels.values),
        present=int(counts[0].sum()),
        absent=int(counts[1].sum()),
        unknown=int(counts[2].sum()),
        positives_per_row=float(positives.mean()),
        rows_by_positives=_histogram(positives),
        empty_rows=int((positives == 0).sum()),
        unannotated_rows=int((labels.values == UNKNOWN).all(axis=1).sum()),
        classes=classes,
        splits=_count_splits(labels),
        advice=suggest_method(taught, dim),
        never_present=[entry.name for entry in classes if entry.present == 0],
        rarely_present=[entry.name for entry in classes if 0 < entry.present < RARE],
    )
    _check_classes(report)
    _check_rows(report, labels, taught)
    if split_error:
        report.errors.append(split_error)
    if parts is not None:
        _check_parts(report, labels, parts, groups)
    if store is not None:
        _check_store(report, labels, store, decode, workers, progress)
    if features is not None:
        return _with_features(report, features)
    return report


def _histogram(positives: np.ndarray) -> dict[str, int]:
    names = ("0", "1", "2", "3", "4", "5+")
    counts = np.bincount(np.minimum(positives, 5), minlength=6)
    return {name: int(count) for name, count in zip(names, counts, strict=True)}


def _parts(labels: LabelMatrix) -> tuple[Splits | None, str]:
    try:
        return (None if labels.split is None else named_splits(labels.split)), ""
    except DataError as error:
        return None, str(error)


def _count_splits(labels: LabelMatrix) -> dict[str, int]:
    if labels.split is None:
        return {}
    names, counts = np.unique(labels.split, return_counts=True)
    return {str(name): int(count) for name, count in zip(names, counts, strict=True)}


def _check_classes(report: Report) -> None:
    if report.present == 0:
        report.errors.append("no label is present in any row: there is nothing to learn")
    elif report.never_present:
        report.warnings.append(
            f"{len(report.never_present)} classes never occur and cannot be learned: "
            f"{some(report.never_present)}"
        )
    if report.rarely_present:
        report.warnings.append(
            f"{len(report.rarely_present)} classes occur fewer than {RARE} times: "
            f"{some(report.rarely_present)}"
        )
    folded: dict[str, list[str]] = {}
    for entry in report.classes:
        folded.setdefault(" ".join(entry.name.lower().split()), []).append(entry.name)
    for name, spellings in folded.items():
        if len(spellings) > 1:
            report.warnings.append(
                f"these classes may be one, spelt differently: {some(spellings)}"
            )
        if name in NOTHING:
            report.warnings.append(
                f"the class {spellings[0]!r} may stand for no label at all; if so, read the labels "
                f"with {option('nothing', spellings[0])}, or drop its column"
            )


def _check_rows(report: Report, labels: LabelMatrix, taught: LabelMatrix) -> None:
    unsaid = int((taught.values == UNKNOWN).all(axis=1).sum())
    empty = int((taught.values != PRESENT).all(axis=1).sum())
    if unsaid and unsaid == empty:
        report.warnings.append(
            f"{unsaid:,} of {len(taught.values):,} rows to learn from say nothing about any class; "
            "if a row without labels means that nothing is there, read it with "
            f"{option('blank', 'absent')} for an empty cell, {option('zero', 'absent')} for 0 or a "
            "class that is not listed"
        )
    if labels.items is not None:
        again = labels.items[repeated_rows(labels.items)]
        report.duplicate_items.extend(dict.fromkeys(map(str, again)))
        if report.duplicate_items:
            report.errors.append(
                f"{len(report.duplicate_items):,} items have more than one row: "
                f"{some(report.duplicate_items)}; remove them or read with "
                f"{option('duplicates', 'merge')}"
            )


def _check_parts(
    report: Report, labels: LabelMatrix, parts: Splits, groups: np.ndarray | None
) -> None:
    try:
        if groups is not None:
            check_leakage(parts, groups)
    except DataError as error:
        report.errors.append(str(error))
    for name, rows in (("train", parts.train), ("val", parts.val), ("test", parts.test)):
        if len(rows) and not (labels.values[rows] == PRESENT).any():
            report.warnings.append(f"the {name} part has no positive label: it measures nothing")
    in_train = (labels.values[parts.train] == PRESENT).any(axis=0)
    lost = [
        entry.name
        for entry, learnt in zip(report.classes, in_train, strict=True)
        if entry.present and not learnt
    ]
    if lost:
        report.warnings.append(f"{len(lost)} classes are not in the training part: {some(lost)}")


def _check_store(
    report: Report,
    labels: LabelMatrix,
    store: ImageStore,
    decode: bool,
    workers: int,
    progress: Callable[[int], None] | None,
) -> None:
    if labels.items is None:
        report.errors.append(
            f"the labels name no images; say which column does: {option('image_column')}"
        )
        return
    found: dict[str, str] = {}
    for name in dict.fromkeys(map(str, labels.items)):
        try:
            found[name] = store.resolve(name)
        except BadImage as error:
            report.missing_images.append(name)
            report.bad_images.append((name, error.reason))
    if report.missing_images:
        report.errors.append(
            f"{len(report.missing_images):,} images were not found: {some(report.missing_images)}; "
            f"the first: {report.bad_images[0][1]}"
        )
    used = set(found.values())
    report.unused_images.extend(name for name in store.names() if name not in used)
    if report.unused_images:
        report.warnings.append(
            f"{len(report.unused_images):,} images have no row in the labels: "
            f"{some(report.unused_images)}"
        )
    if len(used) < len(found):
        report.errors.append(f"{len(found) - len(used):,} names lead to an image of another row")
    if decode:
        unreadable = check_images(store, list(found), workers=workers, progress=progress)
        report.bad_images.extend(unreadable)
        if unreadable:
            name, reason = unreadable[0]
            report.errors.append(
                f"{len(unreadable):,} images cannot be read, the first being {name!r} ({reason}); "
                "repair them, or leave them out with --bad-images skip"
            )


def _with_features(report: Report, features: np.ndarray) -> Report:
    try:
        check_features(features, rows=report.rows)
    except DataError as error:
        report.errors.append(str(error))
    shape = (features.shape[0], features.shape[1]) if features.ndim == 2 else None
    return replace(report, features=shape)
