"""Processes that stay alive: each loads its libraries and data once, then runs job after job."""

import dataclasses
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from halftruth.bench.jobs import Job
from halftruth.bench.run_data import Matrix, describe_source, load_matrix, source_key
from halftruth.bench.runs import run_on_features, run_on_images, write_label_files

# Data sets that a process keeps in memory; jobs come ordered by data set.
_KEPT = 3


@dataclass(frozen=True)
class Place:
    """Paths and device of the runs of a worker."""

    root: Path
    cache: Path
    device: str


@dataclass
class Answer:
    """Result of a task: `value`, or `error`; `final` if running it again would not help."""

    task: Any
    value: Any = None
    error: str = ""
    final: bool = False


class Worker:
    """A process that runs one task at a time."""

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
        # Libraries read the variables when they are loaded, before the first task. A terminal
        # sends Ctrl-C to all processes; the main one decides when the workers end.
        with _environment(variables), _sigint_ignored():
            self.process.start()
        theirs.close()

    def give(self, task: Any) -> None:
        self.task = task
        self.pipe.send(task)

    def answer(self) -> Answer:
        """The result of its task; a process that died is started again."""
        task, self.task = self.task, None
        try:
            value, error, final = self.pipe.recv()
            return Answer(task, value, error, final)
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode
            self.start()
            error = f"its process died (exit code {code}), perhaps out of memory; use fewer --jobs"
            return Answer(task, error=error)

    def stop(self) -> None:
        self.process.terminate()
        self.process.join(5)


class Pool:
    """Several workers, distributed over the devices in turn."""

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
    """Run tasks until the main process ends."""
    import torch

    from halftruth.train import TrainingStopped

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
    """The name of a device inside its worker, and the environment variables of that worker.

    Each worker has one thread and sees one GPU, so that libraries which use the first GPU use the
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
def _sigint_ignored() -> Iterator[None]:
    """Let a process that is started here ignore Ctrl-C from its first instruction on."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


@dataclass(frozen=True)
class Prepare:
    """Read a data set once before its runs, so that its errors and computations come first."""

    job: Job
    on_features: bool


@dataclass(frozen=True)
class Train:
    """Run one job."""

    job: Job
    on_features: bool


class Bench:
    """Runs tasks on one device, and keeps the last data sets in memory."""

    def __init__(self, place: Place, kept: int = 3) -> None:
        self.place, self.kept = place, kept
        self.matrices: OrderedDict[str, Matrix] = OrderedDict()

    def do(self, task: Prepare | Train) -> Any:
        job, place = task.job, self.place
        if isinstance(task, Prepare):
            if task.on_features:
                self.matrix(job)
            else:
                write_label_files(job, place.root, place.cache)
            return describe_source(job.source, job.labels, place.root)
        started = time.perf_counter()
        if task.on_features:
            found = run_on_features(job, self.matrix(job))
        else:
            found = run_on_images(job, place.root, place.cache, place.device)
        return {**found, "seconds": round(time.perf_counter() - started, 2)}

    def matrix(self, job: Job) -> Matrix:
        key = source_key(job.source, job.labels, job.label_seed)
        if key not in self.matrices:
            place = self.place
            self.matrices[key] = load_matrix(
                job.source, job.labels, job.label_seed, place.root, place.cache, place.device
            )
        self.matrices.move_to_end(key)
        while len(self.matrices) > self.kept:
            self.matrices.popitem(last=False)
        return self.matrices[key]
