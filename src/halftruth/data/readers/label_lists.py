"""Labels given as lists of names: a delimited column, COCO and VOC annotations."""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from halftruth.data.errors import DataError, nearest, option, some
from halftruth.data.memory import check_memory
from halftruth.data.readers.cell_codes import Coding, kind_of
from halftruth.data.readers.text_table import is_number
from halftruth.labels import MANY_CLASSES, PRESENT, SparseLabels

SEPARATORS = ("|", ";", ",")
_DIGITS = {"0", "1", "-1"}
# Names of classes that mean no class, and what is between the words of a name.
_NOTHING = {"no finding", "no findings", "normal", "none", "nothing", "negative", "background"}
_BETWEEN_WORDS = re.compile(r"(?<=[^\W_])[\s_-]+(?=[^\W_])")
# Stands for cells that are lists written as text, where a separator is expected; and for cells of
# Label Studio, which are {"choices": ["cat", "dog"]}, or a name alone.
LIST, CHOICES = "[]", '{"choices": []}'


class NothingNowhere(DataError):
    """The name that stands for no label is in no row of a file."""


def matrix_of_lists(
    lists: Sequence[Sequence[str]],
    coding: Coding,
    *,
    where: Callable[[int], str],
    classes: Sequence[str] | None = None,
    blank_rows: np.ndarray | None = None,
    sparse: bool = False,
) -> tuple[Any, tuple[str, ...]]:
    """Convert lists of label names into (N, K) int8 labels; also returns the classes.

    A listed class is PRESENT, other classes get `coding.zero`; rows of `blank_rows` get
    `coding.blank`. Without `classes`, the names found are sorted. `sparse`: labels of more than
    `MANY_CLASSES` classes become `SparseLabels`.
    """
    if classes is None:
        _check_names(lists, where)
        classes = sort_names({name for row in lists for name in row})
    position = {name: k for k, name in enumerate(classes)}
    lengths = np.fromiter(map(len, lists), dtype=np.intp, count=len(lists))
    columns = [position.get(name, -1) for row in lists for name in row]
    which = np.repeat(np.arange(len(lists)), lengths)
    if -1 in columns:
        row = int(which[columns.index(-1)])
        strange = next(name for name in lists[row] if name not in position)
        raise DataError(
            f"{where(row)}: label {strange!r} is not among the {len(classes)} "
            f"classes{nearest(strange, classes)}"
        )
    shape, blank = (len(lists), len(classes)), coding.meanings()["blank"]
    if sparse and len(classes) > MANY_CLASSES:
        if blank != coding.unlisted and blank_rows is not None and blank_rows.any():
            raise DataError(
                f"{where(int(blank_rows.argmax()))}: has no labels, and with {shape[1]:,} classes "
                "an empty row must mean the same as a class that is not listed; pass "
                f"{option('blank', coding.zero)}, or leave out the rows without labels"
            )
        return SparseLabels.from_entries(which, columns, PRESENT, shape, coding.unlisted), (
            *classes,
        )
    check_memory(
        shape[0] * shape[1],
        f"a matrix of {len(lists):,} rows x {len(classes):,} classes",
        "train on features with the default method (auto), which keeps labels sparse, choose fewer "
        "classes with classes= (--read 'classes=[...]'), or fewer rows",
    )
    values = np.full(shape, coding.unlisted, dtype=np.int8)
    if blank_rows is not None:
        values[blank_rows] = blank
    values[which, np.asarray(columns, dtype=np.intp)] = PRESENT
    return values, tuple(classes)


