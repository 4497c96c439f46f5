"""Tables of text: CSV, TSV, Parquet, JSON lines and DataFrames, with the place of each row."""

from __future__ import annotations

import csv
import gzip
import io
import re
import xml.etree.ElementTree as ElementTree
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import Element

import numpy as np

from halftruth.data.errors import DataError, nearest, refuse_twice, some
from halftruth.data.errors import option as describe_option
from halftruth.data.image_file import is_image_name
from halftruth.data.readers.arrow_file import (
    ArrowFile,
    get_image_names,
    is_image_type,
    read_class_names,
)
from halftruth.data.readers.cells import (
    Cell,
    Cells,
    Places,
    as_cell,
    columns_of_records,
    parse_object,
)
from halftruth.data.remote import is_remote, local_file
from halftruth.data.shards import ARROW, PARQUET, TAR, expand_shards
from halftruth.data.tar_shard import read_tar_samples

if TYPE_CHECKING:
    import pandas as pd

TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")
SUFFIXES = (*TEXT_SUFFIXES, *PARQUET, *ARROW, ".jsonl")
DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
# Characters from which on a text file is read by pyarrow; it takes a moment to load.
_LARGE = 2_000_000
# In order of preference, compared in lower case without spaces and punctuation.
ITEM_COLUMNS = [
    "image", "imagename", "imagepath", "imagefile", "imageindex", "imageid", "file", "filename",
    "filepath", "path", "item", "itemid", "name", "id",
]  # fmt: skip
# The column in which pandas writes an index without a name: in CSV (in front), when that is read
# again, and in Parquet.
INDEX_COLUMNS = ("", "Unnamed: 0", "__index_level_0__")
# Texts in a cell may be longer than the 131,072 characters that `csv` allows.
csv.field_size_limit(2**31 - 1)


@dataclass(frozen=True)
class Table:
    """Named columns of cells; a cell is text, or a list of texts where the file has lists."""

    columns: dict[str, list[Any]]
    places: Sequence[str]

    @property
    def rows(self) -> int:
        return len(self.places)

    def where(self, row: int) -> str:
        """The file and line of a row, for messages."""
        return self.places[row]

    def column(self, name: str, option: str) -> list[Any]:
        """The cells of a column that `option` names, or an error with the nearest name."""
        if name not in self.columns:
            has_flag = option.endswith("_column") or option in ("drop_columns", "text")
            given = describe_option(option, name) if has_flag else f"{option}={name!r}"
            raise DataError(
                f"{given}: there is no such column{nearest(name, self.columns)}; "
                f"the columns are {some(list(self.columns), 12)}"
            )
        return self.columns[name]

    def texts(self, name: str, option: str) -> list[str]:
        """The cells of a column that must not hold lists or blanks, stripped."""
        texts = []
        for row, cell in enumerate(self.column(name, option)):
            if isinstance(cell, list) or not cell.strip():
                what = "is blank" if not cell or isinstance(cell, str) else "holds a list"
                raise DataError(f"{self.where(row)}: column {name!r} {what}; expected a name")
            texts.append(cell.strip())
        return texts


def read_table(
    path: str | Path,
    delimiter: str | None = None,
    columns: Sequence[str] | None = None,
    quotes: bool = True,
) -> Table:
    """Read a table; the format follows from the end of its name.

    `columns` names the columns of a text file without a header line. `quotes`: whether quotation
    marks enclose fields; False takes them as part of the text.
    """
    path = Path(path)
    name = path.name.lower()
    if not name.endswith(TEXT_SUFFIXES) and (columns is not None or not quotes):
        given = "columns" if columns is not None else "quotes"
        raise DataError(f"{path}: {given} is for text files ({', '.join(TEXT_SUFFIXES)})")
    shards = expand_shards(path)
    if shards != [path] or name.endswith((*PARQUET, *ARROW, *TAR)):
        return _read_shards(path, shards)
    if is_remote(path):
        with local_file(path) as copy:
            return read_table(copy, delimiter, columns, quotes)
    if name.endswith(".jsonl"):
        return _read_json_lines(path)
    if not name.endswith(TEXT_SUFFIXES):
        raise DataError(f"{path}: expected a table ending in {', '.join(SUFFIXES)}")
    if delimiter is None and ".tsv" in name:
        delimiter = "\t"
    header, cells, lines = read_csv(path, delimiter, columns, quotes)
    return Table(dict(zip(header, cells, strict=True)), Places(f"{path} line", lines))


