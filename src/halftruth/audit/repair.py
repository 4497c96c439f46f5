"""`repair`: the user's label file with the accepted changes, and a list of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from halftruth.audit.audit_folder import AuditFolder, digest_audit, open_audit
from halftruth.audit.audit_state import CODES, AuditState, read_audit_state
from halftruth.audit.label_writer import check_writable, table_suffix, write_repaired
from halftruth.data import DataError, read_labels
from halftruth.data.verdicts import VERDICTS, place_verdicts, read_verdicts
from halftruth.labels import ABSENT, PRESENT, UNKNOWN, LabelMatrix
from halftruth.train.results.output_tables import escape_formula
from halftruth.train.run_folder import replace_file, write_text

# So many decisions correct the level of the expected precision (benchmarks/results/audit.md).
_ENOUGH = 100


@dataclass(frozen=True)
class Repaired:
    """The files that `repair` wrote, and how many labels it changed."""

    path: Path
    diff: Path
    added: int
    removed: int
    verified_absent: int
    notes: tuple[str, ...] = ()

    def describe(self) -> str:
        more = f", {self.verified_absent:,} marked as absent" if self.verified_absent else ""
        return "\n".join(
            [
                f"{self.added:,} labels added, {self.removed:,} removed{more}: {self.path}",
                f"list of changes: {self.diff}",
                *self.notes,
            ]
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

    An accepted missing label becomes present. An accepted wrong label becomes absent where the
    coding of the file has a code for it, else unknown. With `precision`, undecided missing labels
    are accepted as well, down to this expected precision if fewer labels are missing than expected
    (`AuditState.safe_precision`). `rejected="absent"` marks rejected
    candidates as verified absent. Files are written completely or not at all.
    """
    audit, out = open_audit(folder), Path(out)
    if rejected not in ("leave", "absent"):
        raise DataError(f"rejected: expected leave or absent, got {rejected!r}")
    check_writable(audit, out)
    before = read_audited(audit)
    diff = name_changes(out)
    _check_targets(audit.labels_file, out, diff)
    changes = find_changes(audit, precision=precision, rejected=rejected == "absent")
    wanted = apply_changes(before, changes)
    with replace_file(out) as new:
        written = write_repaired(audit, before, wanted, changes, new, provenance=provenance)
        again = read_labels(new, **audit.info["reading"])
        if "hierarchy" in audit.info["reading"]:
            # More labels may follow from those that were written.
            written = replace(written, stored=again.values)
        if again.classes != before.classes or not np.array_equal(again.values, written.values):
            raise AssertionError(f"{out}: the written labels differ; please report this bug")
    write_text(diff, _list_changes(before, written, changes).to_csv(index=False))
    changed = written.values != before.values
    return Repaired(
        path=out,
        diff=diff,
        added=int((changed & (written.values == PRESENT)).sum()),
        removed=int((changed & (before.values == PRESENT)).sum()),
        verified_absent=int((changed & (written.values == ABSENT) & (before.values == 0)).sum()),
        notes=() if precision is None else _note_limits(audit, precision),
    )


def name_changes(out: Path) -> Path:
    """Return the path of the list of changes, next to the repaired file."""
    return out.with_name(f"{out.name.removesuffix(table_suffix(out))}.diff.csv")


def _note_limits(audit: AuditFolder, precision: float) -> tuple[str, ...]:
    """What a user should know about labels that were accepted by their expected precision."""
    current = read_audit_state(audit)
    doubt = describe_doubt(audit, current)
    left_out = int(audit.info.get("not_listed", {}).get("missing", 0))
    limited = (
        f"all listed candidates reach this precision, and {left_out:,} more are not listed; to "
        "accept more, audit again with a larger --most"
    )
    taken = len(current.take(precision))
    ended = left_out and taken == len(current.undecided())
    found = current.expect_next(taken)[1]
    safe = current.safe_precision()
    if taken:
        share, least = 100 * found.value / taken, 100 * safe[taken - 1]
        expected = (
            f"{taken:,} of them by --precision: {share:.0f} % are expected to be right, "
            f"{least:.0f} % if fewer labels are missing"
        )
    else:
        most = f"{100 * safe.max():.0f} %" if len(safe) else "not known: no candidate is listed"
        expected = (
            f"none by --precision: the highest precision that can be promised is {most}. "
            f"Decisions in a review narrow the interval: halftruth review {audit.path}"
        )
    return (expected, *([limited] if ended else []), *([f"WARNING: {doubt}"] if doubt else []))


