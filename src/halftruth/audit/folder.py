"""The folder an audit leaves: candidates, scores, tables for people, and what it was made from."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from halftruth.audit.candidates import missing_labels, per_class, precision_cuts, wrong_labels
from halftruth.data import DataError
from halftruth.labels import LabelMatrix
from halftruth.presence.calibration import Calibration
from halftruth.train.checkpoint import write_text
from halftruth.train.output_tables import write_table

INFO, CANDIDATES, SCORES = "audit.json", "candidates.parquet", "scores.npz"
DECISIONS = "decisions.jsonl"
# Candidates less likely than this are listed nowhere; they still count in the estimates.
LEAST = 0.01


@dataclass
class AuditFolder:
    """An audit that is on disk."""

    path: Path
    info: dict[str, Any]

    @cached_property
    def candidates(self) -> pd.DataFrame:
        """id, kind (missing or wrong), row of the file, item, class, score, probability."""
        return pd.read_parquet(self.path / CANDIDATES)

    @cached_property
    def scored(self) -> dict[str, np.ndarray]:
        """rows (of the file), labels and scores of everything that was audited."""
        with np.load(self.path / SCORES, allow_pickle=False) as file:
            return {key: file[key] for key in file.files}

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(self.info["classes"])

    @property
    def labels_file(self) -> Path:
        return Path(self.info["labels"])


def write_audit(
    path: Path,
    labels: LabelMatrix,
    scores: np.ndarray,
    known: Calibration,
    *,
    rows: np.ndarray,
    info: dict[str, Any],
    most: int,
) -> AuditFolder:
    """Write everything but the report; `rows` are the places of the labels in the user's file."""
    if (path / DECISIONS).exists():
        raise DataError(
            f"{path}: holds an audit with decisions of a review; choose another folder (--out), or "
            "remove it if they are not needed any more"
        )
    path.mkdir(parents=True, exist_ok=True)
    names: dict[str, Any] = {"classes": labels.classes, "items": _items(labels, rows)}
    missing = missing_labels(labels.values, scores, calibration=known, most=most, **names)
    wrong = wrong_labels(labels.values, scores, calibration=known, most=most, **names)
    tables = {"missing": missing, "wrong": wrong}
    tables = {kind: table[table["probability"] >= LEAST] for kind, table in tables.items()}
    for kind, table in tables.items():
        placed = table.assign(row=rows[table["row"]] + 1)
        ordered = ["item", "class", "rank", "row", "score", "probability", "expected_precision"]
        write_table(placed[ordered], path / f"{kind}.csv")
    both = pd.concat([table.assign(kind=kind) for kind, table in tables.items()])
    both["row"] = rows[both["row"].to_numpy()]
    both["id"] = np.arange(len(both))
    both[["id", "kind", "row", "item", "class", "score", "probability"]].to_parquet(
        path / CANDIDATES, index=False
    )
    classes = per_class(labels.values, scores, classes=labels.classes, calibration=known)
    write_table(classes, path / "classes.csv")
    cuts = precision_cuts(missing["expected_precision"].to_numpy())
    cuts.to_csv(path / "cuts.csv", index=False)
    np.savez_compressed(
        path / SCORES, rows=rows, labels=labels.values, scores=scores.astype(np.float32)
    )
    total = known.missing_total
    info = {
        **info,
        "classes": list(labels.classes),
        "rows": len(labels),
        "selection": known.selection,
        "missing": {"estimate": total.estimate, "low": total.low, "high": total.high},
        "missing_by_class": [count.estimate for count in known.missing],
        "wrong": known.wrong_total,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    # Last, since it says that the folder is whole.
    write_text(path / INFO, json.dumps(info, indent=1))
    return AuditFolder(path, info)


def open_audit(path: str | Path) -> AuditFolder:
    """The audit in a folder."""
    path = Path(path)
    if not (path / INFO).is_file():
        raise DataError(f"{path}: holds no audit (there is no {INFO}); make one: halftruth audit")
    return AuditFolder(path, json.loads((path / INFO).read_text(encoding="utf-8")))


def digest(path: Path) -> str:
    """What tells whether a file is still the one that was audited; '' for a folder."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _items(labels: LabelMatrix, rows: np.ndarray) -> np.ndarray:
    if labels.items is not None:
        return labels.items
    return np.array([f"row {row + 1}" for row in rows])
