"""A loss as a tape, the order of its loops, and programs kept for the next batch.

What `fused` (Triton, for accelerators) and `native` (C, for processors) have in common.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from halftruth.losses.kernel_rules import KernelLogit
from halftruth.losses.tracing import Line, Symbol, Tape

if TYPE_CHECKING:
    from halftruth.losses.base import Loss

# Shapes of batches, for each loss.
KEPT = 100


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


class Watched(nn.Module):
    """A module that counts changes of its attributes, over all of its kind.

    To read every setting at every step takes longer than a small batch does on a device; while the
    count stands still, none of them can have changed.
    """

    changes: ClassVar[int] = 0

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        Watched.changes += 1


class Known(NamedTuple):
    """What was traced of a loss as it is set, by shape."""

    changes: int
    settings: tuple[Any, ...]
    programs: dict[torch.Size, tuple[Tape, Any]]


class Programs:
    """Tape and program of a loss as it is set now: traced anew only when a setting has changed."""

    def __init__(self, build: Callable[[Tape], Any]) -> None:
        self.build = build
        # Beside the losses, not in them: a loss can be copied and pickled, a program cannot.
        self.known: WeakKeyDictionary[Loss, Known] = WeakKeyDictionary()

    def get(self, loss: "Loss", logits: Tensor, context: Any) -> tuple[Tape, Any]:
        if context is not None:
            return self._made(loss, logits, context)
        known = self.known.get(loss)
        if known is None or known.changes != Watched.changes:
            known = self._looked_up(loss, known)
        found = known.programs.get(logits.shape)
        if found is None:
            found = self._made(loss, logits, context)
            # What read tensors may read others the next time.
            if not found[0].tensors:
                if len(known.programs) >= KEPT:
                    known.programs.clear()
                known.programs[logits.shape] = found
        return found

    def _made(self, loss: "Loss", logits: Tensor, context: Any) -> tuple[Tape, Any]:
        tape = trace(loss, logits, context)
        return tape, self.build(tape)

    def _looked_up(self, loss: "Loss", known: Known | None) -> Known:
        """What is known of a loss that may have been changed."""
        now = settings(loss)
        programs = known.programs if known is not None and known.settings == now else {}
        # A part that does not count its changes has to be looked at every time.
        counted = all(isinstance(module, Watched) for module in loss.modules())
        self.known[loss] = Known(Watched.changes if counted else -1, now, programs)
        return self.known[loss]
