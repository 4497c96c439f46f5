"""Change cells of a CSV or TSV file without changing any other byte."""

from __future__ import annotations

import csv
import gzip
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from halftruth.data import DataError
from halftruth.data.readers.text_table import detect_delimiter, read_text

_BOM = "\ufeff"


class CellFile:
    """The raw cells, quotes included, of the header and of the rows of a file."""

    def __init__(self, path: Path, delimiter: str | None = None) -> None:
        text = read_text(path)
        raw = path.read_bytes()
        self._compressed = path.suffix == ".gz"
        raw = gzip.decompress(raw) if self._compressed else raw
        self.bom = raw.startswith(b"\xef\xbb\xbf")
        if delimiter is None:
            delimiter = "\t" if ".tsv" in path.name.lower() else detect_delimiter(text, path)
        self.delimiter = delimiter
        mark = re.escape(delimiter)
        self._field = re.compile(rf'(?:"(?:[^"]|"")*"|[^{mark}"]*)(?={mark}|$)', re.DOTALL)
        self._lines: list[tuple[list[str], str]] = [
            (self._split(record), end) for record, end in _records(text)
        ]
        # Blank lines are kept, but do not count as rows.
        self._rows = [k for k, (cells, _) in enumerate(self._lines) if cells != [""]]
        self.header = [parse_cell(cell).strip() for cell in self._lines[self._rows[0]][0]]

    @property
    def rows(self) -> int:
        return len(self._rows) - 1

    def get(self, row: int, column: int) -> str:
        """The text of a cell without quotes."""
        return parse_cell(self._lines[self._rows[row + 1]][0][column])

    def set(self, row: int, column: int, text: str) -> None:
        """Change a cell; it is quoted if it was quoted before or must be quoted."""
        cells = self._lines[self._rows[row + 1]][0]
        cells[column] = self._written(text, quoted=cells[column].startswith('"'))

    def add_columns(self, names: Sequence[str], columns: Sequence[Sequence[str]]) -> None:
        """Append columns at the right."""
        for place, k in enumerate(self._rows):
            texts = names if place == 0 else [column[place - 1] for column in columns]
            self._lines[k][0].extend(self._written(text) for text in texts)

    def write(self, path: Path) -> None:
        """Write the file, compressed if the first one was."""
        text = "".join(self.delimiter.join(cells) + end for cells, end in self._lines)
        raw = ((_BOM if self.bom else "") + text).encode("utf-8")
        path.write_bytes(gzip.compress(raw, mtime=0) if self._compressed else raw)

    def _written(self, text: str, quoted: bool = False) -> str:
        if quoted or any(mark in text for mark in (self.delimiter, '"', "\n", "\r")):
            return '"' + text.replace('"', '""') + '"'
        return text

    def _split(self, record: str) -> list[str]:
        if '"' not in record:
            return record.split(self.delimiter)
        cells, at = [], 0
        while True:
            match = self._field.match(record, at)
            if match is None:
                raise DataError(
                    f"quotes inside a cell: {record[at : at + 60]!r}; save the file again with "
                    "a program that quotes such cells (pandas, a spreadsheet)"
                )
            cells.append(match[0])
            at = match.end() + 1
            if match.end() == len(record):
                return cells


def parse_cell(raw: str) -> str:
    """The text of a raw cell.

    >>> parse_cell('"a ""b"" c"')
    'a "b" c'
    """
    return raw[1:-1].replace('""', '"') if raw.startswith('"') else raw


def _records(text: str) -> Iterable[tuple[str, str]]:
    """Records and their line ends; a quoted cell may contain line ends."""
    held = ""
    for line in io.StringIO(text, newline=""):
        held += line
        if held.count('"') % 2 == 0:
            body = held.rstrip("\r\n")
            yield body, held[len(body) :]
            held = ""
    if held:
        yield held, ""


def same_cells(path: Path, file: CellFile) -> bool:
    """Whether the csv module reads the same cells."""
    rows = csv.reader(io.StringIO(read_text(path), newline=""), delimiter=file.delimiter)
    read = [row for row in rows if row]
    ours = [[parse_cell(cell) for cell in file._lines[k][0]] for k in file._rows]
    return read == ours
