"""`check_data`: count labels, images and features, and find problems before training."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace

import numpy as np

from halftruth.data.decode_images import check_images
from halftruth.data.errors import DataError, find_twice, option, some
from halftruth.data.features import align_features, check_features
from halftruth.data.image_file import BadImage
from halftruth.data.images import ImageStore
from halftruth.data.readers.label_lists import question_classes
from halftruth.data.splits import Splits, check_leakage, named_splits
from halftruth.data.wide_matrix import Matrix, WideMatrix
from halftruth.labels import ABSENT, PRESENT, UNKNOWN, LabelMatrix
from halftruth.presence.ranking import rank_columns

RARE = 5
# A column with this AUC predicts a class alone. Cells of features that are ranked for that at most.
_LEAK, _MOST_CELLS = 0.99, 4_000_000
# Copies of rows that are no accident.
_FEW_COPIES = 5


@dataclass(frozen=True)
class ClassCount:
    """The number of rows in which a class is present, absent and unknown."""

    name: str
    present: int
    absent: int
    unknown: int


@dataclass(frozen=True)
class Report:
    """The result of `check_data`; `text()` for people, `to_dict()` for programs."""

    labels: str
    rows: int
    present: int
    absent: int
    unknown: int
    positives_per_row: float
    rows_by_positives: dict[str, int]
    empty_rows: int
    unannotated_rows: int
    classes: list[ClassCount]
    splits: dict[str, int]
    never_present: list[str] = field(default_factory=list)
    rarely_present: list[str] = field(default_factory=list)
    duplicate_items: list[str] = field(default_factory=list)
    missing_images: list[str] = field(default_factory=list)
    bad_images: list[tuple[str, str]] = field(default_factory=list)
    unused_images: list[str] = field(default_factory=list)
    features: tuple[int, int] | None = None
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)

    @property
    def empty_share(self) -> float:
        return self.empty_rows / self.rows

    @property
    def ok(self) -> bool:
        """Whether training can start; warnings do not count."""
        return not self.errors

    def to_dict(self) -> dict[str, object]:
        return {**asdict(self), "empty_share": self.empty_share, "ok": self.ok}

    def text(self) -> str:
        """The report as plain lines."""
        by_positives = ", ".join(f"{n}: {rows:,}" for n, rows in self.rows_by_positives.items())
        lines = [
            self.labels,
            f"rows by number of positives: {by_positives}",
            f"rows without a positive: {self.empty_rows:,} ({self.empty_share:.1%}); without any "
            f"known label: {self.unannotated_rows:,}",
        ]
        if self.splits:
            lines.append("split: " + ", ".join(f"{k} {n:,}" for k, n in self.splits.items()))
        if self.features is not None:
            lines.append(f"features: {self.features[0]:,} rows of {self.features[1]:,}")
        width = max(len(entry.name) for entry in self.classes)
        lines.append(f"{'class':<{width}}  {'present':>9}  {'absent':>9}  {'unknown':>9}")
        lines += [
            f"{entry.name:<{width}}  {entry.present:>9,}  {entry.absent:>9,}  {entry.unknown:>9,}"
            for entry in self.classes
        ]
        lines += [f"error: {message}" for message in self.errors]
        lines += [f"warning: {message}" for message in self.warnings]
        lines += [f"hint: {message}" for message in self.hints]
        return "\n".join(lines)


def check_data(
    labels: LabelMatrix,
    store: ImageStore | None = None,
    features: np.ndarray | None = None,
    *,
    feature_ids: np.ndarray | None = None,
    feature_names: Sequence[str] | None = None,
    groups: np.ndarray | None = None,
    decode: bool = True,
    workers: int = 2,
    progress: Callable[[int], None] | None = None,
) -> Report:
    """Count and check labels, and the images or features that belong to them.

    Read the labels with `duplicates="keep"`, so that repeated rows are reported here. Features with
    `feature_ids` are matched by id, otherwise by position. `decode=False` looks only for missing
    images. Each group of `groups` must lie within one split. `progress(1)` is called per image.
    """
    if not labels.values.size:
        raise DataError(f"expected at least one row and one class, got {labels.values.shape}")
    parts, split_error = _parts(labels)
    training = training_part(labels)
    positives = (labels.values == PRESENT).sum(axis=1)
    counts = [(labels.values == code).sum(axis=0) for code in (PRESENT, ABSENT, UNKNOWN)]
    classes = [
        ClassCount(name, int(counts[0][k]), int(counts[1][k]), int(counts[2][k]))
        for k, name in enumerate(labels.classes)
    ]
    report = Report(
        labels=_describe(labels),
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
        never_present=[entry.name for entry in classes if entry.present == 0],
        rarely_present=[entry.name for entry in classes if 0 < entry.present < RARE],
    )
    _check_classes(report)
    _check_rows(report, labels, training)
    if hint := completeness_hint(training):
        report.hints.append(hint)
    if split_error:
        report.errors.append(split_error)
    if parts is not None:
        _check_parts(report, labels, parts, groups)
    if store is not None:
        _check_store(report, labels, store, decode, workers, progress)
    if features is not None:
        return _with_features(report, labels, features, feature_ids, feature_names)
    return report


def training_part(labels: LabelMatrix) -> LabelMatrix:
    """The rows of the training split; all rows if there is no usable split column."""
    parts, _ = _parts(labels)
    return labels if parts is None or not len(parts.train) else labels.select(parts.train)


def completeness_hint(labels: LabelMatrix) -> str | None:
    """A hint that 0 may mean absent in labels that look complete, else None.

    A heuristic: no label is absent, there are at least 5 classes, and half of the rows have two or
    more positives. One or few positives per row are the usual sign of incomplete labels.
    """
    positives = labels.positives_per_row()
    several = float((positives >= 2).mean()) if len(labels) else 0.0
    if len(labels.classes) < 5 or several < 0.5 or (labels.values == ABSENT).any():
        return None
    return (
        f"the labels may be complete: {several:.0%} of the rows have two or more positives, and no "
        "label is absent; if every class was checked in every row, read the labels with "
        f"{option('zero', 'absent')}, otherwise keep 0 as unknown"
    )


def find_images(
    store: ImageStore, items: Iterable[object]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the stored name of each item, and why others have none.

    Items that mean one image (`a` and `a.jpg`) are refused.
    """
    found, missing, taken = dict[str, str](), dict[str, str](), dict[str, str]()
    for name in dict.fromkeys(map(str, items)):
        try:
            found[name] = store.resolve(name)
        except BadImage as error:
            missing[name] = error.reason
            continue
        if (other := taken.setdefault(found[name], name)) != name:
            raise DataError(
                f"the items {other!r} and {name!r} are one image ({found[name]}); keep one row per "
                "image"
            )
    return found, missing


