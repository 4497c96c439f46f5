"""The folder of an audit: candidates, scores, tables, and the rows of the audited file."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from halftruth.audit.candidates import (
    ScoredLabels,
    missing_labels,
    per_class,
    precision_table,
    wrong_labels,
)
from halftruth.audit.csv_cells import find_problem
from halftruth.data import DataError
from halftruth.data.readers.label_table import Roles, assign_roles
from halftruth.data.readers.text_table import TEXT_SUFFIXES, Table
from halftruth.data.review_log import ReviewLog
from halftruth.data.verdicts import CANDIDATES, DECISIONS, VERDICTS, read_verdicts, write_verdicts
from halftruth.presence.calibration import Calibration
from halftruth.presence.uncertainty import WRONG_FACTOR, Estimate
from halftruth.reading import column_options, text_options
from halftruth.train.config import Config
from halftruth.train.results.output_tables import to_csv_text
from halftruth.train.run_folder import replace_file, write_text

INFO, SCORES = "audit.json", "scores.npz"
CLASSES, PRECISION = "classes.csv", "expected_precision.csv"
# Less likely candidates are not listed; they still count in the estimates.
_LEAST_PROBABILITY = {"missing": 0.01, "wrong": 0.1}
# The most probable wrong labels are listed all the same, from 1 % on: decisions on them tell
# whether there are more.
_FIRST_WRONG = 20
# The range of a probability is that of a wrong label; NaN for missing ones.
_CANDIDATE_COLUMNS = [
    "id", "kind", "row", "item", "class", "score", "probability", "at_least", "at_most",
]  # fmt: skip
# The fields of audit.json that the commands after `audit` need, with their types.
_FIELDS: dict[str, type | tuple[type, ...]] = {
    "labels": str, "sha256": str, "reading": dict, "images": list, "features": (str, type(None)),
    "origin": str, "warnings": list, "classes": list, "rows": int, "selection": str,
    "missing": dict, "missing_by_class": list, "missing_intervals": list, "wrong": (int, float),
    "wrong_by_class": list, "wrong_interval": list, "made": str,
}  # fmt: skip


@dataclass
class AuditFolder:
    """An audit on disk."""

    path: Path
    info: dict[str, Any]

    @cached_property
    def candidates(self) -> pd.DataFrame:
        """id, kind (missing or wrong), row of the file, item, class, score, probability, range."""
        path = self.path / CANDIDATES
        try:
            table = pd.read_parquet(path)
        except (OSError, ValueError) as error:
            raise _broken(path, error) from None
        if lost := [name for name in _CANDIDATE_COLUMNS if name not in table]:
            raise _broken(path, f"it has no column {lost[0]!r}")
        if foreign := sorted(set(table["class"]) - set(self.classes)):
            raise _broken(path, f"{INFO} has no class {foreign[0]!r}")
        return table

    @cached_property
    def scored(self) -> ScoredLabels:
        """Labels and scores of all audited rows."""
        path = self.path / SCORES
        try:
            with path.open("rb") as given, np.load(given) as file:
                found = {key: file[key] for key in ("labels", "scores", "items", "rows")}
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise _broken(path, error) from None
        return ScoredLabels(**found, classes=self.classes)

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(self.info["classes"])

    @property
    def missing(self) -> list[Estimate]:
        """The estimated number of missing labels per class, before any decision."""
        pairs = zip(self.info["missing_by_class"], self.info["missing_intervals"], strict=True)
        return [Estimate(value, *ends) for value, ends in pairs]

    @property
    def missing_total(self) -> Estimate:
        return Estimate(*(float(self.info["missing"][key]) for key in ("estimate", "low", "high")))

    @property
    def wrong(self) -> list[Estimate]:
        """The estimated number of wrong labels per class, before any decision."""
        return [Estimate(x, 0.0, WRONG_FACTOR * x) for x in self.info["wrong_by_class"]]

    @property
    def wrong_total(self) -> Estimate:
        return Estimate(self.info["wrong"], *self.info["wrong_interval"])

    @property
    def labels_file(self) -> Path:
        return Path(self.info["labels"])


def write_audit(
    path: Path, data: ScoredLabels, known: Calibration, *, info: dict[str, object], most: int
) -> AuditFolder:
    """Write everything except the report."""
    path.mkdir(parents=True, exist_ok=True)
    names: dict[str, Any] = {"classes": data.classes, "items": data.items}
    missing = missing_labels(data.labels, data.scores, calibration=known, **names)
    wrong = wrong_labels(data.labels, data.scores, calibration=known, **names)
    not_listed = _write_lists(path, {"missing": missing, "wrong": wrong}, data.rows, most)
    classes = per_class(data.labels, data.scores, classes=data.classes, calibration=known)
    write_text(path / CLASSES, to_csv_text(classes))
    shares = precision_table(missing["expected_precision"].to_numpy())
    shares.to_csv(path / PRECISION, index=False)
    info = {
        **info,
        "selection": known.selection,
        **describe_counts(known.missing_total, known.missing, known.wrong_total, known.wrong),
        "not_listed": not_listed,
        "repair_problem": _find_repair_problem(info),
    }
    return write_folder(path, data, info)


def list_foreign_files(path: Path, labels: Path) -> list[Path]:
    """Return the files that an audit of `labels` would replace in a folder, and did not write."""
    if not (path / INFO).exists():
        names = (SCORES, CLASSES, PRECISION, "missing.csv", "wrong.csv", CANDIDATES, "report.html")
        return [path / name for name in names]
    return [] if open_audit(path).labels_file == labels.resolve() else [path / INFO]


def describe_source(
    config: Config, reading: Mapping[str, object], origin: str, warnings: list[str]
) -> dict[str, object]:
    """Where labels, inputs and scores come from, as audit.json has it."""
    file = Path(config.labels)
    return {
        "labels": str(file.resolve()),
        "sha256": digest_audit(file),
        "reading": reading,
        "images": [str(Path(path).resolve()) for path in config.images],
        "features": str(Path(config.features[0]).resolve()) if len(config.features) == 1 else None,
        "origin": origin,
        "warnings": warnings,
    }


def describe_counts(
    missing_total: Estimate, missing: Sequence[Estimate], wrong_total: Estimate, wrong: list[float]
) -> dict[str, object]:
    """The estimated numbers of missing and wrong labels, as audit.json has them."""
    return {
        "missing": {
            "estimate": missing_total.value, "low": missing_total.low, "high": missing_total.high,
        },
        "missing_by_class": [count.value for count in missing],
        "missing_intervals": [[count.low, count.high] for count in missing],
        "wrong": wrong_total.value,
        "wrong_interval": [wrong_total.low, wrong_total.high],
        "wrong_by_class": wrong,
    }  # fmt: skip


def write_folder(path: Path, data: ScoredLabels, info: Mapping[str, object]) -> AuditFolder:
    """Write scores.npz and audit.json: a folder with this last file is complete."""
    np.savez_compressed(
        path / SCORES, rows=data.rows, labels=data.labels, scores=data.scores.astype(np.float32),
        items=np.asarray(data.items, dtype=str),
    )  # fmt: skip
    info = {
        **info,
        "classes": list(data.classes),
        "rows": len(data.rows),
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_text(path / INFO, json.dumps(info, indent=1))
    return AuditFolder(path, info)


def write_candidates(path: Path, table: pd.DataFrame) -> None:
    """Write the candidates of a review, numbered in their order."""
    table = table.assign(id=np.arange(len(table))).reindex(columns=_CANDIDATE_COLUMNS)
    table.to_parquet(path / CANDIDATES, index=False)


def _write_lists(
    path: Path, tables: dict[str, pd.DataFrame], rows: np.ndarray, most: int
) -> dict[str, int]:
    """Write missing.csv and wrong.csv for people, and both in one file for the review.

    Returns how many candidates of each kind are not listed, since there are more than `most`.
    """
    tables = {kind: one[_is_listed(kind, one)] for kind, one in tables.items()}
    not_listed = {kind: max(len(one) - most, 0) for kind, one in tables.items()}
    tables = {kind: one[:most] for kind, one in tables.items()}
    shown = ["item", "class", "rank", "row", "score", "probability"]
    more = {"missing": ["expected_precision"], "wrong": ["at_least", "at_most"]}
    for kind, table in tables.items():
        listed = table.assign(row=rows[table["row"]] + 1)[shown + more[kind]]
        write_text(path / f"{kind}.csv", to_csv_text(listed))
    both = pd.concat([table.assign(kind=kind) for kind, table in tables.items()])
    write_candidates(path, both.assign(row=rows[both["row"].to_numpy()]))
    return not_listed


def _is_listed(kind: str, table: pd.DataFrame) -> np.ndarray:
    probability = table["probability"].to_numpy()
    listed = probability >= _LEAST_PROBABILITY[kind]
    if kind == "wrong":
        listed |= (np.arange(len(table)) < _FIRST_WRONG) & (probability >= 0.01)
    return np.asarray(listed)


def find_roles(table: Table, reading: dict[str, object]) -> Roles:
    """Which column of the audited table is what."""
    options = column_options(reading)
    if weights := reading.get("weight_column"):
        options["drop_columns"] = [*options.get("drop_columns", ()), weights]
    return assign_roles(table, **options)


def find_reading_problem(reading: dict[str, object]) -> str:
    """Why labels that were read with these options cannot be written back; '' if they can."""
    if reading.get("also"):
        return (
            "the labels come from several files (--also); audit each file alone, or train with "
            "the verdicts: halftruth train ... --verdicts"
        )
    if reading.get("duplicates") in ("merge", "vote"):
        return (
            "rows of the same item were combined (--duplicates), so they cannot be written back; "
            "keep one row per item in the file, and audit it again"
        )
    return ""


def _find_repair_problem(info: dict[str, Any]) -> str:
    """Why the label file cannot be repaired, told before anybody reviews it; '' if it can."""
    if problem := find_reading_problem(info["reading"]):
        return problem
    file = Path(info["labels"])
    if not file.name.lower().endswith(TEXT_SUFFIXES) or not file.is_file():
        return ""
    return find_problem(file, **text_options(info["reading"]))


def read_earlier_verdicts(path: Path) -> pd.DataFrame | None:
    """The verdicts of an audit that is made again in its folder; None if it has none."""
    found = (path / DECISIONS).exists() or (path / VERDICTS).exists()
    return read_verdicts(path) if found else None


def archive_decisions(path: Path, verdicts: pd.DataFrame) -> None:
    """Keep the verdicts so far in verdicts.csv, since the candidates get new numbers."""
    if (path / DECISIONS).exists():
        # An error if a review is open: its decisions would be lost.
        ReviewLog(path / DECISIONS, len(pd.read_parquet(path / CANDIDATES))).close()
    with replace_file(path / VERDICTS) as new:
        write_verdicts(verdicts, new)
    if (path / DECISIONS).exists():
        number = len(list(path.glob("decisions-*.jsonl"))) + 1
        (path / DECISIONS).rename(path / f"decisions-{number}.jsonl")


def open_audit(path: str | Path) -> AuditFolder:
    """Open the audit in a folder."""
    path = Path(path)
    file = path / INFO
    if not file.is_file():
        raise DataError(f"{path}: contains no audit (no {INFO}); create one with halftruth audit")
    try:
        info = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise _broken(file, error) from None
    if not isinstance(info, dict):
        raise _broken(file, f"expected an object, got {type(info).__name__}")
    for name, kind in _FIELDS.items():
        if name not in info or not isinstance(info[name], kind):
            raise _broken(file, f"the field {name!r} is missing or has the wrong type")
    if {"estimate", "low", "high"} - info["missing"].keys():
        raise _broken(file, "the field 'missing' is incomplete")
    if len(info["missing_by_class"]) != len(info["classes"]):
        raise _broken(file, "the fields 'missing_by_class' and 'classes' differ in length")
    return AuditFolder(path, info)


def _broken(path: Path, reason: object) -> DataError:
    return DataError(
        f"{path}: the file is broken ({reason}); restore it, or run the audit again: "
        f"halftruth audit ... --out {path.parent}"
    )


def digest_audit(path: Path) -> str:
    """SHA-256 of a file, to see whether it has changed since the audit; '' for a folder."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
