"""One Triton kernel per loss: logits and labels are read once, value and gradient written once.

Used on CUDA devices where Triton is installed. The body of the kernel is the code that `tracing`
recorded while the curves ran on symbols. Each structure is compiled once; the numbers of a
schedule are arguments.
"""

import importlib.util
import linecache
import re
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from halftruth.losses._engine.programs import Programs, loops, tensors_of
from halftruth.losses._engine.tracing import Line, Tape

if TYPE_CHECKING:
    from halftruth.losses.base import Loss

# Entries per program, and the size from which on it is worth avoiding a pass over them.
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
_AS_FLOAT = ".to(tl.float32)"


@cache
def available() -> bool:
    """Whether Triton is installed."""
    return importlib.util.find_spec("triton") is not None


def fits(logits: Tensor) -> bool:
    """Whether a kernel can take these logits."""
    return logits.is_cuda and logits.dtype != torch.float64 and logits.numel() > 0 and available()


def source(tape: Tape) -> str:
    """The source of the kernel: flat over all entries, or row by row where rows are summed."""
    lines = tuple(tape.lines)
    arguments = ["z_at", "y_at", "slope_at", "sum_at", "rows", "columns", "scale"]
    arguments += [f"c{i}" for i in range(len(tape.numbers))]
    arguments += [f"t{i}_at" for i in range(len(tape.tensors))]
    arguments += ["WANT: tl.constexpr", "ROWS: tl.constexpr", "BLOCK: tl.constexpr"]
    loads = []
    for i, (kind, layout) in enumerate(tape.tensors):
        load = _LOADS[layout].format(pointer=f"t{i}_at")
        loads.append((layout, f"t{i} = {load}{_AS_FLOAT * (kind == 'float')}"))
    write = ["if WANT:", "    tl.store(slope_at + at, slope * scale, mask=mask)"]
    if any(line.sums for line in lines):
        body = _by_row(lines, loads, write)
    else:
        body = [*_text(_FLAT), *_text(_READ), *(load for _, load in loads)]
        body += _assigned(lines)
        body += [*write, "total = tl.sum(tl.where(mask, value, 0.0), axis=0)"]
    body += ["tl.store(sum_at + tl.program_id(0), total * scale)"]
    head = f"def kernel({', '.join(arguments)}):"
    return "\n".join(["@triton.jit", head, *(f"    {line}" for line in body), ""])


def _by_row(lines: tuple[Line, ...], loads: list[tuple[str, str]], write: list[str]) -> list[str]:
    """The loops over a row: one per depth of sums, then one for value and slope."""

    def loop(inside: list[str]) -> list[str]:
        reads = [load for layout, load in loads if layout == "entry"]
        return [*_text(_LOOP), *(f"    {line}" for line in [*_text(_READ), *reads, *inside])]

    first, walks = loops(list(lines))
    body = [*_text(_START), *(load for layout, load in loads if layout != "entry")]
    body += _assigned(first)
    for entries, sums, after in walks[:-1]:
        adds = [
            f"{line.name} += "
            f"tl.sum(tl.where(mask, {_triton(line.text)}, 0.0), axis=1, keep_dims=True)"
            for line in sums
        ]
        body += [f"{line.name} = tl.zeros([ROWS, 1], tl.float32)" for line in sums]
        body += [*loop([*_assigned(entries), *adds]), *_assigned(after)]
    add = "total += tl.sum(tl.sum(tl.where(mask, value, 0.0), axis=1), axis=0)"
    return [*body, *loop([*_assigned(walks[-1].entries), *write, add])]


def _assigned(lines: Iterable[Line]) -> list[str]:
    return [f"{line.name} = {_triton(line.text)}" for line in lines]


def _triton(text: str) -> str:
    """log(1 + e), with r = 1/(1 + e); the rounding error of 1 + e is corrected to first order."""
    return re.sub(
        r"LOG1P\((\w+), (\w+)\)", r"tl.log(1.0 + \1) + (\1 - ((1.0 + \1) - 1.0)) * \2", text
    )


def _text(block: str) -> list[str]:
    return block.strip().splitlines()


