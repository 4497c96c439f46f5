"""Translate the curves of a loss into the source of a kernel, by running them on symbols.

The curves are written once, with torch functions. Run on tensors they are the definition; run on a
`Symbol` they record their operations as lines of Triton. So no method is written twice.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from halftruth.losses._engine.logit import Logit, once

# The line that a torch function records; filled below.
RULES: dict[str, Callable[..., object]] = {}
_DTYPES = {"float": torch.float32, "bool": torch.bool, "int": torch.int8}


class Untraceable(Exception):
    """A loss uses an operation that a kernel cannot express: it is then computed eagerly."""


class Line(NamedTuple):
    """`name = text`: one value per entry, or per row; `sums` marks a sum over a row."""

    name: str
    text: str
    row: bool
    sums: bool = False


@dataclass
class Tape:
    """The recorded lines, the numbers they use, and the kinds and layouts of tensors they read."""

    rows: int
    columns: int
    lines: list[Line] = field(default_factory=list)
    numbers: list[float] = field(default_factory=list)
    tensors: list[tuple[str, str]] = field(default_factory=list)

    def write(self, text: str, kind: str, row: bool, sums: bool = False) -> "Symbol":
        name = f"v{len(self.lines)}"
        self.lines.append(Line(name, text, row, sums))
        return Symbol(self, name, kind, row)

    @property
    def by_row(self) -> bool:
        """Whether entries of a row are summed."""
        return any(line.sums for line in self.lines)

    def operand(self, value: object) -> tuple[str, str, bool]:
        """(text, kind, whether it is one value per row) of an operand of an expression."""
        if isinstance(value, Symbol):
            return value.name, value.kind, value.row
        if isinstance(value, bool | int):
            return repr(value), "int", True
        if isinstance(value, float):
            # An argument of the kernel: a schedule may change it without compiling again.
            self.numbers.append(value)
            return f"c{len(self.numbers) - 1}", "float", True
        # Such as a tensor of the loss, which may be another one in the next batch.
        raise Untraceable(f"operand {type(value).__name__}")

    def symbol(self, value: Tensor) -> "Symbol":
        """A symbol for a tensor that changes with each batch; its operations are recorded, too."""
        shapes = {(): "one", (self.rows, 1): "row", (self.rows, self.columns): "entry"}
        layout = shapes.get(tuple(value.shape))
        if layout is None:
            raise Untraceable(f"tensor of shape {tuple(value.shape)}")
        kind = "float" if value.is_floating_point() else "int"
        kind = "bool" if value.dtype == torch.bool else kind
        self.tensors.append((kind, layout))
        return Symbol(self, f"t{len(self.tensors) - 1}", kind, layout != "entry")


def _operator(
    text: str, kind: str = "float", turned: bool = False
) -> Callable[["Symbol", object], "Symbol"]:
    """A method of `Symbol` that records one operation with another operand."""
    return lambda symbol, other: symbol._binary(text, other, kind, turned)


class Symbol:
    """A placeholder for a tensor: operations on it are recorded on the tape."""

    def __init__(self, tape: Tape, name: str, kind: str, row: bool = False) -> None:
        self.tape, self.name, self.kind, self.row = tape, name, kind, row
        # The name of the boolean behind a number that is 0 or 1.
        self.mask: str | None = None
        self.shape = (tape.rows, 1 if row else tape.columns)
        self.dtype = _DTYPES[kind]
        self.device, self.is_cpu = torch.device("meta"), False

    def _binary(
        self, text: str, other: object, kind: str = "float", turned: bool = False
    ) -> "Symbol":
        name, _, row = self.tape.operand(other)
        a, b = (name, self.name) if turned else (self.name, name)
        return self.tape.write(text.format(a=a, b=b), kind, self.row and row)

    def _unary(self, text: str, kind: str = "float") -> "Symbol":
        return self.tape.write(text.format(a=self.name), kind, self.row)

    __add__ = _operator("{a} + {b}")
    __sub__ = _operator("{a} - {b}")
    __rsub__ = _operator("{a} - {b}", turned=True)
    __mul__ = _operator("{a} * {b}")
    __truediv__ = _operator("{a} / {b}")
    __rtruediv__ = _operator("{a} / {b}", turned=True)
    __gt__ = _operator("{a} > {b}", "bool")
    __ge__ = _operator("{a} >= {b}", "bool")
    __lt__ = _operator("{a} < {b}", "bool")
    __le__ = _operator("{a} <= {b}", "bool")
    __eq__ = _operator("{a} == {b}", "bool")  # type: ignore[assignment]
    __ne__ = _operator("{a} != {b}", "bool")  # type: ignore[assignment]
    __and__ = _operator("{a} & {b}", "bool")
    __or__ = _operator("{a} | {b}", "bool")
    __hash__ = object.__hash__
    __radd__, __rmul__ = __add__, __mul__

    def __pow__(self, other: float) -> "Symbol":
        return self._binary("tl.exp({b} * tl.log({a}))", float(other))

    def __neg__(self) -> "Symbol":
        return self._unary("-{a}")

    def __invert__(self) -> "Symbol":
        return self._unary("{a} == 0", "bool")

    def __bool__(self) -> bool:
        raise Untraceable("a branch on values")

    def __getitem__(self, rows: slice) -> "Symbol":
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

    def __getattr__(self, name: str) -> Callable[..., object]:
        # An in-place operation is a new line here: a symbol is never overwritten.
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
        cls,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        rule = RULES.get(func.__name__.strip("_"))
        if rule is None:
            raise Untraceable(f"torch function {func.__name__}")
        return rule(*args, **(kwargs or {}))


def _call(text: str, *values: object) -> Symbol:
    """Record one line with the operands a, b, c."""
    tape = next(value for value in values if isinstance(value, Symbol)).tape
    operands = [tape.operand(value) for value in values]
    names = dict(zip("abc", (name for name, _, _ in operands), strict=False))
    return tape.write(text.format(**names), "float", all(row for _, _, row in operands))


class KernelLogit(Logit):
    """p, q and their logarithms from one exponential, one reciprocal and one logarithm.

    With more than a few of these three, they limit a kernel, not memory.
    """

    @once
    def tail(self) -> Any:
        """e = exp(-|z|)."""
        return _call("tl.exp(-tl.abs({a}))", self.z)

    @once
    def large(self) -> Any:
        """The larger of p and q."""
        return _call("1.0 / (1.0 + {a})", self.tail)

    @once
    def small(self) -> Any:
        return self.tail * self.large

    @once
    def p(self) -> Any:
        return _call("tl.where({a} >= 0, {b}, {c})", self.z, self.large, self.small)

    @once
    def q(self) -> Any:
        return _call("tl.where({a} >= 0, {c}, {b})", self.z, self.large, self.small)

    @once
    def log1p_tail(self) -> Any:
        """log(1 + e), 0 <= e <= 1."""
        return _call("LOG1P({a}, {b})", self.tail, self.large)

    @once
    def log_p(self) -> Any:
        if self.eps:
            return torch.log(self.p + self.eps)
        return _call("tl.minimum({a}, 0.0) - {b}", self.z, self.log1p_tail)

    @once
    def log_q(self) -> Any:
        if self.eps:
            return torch.log(self.q + self.eps)
        return _call("-tl.maximum({a}, 0.0) - {b}", self.z, self.log1p_tail)

    @once
    def loss_p(self) -> Any:
        return -self.log_p

    @once
    def loss_q(self) -> Any:
        return -self.log_q


def _expm1(x: Symbol) -> Symbol:
    """By its series near 0, where exp(x) - 1 would cancel."""
    series = "{a} * (1.0 + {a} * (0.5 + {a} * (0.16666667 + {a} * (0.041666668 + {a} * "
    series += "(0.008333334 + {a} * (0.0013888889 + {a} * 0.0001984127))))))"
    return _call("tl.where(tl.abs({a}) < 0.4, {b}, tl.exp({a}) - 1.0)", x, _call(series, x))


def _lerp(a: Symbol, b: Symbol, share: Symbol | float) -> Symbol:
    if isinstance(share, Symbol) and share.mask is not None:
        mask = Symbol(share.tape, share.mask, "bool", share.row)
        return _call("tl.where({a}, {b}, {c})", mask, b, a)
    text = "tl.where({c} < 0.5, {a} + {c} * ({b} - {a}), {b} - ({b} - {a}) * (1.0 - {c}))"
    return _call(text, a, b, share)


def _addcmul(a: Symbol, b: Symbol, c: Symbol, value: float = 1) -> Symbol:
    return a + (b * c if value == 1 else b * c * float(value))


RULES.update(
    {
        "sigmoid": lambda x: _call("1.0 / (1.0 + tl.exp(-{a}))", x),
        "logsigmoid": lambda z: KernelLogit(z).log_p,
        "log_sigmoid": lambda z: KernelLogit(z).log_p,
        "softplus": lambda z, threshold: -KernelLogit(z).log_q,
        "neg": lambda x: -x,
        "square": lambda x: x * x,
        "clamp": Symbol.clamp,
        "exp": lambda x: _call("tl.exp({a})", x),
        "log": lambda x: _call("tl.log({a})", x),
        "expm1": _expm1,
        "lerp": _lerp,
        "where": lambda c, a, b: _call("tl.where({a}, {b}, {c})", c, a, b),
        "addcmul": _addcmul,
        "zeros_like": lambda x: _call("{a} * 0.0", x),
        "ones_like": lambda x: _call("{a} * 0.0 + 1.0", x),
        "add": lambda a, b: _call("{a} + {b}", a, b),
        "mul": lambda a, b: _call("{a} * {b}", a, b),
        "sub": lambda a, b: _call("{a} - {b}", a, b),
        "rsub": lambda a, b, alpha=1: _call("{b} - {a}", a * alpha, b),
        "div": lambda a, b: _call("{a} / {b}", a, b),
    }
)
