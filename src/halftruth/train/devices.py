"""The machine: devices, processes, threads, memory and signals."""

import ctypes
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from multiprocessing import current_process
from pathlib import Path
from typing import TypeVar

import torch
from accelerate import Accelerator, DistributedType
from accelerate.state import AcceleratorState

from halftruth.train.config import Config, ConfigError

# Multiply-adds per step that keep one thread busy. With much less, as in a small head, OpenMP's
# threads mostly wait for each other at the end of every operation.
WORK_PER_THREAD = 1 << 26
# Tasks that take longer in total, in seconds, are shared by processes, which start in about four.
WORTH_PROCESSES = 12.0
# Parameters of mallopt in glibc (malloc.h), and the largest values it accepts.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_TRIM_AT, _MMAP_FROM = (1 << 31) - 1, 1 << 30

# Forward and backward passes of the layers that have kernels of their own for bfloat16.
_BFLOAT16 = """
import torch
model = torch.nn.Sequential(
    torch.nn.Conv2d(16, 32, 3), torch.nn.Flatten(), torch.nn.Linear(32 * 6 * 6, 64)
)
with torch.autocast("cpu", torch.bfloat16):
    loss = model(torch.ones(32, 16, 8, 8)).float().sum()
loss.backward()
"""


def make_accelerator(config: Config) -> Accelerator:
    """Return the Accelerator; precision auto is bf16 on a GPU that supports it, else float32."""
    precision, cuda = config.precision, torch.cuda.is_available()
    # Accelerate lets processes on a CPU work together only if it is told that they are on one.
    on_cpu = config.device == "cpu" or not torch.accelerator.is_available()
    if precision == "auto":
        precision = "bf16" if not on_cpu and cuda and torch.cuda.is_bf16_supported() else "no"
    if precision == "bf16" and on_cpu and not runs_bfloat16_on_cpu():
        raise ConfigError(
            ["precision: bf16 ends the process on this CPU (PyTorch was tried); use auto or no"]
        )
    # Accelerate keeps one state per process, and a second run may ask for another precision.
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    AcceleratorState._reset_state(reset_partial_state=not distributed)
    accelerator = Accelerator(mixed_precision=precision, cpu=on_cpu)
    if on_cpu and accelerator.num_processes > 1:
        # Accelerate names a GPU per process here too, and there may be fewer GPUs.
        accelerator.wait_for_everyone = torch.distributed.barrier
    return accelerator


@cache
def runs_bfloat16_on_cpu() -> bool:
    """Return whether PyTorch computes in bfloat16 on this CPU; tried in a process of its own.

    Some virtual machines announce instructions (AMX) and then end a process that uses them.
    """
    done = subprocess.run([sys.executable, "-c", _BFLOAT16], capture_output=True, check=False)
    return done.returncode == 0


def find_unused_processes(running: int, device: str = "cpu") -> str | None:
    """Return a warning if a launcher was asked for more processes than take part in the run."""
    names = ("WORLD_SIZE", "ACCELERATE_NUM_PROCESSES", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE")
    asked = {name: os.environ.get(name, "") for name in names}
    asked["accelerate launch --num_processes"] = _read_accelerate_option(_read_parent_command())
    more = {n: int(v) for n, v in asked.items() if v.isdigit() and int(v) > running}
    if not more:
        return None
    name, count = next(iter(more.items()))
    # On other devices than these, each process would train alone.
    on_cpu = "" if device in ("cpu", "cuda") else " --device cpu"
    return (
        f"warning: the launcher asked for {count} processes ({name}), and {running} takes part in "
        "this run: the batch is not divided. Start several with `torchrun --nproc_per_node N -m "
        f"halftruth train ...{on_cpu}`"
    )


def _read_accelerate_option(command: list[str]) -> str:
    """Return the number of processes that `accelerate launch` was asked for, or nothing.

    With `--cpu` it starts one process, and no environment variable holds the number.
    """
    options = ("--num_processes", "--num-processes")
    if "launch" not in command or not any("accelerate" in word for word in command):
        return ""
    pairs = [word.partition("=")[::2] for word in command]
    pairs += itertools.pairwise(command)
    return next((value for name, value in pairs if name in options and value.isdigit()), "")


def _read_parent_command() -> list[str]:
    try:
        return Path(f"/proc/{os.getppid()}/cmdline").read_text(errors="replace").split("\0")
    except OSError:
        return []


class OneProcess:
    """The part of an Accelerator that a stage uses, for one process in float32.

    Accelerate keeps one state per process. A scikit-learn classifier must not change the state of
    a program that uses Accelerate itself, nor wait for the other processes of that program.
    """

    num_processes, process_index, is_main_process = 1, 0, True
    scaler = None
    mixed_precision = "no"
    distributed_type = DistributedType.NO
    autocast = staticmethod(nullcontext)

    def __init__(self, device: str = "cpu") -> None:
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        self.device = torch.device(device)

    def prepare(self, *objects: object) -> tuple[object, ...]:
        return objects

    def wait_for_everyone(self) -> None:
        """Do nothing: there is no other process."""


@contextmanager
def let_main_go_first(accelerator: Accelerator | None) -> Iterator[None]:
    """Run a block in the main process first, then in the others; without one, at once.

    An error of the main process does not keep the others waiting: they find the same error.
    """
    if accelerator is None:
        yield
        return
    if not accelerator.is_main_process:
        accelerator.wait_for_everyone()
    try:
        yield
    finally:
        if accelerator.is_main_process:
            accelerator.wait_for_everyone()


@contextmanager
def limit_threads(work: float, device: torch.device) -> Iterator[None]:
    """Use as many CPU threads as steps of `work` multiply-adds keep busy, at least one.

    Never more than are set (OMP_NUM_THREADS, torch.set_num_threads); restored at the end.
    """
    before = torch.get_num_threads()
    wanted = max(1, int(min(before, work / WORK_PER_THREAD)))
    if device.type != "cpu" or wanted == before:
        yield
        return
    torch.set_num_threads(wanted)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def count_processes(seconds: float, tasks: int) -> int:
    """Return how many processes share tasks on the CPU that take so many seconds in one process.

    A small head keeps one thread busy, so the threads that this process may use become processes.
    """
    # A process of a pool that ends with its parent cannot start others.
    if seconds < WORTH_PROCESSES or current_process().daemon:
        return 1
    return max(1, min(torch.get_num_threads(), tasks))


R = TypeVar("R")


def run_in_processes(
    processes: int, function: Callable[..., R], tasks: Sequence[tuple[object, ...]]
) -> list[R]:
    """Return `function(*task)` of every task, in order. Training seeds torch: never in threads."""
    from joblib import Parallel, delayed

    results = Parallel(processes, backend="loky")(delayed(function)(*task) for task in tasks)
    return list(results)


@cache
def keep_freed_memory() -> bool:
    """Let glibc keep freed memory for the next allocation; return whether that worked.

    By default glibc returns every large block to the system. Allocating it again costs one page
    fault per 4 KiB: up to half of the time of decoding and of inference on a CPU.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    trim = mallopt(_M_TRIM_THRESHOLD, _TRIM_AT)
    # Older versions accept at most 32 MiB.
    mmap = mallopt(_M_MMAP_THRESHOLD, _MMAP_FROM) or mallopt(_M_MMAP_THRESHOLD, 1 << 25)
    return bool(trim and mmap)


@contextmanager
def catch_stop_signals() -> Iterator[Callable[[], bool]]:
    """Yield a function: was a stop requested (Ctrl-C, SIGTERM)? A second Ctrl-C stops at once."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return

    def ask(number: int, frame: object) -> None:
        if asked.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