class Kernel:
    """A compiled source, launched without Triton's own search for the right variant.

    That search takes longer than a small batch on the device. It depends on dtypes, sizes and
    alignment, the `kind` here, so the first launch of a kind finds the variant for the next ones.
    """

    def __init__(self, text: str) -> None:
        self.jit = kernel_from(text)
        self.variants: dict[object, Any] = {}

    def launch(self, kind: object, grid: int, arguments: tuple[Any, ...], **constants: int) -> None:
        device = arguments[0].get_device()
        if device >= 0 and device != torch.cuda.current_device():
            with torch.cuda.device(device):
                return self.launch(kind, grid, arguments, **constants)
        variant = self.variants.get((device, kind))
        if variant is None:
            # None from Triton's interpreter, which has no variants.
            variant = self.jit[(grid,)](*arguments, **constants, num_warps=4)
            self.variants[device, kind] = variant
            return
        # The same as `variant[grid](...)`, without a search for hooks.
        variant.run(
            grid, 1, 1, torch._C._cuda_getCurrentRawStream(device), variant.function,
            variant.packed_metadata, None, None, None, *arguments, *constants.values(),
        )  # fmt: skip


class Program:
    """The kernel of a tape, and its grid over a batch."""

    def __init__(self, tape: Tape) -> None:
        self.kernel = kernel(source(tape))
        self.sizes, self.numbers = (tape.rows, tape.columns), tuple(tape.numbers)
        if tape.by_row:
            self.block = min(1 << (tape.columns - 1).bit_length(), FLAT)
            self.rows_each = min(FLAT // self.block, 1 << (tape.rows - 1).bit_length())
            self.grid = -(-tape.rows // self.rows_each)
        else:
            self.block, self.rows_each = FLAT, 1
            self.grid = -(-tape.rows * tape.columns // self.block)


def _kind(tensor: Tensor) -> tuple[torch.dtype, bool]:
    """The dtype and alignment, on which a variant of a kernel depends."""
    return tensor.dtype, tensor.data_ptr() % 16 == 0


programs = Programs(Program)


def run_kernel(
    loss: "Loss", logits: Tensor, labels: Tensor, context: object, scale: float, want_slope: bool
) -> tuple[Tensor, Tensor | None]:
    """scale · sum, and scale · slope of every entry, in one pass."""
    program, tensors = programs.get(loss, logits, context), tensors_of(context)
    logits, labels = logits.contiguous(), labels.contiguous()
    grid = program.grid
    sums = logits.new_empty(() if grid == 1 else grid, dtype=torch.float32)
    slopes = torch.empty_like(logits, dtype=torch.float32) if want_slope else None
    target = sums if slopes is None else slopes
    kind = (program.sizes, want_slope, *map(_kind, (logits, labels, *tensors)))
    given = (*program.sizes, scale, *program.numbers, *tensors)
    arguments = (logits, labels, target, sums, *given)
    program.kernel.launch(
        kind, grid, arguments, WANT=want_slope, ROWS=program.rows_each, BLOCK=program.block
    )
    return (sums if grid == 1 else sums.sum()), slopes


def multiply_(slopes: Tensor, factor: Tensor) -> Tensor:
    """slopes · factor in place; the device checks for the usual factor 1, which costs no pass."""
    if not slopes.is_cuda:
        return slopes if slopes.device.type == "cpu" and factor.item() == 1 else slopes.mul_(factor)
    if slopes.numel() < SMALL or not available():
        return slopes.mul_(factor)
    # Few programs with much work each: with a factor of 1 they end at once.
    count = slopes.numel()
    grid = min(-(-count // FLAT), 2048)
    kind = count, _kind(slopes), _kind(factor)
    kernel(_MULTIPLY).launch(kind, grid, (slopes, factor, count), BLOCK=FLAT)
    return slopes


_MULTIPLY = """
@triton.jit
def kernel(slope_at, factor_at, count, BLOCK: tl.constexpr):
    factor = tl.load(factor_at)
    if factor != 1.0:
        start = tl.program_id(0).to(tl.int64) * BLOCK
        for first in range(start, count, tl.num_programs(0).to(tl.int64) * BLOCK):
            at = first + tl.arange(0, BLOCK)
            slope = tl.load(slope_at + at, mask=at < count, other=0)
            tl.store(slope_at + at, slope * factor, mask=at < count)
"""


@cache
def kernel(text: str) -> Kernel:
    """The kernel of a source, one object per source, so that variants are found once."""
    return Kernel(text)


def kernel_from(text: str) -> Any:
    """Compile a source. Triton reads it again, so it is registered like a file."""
    import triton
    import triton.language as tl

    name = f"<halftruth kernel {hash(text) & 0xFFFFFFFF:08x}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    scope: dict[str, object] = {"triton": triton, "tl": tl, "__name__": __name__}
    exec(compile(text, name, "exec"), scope)
    return scope["kernel"]
