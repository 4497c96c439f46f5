"""A CSV or TSV file as columns of text, strict about what spreadsheets and exports get wrong."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections import Counter
from pathlib import Path

from halftruth.data.errors import DataError, some

DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}


def read_text(path: Path) -> str:
    """The text of a UTF-8 file (a BOM is dropped, `.gz` unpacked)."""
    try:
        raw = path.read_bytes()
        if path.suffix == ".gz":
            raw = gzip.decompress(raw)
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file") from None
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{path}: is UTF-16 text; save it as UTF-8 (in Excel: 'CSV UTF-8')")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path} line {line}: byte 0x{raw[error.start]:02x} is not UTF-8; save the file as "
            "UTF-8 (for example: iconv -f latin1 -t utf-8)"
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise DataError(f"{path} line {line}: holds a NUL byte, so this is not a text file")
    if not text.strip():
        raise DataError(f"{path}: the file is empty; expected a header and a row an item")
    return text


def read_csv(
    path: Path, delimiter: str | None = None
) -> tuple[list[str], list[list[str]], list[int]]:
    """Column names, columns, and the line each row starts on."""
    text = read_text(path)
    if delimiter is None:
        delimiter = detect_delimiter(text, path)
    elif len(delimiter) != 1:
        raise DataError(f"delimiter must be one character such as ',' or '\\t', got {delimiter!r}")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    rows: list[list[str]] = []
    lines: list[int] = []
    header: list[str] | None = None
    start = 1
    try:
        for row in reader:
            if header is None and row:
                header = _check_header([name.strip() for name in row], delimiter, path)
            elif header is not None and len(row) == len(header):
                rows.append(row)
                lines.append(start)
            elif header is not None and row:
                raise DataError(
                    f"{path} line {start}: expected {len(header)} fields as in the header, got "
                    f"{len(row)}; check for a missing or unquoted {delimiter!r}"
                )
            start = reader.line_num + 1
    except csv.Error as error:
        raise DataError(f"{path} line {start}: cannot be read as CSV: {error}") from None
    if header is None or not rows:
        raise DataError(f"{path}: has a header but no rows")
    return header, [list(column) for column in zip(*rows, strict=True)], lines


def detect_delimiter(text: str, path: Path) -> str:
    """The one delimiter that splits the header and gives the next rows as many fields."""
    sample = text[:100_000].splitlines()[:20]
    counts = {mark: _field_counts(sample, mark) for mark in DELIMITERS}
    found = [mark for mark, fields in counts.items() if fields and fields[0] > 1]
    if len(found) > 1:
        found = [mark for mark in found if len(set(counts[mark])) == 1] or found
    if not found:
        return ","
    if len(found) > 1:
        names = " or ".join(DELIMITERS[mark] for mark in found)
        raise DataError(
            f"{path} line 1: fields could be separated by {names}; say which with delimiter="
        )
    return found[0]


def _field_counts(sample: list[str], delimiter: str) -> list[int]:
    try:
        return [len(row) for row in csv.reader(sample, delimiter=delimiter) if row]
    except csv.Error:
        return []


def _check_header(names: list[str], delimiter: str, path: Path) -> list[str]:
    """Refuse a header that the delimiter does not split, and names that occur twice."""
    if len(names) == 1:
        others = [mark for mark in DELIMITERS if mark != delimiter and mark in names[0]]
        if others:
            raise DataError(
                f"{path} line 1: the delimiter {delimiter!r} gives one column, {names[0][:60]!r}; "
                f"this looks like {DELIMITERS[others[0]]}-separated text: pass "
                f"delimiter={others[0]!r} or leave it out"
            )
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise DataError(
            f"{path} line 1: these column names occur more than once: {some(twice)}; rename or "
            "remove the copies"
        )
    return names
