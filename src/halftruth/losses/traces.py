"""A loss as a tape, the order of its loops, and programs kept for the next batch.

What `fused` (Triton, for accelerators) and `native` (C, for processors) have in common.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from halftruth.losses.kernel_rules import KernelLogit
from halftruth.losses.tracing import Line, Symbol, Tape

if TYPE_CHECKING:
    from halftruth.losses.base import Loss

KEPT = 1000


class Loop(NamedTuple):
    """One walk over the entries of a row: what is computed, what is summed, what follows from it.

    The last loop of a program sums nothing and computes `value` and `slope`.
    """

    entries: list[Line]
    sums: list[Line]
    after: list[Line]


def trace(loss: "Loss", logits: Tensor, context: Any) -> Tape:
    """What the loss does with a batch of this shape, ending in `value` and `slope`."""
    tape = Tape(*logits.shape)
    s = KernelLogit(Symbol(tape, "z", "float"), loss.eps)  # type: ignore[arg-type]
    labels: Any = Symbol(tape, "y", "int")
    value, slope = loss.terms(s, labels, context, slice(0, logits.shape[0]))
    for name, result in (("value", value), ("slope", slope)):
        tape.lines.append(Line(name, tape.operand(result)[0], False))
    return tape


def loops(lines: list[Line]) -> tuple[list[Line], list[Loop]]:
    """Lines of a row that rest on no sum, and a loop for each depth of sums, then the last.

    A row is read from memory once; the later loops find it in the cache, and compute anew what
    they need of an entry.
    """
    named = {line.name: line for line in lines}
    uses = {line.name: [n for n in re.findall(r"v\d+", line.text) if n in named] for line in lines}
    depth: dict[str, int] = {}
    for line in lines:
        depth[line.name] = max((depth[n] for n in uses[line.name]), default=0) + line.sums

    def entries(targets: list[str]) -> list[Line]:
        """The lines of one value an entry that some targets rest on, in order."""
        wanted: set[str] = set()
        todo = list(targets)
        while todo:
            name = todo.pop()
            if name not in wanted and not named[name].row:
                wanted.add(name)
                todo += uses[name]
        return [line for line in lines if line.name in wanted]

    def row_lines(level: int) -> list[Line]:
        plain = (line for line in lines if line.row and not line.sums)
        return [line for line in plain if depth[line.name] == level]

    found = []
    for level in range(1, 1 + max(depth.values())):
        sums = [line for line in lines if line.sums and depth[line.name] == level]
        summed = entries([name for line in sums for name in uses[line.name]])
        found.append(Loop(summed, sums, row_lines(level)))
    return row_lines(0), [*found, Loop(entries(["value", "slope"]), [], [])]


def settings(loss: "Loss") -> tuple[Any, ...]:
    """Every plain setting of a loss and the losses inside it: what a trace can depend on."""
    kinds = (float, int, bool, str, type(None))
    found: list[Any] = []
    for module in loss.modules():
        found.append(type(module))
        found += [value for value in vars(module).values() if type(value) in kinds]
    return tuple(found)


class Programs:
    """Tape and kernel of a loss as it is set now: traced anew only when a setting has changed."""

    def __init__(self, build: Callable[[Tape], Any]) -> None:
        self.build = build
        self.kept: dict[Any, tuple[Tape, Any]] = {}

    def get(self, loss: "Loss", logits: Tensor, context: Any) -> tuple[Tape, Any]:
        key = (logits.shape, settings(loss)) if context is None else None
        if key in self.kept:
            return self.kept[key]
        tape = trace(loss, logits, context)
        program = self.build(tape)
        # What read tensors may read others the next time.
        if key is not None and not tape.tensors:
            if len(self.kept) >= KEPT:
                self.kept.clear()
            self.kept[key] = tape, program
        return tape, program
