"""Processes that stay: each loads its libraries and data once, then does run after run."""

import multiprocessing
import os
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

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
        self.process = context.Process(target=_serve, args=(theirs, self.place), daemon=True)
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
        # Read by the processes when they load their libraries: one thread each.
        before = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
        os.environ.update(dict.fromkeys(before, "1"))
        self.workers = [
            Worker(Place(root, cache, devices[number % len(devices)])) for number in range(jobs)
        ]
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})

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

    place = _alone_on_its_gpu(place)
    import torch

    from halftruth.bench.execute import Bench
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


def _alone_on_its_gpu(place: Place) -> Place:
    """Hide the other GPUs: libraries that take the first one then take the right one."""
    kind, _, number = place.device.partition(":")
    if kind != "cuda" or not number:
        return place
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [str(n) for n in range(int(number) + 1)]
    os.environ["CUDA_VISIBLE_DEVICES"] = names[int(number)]
    return Place(place.root, place.cache, "cuda")
