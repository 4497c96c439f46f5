"""Verdicts of a review as labels: which classes people found present or absent in which rows."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from halftruth.data.errors import DataError, some
from halftruth.data.review_log import ReviewLog
from halftruth.labels import ABSENT, PRESENT, LabelMatrix
from halftruth.labels.soft_labels import give_weight

# Files in the folder of an audit: verdicts of earlier audits and of other programs, the decisions
# of the review, and the candidates that these decide on.
VERDICTS, DECISIONS, CANDIDATES = "verdicts.csv", "decisions.jsonl", "candidates.parquet"
COLUMNS = ["row", "item", "class", "verdict", "by"]
# The columns that name a label.
_LABEL = ["row", "item", "class"]
_WORDS = {"present": PRESENT, "absent": ABSENT, "1": PRESENT, "-1": ABSENT}


def read_verdicts(path: str | Path) -> pd.DataFrame:
    """Read the verdicts of an audit folder, or of a CSV file with the columns of verdicts.csv.

    Columns: row (counted from 0), item, class, verdict (+1 present, -1 absent), by; one line per
    label. Skipped candidates and conflicts of annotators are left out. In a folder, a decision of
    the review replaces the verdict of verdicts.csv on the same label.
    """
    path = Path(path)
    if not path.is_dir():
        return find_majority(read_verdict_lines(path))
    earlier = path / VERDICTS
    parts = [find_majority(read_verdict_lines(earlier))] if earlier.is_file() else []
    if (path / DECISIONS).is_file():
        parts.append(_read_decisions(path))
    if not parts:
        raise DataError(
            f"{path}: contains no verdicts (neither {DECISIONS} nor {VERDICTS}); review the audit "
            f"first: halftruth review {path}"
        )
    both = pd.concat(parts, ignore_index=True)
    return both.drop_duplicates(_LABEL, keep="last", ignore_index=True)


def find_majority(lines: pd.DataFrame) -> pd.DataFrame:
    """Return one verdict per label, that of the majority of its annotators.

    Labels on which they are divided equally are left out, with a warning. An annotator (`by`) with
    as many verdicts for a label as against it has no vote.
    """
    votes = lines.groupby([*_LABEL, "by"], sort=False)["verdict"].sum().map(np.sign).reset_index()
    balance = np.sign(votes.groupby(_LABEL, sort=False)["verdict"].transform("sum"))
    if (divided := votes.loc[balance == 0, _LABEL].drop_duplicates()).size:
        row, item, name = divided.iloc[0]
        warnings.warn(
            f"verdicts: as many for as against {len(divided):,} labels, such as {name!r} of "
            f"{item or f'row {row + 1}'}; these labels do not change",
            stacklevel=3,
        )
    decided = votes[(balance != 0) & (votes["verdict"] == balance)]
    return decided.drop_duplicates(_LABEL, ignore_index=True)[COLUMNS]


def _read_decisions(folder: Path) -> pd.DataFrame:
    table = pd.read_parquet(folder / CANDIDATES)
    verdicts = ReviewLog(folder / DECISIONS, len(table), write=False).verdicts
    ids = [i for i, verdict in sorted(verdicts.items()) if verdict in ("accept", "reject")]
    part = table.iloc[ids]
    accepted = np.array([verdicts[i] == "accept" for i in ids], dtype=bool)
    # A missing label that is accepted is present; a wrong one that is accepted is absent.
    right = accepted == (part["kind"] == "missing").to_numpy(dtype=bool)
    return part.assign(verdict=np.where(right, PRESENT, ABSENT), by="review")[COLUMNS]


def read_verdict_lines(path: Path) -> pd.DataFrame:
    """Read all lines of a CSV file with verdicts; several annotators may judge the same label."""
    if not path.exists():
        raise DataError(
            f"{path}: there is no such file; expected the folder of an audit, or a CSV file with "
            "verdicts"
        )
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read as verdicts ({error})") from None
    if {"class", "verdict"} - {*table.columns} or not {"row", "item"} & {*table.columns}:
        raise DataError(
            f"{path}: expected the columns class, verdict and row or item, got "
            f"{', '.join(map(str, table.columns))}"
        )
    if wrong := sorted({*table["verdict"]} - {*_WORDS}):
        raise DataError(f"{path}: expected the verdicts present or absent, got {some(wrong)}")
    if table.empty:
        raise DataError(f"{path}: contains no verdict")
    written = table.get("row", pd.Series("", table.index)).str.strip()
    if (wrong_rows := written[~written.str.fullmatch(r"(\d+(\.0)?)?")]).size:
        raise DataError(
            f"{path}: expected the numbers of rows, counted from 1, got {wrong_rows.iloc[0]!r}"
        )
    rows = pd.to_numeric(written, errors="coerce")
    # Rows are counted from 1 in files for people.
    return pd.DataFrame(
        {
            "row": rows.fillna(0).astype(int) - 1,
            "item": table.get("item", pd.Series("", table.index)),
            "class": table["class"],
            "verdict": table["verdict"].map(_WORDS),
            "by": table.get("by", pd.Series(path.name, table.index)),
        }
    )


def write_verdicts(table: pd.DataFrame, path: Path) -> None:
    """Write a table of verdicts for people and for `read_verdicts`."""
    words = {PRESENT: "present", ABSENT: "absent"}
    shown = table.assign(row=table["row"] + 1, verdict=table["verdict"].map(words))
    shown[COLUMNS].to_csv(path, index=False)


def place_verdicts(
    labels: LabelMatrix, verdicts: pd.DataFrame, source: object
) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the verdicts in the labels: by item if items are unique, else by row."""
    place = {name: k for k, name in enumerate(labels.classes)}
    if lost := sorted({*verdicts["class"]} - {*place}):
        raise DataError(
            f"{source}: the labels have no class {some(lost)}, on which it has verdicts"
        )
    columns = verdicts["class"].map(place).to_numpy(dtype=np.intp)
    items = None if labels.items is None else [str(item) for item in labels.items]
    if items is not None and len({*items}) == len(items) and (verdicts["item"] != "").all():
        at = {item: row for row, item in enumerate(items)}
        if missing := sorted({*verdicts["item"]} - {*at}):
            raise DataError(
                f"{source}: has verdicts on {len(missing):,} items that the label file does not "
                f"name: {some(missing)}; is it the audit of another file?"
            )
        rows = verdicts["item"].map(at).to_numpy(dtype=np.intp)
        said = verdicts["row"].to_numpy(dtype=np.intp)
        if (other := np.flatnonzero((said >= 0) & (said != rows))).size:
            row = other[0]
            warnings.warn(
                f"{source}: the items of {len(other):,} verdicts are in other rows of the label "
                f"file: {items[rows[row]]!r} is in row {rows[row] + 1:,}, not {said[row] + 1:,}; "
                "the items count",
                stacklevel=3,
            )
    else:
        rows = verdicts["row"].to_numpy(dtype=np.intp)
        outside = rows[(rows < 0) | (rows >= len(labels))]
        if len(outside):
            raise DataError(
                f"{source}: has a verdict on row {outside[0] + 1:,}, and the label file has the "
                f"rows 1 to {len(labels):,}; is it the audit of another file?"
            )
        named = verdicts["item"].to_numpy(dtype=str)
        if items is None and (named != "").any():
            warnings.warn(
                f"{source}: names items, but the label file does not; the numbers of rows count",
                stacklevel=3,
            )
        elif items is not None:
            own = np.array(items)[rows]
            if (other := np.flatnonzero((named != "") & (named != own))).size:
                row = other[0]
                raise DataError(
                    f"{source}: has a verdict on row {rows[row] + 1:,} as {str(named[row])!r}, but "
                    f"the label file has {str(own[row])!r} there; is it the audit of another file?"
                )
    return rows, columns