def require_pandas(frame: object) -> None:
    """Refuse data frames of other libraries, whose columns would lose their names."""
    if hasattr(frame, "columns") and not hasattr(frame, "iloc"):
        raise DataError(
            f"expected a DataFrame of pandas, got {type(frame).__module__.partition('.')[0]}; "
            "pass .to_pandas()"
        )


def table_from_frame(frame: pd.DataFrame) -> Table:
    """The columns of a pandas DataFrame as cells; missing values are blank."""
    require_pandas(frame)
    names = [str(name) for name in frame.columns]
    refuse_twice(names, "DataFrame")
    if not len(frame):
        raise DataError("DataFrame: has no rows")
    columns = {}
    for position, name in enumerate(names):
        column = frame.iloc[:, position]
        missing = column.isna().tolist()
        columns[name] = [
            "" if blank else as_cell(value, f"DataFrame column {name!r}")
            for value, blank in zip(column.tolist(), missing, strict=True)
        ]
    return Table(columns, [f"DataFrame row {label!r}" for label in frame.index])


def index_ids(frame: pd.DataFrame) -> np.ndarray | None:
    """The index of a DataFrame as text; None for the default index 0, 1, 2, ..."""
    index = frame.index
    if index.nlevels > 1:
        raise DataError(
            f"DataFrame: expected one index level that names the items, got {index.nlevels}; "
            "use frame.reset_index(drop=True) or set_index with one column"
        )
    if index.tolist() == list(range(len(index))):
        return None
    return np.array([str(label) for label in index], dtype=str)


def is_row_counter(name: str, cells: Sequence[Any]) -> bool:
    """Whether a column is the unnamed 0, 1, 2, ... that pandas writes in front of a table."""
    return name in INDEX_COLUMNS and all(
        is_number(cell) and float(cell) == row for row, cell in enumerate(cells)
    )


def find_item_column(columns: Mapping[str, Any]) -> str | None:
    """The column that names the items: one with a usual name, or else an index that pandas wrote.

    >>> find_item_column({"f0": [0.5], "name": ["a"]}), find_item_column({"": [0, 1]})
    ('name', None)
    """
    usual = [name for name in columns if plain(name) in ITEM_COLUMNS]
    index = (name for name in INDEX_COLUMNS if name in columns)
    index = (name for name in index if not is_row_counter(name, columns[name]))
    first = next(index, None)
    return min(usual, key=lambda name: ITEM_COLUMNS.index(plain(name)), default=first)


def read_column(
    path: str | Path, column: str, *, option: str = "column", **options: Any
) -> np.ndarray:
    """Read one more column of a label table as text: patients, sites, dates.

    `options` are those of `text_options`.
    """
    cells = read_table(path, **options).column(column, option)
    return np.array([str(cell) for cell in cells], dtype=str)


def read_text(path: Path) -> str:
    """Read a UTF-8 file (a BOM is dropped, `.gz` unpacked)."""
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
        raise DataError(f"{path}: the file is empty; expected a header and one row per item")
    return text


def read_xml(path: Path, what: str) -> Element:
    """Read the root of an XML file."""
    try:
        return ElementTree.fromstring(path.read_bytes())
    except (OSError, ElementTree.ParseError, ValueError, LookupError) as error:
        raise DataError(f"{path}: cannot be read as {what}: {error}") from None


