"""ARFF files of MULAN and MEKA: dense and sparse rows; labels named in XML or in the relation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from halftruth.data.errors import DataError, nearest
from halftruth.data.readers.cell_codes import Coding, decode
from halftruth.data.readers.text_table import read_text, read_xml
from halftruth.labels import LabelMatrix
from halftruth.reading import ArffLabels

_QUOTED = r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\""
_HEADER = re.compile(r"@(relation|attribute|data)\b\s*(.*)", re.IGNORECASE)
_DECLARATION = re.compile(rf"@attribute\s+({_QUOTED}|[^\s{{]+)\s*(.+)$", re.IGNORECASE)
_FIELD = re.compile(rf"\s*({_QUOTED}|[^,'\"]*?)\s*(,|$)")
_SPARSE_FIELD = re.compile(rf"\s*(\d{{1,9}})\s+({_QUOTED}|[^,'\"\s]+)\s*(,|$)")


@dataclass(frozen=True)
class Attribute:
    """The name of an attribute, and its values with their numbers if it is nominal (else None)."""

    name: str
    values: dict[str, int] | None

    def read(self, text: str, place: str) -> float:
        """The number of a cell, the position of a nominal value, or NaN for '?'."""
        if text == "?":
            return np.nan
        try:
            return float(text) if self.values is None else self.values[text]
        except (ValueError, KeyError):
            wanted = "a number" if self.values is None else f"one of {tuple(self.values)}"
            raise DataError(
                f"{place}: attribute {self.name!r} must be {wanted}, got {text!r}"
            ) from None


@dataclass(frozen=True)
class Arff:
    """The header of a file, and its data lines with their numbers."""

    path: Path
    relation: str
    attributes: list[Attribute]
    lines: list[tuple[int, str]]

    def where(self, row: int) -> str:
        """The file and line of a row, for messages."""
        return f"{self.path} line {self.lines[row][0]}"

    def read(self, keep: Sequence[int]) -> np.ndarray:
        """(N, len(keep)) float64: numbers, the position of nominal values, NaN for '?'.

        A sparse row leaves out zeros and first declared values, as Weka defines it.
        """
        column = {position: k for k, position in enumerate(keep)}
        rows = np.zeros((len(self.lines), len(keep)), dtype=np.float64)
        for row, (_, line) in enumerate(self.lines):
            place = self.where(row)
            for position, text in _entries(line, len(self.attributes), place):
                if position in column:
                    rows[row, column[position]] = self.attributes[position].read(text, place)
        return rows


def read_arff_labels(
    path: Path,
    coding: Coding,
    *,
    arff_labels: ArffLabels = None,
    classes: Sequence[str] | None = None,
) -> LabelMatrix:
    """Read the labels of an ARFF file; see `label_positions` for how they are found."""
    arff = open_arff(path)
    positions = label_positions(arff, arff_labels if classes is None else classes)
    names = [arff.attributes[position].name for position in positions]
    columns = []
    for position, cells in zip(positions, arff.read(positions).T, strict=True):
        known = arff.attributes[position].values
        # Text for `decode`: nominal values by their name, a missing value as blank.
        texts = None if known is None else list(known)
        columns.append(
            [
                "" if np.isnan(cell) else f"{cell:g}" if texts is None else texts[int(cell)]
                for cell in cells
            ]
        )
    values, notes = decode(columns, names, arff.where, coding)
    return LabelMatrix(values, tuple(names), notes=notes)


def read_arff_features(path: Path, *, arff_labels: ArffLabels = None) -> np.ndarray:
    """Read the (N, D) float32 matrix of all attributes that are not labels; missing is NaN.

    Nominal attributes with two values become 0 and 1, in the order of their declaration.
    """
    arff = open_arff(path)
    labels = set(label_positions(arff, arff_labels))
    positions = [k for k in range(len(arff.attributes)) if k not in labels]
    for attribute in (arff.attributes[k] for k in positions):
        if attribute.values is not None and len(attribute.values) > 2:
            raise DataError(
                f"{path}: attribute {attribute.name!r} has {len(attribute.values)} nominal values; "
                "features must be numbers or two-valued: encode it first"
            )
    return arff.read(positions).astype(np.float32)


def open_arff(path: Path) -> Arff:
    """Read the header and the data lines."""
    relation, in_data = "", False
    attributes: dict[str, Attribute] = {}
    lines: list[tuple[int, str]] = []
    for number, raw in enumerate(read_text(path).split("\n"), start=1):
        line = raw.strip()
        if not line or line.startswith("%"):
            continue
        if in_data:
            lines.append((number, line))
            continue
        match = _HEADER.match(line)
        if match is None:
            raise DataError(
                f"{path} line {number}: expected @relation, @attribute or @data, got {line[:60]!r}"
            )
        keyword = match[1].lower()
        if keyword == "relation":
            relation = match[2]
        elif keyword == "data":
            in_data = True
        else:
            attribute = parse_attribute(line, f"{path} line {number}")
            if attribute.name in attributes:
                raise DataError(f"{path}: attribute {attribute.name!r} is declared twice")
            attributes[attribute.name] = attribute
    if not attributes or not lines:
        raise DataError(f"{path}: expected @attribute lines, @data and at least one row after it")
    return Arff(path, relation, list(attributes.values()), lines)


def label_positions(arff: Arff, given: ArffLabels) -> list[int]:
    """Find the positions of the attributes that are labels.

    `given` is a list of names, a MULAN XML file, or a count as MEKA writes it: n for the first n
    attributes, -n for the last n. By default, the XML file next to the data (`yeast.xml` for
    `yeast.arff` or `yeast-train.arff`) is used, otherwise `-C n` in MEKA's relation line.
    """
    names = [attribute.name for attribute in arff.attributes]
    if given is None:
        given = _find_xml(arff.path)
    if given is None:
        mark = re.search(r"-C\s+(-?\d{1,9})\b", arff.relation)
        if mark is None:
            raise DataError(
                f"{arff.path}: which attributes are labels? Put MULAN's XML file next to it, or "
                "pass arff_labels= (--read arff_labels=...): names, an XML file, n for the first "
                "or -n for the last n"
            )
        given = int(mark[1])
    if isinstance(given, int):
        if not 0 < abs(given) <= len(names):
            raise DataError(
                f"{arff.path}: expected 1 to {len(names)} labels, got arff_labels={given}"
            )
        return list(range(len(names)))[:given] if given > 0 else list(range(len(names)))[given:]
    wanted = _names_in_xml(Path(given)) if isinstance(given, str | Path) else list(given)
    position = {name: k for k, name in enumerate(names)}
    for name in wanted:
        if name not in position:
            raise DataError(f"{arff.path}: no attribute is called {name!r}{nearest(name, names)}")
    return [position[name] for name in wanted]


def _find_xml(path: Path) -> Path | None:
    stem = path.name.removesuffix(".gz").removesuffix(".arff")
    for candidate in (stem, re.sub(r"[-_](train|test)$", "", stem)):
        if (path.parent / f"{candidate}.xml").is_file():
            return path.parent / f"{candidate}.xml"
    return None


def _names_in_xml(path: Path) -> list[str]:
    root = read_xml(path, "MULAN's XML list of labels")
    names = [entry.get("name", "") for entry in root.iter() if entry.tag.endswith("label")]
    if not names or "" in names:
        raise DataError(f"{path}: expected <labels> with <label name=...> entries")
    return names


def parse_attribute(line: str, place: str) -> Attribute:
    """Parse one @attribute line.

    >>> parse_attribute("@attribute 'big cat' {0,1}", "example")
    Attribute(name='big cat', values={'0': 0, '1': 1})
    """
    match = _DECLARATION.match(line)
    if match is None:
        raise DataError(f"{place}: expected '@attribute name type', got {line[:60]!r}")
    name, kind = _unquote(match[1]).strip(), match[2].strip()
    if not name:
        raise DataError(f"{place}: the attribute has no name")
    if kind.startswith("{") and kind.endswith("}"):
        values = _fields(kind[1:-1], place)
        if len(set(values)) != len(values):
            raise DataError(f"{place}: attribute {name!r} declares a value twice")
        return Attribute(name, {value: k for k, value in enumerate(values)})
    if kind.lower() in ("numeric", "real", "integer"):
        return Attribute(name, None)
    raise DataError(
        f"{place}: attribute {name!r} is of type {kind[:40]!r}; numbers and nominal {{...}} "
        "attributes can be read"
    )


def _entries(line: str, width: int, place: str) -> list[tuple[int, str]]:
    if not line.startswith("{"):
        fields = _fields(line, place)
        if len(fields) != width:
            raise DataError(f"{place}: expected {width} values, got {len(fields)}")
        return list(enumerate(fields))
    body = line[1:-1].strip()
    if not line.endswith("}"):
        raise DataError(f"{place}: a sparse row must end with '}}'")
    found: dict[int, str] = {}
    at = 0
    while at < len(body):
        match = _SPARSE_FIELD.match(body, at)
        if match is None or int(match[1]) >= width or int(match[1]) in found:
            raise DataError(
                f"{place}: expected 'position value' pairs with each position once and below "
                f"{width}, got {body[at : at + 40]!r}"
            )
        found[int(match[1])] = _unquote(match[2])
        at = match.end()
    return list(found.items())


def _fields(text: str, place: str) -> list[str]:
    """Split comma-separated values; some may be quoted."""
    if "'" not in text and '"' not in text:
        return [field.strip() for field in text.split(",")]
    fields = []
    at = 0
    while True:
        match = _FIELD.match(text, at)
        if match is None:
            raise DataError(f"{place}: cannot read values at {text[at : at + 40]!r}")
        fields.append(_unquote(match[1]))
        at = match.end()
        if not match[2]:
            return fields


def _unquote(text: str) -> str:
    if len(text) > 1 and text[0] in "'\"" and text[0] == text[-1]:
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    return text