def apply_verdicts(
    labels: LabelMatrix, path: str | Path, *, lower_absent: bool = True
) -> LabelMatrix:
    """The labels with verified classes: present or absent, whatever the file says.

    In a file without absent labels, verified absent ones get the weight 1 / (classes − 1) if
    `lower_absent`. People review the likely candidates: there all labels are known, present and
    absent ones. Elsewhere absent labels are unknown, and most losses give those little weight. With
    full weight a score would mean one thing among the reviewed labels and another elsewhere, which
    spoils the ranking. The ensemble of auto weighs unknown labels by the probability that a present
    one is shown, so it takes absent ones at full weight (benchmarks/results/audit.md).
    """
    verdicts = read_verdicts(path)
    at = place_verdicts(labels, verdicts, path)
    values = labels.values.copy()
    values[at] = verdicts["verdict"].to_numpy(np.int8)
    soft, weights = labels.soft, labels.weights
    if soft is not None:
        soft = soft.copy()
        soft[at] = values[at] == PRESENT
    if weights is not None:
        verified = np.zeros(values.shape, dtype=bool)
        verified[at] = True
        weights = give_weight(weights, verified)
    if lower_absent and not (labels.values == ABSENT).any() and values.shape[1] > 2:
        whole = np.ones(values.shape, dtype=np.float32) if weights is None else weights
        few = np.where(values == ABSENT, 1 / (values.shape[1] - 1), 1.0)
        weights = (whole * few).astype(np.float32)
    return replace(labels, stored=values, soft=soft, weights=weights)
