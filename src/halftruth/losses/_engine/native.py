"""One C loop per loss, for CPUs, generated like the Triton kernel for GPUs.

Eager torch reads the batch once per operation, and its temporary tensors cost more than the
arithmetic. Here the tape of a loss (`tracing`) becomes a C function that the machine's compiler
vectorises: logits and labels are read once, value and gradient written once, and nothing else is
allocated. Each structure is compiled once, in about half a second, and kept in the user's cache
folder. Without a compiler, or with HALFTRUTH_NATIVE=0, the curves are computed with torch.
"""

import contextlib
import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from halftruth.losses._engine.programs import Programs, loops
from halftruth.losses._engine.tracing import Line, Tape, Untraceable

if TYPE_CHECKING:
    from halftruth.losses.base import Loss

# Smaller batches are not worth compiling; the entries per thread; the largest number of threads.
# Threads are started for each batch: waking a pool takes as long, and an idle pool costs time.
ENOUGH, A_THREAD, MOST = 1 << 14, 1 << 18, 64
# Entries that are added up in float32 before the sum goes on in float64.
CHUNK = 128
FLAGS = (
    "-std=gnu11", "-O3", "-fPIC", "-shared", "-ffp-contract=fast", "-fno-math-errno",
    "-fno-trapping-math", "-fsingle-precision-constant", "-fopenmp-simd", "-pthread",
    f"-DMOST={MOST}",
)  # fmt: skip
_TYPES = {
    torch.float32: "float", torch.int8: "int8_t", torch.bool: "uint8_t",
    torch.int32: "int32_t", torch.int64: "int64_t",
}  # fmt: skip
_HEAD = """
static inline __attribute__((always_inline)) double walk(
    const float *restrict z_at, const int8_t *restrict y_at, float *restrict slope_at,
    int64_t first, int64_t last, int64_t columns, float scale,
    const float *restrict c, void *const *restrict t, const int want)
"""


def fits(logits: Tensor, labels: Tensor) -> bool:
    """Whether a compiled loop can take this batch."""
    return (
        logits.device.type == "cpu"
        and logits.dtype == torch.float32
        and logits.numel() >= ENOUGH
        and labels.dtype == torch.int8
        and compiler() is not None
    )


@cache
def compiler() -> str | None:
    """The C compiler of the machine, if there is one and it may be used."""
    if os.environ.get("HALFTRUTH_NATIVE", "1") == "0" or sys.platform == "win32":
        return None
    named = os.environ.get("CC", "cc").split()
    return next(
        (path for name in (*named[:1], "gcc", "clang") if (path := shutil.which(name))), None
    )


def source(tape: Tape) -> str:
    """The C function of a tape: flat over all entries, or row by row where rows are summed."""
    at = {"one": "0", "row": "row", "entry": "at"}
    loads: dict[str, list[str]] = {layout: [] for layout in at}
    for i, (tensor, layout) in enumerate(tape.tensors):
        kind = _TYPES[_plain(tensor).dtype]
        loads[layout].append(f"const {kind} t{i} = (({kind} *)t[{i}])[{at[layout]}];")
    first, walks = loops(tape.lines)
    read = ["const float z = z_at[at];", "const int32_t y = y_at[at];", *loads["entry"]]
    body = [f"const float c{i} = c[{i}];" for i in range(len(tape.numbers))]
    body += [*loads["one"], "double total = 0;"]
    inside = [*loads["row"], *_assigned(first)]
    for entries, sums, after in walks[:-1]:
        inside += [f"double sum_{line.name} = 0;" for line in sums]
        adds = [f"part_{line.name} += {_c(line.text)};" for line in sums]
        inside += _loop([line.name for line in sums], [*read, *_assigned(entries), *adds])
        inside += [f"const float {line.name} = (float)sum_{line.name};" for line in sums]
        inside += _assigned(after)
    write = ["if (want) slope_at[at] = slope * scale;", "part_value += value;"]
    last = _loop(["value"], [*read, *_assigned(walks[-1].entries), *write])
    if by_row(tape):
        body += ["for (int64_t row = first; row < last; row++) {", "double sum_value = 0;"]
        body += ["const int64_t start = row * columns, end = start + columns;"]
        body += [*inside, *last, "total += sum_value;", "}"]
    else:
        body += ["double sum_value = 0;", "const int64_t start = first, end = last;"]
        body += [*inside, *last, "total = sum_value;"]
    return "\n".join([_HEAD.strip(), "{", *body, "return total;", "}", ""])