def describe_doubt(audit: AuditFolder, current: AuditState) -> str | None:
    """Say that the expected precision needs verdicts, where every row shows one label."""
    if audit.info["selection"] != "single_positive":
        return None
    decided = int((np.abs(current.codes) == 1).sum())
    if (audit.path / VERDICTS).exists():
        decided += len(read_verdicts(audit.path / VERDICTS))
    if decided >= _ENOUGH:
        return None
    return (
        "No row shows more than one label, so the labels cannot tell how many more there are. The "
        f"expected precision can be far too high or too low; about {_ENOUGH} decisions bring it "
        "nearer to the truth. Decide on the first candidates before you rely on it: "
        f"halftruth review {audit.path}"
    )


def find_changes(
    audit: AuditFolder, *, precision: float | None = None, rejected: bool = False
) -> pd.DataFrame:
    """The candidates whose label changes, with the new label (`after`) and the reason (`by`)."""
    table, current = audit.candidates, read_audit_state(audit)
    missing = current.candidates.missing
    after = np.where(missing, PRESENT, ABSENT)
    by = np.full(len(table), "review", dtype=object)
    chosen = current.codes == CODES["accept"]
    if rejected:
        refused = missing & (current.codes == CODES["reject"])
        after[refused] = ABSENT
        chosen |= refused
    if precision is not None:
        taken = current.take(precision)
        by[taken] = f"precision {precision:g}"
        chosen[taken] = True
    table = table.assign(probability=current.shown, after=after, by=by)[chosen]
    if not (audit.path / VERDICTS).exists():
        return table
    return pd.concat([_earlier_changes(audit, rejected), table], ignore_index=True)


def _earlier_changes(audit: AuditFolder, rejected: bool) -> pd.DataFrame:
    """The verdicts of earlier audits and of other programs that change a label."""
    verdicts, before = read_verdicts(audit.path / VERDICTS), read_audited(audit)
    rows, columns = place_verdicts(before, verdicts, audit.path / VERDICTS)
    old, new = before.values[rows, columns], verdicts["verdict"].to_numpy()
    changed = (old != new) & ((new == PRESENT) | (old == PRESENT) | rejected)
    table = verdicts.assign(row=rows, after=new, probability=np.nan)[changed]
    return table.drop(columns="verdict")


def apply_changes(labels: LabelMatrix, changes: pd.DataFrame) -> LabelMatrix:
    """The labels after the changes."""
    values = labels.values.copy()
    values[_places(labels, changes)] = changes["after"].to_numpy(np.int8)
    return replace(labels, stored=values)


def _places(labels: LabelMatrix, changes: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the changed labels."""
    place = {name: k for k, name in enumerate(labels.classes)}
    columns = changes["class"].map(place).to_numpy(dtype=np.intp)
    return changes["row"].to_numpy(dtype=np.intp), columns


def read_audited(audit: AuditFolder) -> LabelMatrix:
    """Read the audited label file again; an error if it has changed since the audit."""
    file = audit.labels_file
    if not file.exists():
        raise DataError(f"{file}: the audited label file does not exist any more; restore it")
    if digest_audit(file) != audit.info["sha256"]:
        raise DataError(
            f"{file}: has changed since the audit, so its rows may not be the same; audit it again"
        )
    return read_labels(file, **audit.info["reading"])


def _check_targets(file: Path, out: Path, diff: Path) -> None:
    """Refuse to overwrite the audited file, also by a link to it."""
    for path, role in ((out, "it"), (diff, f"the list of changes of {out.name}")):
        # Also true for hard and symbolic links to the file.
        if path.exists() and path.samefile(file):
            raise DataError(
                f"{path}: {role} would overwrite the audited file {file}; choose another name "
                "(--out)"
            )
        if path.is_dir():
            raise DataError(f"{path}: is a folder; expected the name of a file to write (--out)")


_WORDS = {PRESENT: "present", UNKNOWN: "unknown", ABSENT: "absent"}


def _list_changes(before: LabelMatrix, after: LabelMatrix, changes: pd.DataFrame) -> pd.DataFrame:
    places = _places(before, changes)

    def words(labels: LabelMatrix) -> list[Any]:
        return [_WORDS[int(code)] for code in labels.values[places]]

    return pd.DataFrame(
        {
            "row": places[0] + 1,
            "item": changes["item"].map(escape_formula),
            "class": changes["class"].map(escape_formula),
            "before": words(before),
            "after": words(after),
            "probability": changes["probability"].round(4),
            "by": changes["by"],
        }
    )
