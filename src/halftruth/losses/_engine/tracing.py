"""Turn the curves of a loss into the source of a kernel, by running them on symbols.

The curves are written once, with torch's functions. Run on tensors they are the definition; run on
a `Symbol` they write down what they did, as lines of Triton. So no method is written twice.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

# What a torch function writes down: filled by `kernel_rules`.
RULES: dict[str, Callable[..., Any]] = {}
_DTYPES = {"float": torch.float32, "bool": torch.bool, "int": torch.int8}


class Untraceable(Exception):
    """A loss did something that has no counterpart in a kernel: it is then computed eagerly."""


class Line(NamedTuple):
    """`name = text`: one value an entry, or one a row; `sums` marks a sum over a row's entries."""

    name: str
    text: str
    row: bool
    sums: bool = False


@dataclass
class Tape:
    """What was written down: lines, the numbers they use, the tensors they read."""

    rows: int
    columns: int
    lines: list[Line] = field(default_factory=list)
    numbers: list[float] = field(default_factory=list)
    tensors: list[tuple[Tensor, str]] = field(default_factory=list)

    def write(self, text: str, kind: str, row: bool, sums: bool = False) -> "Symbol":
        name = f"v{len(self.lines)}"
        self.lines.append(Line(name, text, row, sums))
        return Symbol(self, name, kind, row)

    @property
    def by_row(self) -> bool:
        """Whether entries of a row are summed."""
        return any(line.sums for line in self.lines)

    def operand(self, value: Any) -> tuple[str, str, bool]:
        """(text, kind, whether it is one value a row) of anything an expression may hold."""
        if isinstance(value, Symbol):
            return value.name, value.kind, value.row
        if isinstance(value, bool | int):
            return repr(value), "int", True
        if isinstance(value, float):
            # An argument of the kernel: a schedule may change it without compiling anew.
            self.numbers.append(value)
            return f"c{len(self.numbers) - 1}", "float", True
        if isinstance(value, Tensor) and value.dtype != torch.float64:
            return self._tensor(value)
        raise Untraceable(f"operand {type(value).__name__}")

    def symbol(self, value: Tensor) -> "Symbol":
        """A tensor that each batch brings anew: what is done with it is written down, too."""
        return Symbol(self, *self._tensor(value))

    def _tensor(self, value: Tensor) -> tuple[str, str, bool]:
        shapes = {(): "one", (self.rows, 1): "row", (self.rows, self.columns): "entry"}
        layout = shapes.get(tuple(value.shape))
        if layout is None:
            raise Untraceable(f"tensor of shape {tuple(value.shape)}")
        self.tensors.append((value.contiguous(), layout))
        kind = "float" if value.is_floating_point() else "bool"
        kind = "int" if kind == "bool" and value.dtype != torch.bool else kind
        return f"t{len(self.tensors) - 1}", kind, layout != "entry"


