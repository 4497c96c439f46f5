"""Checks of raw input: label values read as numbers, class names; errors name the cell."""

import difflib
from collections.abc import Iterable, Iterator, Sequence
from typing import NoReturn, Protocol

import numpy as np
import torch


class _Table(Protocol):
    def __array__(self) -> np.ndarray: ...


# What is read as a table of numbers: also lists, and a DataFrame.
Array = torch.Tensor | np.ndarray | Sequence[object] | _Table
# The text of blanks, None, NaN and pandas' NA when objects are converted to text.
_BLANK = frozenset({"", "nan", "none", "<na>"})
# The number of labels that are processed at once, to limit memory.
BLOCK = 1 << 22


def read_values(
    values: Array, expected: str, classes: Sequence[str] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the values as given and as numbers, with NaN for blanks."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        array = (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    elif isinstance(values, np.ma.MaskedArray):
        array = np.ma.filled(values.astype(np.float64), np.nan)
    else:
        try:
            array = np.asarray(values)
        except ValueError as error:
            raise ValueError(f"expected rows of one length, an (N, K) table: {error}") from None
    check_shape(array.shape, classes)
    if array.dtype.kind in "biuf":
        return array, array
    if array.dtype.kind not in "OUT":
        raise TypeError(f"expected labels to be numbers, got an array of {array.dtype}")
    try:
        return array, array.astype(np.float64)
    except (TypeError, ValueError):  # blank text or pandas' NA among them
        words, which = np.unique(array.astype(str), return_inverse=True)
    numbers = np.empty(len(words))
    for k, word in enumerate(map(str, words)):
        try:
            numbers[k] = np.nan if word.strip().lower() in _BLANK else float(word)
        except ValueError:
            first = int((which.ravel() == k).argmax())
            refuse(array, first, expected, "Text is read as a number, or as blank", classes)
    return array, numbers[which].reshape(array.shape)


def check_shape(shape: Sequence[int], classes: Sequence[str] | None) -> None:
    """Refuse a shape that is not (N, K), or another number of class names than K."""
    if len(shape) != 2:
        raise ValueError(
            f"expected labels of shape (N, K), rows by classes, got shape {tuple(shape)}"
            + ("; one row is labels[None, :], one class labels[:, None]" if len(shape) == 1 else "")
        )
    if classes is not None and len(classes) != shape[1]:
        raise ValueError(f"got {len(classes)} class names for labels of {shape[1]} columns")


def refuse(
    array: np.ndarray, first: int, expected: str, hint: str, classes: Sequence[str] | None
) -> NoReturn:
    """Raise an error with the row, column and class of entry number `first`, and what to do."""
    row, column = divmod(first, array.shape[1])
    name = f" (class {classes[column]!r})" if classes is not None else ""
    value = array[row, column]
    shown = value.item() if isinstance(value, np.generic) else value
    raise ValueError(f"labels[{row}, {column}]{name} is {shown!r}; expected {expected}. {hint}")


def like(given: object, values: np.ndarray) -> np.ndarray | torch.Tensor:
    """Return an array, or a tensor if a tensor was given."""
    return torch.from_numpy(values).to(given.device) if isinstance(given, torch.Tensor) else values


def row_blocks(values: np.ndarray) -> Iterator[slice]:
    """Slices of rows that cover a table, each with about BLOCK labels."""
    step = max(1, BLOCK // max(1, values.shape[1]))
    return (slice(start, start + step) for start in range(0, len(values), step))


def check_classes(classes: Iterable[str]) -> tuple[str, ...]:
    """Check that class names are text, not blank and different; return them as a tuple."""
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
    """A sentence with the names that are similar to one that is not a class."""
    near = difflib.get_close_matches(str(name), classes, n=3)
    if near:
        return f"{name!r} is not a class; did you mean {' or '.join(map(repr, near))}?"
    some = ", ".join(classes[:10]) + (", ..." if len(classes) > 10 else "")
    return f"{name!r} is not a class; the classes are: {some or '(none)'}"


def class_columns(wanted: Iterable[str], names: Sequence[str]) -> list[int]:
    """The columns of some classes, in the given order."""
    if isinstance(wanted, str):
        raise TypeError(f"expected a list of class names, got the text {wanted!r}")
    position = {name: k for k, name in enumerate(names)}
    columns = []
    for name in wanted:
        if name not in position:
            raise ValueError(unknown_class(name, names))
        columns.append(position[name])
    return columns
