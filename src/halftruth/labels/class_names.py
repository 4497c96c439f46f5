"""Names of classes: what they may be, and which one was meant."""

import difflib
from collections.abc import Iterable, Sequence


def check_classes(classes: Iterable[str]) -> tuple[str, ...]:
    """The class names as a tuple, once each is text, not blank and there only once."""
    if isinstance(classes, str):
        raise TypeError(f"expected a list of class names, got the text {classes!r}")
    names = tuple(classes)
    seen: dict[str, int] = {}
    for k, name in enumerate(names):
        if not isinstance(name, str) or not name.strip():
            raise ValueError(f"expected classes[{k}] to be a name, got {name!r}")
        if seen.setdefault(name, k) != k:
            raise ValueError(
                f"class names must differ: {name!r} is both classes[{seen[name]}] and classes[{k}]"
            )
    return names


def unknown_class(name: object, classes: Sequence[str]) -> str:
    """A sentence that says which names come near one that is no class."""
    near = difflib.get_close_matches(str(name), classes, n=3)
    if near:
        return f"{name!r} is no class; did you mean {' or '.join(map(repr, near))}?"
    some = ", ".join(classes[:10]) + (", ..." if len(classes) > 10 else "")
    return f"{name!r} is no class; the classes are: {some or '(none)'}"


def class_columns(wanted: Iterable[str], names: Sequence[str]) -> list[int]:
    """The columns of some classes, in the order they are named."""
    if isinstance(wanted, str):
        raise TypeError(f"expected a list of class names, got the text {wanted!r}")
    position = {name: k for k, name in enumerate(names)}
    columns = []
    for name in wanted:
        if name not in position:
            raise ValueError(unknown_class(name, names))
        columns.append(position[name])
    return columns
