"""Change cells of a CSV or TSV file without changing any other byte."""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from halftruth.data import DataError
from halftruth.data.readers.text_table import detect_delimiter, header_names, read_text

_BOM = "\ufeff"


class CellFile:
    """The raw cells, quotes included, of the header and of the rows of a file."""

    def __init__(
        self,
        path: Path,
        delimiter: str | None = None,
        quotes: bool = True,
        columns: Sequence[str] | None = None,
    ) -> None:
        text = read_text(path)
        raw = path.read_bytes()
        self._compressed = path.suffix == ".gz"
        raw = gzip.decompress(raw) if self._compressed else raw
        self.bom = raw.startswith(b"\xef\xbb\xbf")
        if delimiter is None:
            delimiter = "\t" if ".tsv" in path.name.lower() else detect_delimiter(text, path)
        self.delimiter = delimiter
        self._quotes = quotes
        self._lines = list(_records(text, delimiter, path, quotes))
        # Blank lines are kept, but do not count as rows.
        self._rows = [k for k, (cells, _) in enumerate(self._lines) if cells != [""]]
        # `columns` names the columns of a file without a header line.
        self._skip = 0 if columns else 1
        header = columns or self._lines[self._rows[0]][0]
        self.header = header_names([parse_cell(cell) if quotes else cell for cell in header])

    @property
    def rows(self) -> int:
        return len(self._rows) - self._skip

    def get(self, row: int, column: int) -> str:
        """The text of a cell without quotes."""
        cell = self._lines[self._rows[row + self._skip]][0][column]
        return parse_cell(cell) if self._quotes else cell

    def set(self, row: int, column: int, text: str) -> None:
        """Change a cell; it is quoted if it was quoted before or must be quoted."""
        cells = self._lines[self._rows[row + self._skip]][0]
        cells[column] = self._written(text, quoted=cells[column].startswith('"'))

    def add_columns(self, names: Sequence[str], columns: Sequence[Sequence[str]]) -> None:
        """Append columns at the right."""
        for place, k in enumerate(self._rows):
            row = place - self._skip
            texts = names if row < 0 else [column[row] for column in columns]
            self._lines[k][0].extend(self._written(text) for text in texts)

    def write(self, path: Path) -> None:
        """Write the file, compressed if the first one was."""
        text = "".join(self.delimiter.join(cells) + end for cells, end in self._lines)
        raw = ((_BOM if self.bom else "") + text).encode("utf-8")
        path.write_bytes(gzip.compress(raw, mtime=0) if self._compressed else raw)

    def _written(self, text: str, quoted: bool = False) -> str:
        if not self._quotes:
            return text
        if quoted or any(mark in text for mark in (self.delimiter, '"', "\n", "\r")):
            return '"' + text.replace('"', '""') + '"'
        return text


def parse_cell(raw: str) -> str:
    """The text of a raw cell.

    >>> parse_cell('"a ""b"" c"')
    'a "b" c'
    """
    return raw[1:-1].replace('""', '"') if raw.startswith('"') else raw


def _records(
    text: str, delimiter: str, path: Path, quotes: bool
) -> Iterable[tuple[list[str], str]]:
    """The raw cells of each record and its line end; a quoted cell may contain line ends.

    As in the csv module, quotes only count at the start of a cell: `5" pipe` is an ordinary cell.
    """
    mark = re.escape(delimiter)
    inside = rf'"(?:[^"]|"")*"|(?!")[^{mark}\r\n]*' if quotes else rf"[^{mark}\r\n]*"
    cell = re.compile(rf"({inside})({mark}|\r\n|\n|\r|\Z)")
    at, number = 0, 1
    cells: list[str] = []
    while at < len(text) or cells:
        match = cell.match(text, at)
        if match is None:
            raise DataError(
                f"{path} record {number}: a quoted cell goes on after its closing quote, or has "
                f"none: {text[at : at + 60]!r}; save the file again with a program that quotes "
                "such cells (pandas, a spreadsheet)"
            )
        cells.append(match[1])
        at = match.end()
        if match[2] != delimiter:
            yield cells, match[2]
            cells, number = [], number + 1


def find_problem(path: Path, **options: Any) -> str:
    """Why `repair` could not write a table of this text; '' if it can."""
    try:
        same = same_cells(path, CellFile(path, **options))
    except DataError as error:
        return str(error)
    return "" if same else f"{path}: its quotes cannot be preserved"


def same_cells(path: Path, file: CellFile) -> bool:
    """Whether the csv module reads the same cells."""
    text = io.StringIO(read_text(path), newline="")
    if file._quotes:
        rows = csv.reader(text, delimiter=file.delimiter)
    else:
        rows = csv.reader(text, delimiter=file.delimiter, quoting=csv.QUOTE_NONE)
    read = [row for row in rows if row]
    raw = (file._lines[k][0] for k in file._rows)
    ours = [[parse_cell(cell) if file._quotes else cell for cell in cells] for cells in raw]
    return read == ours