class Symbol:
    """A tensor that is not there: operations on it are written to the tape."""

    def __init__(self, tape: Tape, name: str, kind: str, row: bool = False) -> None:
        self.tape, self.name, self.kind, self.row = tape, name, kind, row
        # The truth value behind a number that is 0 or 1.
        self.mask: str | None = None
        self.shape = (tape.rows, 1 if row else tape.columns)
        self.dtype = _DTYPES[kind]
        self.device = torch.device("meta")

    def _binary(self, text: str, other: Any, kind: str = "float", turned: bool = False) -> "Symbol":
        name, _, row = self.tape.operand(other)
        a, b = (name, self.name) if turned else (self.name, name)
        return self.tape.write(text.format(a=a, b=b), kind, self.row and row)

    def _unary(self, text: str, kind: str = "float") -> "Symbol":
        return self.tape.write(text.format(a=self.name), kind, self.row)

    def __add__(self, other: Any) -> "Symbol":
        return self._binary("{a} + {b}", other)

    def __sub__(self, other: Any) -> "Symbol":
        return self._binary("{a} - {b}", other)

    def __rsub__(self, other: Any) -> "Symbol":
        return self._binary("{a} - {b}", other, turned=True)

    def __mul__(self, other: Any) -> "Symbol":
        return self._binary("{a} * {b}", other)

    def __truediv__(self, other: Any) -> "Symbol":
        return self._binary("{a} / {b}", other)

    def __rtruediv__(self, other: Any) -> "Symbol":
        return self._binary("{a} / {b}", other, turned=True)

    def __pow__(self, other: float) -> "Symbol":
        return self._binary("tl.exp({b} * tl.log({a}))", float(other))

    def __gt__(self, other: Any) -> "Symbol":
        return self._binary("{a} > {b}", other, "bool")

    def __ge__(self, other: Any) -> "Symbol":
        return self._binary("{a} >= {b}", other, "bool")

    def __lt__(self, other: Any) -> "Symbol":
        return self._binary("{a} < {b}", other, "bool")

    def __le__(self, other: Any) -> "Symbol":
        return self._binary("{a} <= {b}", other, "bool")

    def __eq__(self, other: Any) -> "Symbol":  # type: ignore[override]
        return self._binary("{a} == {b}", other, "bool")

    def __ne__(self, other: Any) -> "Symbol":  # type: ignore[override]
        return self._binary("{a} != {b}", other, "bool")

    def __and__(self, other: Any) -> "Symbol":
        return self._binary("{a} & {b}", other, "bool")

    def __or__(self, other: Any) -> "Symbol":
        return self._binary("{a} | {b}", other, "bool")

    __hash__ = object.__hash__
    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> "Symbol":
        return self._unary("-{a}")

    def __invert__(self) -> "Symbol":
        return self._unary("{a} == 0", "bool")

    def __bool__(self) -> bool:
        raise Untraceable("a decision by values")

    def __getitem__(self, rows: Any) -> "Symbol":
        if rows != slice(0, self.tape.rows):
            raise Untraceable("a part of the batch")
        return self

    def detach(self) -> "Symbol":
        return self

    def to(self, dtype: torch.dtype) -> "Symbol":
        if not dtype.is_floating_point:
            raise Untraceable(f"conversion to {dtype}")
        if self.kind == "float":
            return self
        number = self._unary("tl.cast({a}, tl.float32)")
        number.mask = self.name if self.kind == "bool" else None
        return number

    def __getattr__(self, name: str) -> Callable[..., Any]:
        # What works in place on a tensor is a new line here: a symbol is never overwritten.
        if name.endswith("_") and name.strip("_") in RULES:
            return partial(RULES[name.strip("_")], self)
        raise AttributeError(name)

    def clone(self) -> "Symbol":
        return self

    def square(self) -> "Symbol":
        return self * self

    def abs(self) -> "Symbol":
        return self._unary("tl.abs({a})")

    def clamp(self, min: float | None = None, max: float | None = None) -> "Symbol":
        clamped = self
        if min is not None:
            clamped = clamped._binary("tl.maximum({a}, {b})", float(min))
        if max is not None:
            clamped = clamped._binary("tl.minimum({a}, {b})", float(max))
        return clamped

    def sum(self, dim: int, keepdim: bool = False) -> "Symbol":
        if dim not in (1, -1) or not keepdim or self.row:
            raise Untraceable("a reduction other than over the classes of a row")
        return self.tape.write(self.to(torch.float32).name, "float", True, sums=True)

    def any(self, dim: int, keepdim: bool = False) -> "Symbol":
        return self.sum(dim, keepdim) > 0

    def all(self, dim: int, keepdim: bool = False) -> "Symbol":
        return (~self).sum(dim, keepdim) == 0

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        rule = RULES.get(func.__name__.strip("_"))
        if rule is None:
            raise Untraceable(f"torch function {func.__name__}")
        return rule(*args, **(kwargs or {}))
