"""The label coding of the library: checks and conversions from other codings.

+1 PRESENT: annotated as present; 0 UNKNOWN: not annotated; -1 ABSENT: verified as absent.
Labels are (N, K) int8: N rows (images), K classes. Other codings are converted by name.
"""

import difflib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

from halftruth.labels.checks import (
    Array,
    check_classes,
    check_shape,
    like,
    read_values,
    refuse,
    unknown_class,
)

PRESENT, UNKNOWN, ABSENT = 1, 0, -1

_CODE = {"present": PRESENT, "unknown": UNKNOWN, "absent": ABSENT}
_UNSET = 127
# Types that torch cannot compare with int8, or would truncate silently.
_AWKWARD = (torch.uint16, torch.uint32, torch.uint64, torch.complex64, torch.complex128)


def find_complete_rows(labels: np.ndarray) -> np.ndarray:
    """Return a mask (N,) of the rows of labels (N, K) in which nothing is UNKNOWN.

    >>> find_complete_rows(np.array([[1, -1], [1, 0]])).tolist()
    [True, False]
    """
    known: np.ndarray = (np.asarray(labels) != UNKNOWN).all(axis=1)
    return known


def check(labels: Array, *, classes: Sequence[str] | None = None) -> Any:
    """Check that every value is 1, 0 or -1 and return int8 labels; an error names the first other.

    Takes an (N, K) array or nested list (-> array) or tensor on any device (-> tensor there) of
    any number type. int8 input is returned without a copy.

    >>> check([[1, 0], [-1, 1]]).dtype
    dtype('int8')
    >>> check([[1, 0], [0, 2]], classes=["cat", "dog"])
    Traceback (most recent call last):
    ...
    ValueError: labels[1, 1] (class 'dog') is 2; expected 1 (present), 0 (unknown) or -1 \
(absent). Other codings are converted by name: halftruth.labels.convert(values, coding), with \
coding one of 'halftruth', 'multi-hot', 'zero-absent', 'chexpert'
    """
    if isinstance(labels, torch.Tensor) and _stays_in_torch(labels):
        check_shape(labels.shape, classes)
        small = labels.to(torch.int8)
        if _right(small, labels):
            return small
    expected = "1 (present), 0 (unknown) or -1 (absent)"
    array, values = read_values(labels, expected, classes)
    with np.errstate(invalid="ignore"):
        narrow = values.astype(np.int8, copy=False)
    if _right(narrow, values):
        if isinstance(labels, torch.Tensor) and labels.dtype == torch.int8:
            return labels
        return like(labels, narrow)
    wrong = (narrow != values) | (narrow < ABSENT) | (narrow > PRESENT)
    first = int(wrong.argmax())
    refuse(array, first, expected, _advice(float(values.flat[first])), classes)


def as_array(labels: Array, *, classes: Sequence[str] | None = None) -> np.ndarray:
    """Like `check`, but always return a numpy array."""
    checked = check(labels, classes=classes)
    return checked.numpy(force=True) if isinstance(checked, torch.Tensor) else checked


def from_multi_hot(values: Array) -> np.ndarray | torch.Tensor:
    """Convert multi-hot labels: 1 present, 0 not annotated (nothing is verified as absent).

    >>> from_multi_hot([[True, False]])
    array([[1, 0]], dtype=int8)
    """
    return _recode(values, {1: PRESENT, 0: UNKNOWN}, None, "1 (present) or 0 (unknown)")


def from_zero_absent(values: Array) -> np.ndarray | torch.Tensor:
    """Convert labels with verified zeros: 1 present, 0 absent; -1, NaN, None or blank unknown.

    >>> from_zero_absent([["1", "0", "", "-1"]])
    array([[ 1, -1,  0,  0]], dtype=int8)
    """
    codes = {1: PRESENT, 0: ABSENT, -1: UNKNOWN}
    return _recode(values, codes, UNKNOWN, "1 (present), 0 (absent), -1 or blank (unknown)")


def from_chexpert(values: Array, uncertain: str = "unknown") -> np.ndarray | torch.Tensor:
    """Convert CheXpert labels: 1 present, 0 absent, -1 uncertain, blank not mentioned (unknown).

    -1 becomes `uncertain`: "unknown" (U-Ignore), "present" (U-Ones) or "absent" (U-Zeros).

    >>> from_chexpert([[1.0, 0.0, -1.0, float("nan")]], uncertain="present")
    array([[ 1, -1,  1,  0]], dtype=int8)
    """
    if uncertain not in _CODE:
        raise ValueError(f"expected uncertain to be one of {list(_CODE)}, got {uncertain!r}")
    codes = {1: PRESENT, 0: ABSENT, -1: _CODE[uncertain]}
    expected = "1 (present), 0 (absent), -1 (uncertain) or blank (unknown)"
    return _recode(values, codes, UNKNOWN, expected)


