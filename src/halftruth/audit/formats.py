"""Candidates for other programs, and verdicts from them: one table of formats.

What an annotator chose is present. What is not chosen is absent only if the annotator saw it: a
label that was preselected or asked for in a row that was submitted. With `complete`, all other
classes of a submitted row are absent, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

import numpy as np
import pandas as pd

from halftruth.audit.audit_folder import AuditFolder, open_audit
from halftruth.audit.audit_state import read_audit_state
from halftruth.audit.repair import apply_changes, find_changes, read_audited
from halftruth.audit.rows import ShownRows
from halftruth.data import DataError
from halftruth.data.errors import some
from halftruth.data.verdicts import (
    COLUMNS,
    VERDICTS,
    find_majority,
    read_verdict_lines,
    read_verdicts,
    write_verdicts,
)
from halftruth.labels import ABSENT, PRESENT, LabelMatrix
from halftruth.train.run_folder import replace_file, write_text

_ROW = "halftruth_row"
# The classes that a plan asks for in a row.
_ASKED = "halftruth_asked"


@dataclass(frozen=True)
class Format:
    """How candidates are written for a program, and how its exports are read."""

    write: Callable[[AuditFolder, LabelMatrix, Path], None] | None = None
    # The ending of the files that `read` reads.
    ending: str = ""
    read: Callable[[Path], Iterator[Submitted]] | None = None


@dataclass(frozen=True)
class Submitted:
    """A row that somebody submitted: its number or name, the chosen classes, and those shown."""

    row: int | None
    item: str
    chosen: set[str]
    shown: set[str] = field(default_factory=set)


def export_audit(
    folder: str | Path, tool: str, out: str | Path | None = None, precision: float | None = None
) -> Path:
    """Write an audit for one of the programs in `TOOLS`; returns the folder.

    Labels are those of the file plus the accepted candidates (with `precision` also the likely
    ones). Undecided candidates become suggestions with a probability.
    """
    write = FORMATS[tool].write if tool in FORMATS else None
    if write is None:
        raise DataError(f"export: expected one of {', '.join(TOOLS)}, got {tool!r}")
    audit = open_audit(folder)
    out = Path(out) if out is not None else audit.path / tool
    labels = apply_changes(read_audited(audit), find_changes(audit, precision=precision))
    out.mkdir(parents=True, exist_ok=True)
    write(audit, labels, out)
    return out


def import_verdicts(
    folder: str | Path, source: str | Path, *, complete: bool = False
) -> pd.DataFrame:
    """Add the verdicts of an export to the folder of an audit; returns those that were added.

    `source` is a JSON export of Label Studio, annotations.xml of CVAT (images with tags), the
    folder of another audit, or a CSV with the columns of verdicts.csv.
    """
    audit, source = open_audit(folder), Path(source)
    if not source.exists():
        raise DataError(f"{source}: does not exist; expected an export with verdicts")
    if source.is_dir() or source.name.lower().endswith(".csv"):
        if complete:
            raise DataError(f"complete (--complete): no effect, since {source} lists its verdicts")
        found = read_verdicts(source) if source.is_dir() else read_verdict_lines(source)
        found = found.assign(row=_match(audit, found["row"], found["item"], source))
    else:
        found = _to_verdicts(audit, *_read_submitted(source), source, complete)
    if foreign := sorted({*found["class"]} - {*audit.classes}):
        raise DataError(f"{source}: has classes that the audit lacks: {some(foreign)}")
    if not len(found):
        raise DataError(f"{source}: contains no verdict: no row was submitted or tagged")
    path, lines = audit.path / VERDICTS, found[COLUMNS]
    if path.exists():
        # An annotator who judges a label again has changed the verdict.
        again, earlier = ["row", "class", "by"], read_verdict_lines(path)
        kept = ~earlier.set_index(again).index.isin(lines.set_index(again).index)
        lines = pd.concat([earlier[kept], lines], ignore_index=True)
    with replace_file(path) as new:
        write_verdicts(lines, new)
    return find_majority(found)


def _read_submitted(source: Path) -> tuple[str, list[Submitted]]:
    """The program that an export comes from, and its submitted rows."""
    endings = {one.ending: (tool, one.read) for tool, one in FORMATS.items() if one.read}
    tool, read = endings.get(source.suffix.lower(), ("", None))
    if read is None:
        raise DataError(
            f"{source}: expected an export of Label Studio (.json) or CVAT (.xml), the folder of "
            "an audit, or a .csv with verdicts"
        )
    try:
        return tool, list(read(source))
    except (OSError, json.JSONDecodeError, UnicodeDecodeError, ElementTree.ParseError) as error:
        kind = source.suffix[1:].upper()
        raise DataError(f"{source}: cannot be read as {kind} ({error})") from None
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise DataError(
            f"{source}: is not as expected of {tool} ({type(error).__name__}: {error})"
        ) from None


def _to_verdicts(
    audit: AuditFolder, tool: str, submitted: list[Submitted], source: Path, complete: bool
) -> pd.DataFrame:
    numbers = pd.Series([-1 if one.row is None else one.row for one in submitted], dtype=int)
    names = pd.Series([one.item for one in submitted], dtype=object)
    rows = _match(audit, numbers, names, source)
    place = {int(row): k for k, row in enumerate(audit.scored.rows)}
    classes, found = audit.classes, []
    for row, one in zip(rows.tolist(), submitted, strict=True):
        item = str(audit.scored.items[place[row]])
        before = {classes[k] for k in np.flatnonzero(audit.scored.labels[place[row]] == PRESENT)}
        # Labels of the file were preselected wherever something was shown.
        seen = one.shown | (before if one.shown else set())
        absent = ({*classes} if complete else seen) - one.chosen
        found += [[row, item, name, PRESENT, tool] for name in sorted(one.chosen)]
        found += [[row, item, name, ABSENT, tool] for name in sorted(absent)]
    return pd.DataFrame(found, columns=COLUMNS)


def _match(audit: AuditFolder, rows: pd.Series, items: pd.Series, source: Path) -> np.ndarray:
    """The audited row of the file for each name or, where the audit lacks it, each row number."""
    names = audit.scored.items.astype(str).tolist()
    by_name = dict(zip(names, audit.scored.rows.tolist(), strict=True))
    # Programs keep images under their own folders.
    short = {PurePosixPath(name).name: row for name, row in by_name.items()}
    short = short if len(short) == len(by_name) else {}
    audited = {*audit.scored.rows.tolist()}
    found, lost = [], []
    for row, item in zip(rows.tolist(), map(str, items), strict=True):
        known = by_name.get(item, row if row in audited else short.get(PurePosixPath(item).name))
        if known is None:
            lost.append(item or f"row {row + 1}")
        found.append(known)
    if lost:
        raise DataError(
            f"{source}: {len(lost):,} rows are not in this audit: {some(lost)}; is it the export "
            "of another audit?"
        )
    return np.array(found, dtype=np.int64)


def list_suggestions(audit: AuditFolder, labels: LabelMatrix) -> dict[int, list[tuple[str, float]]]:
    """The undecided missing labels per row with their probability, the most likely ones first."""
    current = read_audit_state(audit)
    found: dict[int, list[tuple[str, float]]] = {}
    for i in current.undecided():
        row, column = int(current.candidates.row[i]), int(current.candidates.column[i])
        if labels.values[row, column] != PRESENT:
            pair = labels.classes[column], round(float(current.probability[i]), 4)
            found.setdefault(row, []).append(pair)
    return found


def list_present(labels: LabelMatrix, row: int) -> list[str]:
    """The names of the present classes of a row."""
    return [labels.classes[k] for k in np.flatnonzero(labels.values[row] == PRESENT)]


def _dump(path: Path, tree: object) -> None:
    write_text(path, json.dumps(tree, ensure_ascii=False, indent=1))


# ---------------------------------------------------------------------- Label Studio


def _write_label_studio(audit: AuditFolder, labels: LabelMatrix, out: Path) -> None:
    """tasks.json with predictions (labels and likely suggestions, preselected), and config.xml.

    Nothing is an annotation yet: only what people submit comes back as a verdict. A plan has the
    rows that it proposes, each with the classes that it asks for.
    """
    rows, suggested = ShownRows(audit), list_suggestions(audit, labels)
    planned, images = "plan" in audit.info, rows.store is not None
    chosen = [*suggested] if planned else audit.scored.rows.tolist()
    _dump(
        out / "tasks.json",
        [_make_task(row, labels, suggested.get(row, []), rows, planned) for row in chosen],
    )
    shown = '<Image name="item" value="$image"/>' if images else '<Text name="item" value="$text"/>'
    question = '  <Header value="$question"/>\n' if planned else ""
    choices = "\n".join(f"    <Choice value={quoteattr(name)}/>" for name in labels.classes)
    (out / "config.xml").write_text(
        f'<View>\n{question}  {shown}\n  <Choices name="labels" toName="item" choice="multiple">\n'
        f"{choices}\n  </Choices>\n</View>\n",
        encoding="utf-8",
    )


def _make_task(
    row: int,
    labels: LabelMatrix,
    suggested: list[tuple[str, float]],
    rows: ShownRows,
    planned: bool,
) -> dict[str, object]:
    data: dict[str, Any] = {}
    if rows.store is None:
        data["text"] = "\n".join(f"{name}: {text}" for name, text in rows.columns(row))
    else:
        item = str(labels.items[row]) if labels.items is not None else str(row)
        # The address at which Label Studio serves files of its LOCAL_FILES_DOCUMENT_ROOT.
        data["image"] = f"/data/local-files/?d={quote(item)}"
    data[_ROW] = row + 1
    if planned:
        data[_ASKED] = [name for name, _ in suggested]
        data["question"] = f"Present? {', '.join(data[_ASKED])}"
    likely = {name: p for name, p in suggested if p >= 0.5}
    names = [*list_present(labels, row), *likely]
    if not names:
        return {"data": data}
    choices = {"from_name": "labels", "to_name": "item", "type": "choices"}
    prediction = {
        "model_version": "halftruth audit",
        "score": max(likely.values(), default=1.0),
        "result": [{**choices, "value": {"choices": names}}],
    }
    return {"data": data, "predictions": [prediction]}


def _read_label_studio(source: Path) -> Iterator[Submitted]:
    """Tasks of the JSON export (with annotations) or of JSON-MIN (fields beside each other)."""
    tasks = json.loads(source.read_bytes())
    if not isinstance(tasks, list):
        raise ValueError(f"expected a list of tasks, got {type(tasks).__name__}")
    for task in tasks:
        if "annotations" not in task and "data" not in task:
            value = task.get("labels", [])
            value = value.get("choices", []) if isinstance(value, dict) else value
            yield _submit(task, {value} if isinstance(value, str) else {*value}, set())
        elif done := [a for a in task.get("annotations", []) if not a.get("was_cancelled")]:
            # The last annotation counts; exports name the prediction that it started from, or all.
            given = [done[-1].get("prediction"), *task.get("predictions", [])]
            shown = {name for one in given if isinstance(one, dict) for name in _choices(one)}
            yield _submit(task.get("data", task), {*_choices(done[-1])}, shown)


def _choices(one: dict[str, Any]) -> list[str]:
    results = (part for part in one.get("result", []) if part.get("type") == "choices")
    return [name for part in results for name in part["value"]["choices"]]


def _submit(data: dict[str, Any], chosen: set[str], shown: set[str]) -> Submitted:
    address = urlsplit(str(data.get("image", "")))
    item = parse_qs(address.query).get("d", [unquote(address.path)])[0]
    row = data.get(_ROW)
    shown = shown | {str(name) for name in data.get(_ASKED, [])}
    return Submitted(None if row is None else int(row) - 1, item, chosen, shown)


# ---------------------------------------------------------------------- CVAT, cleanlab


def _read_cvat(source: Path) -> Iterator[Submitted]:
    """Images with tags in "CVAT for images 1.1"."""
    for image in ElementTree.parse(source).getroot().iter("image"):
        if chosen := {tag.get("label", "") for tag in image.iter("tag")}:
            yield Submitted(None, image.get("name", ""), chosen)


def _write_cleanlab(audit: AuditFolder, labels: LabelMatrix, out: Path) -> None:
    """labels.json (class numbers per row) and pred_probs.npy, the inputs of cleanlab."""
    rows = audit.scored.rows
    lists = [np.flatnonzero(labels.values[row] == PRESENT).tolist() for row in rows]
    items = None if labels.items is None else [str(labels.items[row]) for row in rows]
    _dump(out / "labels.json", {"classes": list(labels.classes), "items": items, "labels": lists})
    np.save(out / "pred_probs.npy", audit.scored.scores)


FORMATS = {
    "label-studio": Format(_write_label_studio, ".json", _read_label_studio),
    "cvat": Format(ending=".xml", read=_read_cvat),
    "cleanlab": Format(_write_cleanlab),
}
# The programs that candidates are written for.
TOOLS = tuple(name for name, one in FORMATS.items() if one.write)