def by_row(tape: Tape) -> bool:
    """Whether entries depend on their row."""
    return tape.by_row or any(layout == "row" for _, layout in tape.tensors)


def _loop(sums: list[str], inside: list[str]) -> list[str]:
    """A loop over start..end in chunks; each adds its `part_` sums to the `sum_` variables."""
    parts = [f"part_{name}" for name in sums]
    return [
        f"for (int64_t chunk = start; chunk < end; chunk += {CHUNK}) {{",
        f"const int64_t stop = chunk + {CHUNK} < end ? chunk + {CHUNK} : end;",
        *(f"float {part} = 0;" for part in parts),
        f"#pragma omp simd reduction(+:{', '.join(parts)})",
        "for (int64_t at = chunk; at < stop; at++) {",
        *inside,
        "}",
        *(f"sum_{name} += part_{name};" for name in sums),
        "}",
    ]


def _assigned(lines: Iterable[Line]) -> list[str]:
    return [f"const __auto_type {line.name} = {_c(line.text)};" for line in lines]


def _c(text: str) -> str:
    return text.replace("tl.", "ht_").replace("LOG1P", "ht_LOG1P")


def _plain(tensor: Tensor) -> Tensor:
    """Convert a tensor to a dtype that the C code reads."""
    if tensor.dtype in _TYPES:
        return tensor
    if tensor.is_floating_point():
        return tensor.float()
    raise Untraceable(f"tensor of type {tensor.dtype}")


@cache
def _processor() -> str:
    """The processor features that compiled code depends on: machines may share a home folder."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        wanted = ("flags", "Features", "model", "CPU part")
        return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))
    return f"{platform.node()} {platform.machine()} {platform.processor()}"


def _cache_folder() -> Path:
    named = os.environ.get("HALFTRUTH_CACHE")
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "halftruth"
    return (Path(named) if named else home) / "kernels"


@cache
def load_or_compile(text: str) -> Callable[..., float] | None:
    """The function of a source, from the cache folder or the compiler; None if neither works."""
    command = compiler()
    if command is None:
        return None
    arm = platform.machine().lower() in ("arm64", "aarch64")
    flags = (*FLAGS, "-mcpu=native" if arm else "-march=native")
    whole = Path(__file__).with_name("native.c").read_text().replace("/*GENERATED*/", text)
    key = "\n".join([whole, command, *flags, _processor()])
    name = hashlib.sha256(key.encode()).hexdigest()[:32]
    try:
        folder = _cache_folder()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        library = folder / f"{name}.so"
        if not library.exists():
            _compile(command, flags, whole, library)
        function = ctypes.CDLL(str(library)).run
    except (OSError, RuntimeError, subprocess.SubprocessError):
        return None
    function.restype = ctypes.c_double
    pointer, long = ctypes.c_void_p, ctypes.c_int64
    function.argtypes = [
        pointer, pointer, pointer, long, long, ctypes.c_double, pointer, pointer, long,
    ]  # fmt: skip
    return function  # type: ignore[no-any-return]


def _compile(command: str, flags: tuple[str, ...], text: str, library: Path) -> None:
    """Compile into a temporary file first: another process may be compiling the same source."""
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        code, made = Path(folder) / "loss.c", Path(folder) / "loss.so"
        code.write_text(text)
        subprocess.run(
            [command, *flags, str(code), "-o", str(made), "-lm"],
            check=True, capture_output=True, timeout=120,
        )  # fmt: skip
        made.replace(library)


programs = Programs(lambda tape: load_or_compile(source(tape)))


def run(
    loss: "Loss", logits: Tensor, labels: Tensor, context: Any, scale: float, want_slope: bool
) -> tuple[Tensor, Tensor | None]:
    """scale · sum, and scale · slope of every entry, in one pass."""
    tape, function, read = programs.get(loss, logits, context)
    if function is None:
        raise Untraceable("no compiler")
    logits, labels = logits.contiguous(), labels.contiguous()
    slopes = torch.empty_like(logits) if want_slope else None
    tensors = [_plain(tensor) for tensor in read]
    numbers = (ctypes.c_float * len(tape.numbers))(*tape.numbers)
    pointers = (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))
    rows, columns = logits.shape
    count = rows if by_row(tape) else logits.numel()
    threads = max(min(torch.get_num_threads(), logits.numel() // A_THREAD, count, MOST), 1)
    total = function(
        logits.data_ptr(), labels.data_ptr(), None if slopes is None else slopes.data_ptr(),
        count, columns, scale, numbers, pointers, threads,
    )  # fmt: skip
    return torch.tensor(total * scale, dtype=torch.float32), slopes
