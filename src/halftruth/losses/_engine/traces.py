"""A loss as a tape, the order of its loops, and programs kept for the next batch.

What `fused` (Triton, for accelerators) and `native` (C, for processors) have in common.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from halftruth.losses._engine.kernel_rules import KernelLogit
from halftruth.losses._engine.tracing import Line, Symbol, Tape, Untraceable

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


def trace(loss: "Loss", logits: Tensor, context: Any, symbolic: bool = False) -> Tape:
    """What the loss does with a batch of this shape, ending in `value` and `slope`.

    `symbolic`: also with the tensors of its context, so that the tape is that of every context.
    """
    tape = Tape(*logits.shape)
    context = as_symbols(context, tape) if symbolic else context
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

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        Watched.changes += 1

    def add_module(self, name: str, module: nn.Module | None) -> None:
        # Goes past __setattr__.
        super().add_module(name, module)
        Watched.changes += 1


def is_plain(context: Any) -> bool:
    """Whether it is a tensor, None, or a tuple of such: all that a program can take anew."""
    if type(context) is tuple:
        return all(map(is_plain, context))
    return context is None or isinstance(context, Tensor)


def tensors_of(context: Any) -> list[Tensor]:
    """The tensors of a plain context."""
    if context is None:
        return []
    if isinstance(context, Tensor):
        return [context]
    return [tensor for part in context for tensor in tensors_of(part)]


def kind_of(context: Any) -> Any:
    """What a program depends on: types and shapes, not values."""
    if context is None:
        return None
    if isinstance(context, Tensor):
        return context.dtype, context.shape
    return tuple(map(kind_of, context))


def as_symbols(context: Any, tape: Tape) -> Any:
    """The same context without values."""
    if context is None:
        return None
    if isinstance(context, Tensor):
        return tape.symbol(context)
    return tuple(as_symbols(part, tape) for part in context)


class Known(NamedTuple):
    """What was traced of a loss as it is set, by shape and kind of context; None: in vain."""

    changes: int
    settings: tuple[Any, ...]
    programs: dict[Any, tuple[Tape, Any] | None]


class Programs:
    """Tape and program of a loss as it is set now: traced anew only when a setting has changed."""

    def __init__(self, build: Callable[[Tape], Any]) -> None:
        self.build = build
        # Beside the losses, not in them: a loss can be copied and pickled, a program cannot.
        self.known: WeakKeyDictionary[Loss, Known] = WeakKeyDictionary()

    def get(self, loss: "Loss", logits: Tensor, context: Any) -> tuple[Tape, Any, list[Tensor]]:
        """The tape, the program, and the tensors that it reads of this batch."""
        if context is None or is_plain(context):
            found = self._kept(loss, logits, context)
            if found is not None:
                return *found, [tensor.contiguous() for tensor in tensors_of(context)]
        tape = trace(loss, logits, context)
        return tape, self.build(tape), [tensor for tensor, _ in tape.tensors]

    def _kept(self, loss: "Loss", logits: Tensor, context: Any) -> tuple[Tape, Any] | None:
        known = self.known.get(loss)
        if known is None or known.changes != Watched.changes:
            known = self._looked_up(loss, known)
        key = logits.shape, kind_of(context)
        if key not in known.programs:
            if len(known.programs) >= KEPT:
                known.programs.clear()
            known.programs[key] = self._for_every_batch(loss, logits, context)
        return known.programs[key]

    def _for_every_batch(
        self, loss: "Loss", logits: Tensor, context: Any
    ) -> tuple[Tape, Any] | None:
        """Tape and program if they hold for all batches of the kind."""
        try:
            tape = trace(loss, logits, context, symbolic=True)
        except (Untraceable, AttributeError, TypeError):
            # What a symbol cannot do, the tensors of the batch may.
            return None
        if len(tape.tensors) > len(tensors_of(context)):
            return None  # it reads tensors of the loss, and may read others the next time
        program = self.build(tape)
        # Their types and layouts are of use, their values are of this batch.
        tape.tensors = [(tensor.new_empty(0), layout) for tensor, layout in tape.tensors]
        return tape, program

    def _looked_up(self, loss: "Loss", known: Known | None) -> Known:
        """What is known of a loss that may have been changed."""
        now = settings(loss)
        programs = known.programs if known is not None and known.settings == now else {}
        # A part that does not count its changes has to be looked at every time.
        counted = all(isinstance(module, Watched) for module in loss.modules())
        self.known[loss] = Known(Watched.changes if counted else -1, now, programs)
        return self.known[loss]
