"""Verdicts from other programs: exports of Label Studio, FiftyOne and CVAT, other audits, CSV.

What an annotator chose is present. What is not chosen is absent only if the annotator saw it: a
label that was preselected, suggested or asked for in a row that was submitted. With `complete`, all
other classes of a submitted row are absent, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree

import numpy as np
import pandas as pd

from halftruth.audit.audit_folder import AuditFolder, open_audit
from halftruth.data import DataError
from halftruth.data.errors import some
from halftruth.data.verdicts import (
    COLUMNS,
    VERDICTS,
    find_majority,
    read_lines,
    read_verdicts,
    write_verdicts,
)
from halftruth.labels import ABSENT, PRESENT
from halftruth.train.run_folder import replace_file

ROW_KEY = "halftruth_row"
# The classes that a plan asks for in a row.
ASKED_KEY = "halftruth_asked"


@dataclass
class _Submitted:
    """One row that somebody submitted: its number or name, the chosen classes, and those shown."""

    row: int | None
    item: str
    chosen: set[str]
    shown: set[str]
    rejected: set[str]


def import_verdicts(
    folder: str | Path, source: str | Path, *, complete: bool = False
) -> pd.DataFrame:
    """Add the verdicts of an export to the folder of an audit; returns those that were added.

    `source` is a JSON export of Label Studio, samples.json of FiftyOne (samples with the tag
    "reviewed", suggestions with the tags "accept" and "reject"), annotations.xml of CVAT (images
    with tags), the folder of another audit, or a CSV with the columns of verdicts.csv.
    """
    audit, source = open_audit(folder), Path(source)
    if not source.exists():
        raise DataError(f"{source}: does not exist; expected an export with verdicts")
    if source.is_dir() or source.name.lower().endswith(".csv"):
        if complete:
            raise DataError(f"complete (--complete): no effect, since {source} lists its verdicts")
        found = read_verdicts(source) if source.is_dir() else read_lines(source)
        found = found.assign(row=_match(audit, found["row"], found["item"], source))
    else:
        tool, submitted = _read_export(source)
        found = _to_verdicts(audit, submitted, source, tool, complete)
    if foreign := sorted({*found["class"]} - {*audit.classes}):
        raise DataError(f"{source}: has classes that the audit lacks: {some(foreign)}")
    if not len(found):
        raise DataError(f"{source}: contains no verdict: no row was submitted or tagged")
    path = audit.path / VERDICTS
    lines = found[COLUMNS]
    if path.exists():
        lines = pd.concat([_leave_out(read_lines(path), lines), lines], ignore_index=True)
    with replace_file(path) as new:
        write_verdicts(lines, new)
    return find_majority(found)


def _leave_out(earlier: pd.DataFrame, lines: pd.DataFrame) -> pd.DataFrame:
    """The earlier verdicts without those that the same annotator gives again."""
    again = pd.MultiIndex.from_frame(lines[["row", "class", "by"]])
    return earlier[~pd.MultiIndex.from_frame(earlier[["row", "class", "by"]]).isin(again)]


def _read_export(source: Path) -> tuple[str, list[_Submitted]]:
    if source.suffix.lower() == ".xml":
        return "cvat", list(_read_cvat(source))
    try:
        tree = json.loads(source.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{source}: cannot be read as JSON ({error})") from None
    try:
        if isinstance(tree, list):
            return "label-studio", list(_read_label_studio(tree))
        if isinstance(tree, dict) and isinstance(tree.get("samples"), list):
            return "fiftyone", list(_read_fiftyone(tree["samples"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{source}: a task or sample is not as expected ({type(error).__name__}: {error})"
        ) from None
    raise DataError(
        f"{source}: expected an export of Label Studio (a list of tasks), samples.json of FiftyOne "
        "or annotations.xml of CVAT"
    )


def _read_label_studio(tasks: Iterable[dict[str, Any]]) -> Iterator[_Submitted]:
    """Tasks of the JSON export (with annotations) or of JSON-MIN (fields beside each other)."""
    for task in tasks:
        data = task.get("data", task)
        if "annotations" not in task and "data" not in task:
            value = task.get("labels", [])
            value = value.get("choices", []) if isinstance(value, dict) else value
            names = [value] if isinstance(value, str) else list(value)
            yield _label_studio_row(data, {*names}, set())
            continue
        done = [a for a in task.get("annotations", []) if not a.get("was_cancelled")]
        if not done:
            continue
        # The last annotation counts; exports name the prediction that it started from, or all.
        given = [done[-1].get("prediction"), *task.get("predictions", [])]
        shown = {name for one in given if isinstance(one, dict) for name in _choices(one)}
        yield _label_studio_row(data, {*_choices(done[-1])}, shown)


def _choices(one: dict[str, Any]) -> list[str]:
    results = (part for part in one.get("result", []) if part.get("type") == "choices")
    return [name for part in results for name in part["value"]["choices"]]


def _label_studio_row(data: dict[str, Any], chosen: set[str], shown: set[str]) -> _Submitted:
    row = data.get(ROW_KEY)
    address = urlsplit(str(data.get("image", "")))
    local = parse_qs(address.query).get("d", [unquote(address.path)])[0]
    shown = shown | {str(name) for name in data.get(ASKED_KEY, [])}
    return _Submitted(None if row is None else int(row) - 1, local, chosen, shown, set())


def _read_fiftyone(samples: Iterable[dict[str, Any]]) -> Iterator[_Submitted]:
    """Samples of a FiftyOneDataset export of what load.py made."""
    for sample in samples:
        suggested = _classifications(sample.get("suggestions"))
        tagged = {
            tag: {one["label"] for one in suggested if tag in one.get("tags", [])}
            for tag in ("accept", "reject")
        }
        row = sample.get(ROW_KEY)
        number = None if row is None else int(row) - 1
        name = str(sample["filepath"])
        if "reviewed" in sample.get("tags", []):
            labels = {one["label"] for one in _classifications(sample.get("labels"))}
            shown = {one["label"] for one in suggested}
            yield _Submitted(number, name, labels | tagged["accept"], shown, tagged["reject"])
        elif tagged["accept"] or tagged["reject"]:
            yield _Submitted(number, name, tagged["accept"], set(), tagged["reject"])


def _classifications(value: Any) -> list[dict[str, Any]]:
    return list(value.get("classifications", [])) if isinstance(value, dict) else []


def _read_cvat(source: Path) -> Iterator[_Submitted]:
    """Images with tags in "CVAT for images 1.1"."""
    try:
        root = ElementTree.parse(source).getroot()
    except (ElementTree.ParseError, OSError) as error:
        raise DataError(f"{source}: cannot be read as XML ({error})") from None
    for image in root.iter("image"):
        chosen = {tag.get("label", "") for tag in image.iter("tag")}
        if chosen:
            yield _Submitted(None, image.get("name", ""), chosen, set(), set())


def _to_verdicts(
    audit: AuditFolder, submitted: list[_Submitted], source: Path, tool: str, complete: bool
) -> pd.DataFrame:
    rows = _match(
        audit,
        pd.Series([-1 if one.row is None else one.row for one in submitted], dtype=int),
        pd.Series([one.item for one in submitted], dtype=object),
        source,
    )
    place = {int(row): k for k, row in enumerate(audit.scored["rows"])}
    classes, found = audit.classes, []
    for row, one in zip(rows, submitted, strict=True):
        labels, item = (audit.scored[key][place[int(row)]] for key in ("labels", "items"))
        before = {classes[k] for k in np.flatnonzero(labels == PRESENT)}
        # Labels of the file were preselected wherever something was shown.
        seen = one.shown | (before if one.shown else set())
        absent = ({*classes} if complete else seen) - one.chosen | one.rejected
        for name, verdict in [
            *((name, PRESENT) for name in sorted(one.chosen)),
            *((name, ABSENT) for name in sorted(absent)),
        ]:
            found.append([int(row), str(item), name, verdict, tool])
    return pd.DataFrame(found, columns=COLUMNS)


def _match(audit: AuditFolder, rows: pd.Series, items: pd.Series, source: Path) -> np.ndarray:
    """The audited row of the file for each row number or, where it has none, each name."""
    known = [str(item) for item in audit.scored["items"]]
    by_name = dict(zip(known, audit.scored["rows"], strict=True))
    short = {PurePosixPath(name).name: row for name, row in by_name.items()}
    unique = len(short) == len(by_name)
    audited = {int(row) for row in audit.scored["rows"]}
    found, lost = [], []
    for row, item in zip(rows, items, strict=True):
        item = str(item)
        if item in by_name:
            found.append(by_name[item])
        elif int(row) in audited:
            found.append(int(row))
        elif unique and PurePosixPath(item).name in short:
            # Programs keep images under their own folders.
            found.append(short[PurePosixPath(item).name])
        else:
            lost.append(item or f"row {int(row) + 1}")
    if lost:
        raise DataError(
            f"{source}: {len(lost):,} rows are not in this audit: {some(lost)}; is it the export "
            "of another audit?"
        )
    return np.array(found, dtype=np.int64)
