"""What torch's functions, and a logit's parts, become in a kernel."""

from typing import Any

import torch

from halftruth.losses._engine.logit import Logit, once
from halftruth.losses._engine.tracing import RULES, Symbol


def _symbol(*values: Any) -> Symbol:
    return next(value for value in values if isinstance(value, Symbol))


def _call(text: str, *values: Any) -> Symbol:
    """One line over several operands a, b, c."""
    tape = _symbol(*values).tape
    operands = [tape.operand(value) for value in values]
    names = dict(zip("abc", (name for name, _, _ in operands), strict=False))
    return tape.write(text.format(**names), "float", all(row for _, _, row in operands))


class KernelLogit(Logit):
    """p, q and their logarithms from one exponential, one reciprocal and one logarithm.

    A kernel is limited by these three, not by memory, once there are more than a few of them.
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
        """log(1 + e) of 0 <= e <= 1."""
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


def _expm1(x: Any) -> Symbol:
    """By its series near 0, where exp(x) - 1 would cancel."""
    series = "{a} * (1.0 + {a} * (0.5 + {a} * (0.16666667 + {a} * (0.041666668 + {a} * "
    series += "(0.008333334 + {a} * (0.0013888889 + {a} * 0.0001984127))))))"
    return _call("tl.where(tl.abs({a}) < 0.4, {b}, tl.exp({a}) - 1.0)", x, _call(series, x))


def _lerp(a: Any, b: Any, share: Any) -> Symbol:
    if isinstance(share, Symbol) and share.mask is not None:
        mask = Symbol(share.tape, share.mask, "bool", share.row)
        return _call("tl.where({a}, {b}, {c})", mask, b, a)
    text = "tl.where({c} < 0.5, {a} + {c} * ({b} - {a}), {b} - ({b} - {a}) * (1.0 - {c}))"
    return _call(text, a, b, share)


def _addcmul(a: Any, b: Any, c: Any, value: float = 1) -> Symbol:
    return a + (b * c if value == 1 else b * c * float(value))


RULES |= {
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
    "truediv": lambda a, b: _call("{a} / {b}", a, b),
    "le": lambda a, b: _symbol(a, b)._binary("{a} >= {b}", a, "bool"),
    "lt": lambda a, b: _symbol(a, b)._binary("{a} > {b}", a, "bool"),
    "ge": lambda a, b: _symbol(a, b)._binary("{a} <= {b}", a, "bool"),
    "gt": lambda a, b: _symbol(a, b)._binary("{a} < {b}", a, "bool"),
}
