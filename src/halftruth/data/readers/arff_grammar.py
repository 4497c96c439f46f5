"""The grammar of ARFF: attribute declarations, dense rows and sparse rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from halftruth.data.errors import DataError

_QUOTED = r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\""
_DECLARATION = re.compile(rf"@attribute\s+({_QUOTED}|[^\s{{]+)\s*(.+)$", re.IGNORECASE)
_FIELD = re.compile(rf"\s*({_QUOTED}|[^,'\"]*?)\s*(,|$)")
_SPARSE_FIELD = re.compile(rf"\s*(\d{{1,9}})\s+({_QUOTED}|[^,'\"\s]+)\s*(,|$)")


@dataclass(frozen=True)
class Attribute:
    """A name, and the values of a nominal attribute (None for a number)."""

    name: str
    values: tuple[str, ...] | None


def parse_attribute(line: str, place: str) -> Attribute:
    """One @attribute line.

    >>> parse_attribute("@attribute 'big cat' {0,1}", "example")
    Attribute(name='big cat', values=('0', '1'))
    """
    match = _DECLARATION.match(line)
    if match is None:
        raise DataError(f"{place}: expected '@attribute name type', got {line[:60]!r}")
    name, kind = _unquote(match[1]).strip(), match[2].strip()
    if not name:
        raise DataError(f"{place}: the attribute has no name")
    if kind.startswith("{") and kind.endswith("}"):
        values = tuple(_fields(kind[1:-1], place))
        if len(set(values)) != len(values):
            raise DataError(f"{place}: attribute {name!r} declares a value twice")
        return Attribute(name, values)
    if kind.lower() in ("numeric", "real", "integer"):
        return Attribute(name, None)
    raise DataError(
        f"{place}: attribute {name!r} is of type {kind[:40]!r}; numbers and nominal {{...}} "
        "attributes can be read"
    )


def read_rows(
    path: Path,
    attributes: Sequence[Attribute],
    lines: Sequence[tuple[int, str]],
    keep: Sequence[int],
) -> np.ndarray:
    """(N, len(keep)) float64: numbers, the position of nominal values, NaN for '?'.

    What a sparse row leaves out is 0, or the first declared value, as Weka defines it.
    """
    column = {position: k for k, position in enumerate(keep)}
    rows = np.zeros((len(lines), len(keep)), dtype=np.float64)
    codes = [
        None if attribute.values is None else {text: k for k, text in enumerate(attribute.values)}
        for attribute in attributes
    ]
    for row, (number, line) in enumerate(lines):
        place = f"{path} line {number}"
        for position, text in _entries(line, len(attributes), place):
            if position in column:
                rows[row, column[position]] = _value(
                    text, attributes[position], codes[position], place
                )
    return rows


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
    """Comma-separated values, of which some may be quoted."""
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


def _value(text: str, attribute: Attribute, codes: dict[str, int] | None, place: str) -> float:
    if text == "?":
        return np.nan
    if codes is not None:
        if text not in codes:
            raise DataError(
                f"{place}: attribute {attribute.name!r} must be one of {tuple(codes)}, got {text!r}"
            )
        return float(codes[text])
    try:
        return float(text)
    except ValueError:
        raise DataError(
            f"{place}: attribute {attribute.name!r} must be a number, got {text!r}"
        ) from None
