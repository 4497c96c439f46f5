"""The error that all readers raise, and the parts that its messages share."""

from __future__ import annotations

import difflib
import re
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence

from halftruth.labels import check_classes

_USER, _QUERY = re.compile(r"(:/{1,2})[^/@\s]*@"), re.compile(r"(https?:/[^?\s]*\?)[^\s'\"]+")


def mask(text: object) -> str:
    """Return a text without the user, password and query of addresses.

    >>> mask("https://me:word@host/a.csv?X-Amz-Signature=1f")
    'https://host/a.csv?...'
    """
    return _QUERY.sub(r"\1...", _USER.sub(r"\1", str(text)))


class DataError(ValueError):
    """Invalid input; the message names the place, what was expected and found, and what to do.

    Secrets of addresses are masked.
    """

    def __init__(self, text: object) -> None:
        super().__init__(mask(text))


def class_names(names: Iterable[str], place: object) -> tuple[str, ...]:
    """Check that class names are text, not blank and different; return them."""
    try:
        return check_classes(names)
    except (TypeError, ValueError) as error:
        raise DataError(f"{place}: {error}") from None


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a misspelt name, or an empty text.

    >>> nearest("imgae", ["image", "split"])
    " (did you mean 'image'?)"
    """
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def option(name: str, value: str | None = None) -> str:
    """An argument of `read_labels` and its option on the command line, for messages.

    >>> option("blank", "absent")
    "blank='absent' (--blank absent)"
    >>> option("drop_columns", "Patient age"), option("sep")
    ("drop_columns=['Patient age'] (--drop-column 'Patient age')", 'sep= (--sep)')
    """
    several = name == "drop_columns"
    flag = "--drop-column" if several else f"--{name.replace('_', '-')}"
    if value is None:
        return f"{name}= ({flag})"
    return f"{name}={[value] if several else value!r} ({flag} {shlex.quote(value)})"


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Check that an argument of `read_labels` has one of some values.

    >>> check_choice("sep", "a", ["b"])
    Traceback (most recent call last):
    halftruth.data.errors.DataError: sep (--sep): expected one of 'b', got 'a'
    """
    if value not in choices:
        flag = f"--{name.replace('_', '-')}"
        raise DataError(f"{name} ({flag}): expected one of {some(choices)}, got {value!r}")


def find_twice(names: Iterable[object]) -> list[str]:
    """Return the names that occur more than once.

    >>> find_twice(["a", "b", "a", "a"])
    ['a']
    """
    return [name for name, count in Counter(map(str, names)).items() if count > 1]


def refuse_twice(names: Iterable[object], place: object) -> None:
    """Refuse columns of one name."""
    if twice := find_twice(names):
        raise DataError(
            f"{place}: these column names occur more than once: {some(twice)}; rename or remove "
            "the copies"
        )


def some(names: Sequence[object], limit: int = 5) -> str:
    """The first few names of a list, for a message.

    >>> some(["a", "b", "c"], limit=2)
    "'a', 'b' and 1 more"
    """
    shown = ", ".join(repr(str(name)) for name in names[:limit])
    rest = len(names) - limit
    return f"{shown} and {rest:,} more" if rest > 0 else shown
