"""Processes that stay alive: each loads its libraries and data once, then runs job after job."""

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import connection
from pathlib import Path
from typing import Any

from halftruth.bench.cells import Job
from halftruth.bench.training import Bench, Place
from halftruth.data import DataError

# Of a process of the pool; see `_begin`.
_bench: Bench


@dataclass
class Answer:
    """Result of a job: `value`, or `error`; `final` if running it again would not help."""

    job: Job
    value: Any = None
    error: str = ""
    final: bool = False


class Pool:
    """Several processes, distributed over the devices in turn; one that dies is replaced."""

    def __init__(self, jobs: int, devices: list[str], root: Path, cache: Path) -> None:
        self.places = [Place(root, cache, devices[number % len(devices)]) for number in range(jobs)]
        self.started = [_start(place) for place in self.places]
        self.running: dict[Future[Any], tuple[int, Job]] = {}

    @property
    def free(self) -> list[int]:
        """The processes that have nothing to do."""
        busy = {number for number, _ in self.running.values()}
        return [number for number in range(len(self.places)) if number not in busy]

    def give(self, what: str, job: Job) -> None:
        """Let a free process `prepare` or `run` a job."""
        number = self.free[0]
        try:
            future = self.started[number][0].submit(_answer, what, job)
        except BrokenProcessPool:
            # It died while it had nothing to do.
            self.started[number] = _start(self.places[number])
            future = self.started[number][0].submit(_answer, what, job)
        self.running[future] = (number, job)

    def answers(self) -> list[Answer]:
        """Wait until at least one job is done."""
        done, _ = wait(self.running, return_when=FIRST_COMPLETED)
        return [self._read(future, *self.running.pop(future)) for future in done]

    def _read(self, future: Future[Any], number: int, job: Job) -> Answer:
        try:
            return future.result()  # type: ignore[no-any-return]
        except BrokenProcessPool:
            process = self.started[number][1]
            process.join()
            self.started[number] = _start(self.places[number])
            reason = f"(exit code {process.exitcode}), perhaps out of memory; use fewer --jobs"
            return Answer(job, error=f"its process died {reason}")

    def stop(self) -> None:
        for executor, process in self.started:
            process.terminate()
            executor.shutdown(cancel_futures=True)


def _start(place: Place) -> tuple[ProcessPoolExecutor, multiprocessing.process.BaseProcess]:
    """Start a process; one per executor, so that its end concerns one job only."""
    device, variables = own_device(place.device)
    context, own = multiprocessing.get_context("spawn"), replace(place, device=device)
    executor = ProcessPoolExecutor(1, context, _begin, (own,))
    before = set(multiprocessing.active_children())
    with _inherited(variables):
        executor.submit(int)
    (process,) = set(multiprocessing.active_children()) - before
    return executor, process


def _begin(place: Place) -> None:
    """Begin a process: it ends with the main one, even one that was killed."""
    import torch

    global _bench
    torch.set_num_threads(1)
    _bench = Bench(place)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end_with_parent() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()


def _answer(what: str, job: Job) -> Answer:
    """Prepare or run a job in this process; an error becomes a text."""
    from halftruth.train import TrainingStopped

    try:
        return Answer(job, _bench.do(what, job))
    except TrainingStopped as error:
        return Answer(job, error=str(error), final=True)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        return Answer(job, error=f"{type(error).__name__} ({where}): {error}")


def devices(given: str) -> list[str]:
    """Return the devices to use in turn; a device that is not available is an error."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if given == "auto":
        return [f"cuda:{number}" for number in range(count)] or ["cpu"]
    names = [name.strip() for name in given.split(",")]
    for name in names:
        kind, _, number = name.partition(":")
        if kind not in ("cpu", "cuda") or not (number or "0").isdigit():
            raise DataError(f"device: expected auto, cpu, cuda or cuda:N, got {name!r}")
        if kind == "cuda" and int(number or 0) >= count:
            raise DataError(
                f"device: {name} is not available, found {count} CUDA devices; use auto or cpu"
            )
    return names


def own_device(device: str) -> tuple[str, dict[str, str]]:
    """The name of a device inside its process, and the environment variables of that process.

    Each process has one thread and sees one GPU, so that libraries which use the first GPU use the
    right one.

    >>> own_device("cuda:1")[0], own_device("cpu")[0]
    ('cuda', 'cpu')
    """
    variables = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    kind, _, number = device.partition(":")
    if kind != "cuda" or not number:
        return device, variables
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [str(n) for n in range(int(number) + 1)]
    return "cuda", {**variables, "CUDA_VISIBLE_DEVICES": names[int(number)]}


@contextmanager
def _inherited(variables: dict[str, str]) -> Iterator[None]:
    """A process that starts inside has these variables before it loads a library.

    It ignores Ctrl-C, which a terminal sends to all processes: the main one ends the others.
    """
    before = {name: os.environ.get(name) for name in variables}
    main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN) if main else None
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        if main:
            signal.signal(signal.SIGINT, handler)
