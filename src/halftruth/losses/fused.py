"""One kernel a loss: logits and labels are read once, value and gradient written once.

Used on CUDA devices where Triton is installed. The kernel's body is what `tracing` wrote down
while the curves ran on symbols; its source is compiled once a structure, and the numbers of a
schedule are arguments.
"""

import importlib.util
import linecache
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from halftruth.losses.curves import Logit
from halftruth.losses.tracing import Symbol, Tape, Untraceable

if TYPE_CHECKING:
    from halftruth.losses.base import Loss

# Entries of a program where every entry is by itself, and the widest row that one can hold.
FLAT, WIDEST = 2048, 16384

_FLAT = """
at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
row = at // columns
mask = at < rows * columns.to(tl.int64)
"""
_BY_ROW = """
row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
column = tl.arange(0, BLOCK)[None, :]
at = row * columns + column
mask = (row < rows) & (column < columns)
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
    s = Logit(Symbol(tape, "z", "float"), loss.eps)  # type: ignore[arg-type]
    labels: Any = Symbol(tape, "y", "int")
    value, slope = loss.terms(s, labels, context, slice(0, logits.shape[0]))
    tape.lines += [f"value = {tape.operand(value)[0]}", f"slope = {tape.operand(slope)[0]}"]
    if tape.by_row and logits.shape[1] > WIDEST:
        raise Untraceable("a row too wide for one program")
    return tape


def source(
    tape_lines: tuple[str, ...], numbers: int, layouts: tuple[str, ...], by_row: bool
) -> str:
    """The kernel as text."""
    arguments = ["z_at", "y_at", "slope_at", "sum_at", "rows", "columns", "scale"]
    arguments += [f"c{i}" for i in range(numbers)] + [f"t{i}_at" for i in range(len(layouts))]
    arguments += ["WANT: tl.constexpr", "ROWS: tl.constexpr", "BLOCK: tl.constexpr"]
    body = (_BY_ROW if by_row else _FLAT).strip().splitlines()
    body += [
        "z = tl.load(z_at + at, mask=mask, other=0).to(tl.float32)",
        "y = tl.load(y_at + at, mask=mask, other=0).to(tl.int32)",
    ]
    body += [
        f"t{i} = {_LOADS[layout].format(pointer=f't{i}_at')}" for i, layout in enumerate(layouts)
    ]
    body += list(tape_lines)
    body += ["if WANT:", "    tl.store(slope_at + at, slope * scale, mask=mask)"]
    total = "tl.sum(tl.sum(tl.where(mask, value, 0.0), axis=1), axis=0)"
    total = total if by_row else "tl.sum(tl.where(mask, value, 0.0), axis=0)"
    body += [f"tl.store(sum_at + tl.program_id(0), {total} * scale)"]
    lines = [f"def kernel({', '.join(arguments)}):", *(f"    {line}" for line in body)]
    return "\n".join(["@triton.jit", *lines, ""])


@lru_cache(maxsize=256)
def compiled(
    tape_lines: tuple[str, ...], numbers: int, layouts: tuple[str, ...], by_row: bool
) -> Any:
    """The kernel of a structure; Triton reads its source, so it is made to look like a file."""
    import triton
    import triton.language as tl

    text = source(tape_lines, numbers, layouts, by_row)
    name = f"<halftruth kernel {hash((tape_lines, layouts, by_row)) & 0xFFFFFFFF:08x}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    scope: dict[str, Any] = {"triton": triton, "tl": tl, "__name__": __name__}
    exec(compile(text, name, "exec"), scope)
    return scope["kernel"]


_programs: dict[Any, tuple[Tape, Any]] = {}


def program(loss: "Loss", logits: Tensor, context: Any) -> tuple[Tape, Any]:
    """Tape and kernel of a loss as it is set now: traced anew only when a setting has changed."""
    key = (logits.shape, settings(loss)) if context is None else None
    if key in _programs:
        return _programs[key]
    tape = trace(loss, logits, context)
    layouts = tuple(layout for _, layout in tape.tensors)
    kernel = compiled(tuple(tape.lines), len(tape.numbers), layouts, tape.by_row)
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
        block = 1 << (columns - 1).bit_length()
        rows_each = max(FLAT // block, 1)
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
        num_warps=min(max(block * rows_each // 512, 4), 16),
    )
    total = sums[0] if programs == 1 else sums.sum(dtype=torch.float64).float()
    return total, slopes