def read_csv(
    path: Path,
    delimiter: str | None = None,
    columns: Sequence[str] | None = None,
    quotes: bool = True,
) -> tuple[list[str], list[Any], Sequence[int]]:
    """Read the column names, the columns, and the line on which each row starts."""
    text = read_text(path)
    if delimiter is None:
        delimiter = detect_delimiter(text, path)
    elif len(delimiter) != 1:
        raise DataError(f"delimiter must be one character such as ',' or '\\t', got {delimiter!r}")
    is_large = len(text) >= _LARGE and columns is None and not (quotes and '"' in text)
    if is_large and (found := _read_large(text, delimiter)) is not None:
        names, large, first = found
        _check_delimiter(names, delimiter, path)
        _check_header(names, first, path)
        return names, large, range(2, 2 + len(large[0]))
    lines_of_text = io.StringIO(text, newline="")
    if quotes:
        reader = csv.reader(lines_of_text, delimiter=delimiter, strict=True)
    else:
        reader = csv.reader(lines_of_text, delimiter=delimiter, strict=True, quoting=csv.QUOTE_NONE)
    rows: list[list[str]] = []
    lines: list[int] = []
    header = None if columns is None else [str(name) for name in columns]
    start = 1
    try:
        for row in reader:
            if header is None and row:
                header = header_names(row)
                _check_delimiter(header, delimiter, path)
            elif header is not None and len(row) == len(header):
                rows.append(row)
                lines.append(start)
            elif header is not None and row:
                source = "the header" if columns is None else "columns="
                raise DataError(
                    f"{path} line {start}: expected {len(header)} fields as in {source}, got "
                    f"{len(row)}; check for a missing or unquoted {delimiter!r}"
                )
            start = reader.line_num + 1
    except csv.Error as error:
        hint = "; if quotation marks are part of the text, pass quotes=False (--read quotes=false)"
        raise DataError(
            f"{path} line {start}: cannot be read as CSV: {error}{hint if quotes else ''}"
        ) from None
    if header is None or not rows:
        raise DataError(f"{path}: has a header but no rows; the first line names the columns")
    if columns is None:
        _check_header(header, rows[0], path)
    elif len(set(header)) < len(header):
        raise DataError(f"columns={header}: a name occurs more than once; name each column")
    return header, [list(column) for column in zip(*rows, strict=True)], lines


def _read_large(text: str, delimiter: str) -> tuple[list[str], list[Any], list[str]] | None:
    """The header, columns and first row of a regular file; None where a line needs a closer look.

    Without quotation marks and empty lines, each line is a row. pyarrow reads 500,000 lines of 80
    codes in a second, and keeps each distinct text of a column once.
    """
    text = text.replace("\r\n", "\n")
    if "\r" in text or "\n\n" in text or text.startswith("\n"):
        return None
    import pyarrow as pa
    from pyarrow import csv as arrow

    names, _, body = text.partition("\n")
    header = header_names(names.split(delimiter))
    numbers = [str(number) for number in range(len(header))]
    kind = pa.dictionary(pa.int32(), pa.string())
    try:
        table = arrow.read_csv(
            pa.BufferReader(body.encode()),
            arrow.ReadOptions(column_names=numbers),
            arrow.ParseOptions(delimiter=delimiter, quote_char=False, ignore_empty_lines=False),
            arrow.ConvertOptions(
                column_types=dict.fromkeys(numbers, kind), strings_can_be_null=False
            ),
        )
    except (pa.ArrowInvalid, ValueError):
        return None
    table = table.unify_dictionaries()
    columns = [table[number].combine_chunks() for number in numbers]
    cells = [Cells(c.indices.to_numpy(), c.dictionary.to_pylist()) for c in columns]
    return header, cells, [column[0] for column in cells]


def header_names(fields: Sequence[str]) -> list[str]:
    """The names in a first line, without the mark of a comment that `np.savetxt` writes."""
    names = [name.strip() for name in fields]
    return [names[0].removeprefix("# "), *names[1:]]


def detect_delimiter(text: str, path: Path) -> str:
    """Find the one delimiter that splits the header and the next rows into as many fields."""
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
            f"{path} line 1: fields could be separated by {names}; choose one with delimiter="
        )
    return found[0]


def _field_counts(sample: list[str], delimiter: str) -> list[int]:
    try:
        return [len(row) for row in csv.reader(sample, delimiter=delimiter) if row]
    except csv.Error:
        return []


def _check_delimiter(names: list[str], delimiter: str, path: Path) -> None:
    """Refuse a delimiter that does not split the header."""
    others = [mark for mark in DELIMITERS if mark != delimiter and mark in names[0]]
    if len(names) == 1 and others:
        raise DataError(
            f"{path} line 1: the delimiter {delimiter!r} gives one column, {names[0][:60]!r}; "
            f"this looks like {DELIMITERS[others[0]]}-separated text: pass "
            f"delimiter={others[0]!r} or leave it out"
        )