def sort_names(names: set[str]) -> list[str]:
    """Sort class names by the alphabet; whole numbers by value.

    >>> sort_names({"10", "9"}), sort_names({"dog", "cat"})
    (['9', '10'], ['cat', 'dog'])
    """
    if all(name.isascii() and name.isdigit() for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    return sorted(names)


def split_cells(
    cells: Sequence[str | list[str]],
    *,
    where: Callable[[int], str],
    sep: str | None = None,
    nothing: str | None = None,
) -> tuple[list[list[str]], np.ndarray]:
    """Split cells such as `cat|dog` into lists of names; also returns which cells are empty.

    A cell may also be a list written as text, `['cat', 'dog']`. `nothing` is the name that stands
    for "no label" (`No Finding`); it may not be listed together with other names.
    """
    if sep == "":
        raise DataError("sep must be the text between two labels, such as '|' or ' ', got ''")
    texts = ["" if isinstance(cell, list) else cell for cell in cells]
    if written := _find_notation(texts, where):
        if sep is not None:
            raise DataError(
                f"{where(0)}: the cells are lists written as text, such as ['cat', 'dog'], so "
                f"{option('sep', sep)} has no effect; leave it out"
            )
        sep = written
    elif sep is None:
        sep = detect_separator(texts, where)
    parts = (cell if isinstance(cell, list) else split_names(cell, sep) for cell in cells)
    lists = [[name for part in row if (name := part.strip())] for row in parts]
    blank = np.array([not row for row in lists], dtype=bool)
    if nothing is None:
        return lists, blank
    for row, names in enumerate(lists):
        if nothing in names and len(names) > 1:
            raise DataError(
                f"{where(row)}: {nothing!r} stands for no label, but is listed with others: "
                f"{some(names)}"
            )
    if not any(nothing in names for names in lists):
        hint = nearest(nothing, {name for names in lists for name in names})
        raise NothingNowhere(
            f"{option('nothing', nothing)} occurs in no row{hint}; correct the name or leave it out"
        )
    return [[] if names == [nothing] else names for names in lists], blank


def split_names(cell: str, sep: str) -> list[str]:
    r"""Split a cell at the separator; after a backslash the separator is part of a name.

    >>> split_names(r"cat|black\|white", "|"), split_names("['cat', 'dog']", LIST)
    (['cat', 'black|white'], ['cat', 'dog'])
    """
    if sep == LIST:
        return _parse_list(cell) or []
    if sep == CHOICES:
        chosen = _parse_list(cell)
        return [cell] if chosen is None else chosen
    if "\\" in sep or f"\\{sep}" not in cell:
        return cell.split(sep)
    names, name, at = [], "", 0
    for match in re.finditer(rf"(\\*){re.escape(sep)}", cell):
        slashes = len(match[1])
        name += cell[at : match.start()] + "\\" * (slashes // 2)
        if slashes % 2:
            name += sep
        else:
            names.append(name)
            name = ""
        at = match.end()
    return [*names, name + cell[at:]]


def join_names(names: Sequence[str], sep: str = "|") -> str:
    r"""Join names into a cell that `split_names` splits again.

    >>> print(join_names(["cat", "black|white"]))
    cat|black\|white
    """
    if sep == LIST:
        return str(list(names))
    if sep == CHOICES:
        return json.dumps({"choices": list(names)}, ensure_ascii=False) if names else ""
    if len(sep) == 1 and not any(sep in name or "\\" in name for name in names):
        return sep.join(names)
    escaped = [
        re.sub(rf"(\\*){re.escape(sep)}", lambda found: 2 * found[1] + "\\" + sep, name)
        for name in names
    ]
    # A backslash at the end of a name would escape the separator that follows.
    before = [re.sub(r"(\\+)$", r"\1\1", name) for name in escaped[:-1]]
    cell = sep.join([*before, *escaped[-1:]])
    if names and split_names(cell, sep) != list(names):
        raise DataError(
            f"the classes {some(names)} cannot be joined with the separator {sep!r}, since a name "
            "contains a part of it; rename the class or use another separator"
        )
    return cell


def read_numbers(
    lists: Sequence[Sequence[str]],
    classes: Sequence[str] | None,
    name: str,
    where: Callable[[int], str],
) -> list[list[str]] | None:
    """The columns of lists that hold one number per class, [0, 1, 1]; None for lists of names.

    Whole numbers are the names of numbered classes, unless every list is equally long and holds
    nothing but 0, 1 and -1. `classes` names the columns in their order.
    """
    width = max(map(len, lists), default=0)
    if width < 2 or not {len(row) for row in lists} <= {0, width}:
        return None
    entries = {entry for row in lists for entry in row}
    if not (entries <= {"True", "False"} or {kind_of(entry) for entry in entries} <= _DIGITS):
        whole = all(entry.removeprefix("-").isdigit() for entry in entries)
        if whole or not all(map(is_number, entries)):
            return None
    if classes is None or len(classes) != width:
        row = next(row for row, entries in enumerate(lists) if entries)
        got = "" if classes is None else f", and classes= has {len(classes)} names"
        raise DataError(
            f"{where(row)}: column {name!r} holds one number per class (multi-hot), such as "
            f"[{', '.join(lists[row][:5])}{', ...' if width > 5 else ''}]{got}; name the {width} "
            "classes in their order with classes= (--read 'classes=[cat, dog]')"
        )
    return [list(column) for column in zip(*(row or [""] * width for row in lists), strict=True)]


def _check_names(lists: Sequence[Sequence[str]], where: Callable[[int], str]) -> None:
    """Refuse names that are numbers or parts of lists and of JSON, which no option has read."""
    names = {name for row in lists for name in row}
    brackets = {name for name in names if name[0] in "[{" or name[-1] in "]}"}
    wrong = brackets | {name for name in names if "." in name and is_number(name)}
    if not wrong:
        return
    row = next(row for row, names in enumerate(lists) if wrong.intersection(names))
    name = next(name for name in lists[row] if name in wrong)
    what = "a number"
    if name in brackets:
        what = "a part of a list or of JSON; write the cell as ['cat', 'dog'] or cat|dog"
    raise DataError(
        f"{where(row)}: the label {name!r} looks like {what}; if it is the name of a class, name "
        "all classes with classes= (--read 'classes=[cat, dog]')"
    )


def question_classes(classes: Iterable[object]) -> list[str]:
    """What to ask about class names: several spellings, several classes in one name, no class.

    >>> question_classes(["hot dog", "Hot_Dog"])
    ["these classes may be one class, spelt differently: 'hot dog', 'Hot_Dog'"]
    """
    known, spellings = [str(name) for name in classes], dict[str, list[str]]()
    for name in known:
        letters = unicodedata.normalize("NFKC", name).casefold().strip()
        spellings.setdefault(_BETWEEN_WORDS.sub(" ", letters), []).append(name)
    asked = [
        f"these classes may be one class, spelt differently: {some(names)}"
        for names in spellings.values()
        if len(names) > 1
    ]
    asked += [
        f"the class {name!r} may mean that a row has no label; if so, read the labels with "
        f"{option('nothing', name)}, or drop its column"
        for spelling in sorted(_NOTHING & spellings.keys())
        for name in spellings[spelling]
    ]
    for mark in SEPARATORS:
        parts = {name: [part.strip() for part in name.split(mark)] for name in known}
        counts = Counter(part for names in parts.values() for part in names)
        joined = [
            name
            for name, names in parts.items()
            if len(names) > 1 and all(counts[part] > 1 for part in names)
        ]
        if joined:
            asked.append(
                f"{len(joined):,} class names hold {mark!r} and other classes, such as "
                f"{joined[0]!r}; if it separates labels, pass {option('sep', mark)}"
            )
    return asked


def _find_notation(cells: Sequence[str], where: Callable[[int], str]) -> str | None:
    """LIST or CHOICES for lists written as text, or None; refused if only some cells are lists."""
    filled = [(row, cell) for row, cell in enumerate(cells) if cell.strip()]
    parsed = [_parse_list(cell) is not None for _, cell in filled]
    if any(found and '"choices"' in cell for found, (_, cell) in zip(parsed, filled, strict=True)):
        return CHOICES
    for (row, cell), is_list in zip(filled, parsed, strict=True):
        if not is_list and cell.strip()[:2] in ("['", '["', "{'", '{"'):
            raise DataError(
                f"{where(row)}: {cell!r:.60} looks like a list, but cannot be read as one; write "
                "it as ['cat', 'dog'] or as cat|dog"
            )
    if not any(parsed):
        return None
    if not all(parsed):
        row, cell = filled[parsed.index(False)]
        listed = filled[parsed.index(True)][0]
        raise DataError(
            f"{where(row)}: {cell!r:.60} is not a list of names such as ['cat', 'dog'], but the "
            f"cell at {where(listed)} is; write all cells in one way"
        )
    return LIST


def _parse_list(cell: str) -> list[str] | None:
    """The names of a list written as text, or None for any other text.

    A list of Python or JSON, a Python set, numbers as NumPy prints them, or a cell of Label Studio.
    """
    text = cell.strip()
    if text == "set()":
        return []
    if text[:1] + text[-1:] not in ("[]", "{}"):
        return None
    if re.fullmatch(r"\[[-+.e\d\s]+\]", text):
        return text[1:-1].split()
    try:
        names = json.loads(text)
    except (ValueError, RecursionError):
        try:
            names = None if _lacks_comma(text) else ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError, tokenize.TokenError):
            return None
    if isinstance(names, dict) and names.keys() == {"choices"}:
        names = names["choices"]
    if not isinstance(names, list | set):
        return None
    if not all(type(name) in (str, int, float, bool) for name in names):
        return None
    found = [str(name) for name in names]
    return sorted(found) if isinstance(names, set) else found


def _lacks_comma(text: str) -> bool:
    """Whether two texts follow each other: ['a' 'b'], as NumPy prints an array, would be 'ab'."""
    if not re.search(r"""['"]\s+['"]""", text):
        return False
    kinds = [token.type for token in tokenize.generate_tokens(io.StringIO(text).readline)]
    return any(pair == (tokenize.STRING, tokenize.STRING) for pair in pairwise(kinds))


def detect_separator(cells: Sequence[str], where: Callable[[int], str]) -> str:
    """The one of | ; , that occurs, LIST or CHOICES; text with spaces alone needs `sep=`."""
    if written := _find_notation(cells, where):
        return written
    found = {}
    for mark in (*SEPARATORS, " "):
        row = next((row for row, cell in enumerate(cells) if mark in cell.strip()), None)
        if row is not None:
            found[mark] = row
    marks = [mark for mark in SEPARATORS if mark in found]
    if len(marks) > 1:
        places = " and ".join(f"{mark!r} ({where(found[mark])})" for mark in marks)
        raise DataError(f"labels could be separated by {places}; choose one with {option('sep')}")
    if not marks and " " in found:
        row = found[" "]
        raise DataError(
            f"{where(row)}: is {cells[row]!r} one label or several? Pass sep=' ' (--sep ' ') if "
            "spaces separate labels, sep='|' if they belong to the names"
        )
    return marks[0] if marks else "|"
