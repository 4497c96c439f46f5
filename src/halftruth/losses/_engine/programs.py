"""Programs of losses: trace a loss, order its loops, and keep the program for the next batch."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from halftruth.losses._engine.tracing import KernelLogit, Line, Symbol, Tape, Untraceable

if TYPE_CHECKING:
    from halftruth.losses.base import Loss

# Kept batch shapes per loss.
KEPT = 100


class Loop(NamedTuple):
    """One loop over the entries of a row: lines per entry, sums, and lines after the sums.

    The last loop of a program has no sums and computes `value` and `slope`.
    """

    entries: list[Line]
    sums: list[Line]
    after: list[Line]


def trace(loss: "Loss", logits: Tensor, context: object) -> Tape:
    """Record the operations of a loss on a batch of this shape, ending in `value` and `slope`.

    Tensors of the context become symbols, so that the tape fits every context of their shapes.
    """
    tape = Tape(*logits.shape)
    context = as_symbols(context, tape)
    s = KernelLogit(Symbol(tape, "z", "float"), loss.eps)  # type: ignore[arg-type]
    labels: Any = Symbol(tape, "y", "int")
    value, slope = loss.terms(s, labels, context, slice(0, logits.shape[0]))
    for name, result in (("value", value), ("slope", slope)):
        tape.lines.append(Line(name, tape.operand(result)[0], False))
    return tape


def loops(lines: list[Line]) -> tuple[list[Line], list[Loop]]:
    """Row lines that depend on no sum, then a loop per depth of sums, then the last loop.

    A row is read from memory once; later loops find it in the cache, and compute values per entry
    again.
    """
    named = {line.name: line for line in lines}
    uses = {line.name: [n for n in re.findall(r"v\d+", line.text) if n in named] for line in lines}
    depth: dict[str, int] = {}
    for line in lines:
        depth[line.name] = max((depth[n] for n in uses[line.name]), default=0) + line.sums

    def entries(targets: list[str]) -> list[Line]:
        """The lines per entry that the targets depend on, in order."""
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


def settings(loss: "Loss") -> tuple[object, ...]:
    """All plain attributes of a loss and of the losses inside it, on which a trace may depend."""
    kinds = (float, int, bool, str, type(None))
    found: list[object] = []
    for module in loss.modules():
        found.append(type(module))
        found += [value for value in vars(module).values() if type(value) in kinds]
    return tuple(found)


class Watched(nn.Module):
    """A module that counts changes of attributes, over all such modules.

    Reading every attribute at every step takes longer than a small batch on a device. While the
    count is the same, no attribute has changed.
    """

    changes: ClassVar[int] = 0

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        Watched.changes += 1

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name)
        Watched.changes += 1

    def add_module(self, name: str, module: nn.Module | None) -> None:
        # Does not call __setattr__.
        super().add_module(name, module)
        Watched.changes += 1


def kind_of_value(context: object) -> object:
    """The dtypes and shapes of a context, on which a program depends."""
    if type(context) is tuple:
        return tuple(map(kind_of_value, context))
    if context is None or isinstance(context, Tensor):
        return None if context is None else (context.dtype, context.shape)
    raise Untraceable(f"a context with {type(context).__name__}")


def tensors_of(context: object) -> list[Tensor]:
    """The tensors of a context, in the order in which `as_symbols` replaces them."""
    if type(context) is tuple:
        return [tensor for part in context for tensor in tensors_of(part)]
    return [context.contiguous()] if isinstance(context, Tensor) else []


def as_symbols(context: object, tape: Tape) -> object:
    """The same context with symbols instead of tensors."""
    if type(context) is tuple:
        return tuple(as_symbols(part, tape) for part in context)
    return tape.symbol(context) if isinstance(context, Tensor) else None


class Known(NamedTuple):
    """The programs of a loss with its current settings, by shape and kind of context.

    None: it cannot be traced.
    """

    changes: int
    settings: tuple[object, ...]
    programs: dict[object, object]


class Programs:
    """Programs of losses; a loss is traced again only after an attribute has changed."""

    def __init__(self, build: Callable[[Tape], object]) -> None:
        self.build = build
        # Not stored in the losses: a loss can be copied and pickled, a program cannot.
        self.known: WeakKeyDictionary[Loss, Known] = WeakKeyDictionary()

    def get(self, loss: "Loss", logits: Tensor, context: object) -> Any:
        """The program for all batches of this shape and kind of context."""
        key = logits.shape, kind_of_value(context)
        known = self.known.get(loss)
        if known is None or known.changes != Watched.changes:
            known = self._look_up(loss, known)
        if key not in known.programs:
            if len(known.programs) >= KEPT:
                known.programs.clear()
            try:
                known.programs[key] = self.build(trace(loss, logits, context))
            except (Untraceable, AttributeError, TypeError):
                known.programs[key] = None
        if known.programs[key] is None:
            raise Untraceable(type(loss).__name__)
        return known.programs[key]

    def _look_up(self, loss: "Loss", known: Known | None) -> Known:
        """The programs of a loss that may have changed."""
        now = settings(loss)
        programs = known.programs if known is not None and known.settings == now else {}
        # A module that does not count its changes must be read every time.
        counted = all(isinstance(module, Watched) for module in loss.modules())
        self.known[loss] = Known(Watched.changes if counted else -1, now, programs)
        return self.known[loss]
