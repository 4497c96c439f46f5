"""One kernel a loss: logits and labels are read once, value and gradient written once.

Used on CUDA devices where Triton is installed. The kernel's body is what `tracing` wrote down
while the curves ran on symbols; its source is compiled once a structure, and the numbers of a
schedule are arguments.
"""

import importlib.util
import linecache
import re
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from halftruth.losses.kernel_rules import KernelLogit
from halftruth.losses.tracing import Line, Symbol, Tape

if TYPE_CHECKING:
    from halftruth.losses.base import Loss

# Entries of a program, and how many make a pass over them worth avoiding.
FLAT, SMALL = 2048, 1 << 20

_START = """
row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
lane = tl.arange(0, BLOCK)[None, :]
total = 0.0
"""
_LOOP = """
for first in range(0, columns, BLOCK):
    column = first + lane
    at = row * columns + column
    mask = (row < rows) & (column < columns)
"""
_FLAT = """
at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
row = at // columns
mask = at < rows * columns.to(tl.int64)
"""
_READ = """
z = tl.load(z_at + at, mask=mask, other=0).to(tl.float32)
y = tl.load(y_at + at, mask=mask, other=0).to(tl.int32)
"""
_LOADS = {
    "one": "tl.load({pointer})",
    "row": "tl.load({pointer} + row, mask=row < rows, other=0)",
    "entry": "tl.load({pointer} + at, mask=mask, other=0)",
}


@cache
def available() -> bool:
    """Whether Triton can be imported at all."""
    return importlib.util.find_spec("triton") is not None


def fits(logits: Tensor) -> bool:
    """Whether a kernel can take these logits."""
    return logits.is_cuda and logits.dtype != torch.float64 and logits.numel() > 0 and available()


def trace(loss: "Loss", logits: Tensor, context: Any) -> Tape:
    """What the loss does with a batch of this shape, ending in `value` and `slope`."""
    tape = Tape(*logits.shape)
    s = KernelLogit(Symbol(tape, "z", "float"), loss.eps)  # type: ignore[arg-type]
    labels: Any = Symbol(tape, "y", "int")
    value, slope = loss.terms(s, labels, context, slice(0, logits.shape[0]))
    for name, result in (("value", value), ("slope", slope)):
        tape.lines.append(Line(name, tape.operand(result)[0], False))
    return tape


def source(lines: tuple[Line, ...], numbers: int, layouts: tuple[str, ...]) -> str:
    """The kernel as text: flat over all entries, or row by row where rows are summed."""
    arguments = ["z_at", "y_at", "slope_at", "sum_at", "rows", "columns", "scale"]
    arguments += [f"c{i}" for i in range(numbers)] + [f"t{i}_at" for i in range(len(layouts))]
    arguments += ["WANT: tl.constexpr", "ROWS: tl.constexpr", "BLOCK: tl.constexpr"]
    loads = [
        (layout, f"t{i} = {_LOADS[layout].format(pointer=f't{i}_at')}")
        for i, layout in enumerate(layouts)
    ]
    write = ["if WANT:", "    tl.store(slope_at + at, slope * scale, mask=mask)"]
    if any(line.sums for line in lines):
        body = _by_row(lines, loads, write)
    else:
        body = [*_text(_FLAT), *_text(_READ), *(load for _, load in loads)]
        body += [f"{line.name} = {line.text}" for line in lines]
        body += [*write, "total = tl.sum(tl.where(mask, value, 0.0), axis=0)"]
    body += ["tl.store(sum_at + tl.program_id(0), total * scale)"]
    head = f"def kernel({', '.join(arguments)}):"
    return "\n".join(["@triton.jit", head, *(f"    {line}" for line in body), ""])