def from_names(
    rows: Iterable[Iterable[str] | None], classes: Iterable[str] | None = None
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Convert lists of names per row: named classes are PRESENT, others UNKNOWN; also the classes.

    Without `classes`, the names that occur are used, sorted. None is an empty list.

    >>> labels, classes = from_names([["dog", "cat"], [], ["dog"]])
    >>> labels.tolist(), classes
    ([[1, 1], [0, 0], [0, 1]], ('cat', 'dog'))
    """
    if isinstance(rows, str):
        raise TypeError(f"expected a list of names for each row, got the text {rows!r}")
    listed: list[list[str]] = []
    for number, names in enumerate(rows):
        if isinstance(names, str):
            raise TypeError(
                f"row {number} is the text {names!r}; expected a list of names, as names.split('|')"
            )
        listed.append([] if names is None else list(names))
    where = np.repeat(np.arange(len(listed)), [len(names) for names in listed])
    flat = [name for names in listed for name in names]
    for name in dict.fromkeys(flat):
        if not isinstance(name, str) or not name.strip():
            raise ValueError(
                f"row {where[flat.index(name)]} holds {name!r}; expected names of classes "
                "(an image without labels is an empty list)"
            )
    known = check_classes(sorted(set(flat)) if classes is None else classes)
    column = {name: k for k, name in enumerate(known)}
    for name in dict.fromkeys(flat):
        if name not in column:
            raise ValueError(f"row {where[flat.index(name)]}: {unknown_class(name, known)}")
    labels = np.zeros((len(listed), len(known)), dtype=np.int8)
    labels[where, [column[name] for name in flat]] = PRESENT
    return labels, known


_CODINGS: dict[str, Callable[..., Any]] = {
    "halftruth": check,
    "multi-hot": from_multi_hot,
    "zero-absent": from_zero_absent,
    "chexpert": from_chexpert,
}


def convert(values: Array, coding: str = "halftruth", **options: str) -> np.ndarray | torch.Tensor:
    """Convert labels of a named coding; options go to the function of that coding.

    >>> convert([[1, 0]], "zero-absent")
    array([[ 1, -1]], dtype=int8)
    """
    if coding not in _CODINGS:
        near = difflib.get_close_matches(str(coding), _CODINGS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"expected coding to be one of {list(_CODINGS)}, got {coding!r}{hint}")
    return _CODINGS[coding](values, **options)


def _stays_in_torch(labels: torch.Tensor) -> bool:
    # numpy reads a tensor in main memory without a copy, and int8 much faster than torch.
    elsewhere = not labels.is_cpu or labels.dtype == torch.bfloat16
    return elsewhere and labels.dtype not in _AWKWARD


def _right(small: Any, values: object) -> bool:
    """Whether int8 `small` has only codes and equals `values` (arrays or tensors)."""
    if 0 in small.shape:
        return True
    inside = (small.min() >= ABSENT) & (small.max() <= PRESENT)
    # Equality also finds NaN, fractions and overflow.
    return bool(inside if small is values else inside & (small == values).all())


def _recode(
    values: Array, codes: dict[int, int], blank: int | None, expected: str
) -> np.ndarray | torch.Tensor:
    array, numbers = read_values(values, expected, None)
    coded = np.full(numbers.shape, _UNSET, dtype=np.int8)
    for number, code in codes.items():
        np.copyto(coded, code, where=numbers == number)
    if blank is not None and numbers.dtype.kind == "f":
        np.copyto(coded, blank, where=np.isnan(numbers))
    unset = coded == _UNSET
    if unset.any():
        first = int(unset.argmax())
        hint = _advice(float(numbers.flat[first]))
        refuse(array, first, expected, hint, None)
    return like(values, coded)


def _advice(value: float) -> str:
    if np.isnan(value):
        return (
            "If a blank or NaN means not annotated, convert first with "
            "halftruth.labels.from_zero_absent or from_chexpert (in both, 0 is absent)"
        )
    if 0 < value < 1:
        return "Soft labels and probabilities are not labels: round or threshold them first"
    return (
        "Other codings are converted by name: halftruth.labels.convert(values, coding), with "
        f"coding one of {', '.join(map(repr, _CODINGS))}"
    )