def question_features(
    values: Matrix,
    labels: np.ndarray,
    classes: Sequence[object] | np.ndarray,
    names: Sequence[str] | np.ndarray | None = None,
    place: str = "features",
    copies: bool = True,
) -> list[str]:
    """Ask about columns (N, D) that alone predict a class, and about copies of rows.

    `values`: an array, a `WideMatrix` or a scipy matrix; `names`: those of its columns. Of many
    rows, some are drawn. Such columns may be made from the labels. `copies`: False for scores, and
    for rows with groups.
    """
    columns = values.columns if isinstance(values, WideMatrix) else np.arange(values.shape[1])
    if len(labels) > (most := max(_MOST_CELLS // len(columns), 200)):
        rows = np.random.default_rng(0).choice(len(labels), most, replace=False)
        values, labels = values[rows], labels[rows]
    values = values.toarray() if hasattr(values, "toarray") else np.asarray(values)
    if not np.ptp(values, axis=0).any():
        return [f"{place}: the same in all rows, so nothing can be learned from them"]
    asked = _question_copies(values, place) if copies else []
    present = labels == PRESENT
    n, count = len(values), present.sum(axis=0)
    # By chance, one of so many columns ranks a few labels first.
    log_tries = math.log(2000 * values.shape[1] * len(count))
    log_orders = np.array([_count_log_orders(n, int(one)) for one in count])
    tested = np.flatnonzero(log_orders > log_tries)
    if not len(tested):
        return asked
    count = count[tested]
    lowest = np.nanmin(values, axis=0, initial=np.inf)
    ranks = rank_columns(np.where(np.isnan(values), lowest, values))
    auc = 0.5 + ranks.T @ present[:, tested] / (count * (n - count))
    names = [*map(str, columns)] if names is None else [str(names[int(k)]) for k in columns]
    found = [
        f"{names[j]!r} the class {str(classes[tested[k]])!r}"
        for j, k in np.argwhere(np.maximum(auc, 1 - auc) > _LEAK)
    ]
    if not found:
        return asked
    more = f" and {len(found) - 3:,} more" if len(found) > 3 else ""
    return [
        *asked,
        f"{place}: a column alone predicts a class (AUC over {_LEAK}): {', '.join(found[:3])}"
        f"{more}; if it is made from the labels, drop it: new rows would not keep what scores "
        "promise",
    ]


def _count_log_orders(n: int, count: int) -> float:
    """Return the logarithm of the number of ways to choose so many of n rows."""
    return math.lgamma(n + 1) - math.lgamma(count + 1) - math.lgamma(n - count + 1)


def _question_copies(values: np.ndarray, place: str) -> list[str]:
    """Ask about rows that repeat others, in a matrix in which most rows differ."""
    whole = np.ascontiguousarray(values)
    rows = whole.view(np.dtype((np.void, whole.itemsize * whole.shape[1]))).ravel()
    copies = len(rows) - len(np.unique(rows))
    if not max(_FEW_COPIES, 0.02 * len(rows)) <= copies < len(rows) / 2:
        return []
    return [
        f"{place}: {copies:,} of {len(rows):,} rows are copies of other rows; if copies are in "
        "training and elsewhere, scores are too good: remove them, or give them a group "
        "(--group-column, groups=)"
    ]


def _histogram(positives: np.ndarray) -> dict[str, int]:
    names = ("0", "1", "2", "3", "4", "5+")
    counts = np.bincount(np.minimum(positives, 5), minlength=6)
    return {name: int(count) for name, count in zip(names, counts, strict=True)}


def _parts(labels: LabelMatrix) -> tuple[Splits | None, str]:
    try:
        return (None if labels.split is None else named_splits(labels.split)), ""
    except DataError as error:
        return None, str(error)


def _describe(labels: LabelMatrix) -> str:
    """The labels in a line; what is questioned about the classes is listed as warnings."""
    asked = question_classes(labels.classes)
    kept = tuple(note for note in labels.notes if note.removeprefix("warning: ") not in asked)
    return replace(labels, notes=kept).describe()


def _count_splits(labels: LabelMatrix) -> dict[str, int]:
    if labels.split is None:
        return {}
    return dict(sorted(Counter(map(str, labels.split)).items()))


def _check_classes(report: Report) -> None:
    if report.present == 0:
        report.errors.append("no label is present in any row, so there is nothing to learn")
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
    names = [entry.name for entry in report.classes]
    report.warnings.extend(question_classes(names))


def _check_rows(report: Report, labels: LabelMatrix, training: LabelMatrix) -> None:
    unannotated = int((training.values == UNKNOWN).all(axis=1).sum())
    empty = int((training.values != PRESENT).all(axis=1).sum())
    if unannotated and unannotated == empty:
        report.warnings.append(
            f"{unannotated:,} of {len(training.values):,} training rows have no known label; if a "
            "row without labels means that every class is absent, read it with "
            f"{option('blank', 'absent')} for an empty cell, {option('zero', 'absent')} for 0 or a "
            "class that is not listed"
        )
    if labels.items is not None:
        report.duplicate_items.extend(find_twice(labels.items))
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
            report.warnings.append(
                f"the {name} part has no positive label, so no metric can be computed on it"
            )
    in_train = (labels.values[parts.train] == PRESENT).any(axis=0)
    missing = [
        entry.name
        for entry, is_there in zip(report.classes, in_train, strict=True)
        if entry.present and not is_there
    ]
    if missing:
        report.warnings.append(
            f"{len(missing)} classes have no positive in the training part: {some(missing)}"
        )


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
            f"the label file names no images; choose the column with {option('image_column')}"
        )
        return
    try:
        found, missing = find_images(store, labels.items)
    except DataError as error:
        report.errors.append(str(error))
        return
    report.missing_images.extend(missing)
    report.bad_images.extend(missing.items())
    if missing:
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
    if decode:
        unreadable = check_images(store, list(found), workers=workers, progress=progress)
        report.bad_images.extend(unreadable)
        if unreadable:
            count = f"{len(unreadable):,}" if len(unreadable) < len(found) else "all"
            name, reason = unreadable[0]
            report.errors.append(
                f"{count} of {len(found):,} images cannot be read; the first is {name!r} "
                f"({reason}); repair them, or leave them out with --bad-images skip"
            )


def _with_features(
    report: Report,
    labels: LabelMatrix,
    features: np.ndarray,
    ids: np.ndarray | None,
    names: Sequence[str] | None,
) -> Report:
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            aligned = align_features(features, ids, labels)
            check_features(features)
        report.warnings.extend(str(warning.message) for warning in caught)
        report.warnings.extend(question_features(aligned, labels.values, labels.classes, names))
    except DataError as error:
        report.errors.append(str(error))
    shape = (features.shape[0], features.shape[1]) if features.ndim == 2 else None
    return replace(report, features=shape)
