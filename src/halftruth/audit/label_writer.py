"""Write changed labels into a copy of the user's file; columns, order, quotes and codes stay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from halftruth.audit.audit_folder import AuditFolder, find_reading_problem, find_roles
from halftruth.audit.csv_cells import CellFile, same_cells
from halftruth.data import DataError
from halftruth.data.readers.cell_codes import Coding, kind_of
from halftruth.data.readers.cells import Cell
from halftruth.data.readers.label_lists import (
    detect_separator,
    join_names,
    read_numbers,
    split_names,
)
from halftruth.data.readers.label_table import PROVENANCE, Roles
from halftruth.data.readers.text_table import TEXT_SUFFIXES, Table, read_table
from halftruth.labels import ABSENT, PRESENT, UNKNOWN, LabelMatrix
from halftruth.reading import text_options
from halftruth.train.results.output_tables import escape_formula

# The cells of soft labels, which are probabilities.
_SOFT_CODES = {PRESENT: "1", ABSENT: "0", UNKNOWN: ""}


def write_repaired(
    audit: AuditFolder,
    before: LabelMatrix,
    wanted: LabelMatrix,
    changes: pd.DataFrame,
    out: Path,
    *,
    provenance: bool,
) -> LabelMatrix:
    """Write the file; returns the labels as written: UNKNOWN for ABSENT if it has no code."""
    source, reading = audit.labels_file, audit.info["reading"]
    table = read_table(source, **text_options(reading))
    roles = find_roles(table, reading)
    coding = Coding(**{k: v for k, v in reading.items() if k in ("zero", "blank", "minus_one")})
    if roles.listing is None:
        codes = _SOFT_CODES if reading.get("soft") else _codes(table, roles, coding)
        written = _without_absent(wanted) if ABSENT not in codes else wanted
        new = {
            (row, before.classes[k]): codes[int(written.values[row, k])]
            for row, k in np.argwhere(written.values != before.values)
        }
    else:
        written = _listed(wanted, before, coding)
        new = _new_lists(table, roles.listing, before, written, reading)
    extra = _provenance(before, written, changes) if provenance else {}
    if table_suffix(source) in TEXT_SUFFIXES:
        _write_text(source, text_options(reading), out, new, extra)
    else:
        _write_parquet(source, out, new, extra)
    return written


def check_writable(audit: AuditFolder, out: Path) -> None:
    """Refuse formats that cannot be written back, and an output of another format."""
    source = audit.labels_file
    if not table_suffix(source):
        raise DataError(
            f"{source}: repair writes CSV, TSV and Parquet tables, not this format; use the list "
            f"of candidates ({audit.path / 'missing.csv'}), or save the labels as a table first: "
            "halftruth.data.write_labels(halftruth.data.read_labels(...), 'labels.csv')"
        )
    if table_suffix(out) != table_suffix(source):
        raise DataError(
            f"{out}: expected a name that ends in {table_suffix(source)}, the format of "
            f"{source.name}"
        )
    if problem := find_reading_problem(audit.info["reading"]):
        raise DataError(f"{source}: {problem}")


def table_suffix(path: Path) -> str:
    """.csv, .tsv.gz, .parquet, ...; '' for other formats."""
    name = path.name.lower()
    return next((end for end in (*TEXT_SUFFIXES, ".parquet", ".pq") if name.endswith(end)), "")


def _codes(table: Table, roles: Roles, coding: Coding) -> dict[int, str]:
    """The cell that stands for each label: the most frequent one in the file, else a usual code."""
    counts = pd.Series([cell for name in roles.classes for cell in table.columns[name]])
    used = {cell: str(kind_of(cell)) for cell in counts.value_counts().index}
    meanings = coding.meanings()
    codes: dict[int, str] = {}
    for cell, kind in used.items():
        codes.setdefault(meanings[kind], cell)
    words = any(kind in ("true", "false") for kind in used.values())
    usual = ["true", "false", ""] if words else ["1", "0", "-1", ""]
    for cell in usual:
        codes.setdefault(meanings[str(kind_of(cell))], cell)
    return codes


def _without_absent(wanted: LabelMatrix) -> LabelMatrix:
    values = np.where(wanted.values == ABSENT, UNKNOWN, wanted.values).astype(np.int8)
    return replace(wanted, stored=values)


def _listed(wanted: LabelMatrix, before: LabelMatrix, coding: Coding) -> LabelMatrix:
    """A list names the PRESENT classes; the others all have the same meaning."""
    values = np.where(wanted.values == PRESENT, PRESENT, coding.unlisted).astype(np.int8)
    blank = ~(values == PRESENT).any(axis=1)
    was_blank = ~(before.values == PRESENT).any(axis=1)
    # A row that stays empty keeps its labels.
    values[blank] = coding.meanings()["blank"]
    values[blank & was_blank] = before.values[blank & was_blank]
    return replace(before, stored=values)


def _new_lists(
    table: Table, name: str, before: LabelMatrix, written: LabelMatrix, reading: dict[str, Any]
) -> dict[tuple[int, str], Any]:
    """The new cells of a column of names: those that stay, in their order, then those added."""
    cells = table.columns[name]
    lists = [names for names in cells if isinstance(names, list)]
    if read_numbers(lists, before.classes, name, table.where):
        raise DataError(
            f"{table.where(0)}: column {name!r} holds one number per class, which repair cannot "
            "write; save the labels as a table first: "
            "halftruth.data.write_labels(halftruth.data.read_labels(...), 'labels.csv')"
        )
    mark = str(reading.get("sep") or "")
    if not mark and not lists:
        mark = detect_separator(cells, table.where)
    nothing = [reading["nothing"]] if reading.get("nothing") else []
    present = written.values == PRESENT
    found: dict[tuple[int, str], Any] = {}
    for row in np.flatnonzero((present != (before.values == PRESENT)).any(axis=1)):
        cell, now = cells[row], [before.classes[k] for k in np.flatnonzero(present[row])]
        old = cell if isinstance(cell, list) else [part.strip() for part in split_names(cell, mark)]
        kept = [part for part in old if part in now]
        names = [*kept, *(part for part in now if part not in kept)] or nothing
        # The space, which readers strip, stops a spreadsheet from running a name as a formula.
        space = " " if _runs(names) else ""
        found[int(row), name] = names if lists else space + join_names(names, mark)
    return found


def _runs(names: list[str]) -> bool:
    return bool(names) and escape_formula(names[0]) != names[0]


def _provenance(
    before: LabelMatrix, written: LabelMatrix, changes: pd.DataFrame
) -> dict[str, list[str]]:
    """Per row: labels added, labels removed, and why; blank where nothing changed."""
    columns = {name: [""] * len(before) for name in PROVENANCE}
    by = changes.groupby("row")["by"].agg(lambda some: "; ".join(dict.fromkeys(some)))
    step = written.values != before.values
    for row in np.flatnonzero(step.any(axis=1)):
        added = np.flatnonzero(step[row] & (written.values[row] == PRESENT))
        removed = np.flatnonzero(step[row] & (written.values[row] != PRESENT))
        for name, places in zip(PROVENANCE, (added, removed), strict=False):
            columns[name][row] = escape_formula(join_names([before.classes[k] for k in places]))
        columns[PROVENANCE[2]][row] = str(by[row])
    return columns


def _write_text(
    source: Path,
    options: dict[str, Any],
    out: Path,
    new: dict[tuple[int, str], str],
    extra: dict[str, list[str]],
) -> None:
    file = CellFile(source, **options)
    if not same_cells(source, file):
        raise DataError(
            f"{source}: has quotes inside cells, which cannot be preserved; save the file again "
            "with a program that quotes such cells (pandas, a spreadsheet)"
        )
    for (row, name), text in new.items():
        file.set(row, file.header.index(name), text)
    fresh = {name: cells for name, cells in extra.items() if name not in file.header}
    for name in extra.keys() - fresh.keys():
        # The file was repaired before: append to its columns.
        for row, text in enumerate(extra[name]):
            old = file.get(row, file.header.index(name))
            file.set(row, file.header.index(name), "|".join(part for part in (old, text) if part))
    file.add_columns(list(fresh), list(fresh.values()))
    file.write(out)


def _write_parquet(
    source: Path, out: Path, new: Mapping[tuple[int, str], Cell], extra: dict[str, list[str]]
) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(source)
    changed: dict[str, list[Cell]] = {}
    for (row, name), value in new.items():
        changed.setdefault(name, table[name].to_pylist())[row] = value
    for name, cells in changed.items():
        kind = table.schema.field(name).type
        column = pa.array([_typed(cell, kind) for cell in cells], type=kind)
        table = table.set_column(table.column_names.index(name), table.schema.field(name), column)
    for name, texts in extra.items():
        if name in table.column_names:
            table = table.drop_columns([name])
        table = table.append_column(name, pa.array(texts, type=pa.string()))
    pq.write_table(table, out)


def _typed(cell: object, kind: object) -> object:
    """The text of a cell as a value of the type of its column."""
    import pyarrow as pa

    if not isinstance(cell, str) or pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return cell
    if kind_of(cell) == "blank":
        return None
    if pa.types.is_boolean(kind):
        return kind_of(cell) in ("true", "1")
    return float(cell) if pa.types.is_floating(kind) else int(float(cell))
