"""Processes that stay: each loads its libraries and data once, then does run after run."""

import dataclasses
import multiprocessing
import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from halftruth.data import DataError

# Data sets under a label setting that a process keeps; the jobs come ordered by them.
_KEPT = 3


@dataclass(frozen=True)
class Place:
    """Where runs find their files and their device."""

    root: Path
    cache: Path
    device: str


@dataclass
class Answer:
    """What became of a task: `value`, or `error`; `final` where running it again would not help."""

    task: Any
    value: Any = None
    error: str = ""
    final: bool = False


class Worker:
    """A process that is given one task at a time."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.task: Any = None
        self.start()

    def start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        device, variables = own_device(self.place.device)
        place = dataclasses.replace(self.place, device=device)
        self.process = context.Process(target=_serve, args=(theirs, place), daemon=True)
        # Libraries read them when they are loaded, which is before the process is asked anything.
        with _environment(variables):
            self.process.start()
        theirs.close()

    def give(self, task: Any) -> None:
        self.task = task
        self.pipe.send(task)

    def answer(self) -> Answer:
        """The outcome of its task; a process that died is started anew."""
        task, self.task = self.task, None
        try:
            value, error, final = self.pipe.recv()
            return Answer(task, value, error, final)
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode
            self.start()
            return Answer(task, error=f"its process died (exit code {code}): out of memory?")

    def stop(self) -> None:
        self.process.terminate()
        self.process.join(5)


class Pool:
    """Several workers, one after the other on each of the devices."""

    def __init__(self, jobs: int, devices: list[str], root: Path, cache: Path) -> None:
        self.workers = [
            Worker(Place(root, cache, devices[number % len(devices)])) for number in range(jobs)
        ]

    def free(self) -> Iterator[Worker]:
        return (worker for worker in self.workers if worker.task is None)

    def answers(self) -> list[Answer]:
        """Wait until at least one task is done."""
        busy = {worker.pipe: worker for worker in self.workers if worker.task is not None}
        return [busy[pipe].answer() for pipe in wait(list(busy)) if isinstance(pipe, Connection)]

    def stop(self) -> None:
        for worker in self.workers:
            worker.stop()


def _serve(pipe: Connection, place: Place) -> None:
    """The life of a worker process."""
    import signal

    import torch

    from halftruth.bench.tasks import Bench
    from halftruth.train import TrainingStopped

    # Ctrl-C goes to all processes of a terminal; the main one decides what becomes of the rest.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    bench = Bench(place, kept=_KEPT)
    while True:
        try:
            task = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            outcome = (bench.do(task), "", False)
        except TrainingStopped as error:
            outcome = (None, str(error), True)
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(last.filename).name}:{last.lineno}"
            outcome = (None, f"{type(error).__name__} ({where}): {error}", False)
        try:
            pipe.send(outcome)
        except OSError:
            # The main process is gone.
            return


def own_device(device: str) -> tuple[str, dict[str, str]]:
    """A worker's device by the name it has there, and the variables that make it so.

    One thread each; of several GPUs a worker sees its own, so that libraries which take the first
    one take the right one.

    >>> own_device("cuda:1")[0], own_device("cpu")[0]
    ('cuda', 'cpu')
    """
    variables = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    kind, _, number = device.partition(":")
    if kind != "cuda" or not number:
        return device, variables
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [str(n) for n in range(int(number) + 1)]
    if int(number) >= len(names):
        raise DataError(f"--device {device}: there are {len(names)} visible GPUs")
    return "cuda", {**variables, "CUDA_VISIBLE_DEVICES": names[int(number)]}


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
