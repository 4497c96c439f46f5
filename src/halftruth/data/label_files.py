"""`read_labels`: one label file or several, with weights and a class hierarchy."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from halftruth.data.errors import DataError, find_twice, nearest, option, some
from halftruth.data.feature_columns import MATRIX, read_feature_columns
from halftruth.data.features import match_rows
from halftruth.data.readers import read_label_file
from halftruth.data.readers.duplicates import repeated_rows, resolve_duplicates
from halftruth.data.readers.label_lists import NothingNowhere, question_classes
from halftruth.data.readers.label_table import question_weights, refuse_labels_as_weights
from halftruth.data.readers.text_table import plain, read_table
from halftruth.labels import UNKNOWN, Hierarchy, LabelMatrix, SparseLabels
from halftruth.reading import READING, Reading, describe_options


def read_labels(
    source: str | Path, *, sparse: bool = False, **reading: Unpack[Reading]
) -> LabelMatrix:
    """Read a label file or folder of any known format into a `LabelMatrix`.

    sparse: labels of more than `halftruth.labels.MANY_CLASSES` classes get sparse storage, where
        the format allows it.
    reading: 1 and "yes" are present; all else is said by these options.
    """
    options: dict[str, Any] = _check_options(reading)
    also, hierarchy = options.pop("also", ()), options.pop("hierarchy", None)
    weights = options.pop("label_weights", None)
    others = [also] if isinstance(also, str | Path) else list(also)
    paths = [source, *others]
    if twice := find_twice(Path(path).resolve() for path in paths):
        raise DataError(f"{option('also')}: {twice[0]} is given twice")
    # Votes are counted when all rows are there.
    votes = options.get("duplicates") == "vote" and (len(paths) > 1 or hierarchy is not None)
    if votes:
        options["duplicates"] = "keep"
    parts = _read_parts(paths, options, sparse)
    labels = _join(paths, parts, votes) if others else parts[0]
    if hierarchy is not None:
        labels = _complete(labels, hierarchy)
    if votes:
        labels = _resolve(labels, "vote")
    if weights is not None:
        labels = _with_weights(labels, Path(weights))
    if others and not labels.is_sparse:
        labels = _leave_out_unasked(labels, parts)
    asked = [f"warning: {text}" for text in question_classes(labels.classes)]
    return dataclasses.replace(labels, notes=(*labels.notes, *asked)) if asked else labels


read_labels.__doc__ = f"{read_labels.__doc__}\n{describe_options()}\n"


def _check_options(reading: Mapping[str, object]) -> dict[str, object]:
    """The options; an unknown name is an error, as for any other argument."""
    for name in reading:
        if name not in READING:
            raise TypeError(
                f"read_labels() got an unexpected argument {name!r}{nearest(name, READING)}; it "
                f"takes {', '.join(READING)}"
            )
    return dict(reading)


def _read_parts(
    paths: Sequence[str | Path], options: Mapping[str, object], sparse: bool
) -> list[LabelMatrix]:
    """The labels of each file; the name of `nothing` must occur in one of them."""
    parts, idle = list[LabelMatrix](), list[NothingNowhere]()
    for path in paths:
        try:
            parts.append(read_label_file(path, options, sparse))
        except NothingNowhere as error:
            idle.append(error)
            if len(idle) == len(paths):
                raise
            parts.append(read_label_file(path, {**options, "nothing": None}, sparse))
    return parts


def _join(paths: Sequence[str | Path], parts: Sequence[LabelMatrix], votes: bool) -> LabelMatrix:
    """All items and all classes of several files."""
    source, first = paths[0], parts[0]
    for path, part in zip(paths, parts, strict=True):
        if part.items is None:
            raise DataError(
                f"{path}: does not name its items, so it cannot be joined with other label files; "
                f"name their column with {option('image_column')}"
            )
        if (part.split is None) != (first.split is None):
            raise DataError(
                f"{path}: {'has no' if part.split is None else 'has a'} split column, unlike "
                f"{source}; all joined label files need one, or none"
            )
        if (part.soft is None) != (first.soft is None):
            raise DataError(f"{path}: cannot join soft labels and hard labels")
    classes = tuple(dict.fromkeys(name for part in parts for name in part.classes))
    if any(part.is_sparse for part in parts):
        return _resolve(_join_sparse(parts, classes), "merge", listed=True)
    joined = LabelMatrix(
        np.concatenate([_spread(part.values, part, classes, 0) for part in parts]),
        classes,
        np.concatenate([part.items for part in parts if part.items is not None]),
        _concatenate([part.split for part in parts]),
        tuple(dict.fromkeys(note for part in parts for note in part.notes)),
        _concatenate(
            [None if p.soft is None else _spread(p.soft, p, classes, np.nan) for p in parts]
        ),
        _concatenate_weights(parts, classes),
    )
    again = joined.items is not None and len(repeated_rows(joined.items))
    return _resolve(joined, "merge") if again and not votes else joined


def _join_sparse(parts: Sequence[LabelMatrix], classes: tuple[str, ...]) -> LabelMatrix:
    """The rows of several files with many classes; labels that a file does not have are unknown."""
    position = {name: k for k, name in enumerate(classes)}
    rows, columns, codes, first = [], [], [], 0
    for part in parts:
        given = part.sparse
        if given.rest != UNKNOWN:
            raise DataError(
                f"with {len(classes):,} classes, label files can only be joined if a class that is "
                f"not listed is unknown; leave out {option('zero', 'absent')}"
            )
        place = np.array([position[name] for name in part.classes])
        rows.append(given.row_of_entries() + first)
        columns.append(place[given.columns])
        codes.append(given.codes)
        first += len(part)
    shape = (first, len(classes))
    return LabelMatrix(
        SparseLabels.from_entries(
            np.concatenate(rows), np.concatenate(columns), np.concatenate(codes), shape
        ),
        classes,
        _concatenate([part.items for part in parts]),
        _concatenate([part.split for part in parts]),
        tuple(dict.fromkeys(note for part in parts for note in part.notes)),
        weights=_concatenate_weights(parts, classes),
    )


def _leave_out_unasked(labels: LabelMatrix, parts: Sequence[LabelMatrix]) -> LabelMatrix:
    """The labels with weight 0 where no file of the item has the class: unknown, but no hint."""
    assert labels.items is not None
    place = {str(item): row for row, item in enumerate(labels.items)}
    column = {name: k for k, name in enumerate(labels.classes)}
    unannotated = labels.values == UNKNOWN
    for part in parts:
        assert part.items is not None
        rows = np.array([place[str(item)] for item in part.items], dtype=np.intp)
        columns = np.array([column[name] for name in part.classes], dtype=np.intp)
        unannotated[np.ix_(rows, columns)] = False
    if not unannotated.any():
        return labels
    weights = np.ones((1, 1), np.float32) if labels.weights is None else labels.weights
    note = f"{unannotated.sum():,} labels do not count, since no file of the item has the class"
    return dataclasses.replace(
        labels, weights=np.where(unannotated, 0, weights), notes=(*labels.notes, note)
    )


def _spread(
    values: np.ndarray, part: LabelMatrix, classes: Sequence[str], fill: object
) -> np.ndarray:
    """The columns of a part in the columns of all classes."""
    out = np.full((len(part), len(classes)), fill, dtype=values.dtype)
    position = {name: k for k, name in enumerate(classes)}
    out[:, [position[name] for name in part.classes]] = values
    return out


def _concatenate(parts: Sequence[np.ndarray | None]) -> np.ndarray | None:
    known = [part for part in parts if part is not None]
    return np.concatenate(known) if known else None


def _concatenate_weights(parts: Sequence[LabelMatrix], classes: Sequence[str]) -> np.ndarray | None:
    """Weights of all rows; rows of files without weights count once."""
    if all(part.weights is None for part in parts):
        return None
    width = max(1 if part.weights is None else part.weights.shape[1] for part in parts)
    full = []
    for part in parts:
        given = np.ones((len(part), 1), np.float32) if part.weights is None else part.weights
        full.append(given if width == 1 else np.broadcast_to(given, (len(part), len(classes))))
    return np.concatenate(full)


def _resolve(labels: LabelMatrix, how: Any, listed: bool = False) -> LabelMatrix:
    """Combine the rows of one item that are in different files."""
    return resolve_duplicates(labels, how, where=lambda row: f"row {row + 1}", listed=listed)


def _complete(labels: LabelMatrix, path: str | Path) -> LabelMatrix:
    """The labels with everything that follows from a hierarchy of classes."""
    if labels.is_sparse:
        raise DataError(
            f"{path}: a hierarchy is not available with {len(labels.classes):,} classes"
        )
    if labels.soft is not None:
        raise DataError(f"{path}: a hierarchy is for hard labels, and these are soft")
    pairs = _read_pairs(path)
    try:
        found = Hierarchy.of(pairs, labels.classes).complete(labels.values)
    except ValueError as error:
        raise DataError(f"{path}: {error}") from None
    changed = int(np.count_nonzero(found != labels.values))
    note = f"{changed:,} labels follow from the hierarchy"
    return dataclasses.replace(labels, stored=found, notes=(*labels.notes, note))


def read_parents(path: str | Path | None, classes: Sequence[str]) -> list[list[int]]:
    """Return pairs of the numbers of a class and of an ancestor, by the file of a hierarchy.

    Classes that are not among `classes` were left out when the labels were read.
    """
    if path is None:
        return []
    pairs = _read_pairs(path)
    names = list(dict.fromkeys(name for pair in pairs for name in pair))
    above, place = Hierarchy.of(pairs, names).ancestors, {name: k for k, name in enumerate(classes)}
    numbers = ((names[child], names[parent]) for child, parent in np.argwhere(above))
    return [
        [place[child], place[parent]]
        for child, parent in numbers
        if child in place and parent in place
    ]


def _read_pairs(path: str | Path) -> list[tuple[str, str]]:
    """The pairs of child and parent in a file."""
    try:
        table = read_table(Path(path))
    except DataError as error:
        raise DataError(
            f"{error}; expected the header child,parent and one pair of classes per line"
        ) from None
    named = {plain(name): name for name in table.columns}
    if not {"child", "parent"} <= named.keys():
        raise DataError(
            f"{path}: expected the columns child and parent, got {some(list(table.columns))}"
        )
    chosen = [named["child"], named["parent"]]
    return list(zip(*(table.texts(name, "hierarchy") for name in chosen), strict=True))


def _with_weights(labels: LabelMatrix, path: Path) -> LabelMatrix:
    """The labels with the weights of a file."""
    if labels.weights is not None:
        raise DataError(f"{path}: the labels already have weights (a column, or votes)")
    source = read_feature_columns(path)
    rows = match_rows(source.ids, len(source), labels, str(path))
    columns = {
        name: column if rows is None else column[rows] for name, column in source.columns.items()
    }
    for name, column in columns.items():
        if column.dtype == object:
            raise DataError(f"{path}: column {name!r} does not hold numbers")
    if MATRIX in columns:
        found = columns[MATRIX]
    elif len(columns) == 1 and not columns.keys() <= set(labels.classes):
        found = next(iter(columns.values()))[:, None]
    else:
        lost = [name for name in labels.classes if name not in columns]
        if lost:
            raise DataError(
                f"{path}: expected one column of weights per class, or one column called weight; "
                f"there is none for {some(lost)}"
            )
        found = np.stack([columns[name] for name in labels.classes], axis=1)
    if not labels.is_sparse:
        refuse_labels_as_weights(np.asarray(found), labels.values, str(path))
    notes = (*labels.notes, *question_weights(np.asarray(found), str(path)))
    try:
        return dataclasses.replace(labels, weights=found, notes=notes)
    except ValueError as error:
        raise DataError(f"{path}: {error}") from None