def _check_header(names: list[str], first: list[str], path: Path) -> None:
    """Refuse a first line that is data, not a header, and names that occur twice."""
    if _looks_like_data(names, first):
        raise DataError(
            f"{path} line 1: {some(names, 4)} looks like a row of data, not like a header; add a "
            "first line with the names of the columns, such as image,cat,dog, or name them with "
            "columns= (--read 'columns=[image, cat, dog]')"
        )
    refuse_twice(names, f"{path} line 1")


def _looks_like_data(names: list[str], first: list[str]) -> bool:
    """Whether a header holds image names, decimal numbers or label codes instead of names.

    Whole numbers alone can be names: 0, 1, 2, ... of a matrix or of numbered classes.
    """
    if any(plain(name) in ITEM_COLUMNS for name in names):
        return False
    pairs = list(zip(names, first, strict=True))
    if any(is_image_name(name) and is_image_name(cell) for name, cell in pairs):
        return True
    decimal = re.compile(r"[+-]?(\d+\.\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
    named = bool(names[0]) and not is_number(names[0])
    values = names[1:] if named else names
    if not values or not all(is_number(name) for name in values):
        return False
    repeated = len(set(values)) < len(values)
    codes = {"0", "1", "-1"}.issuperset(values)
    return any(decimal.fullmatch(name) for name in values) or (codes and (repeated or named))


def plain(name: str) -> str:
    """A column name in lower case without spaces and punctuation."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def is_number(text: object) -> bool:
    """Whether a cell can be read as a number (nan and inf included)."""
    try:
        float(text)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        return False
    return True


def _read_shards(source: Path, shards: Sequence[Path]) -> Table:
    """Read the tables of shards, one below the other; images are named, not read."""
    tables = []
    for path in shards:
        name = path.name.lower()
        if not name.endswith((*TAR, *PARQUET, *ARROW)):
            raise DataError(f"{source}: expected tar, Parquet or Arrow files, got {path}")
        tables.append(_read_samples(path) if name.endswith(TAR) else _read_arrow(path))
    return join_tables(tables, shards)


def join_tables(tables: Sequence[Table], paths: Sequence[Path]) -> Table:
    """Put tables with the same columns one below the other."""
    first = tables[0]
    for table, path in zip(tables, paths, strict=True):
        if other := table.columns.keys() ^ first.columns.keys():
            raise DataError(
                f"{path}: has other columns than {paths[0]}: {some(sorted(other))} are in one only"
            )
    if len(tables) == 1:
        return first
    columns = {
        name: [cell for table in tables for cell in table.columns[name]] for name in first.columns
    }
    return Table(columns, [place for table in tables for place in table.places])


def _read_arrow(path: Path) -> Table:
    import pyarrow as pa

    file = ArrowFile(path)
    wanted = [field.name for field in file.schema if not is_image_type(field.type)]
    table = pa.concat_tables(file.blocks(wanted, 65536)) if wanted else None
    classes = read_class_names(file)
    columns: dict[str, list[Any]] = {}
    for name in file.schema.names:
        if table is None or name not in wanted:
            columns[name] = get_image_names(file)[1]
        elif pa.types.is_nested(table[name].type):
            place = f"{path} column {name!r}"
            columns[name] = [as_cell(value, place) for value in table[name].to_pylist()]
        else:
            columns[name] = table[name].cast(pa.string()).fill_null("").to_numpy().tolist()
        if name in classes:
            columns[name] = [_name_classes(cell, classes[name]) for cell in columns[name]]
    return Table(columns, Places(f"{path} row", range(1, 1 + len(file))))


def _name_classes(cell: Cell, known: Sequence[str]) -> Cell:
    """The names of classes instead of their numbers; -1 stands for no label."""
    if isinstance(cell, list):
        return [known[int(number)] for number in cell if int(number) >= 0]
    return known[int(cell)] if cell and int(cell) >= 0 else ""


def _read_samples(path: Path) -> Table:
    samples = read_tar_samples(path)
    places = [f"{path} sample {key!r}" for key in samples]
    return Table(columns_of_records(list(samples.values()), places), places)


def _read_json_lines(path: Path) -> Table:
    lines = enumerate(read_text(path).split("\n"), start=1)
    texts = {number: line for number, line in lines if line.strip()}
    places = Places(f"{path} line", list(texts))
    records = [
        parse_object(line, place) for line, place in zip(texts.values(), places, strict=True)
    ]
    return Table(columns_of_records(records, places), places)