def _by_row(lines: tuple[Line, ...], loads: list[tuple[str, str]], write: list[str]) -> list[str]:
    """A loop over a row for each depth of sums, then one for value and slope.

    A row is read from memory once; the later loops find it in the cache.
    """
    named = {line.name: line for line in lines}
    uses = {line.name: [n for n in re.findall(r"v\d+", line.text) if n in named] for line in lines}
    depth: dict[str, int] = {}
    for line in lines:
        depth[line.name] = max((depth[n] for n in uses[line.name]), default=0) + line.sums

    def entries(targets: list[str]) -> list[str]:
        """The lines of one value an entry that some targets rest on, in order."""
        wanted: set[str] = set()
        todo = list(targets)
        while todo:
            name = todo.pop()
            if name not in wanted and not named[name].row:
                wanted.add(name)
                todo += uses[name]
        return [f"{line.name} = {line.text}" for line in lines if line.name in wanted]

    def loop(inside: list[str]) -> list[str]:
        reads = [load for layout, load in loads if layout == "entry"]
        return [*_text(_LOOP), *(f"    {line}" for line in [*_text(_READ), *reads, *inside])]

    body = [*_text(_START), *(load for layout, load in loads if layout != "entry")]
    for level in range(1 + max(depth.values())):
        sums = [line for line in lines if line.sums and depth[line.name] == level]
        body += [f"{line.name} = tl.zeros([ROWS, 1], tl.float32)" for line in sums]
        if sums:
            adds = [
                f"{line.name} += tl.sum(tl.where(mask, {line.text}, 0.0), axis=1, keep_dims=True)"
                for line in sums
            ]
            body += loop([*entries([name for line in sums for name in uses[line.name]]), *adds])
        body += [
            f"{line.name} = {line.text}"
            for line in lines
            if line.row and not line.sums and depth[line.name] == level
        ]
    add = "total += tl.sum(tl.sum(tl.where(mask, value, 0.0), axis=1), axis=0)"
    return [*body, *loop([*entries(["value", "slope"]), *write, add])]


def _text(block: str) -> list[str]:
    return block.strip().splitlines()


_programs: dict[Any, tuple[Tape, Any]] = {}


def program(loss: "Loss", logits: Tensor, context: Any) -> tuple[Tape, Any]:
    """Tape and kernel of a loss as it is set now: traced anew only when a setting has changed."""
    key = (logits.shape, settings(loss)) if context is None else None
    if key in _programs:
        return _programs[key]
    tape = trace(loss, logits, context)
    layouts = tuple(layout for _, layout in tape.tensors)
    kernel = kernel_from(source(tuple(tape.lines), len(tape.numbers), layouts))
    # What read tensors may read others the next time.
    if key is not None and not tape.tensors:
        if len(_programs) > 1000:
            _programs.clear()
        _programs[key] = tape, kernel
    return tape, kernel


def settings(loss: "Loss") -> tuple[Any, ...]:
    """Every plain setting of a loss and the losses inside it: what a trace can depend on."""
    kinds = (float, int, bool, str, type(None))
    found: list[Any] = []
    for module in loss.modules():
        found.append(type(module))
        found += [value for value in vars(module).values() if type(value) in kinds]
    return tuple(found)


def run(
    loss: "Loss", logits: Tensor, labels: Tensor, context: Any, scale: float, want_slope: bool
) -> tuple[Tensor, Tensor | None]:
    """scale · sum, and scale · slope of every entry, in one pass."""
    tape, kernel = program(loss, logits, context)
    rows, columns = logits.shape
    logits, labels = logits.contiguous(), labels.contiguous()
    if tape.by_row:
        block = min(1 << (columns - 1).bit_length(), FLAT)
        rows_each = min(FLAT // block, 1 << (rows - 1).bit_length())
        programs = -(-rows // rows_each)
    else:
        block, rows_each = FLAT, 1
        programs = -(-logits.numel() // block)
    sums = torch.empty(programs, dtype=torch.float32, device=logits.device)
    slopes = torch.empty_like(logits, dtype=torch.float32) if want_slope else None
    kernel[(programs,)](
        logits,
        labels,
        sums if slopes is None else slopes,
        sums,
        rows,
        columns,
        scale,
        *tape.numbers,
        *(tensor for tensor, _ in tape.tensors),
        WANT=want_slope,
        ROWS=rows_each,
        BLOCK=block,
        num_warps=4,
    )
    return (sums[0] if programs == 1 else sums.sum()), slopes


def multiply_(slopes: Tensor, factor: Tensor) -> Tensor:
    """slopes · factor in place; the usual factor 1 is found out on the device and costs no pass."""
    if not slopes.is_cuda or slopes.numel() < SMALL or not available():
        return slopes.mul_(factor)
    programs = -(-slopes.numel() // FLAT)
    kernel_from(_MULTIPLY)[(programs,)](slopes, factor, slopes.numel(), BLOCK=FLAT)
    return slopes


_MULTIPLY = """
@triton.jit
def kernel(slope_at, factor_at, count, BLOCK: tl.constexpr):
    factor = tl.load(factor_at)
    if factor != 1.0:
        at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        slope = tl.load(slope_at + at, mask=at < count, other=0)
        tl.store(slope_at + at, slope * factor, mask=at < count)
"""


@cache
def kernel_from(text: str) -> Any:
    """The kernel of a source; Triton reads it again, so it is made to look like a file."""
    import triton
    import triton.language as tl

    name = f"<halftruth kernel {hash(text) & 0xFFFFFFFF:08x}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    scope: dict[str, Any] = {"triton": triton, "tl": tl, "__name__": __name__}
    exec(compile(text, name, "exec"), scope)
    return scope["kernel"]
