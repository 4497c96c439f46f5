"""`repair`: the user's own label file with what a review accepted, a diff, and where it is from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from halftruth.audit.candidates import cut_at
from halftruth.audit.decisions import Decisions
from halftruth.audit.folder import DECISIONS, AuditFolder, digest, open_audit
from halftruth.audit.label_writer import write_repaired
from halftruth.data import DataError, read_labels
from halftruth.labels import ABSENT, PRESENT, UNKNOWN, LabelMatrix
from halftruth.train.output_tables import safe_cell


@dataclass(frozen=True)
class Repaired:
    """What `repair` wrote, and how many labels it changed."""

    path: Path
    diff: Path
    added: int
    removed: int
    verified_absent: int

    def describe(self) -> str:
        more = f", {self.verified_absent:,} written down as absent" if self.verified_absent else ""
        return (
            f"{self.added:,} labels added, {self.removed:,} removed{more}: {self.path}\n"
            f"every change is listed in {self.diff}"
        )


def repair(
    folder: str | Path,
    out: str | Path,
    *,
    precision: float | None = None,
    rejected: str = "leave",
    provenance: bool = True,
) -> Repaired:
    """Write the audited file with the accepted changes; `read_labels` reads it like the first one.

    An accepted missing label becomes present. An accepted wrong one becomes absent where the
    file's coding can say so, else unknown. With `precision`, missing labels that no one has looked
    at are accepted, too: as many of the most certain ones as are expected to be right this often.
    `rejected="absent"` writes down that rejected candidates are verified as not there.
    """
    audit, out = open_audit(folder), Path(out)
    if rejected not in ("leave", "absent"):
        raise DataError(f"rejected: expected leave or absent, got {rejected!r}")
    _check_file(audit, out)
    changes = changes_of(audit, precision=precision, rejected=rejected == "absent")
    before = read_labels(audit.labels_file, **audit.info["reading"])
    wanted = apply(before, changes)
    written = write_repaired(audit, before, wanted, changes, out, provenance=provenance)
    # Never believed, always checked: what is on disk now says what was wanted.
    again = read_labels(out, **audit.info["reading"])
    if again.classes != before.classes or not np.array_equal(again.values, written.values):
        raise AssertionError(f"{out}: reads differently from what was to be written; a bug")
    diff = out.with_name(f"{out.name.partition('.')[0]}.diff.csv")
    _diff(before, written, changes).to_csv(diff, index=False)
    step = written.values != before.values
    return Repaired(
        path=out,
        diff=diff,
        added=int((step & (written.values == PRESENT)).sum()),
        removed=int((step & (before.values == PRESENT)).sum()),
        verified_absent=int((step & (written.values == ABSENT) & (before.values == 0)).sum()),
    )


def changes_of(
    audit: AuditFolder, *, precision: float | None = None, rejected: bool = False
) -> pd.DataFrame:
    """Candidates that change their label: kind, row, class, probability, new label, by whom."""
    table = audit.candidates
    decisions = Decisions(audit.path / DECISIONS, len(table), write=False)
    verdict = np.array([decisions.verdicts.get(i, "") for i in range(len(table))], dtype=str)
    missing = (table["kind"] == "missing").to_numpy()
    after = np.where(missing, PRESENT, ABSENT)
    by = np.full(len(table), "review", dtype=object)
    chosen = verdict == "accept"
    if rejected:
        refused = missing & (verdict == "reject")
        after[refused] = ABSENT
        chosen |= refused
    if precision is not None:
        unseen = np.flatnonzero(missing & (verdict == ""))
        certain = table["probability"].to_numpy()[unseen]
        expected = np.cumsum(certain) / np.arange(1, len(unseen) + 1)
        taken = unseen[: cut_at(expected, precision)]
        by[taken] = f"precision {precision:g}"
        chosen[taken] = True
    return table.assign(after=after, by=by)[chosen]


def apply(labels: LabelMatrix, changes: pd.DataFrame) -> LabelMatrix:
    """The labels with the changes made."""
    values = labels.values.copy()
    place = {name: k for k, name in enumerate(labels.classes)}
    columns = changes["class"].map(place).to_numpy(dtype=np.intp)
    values[changes["row"].to_numpy(dtype=np.intp), columns] = changes["after"].to_numpy(np.int8)
    return LabelMatrix(values, labels.classes, labels.items, labels.split)


def _check_file(audit: AuditFolder, out: Path) -> None:
    file = audit.labels_file
    if not file.exists():
        raise DataError(f"{file}: the audited label file is gone; put it back")
    if digest(file) != audit.info["sha256"]:
        raise DataError(
            f"{file}: has changed since the audit, so its rows may not be the same; audit it again"
        )
    if out.resolve() == file.resolve():
        raise DataError(f"{out}: is the audited file itself; write to another name and compare")


_WORDS = {PRESENT: "present", UNKNOWN: "unknown", ABSENT: "absent"}


def _diff(before: LabelMatrix, after: LabelMatrix, changes: pd.DataFrame) -> pd.DataFrame:
    place = {name: k for k, name in enumerate(before.classes)}
    rows = changes["row"].to_numpy(dtype=np.intp)
    columns = changes["class"].map(place).to_numpy(dtype=np.intp)

    def words(labels: LabelMatrix) -> list[Any]:
        return [_WORDS[int(code)] for code in labels.values[rows, columns]]

    return pd.DataFrame(
        {
            "row": rows + 1,
            "item": changes["item"].map(safe_cell),
            "class": changes["class"].map(safe_cell),
            "before": words(before),
            "after": words(after),
            "probability": changes["probability"].round(4),
            "by": changes["by"],
        }
    )
