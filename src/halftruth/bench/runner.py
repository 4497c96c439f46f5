"""`run_grid`: what is missing in the file of results is run; nothing is run twice."""

import datetime
import platform
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from halftruth.bench.grid import Grid
from halftruth.bench.job import Cell, Job
from halftruth.bench.results import Record, append, read_results
from halftruth.bench.selection import best_trial, started
from halftruth.bench.tasks import Prepare, Train
from halftruth.bench.workers import Answer, Pool
from halftruth.data import DataError

Say = Callable[[str], None]


def run_grid(
    grid: Grid,
    root: str | Path,
    out: str | Path,
    *,
    jobs: int = 1,
    device: str = "auto",
    cache: str | Path | None = None,
    start: str | Path | None = None,
    say: Say = print,
) -> list[str]:
    """Carry out a grid; the runs that failed, each with its reason.

    root: the folder of data sets. out: the file of results (.jsonl); runs in it are not repeated.
    jobs: processes at once; device: auto (all GPUs, else the CPU), or names such as
    "cuda:0,cuda:1,cpu", taken in turn. cache: where decoded images and features are kept.
    start: results of another grid, such as one on frozen features; a method starts with the
    options and head's rate that were best on validation there, and searches only what the grid
    lists itself.
    """
    out, root = Path(out), Path(root)
    out.parent.mkdir(parents=True, exist_ok=True)
    pool = Pool(jobs, devices(device), root, Path(cache or out.with_suffix(".cache")))
    try:
        cells = grid.cells() if start is None else started(grid.cells(), read_results(start))
        return _Schedule(grid, cells, out, pool, say).go()
    finally:
        pool.stop()


def devices(given: str) -> list[str]:
    """The devices to use, in turn."""
    if given == "auto":
        count = torch.cuda.device_count()
        return [f"cuda:{number}" for number in range(count)] or ["cpu"]
    return [name.strip() for name in given.split(",")]


class _Schedule:
    """Trials of a cell first; once all are there, its runs over seeds with the best settings."""

    def __init__(self, grid: Grid, cells: list[Cell], out: Path, pool: Pool, say: Say) -> None:
        self.grid, self.cells, self.out, self.pool, self.say = grid, cells, out, pool, say
        self.done: dict[str, Record] = {}
        if out.is_file():
            self.done = {record["id"]: record for record in read_results(out)}
        self.failed: list[str] = []
        self.queue: deque[Job] = deque()
        # Asked for at any time, and those of them that are not answered yet.
        self.asked: set[str] = set()
        self.open: set[str] = set()
        # Each with its trials, which take long to write down.
        first = grid.seeds[0]
        self.waiting = [(cell, cell.trials(grid.trials, first)) for cell in cells]
        seeds, trials = len(grid.seeds), grid.trials if grid.trials > 1 else 0
        self.total, self.count = len(self.cells) * (seeds + trials), 0

    def go(self) -> list[str]:
        self._prepare()
        for _, trials in self.waiting:
            for job in trials:
                self._ask(job)
        self._advance()
        self._first_alone()
        while self.queue or any(worker.task is not None for worker in self.pool.workers):
            for worker in self.pool.free():
                if self.queue:
                    job = self.queue.popleft()
                    worker.give(Train(job, self._on_features(job)))
            for answer in self.pool.answers():
                self._take(answer)
            self._advance()
        return self.failed

    # ------------------------------------------------------------------ inside

    def _on_features(self, job: Job) -> bool:
        return self.grid.on_features(job.data)

    def _prepare(self) -> None:
        """Read every data set once, one after the other; a grid on missing files stops here."""
        seen: set[str] = set()
        for cell in self.cells:
            if cell.data in seen:
                continue
            seen.add(cell.data)
            job = cell.job(self.grid.seeds[0])
            self.pool.workers[0].give(Prepare(job, self._on_features(job)))
            (answer,) = self.pool.answers()
            if answer.error:
                raise _PrepareError(f"data {cell.data}: {answer.error}")
            self.say(f"{cell.data}: {answer.value}")

    def _first_alone(self) -> None:
        """The first run of a data set of images decodes them, and extracts features, for all."""
        for data in dict.fromkeys(cell.data for cell in self.cells):
            job = next((job for job in self.queue if job.data == data), None)
            if job is not None and not self.grid.on_features(data):
                self.queue.remove(job)
                self.pool.workers[0].give(Train(job, False))
                for answer in self.pool.answers():
                    self._take(answer)
                self._advance()

    def _ask(self, job: Job, first: bool = False) -> None:
        """Queue a run, unless it is there, or asked for by another column of the table."""
        if job.id in self.done or job.id in self.asked:
            self.count += 1
            return
        self.asked.add(job.id)
        self.open.add(job.id)
        self.queue.appendleft(job) if first else self.queue.append(job)

    def _advance(self) -> None:
        """Give out the seeds of those cells whose trials are all there."""
        waiting, self.waiting = self.waiting, []
        for cell, trials in waiting:
            if any(job.id in self.open for job in trials):
                self.waiting.append((cell, trials))
                continue
            if any(job.id not in self.done for job in trials):
                # Chosen among fewer trials than the others had, it would not compare.
                continue
            settings: dict[str, Any] = {}
            if trials:
                best = best_trial([self.done[job.id] for job in trials], cell.choose)
                if best is None:
                    name = f"{cell.data} {cell.column} {cell.method}"
                    self.failed.append(f"{name}: every trial failed")
                    continue
                settings = {"training": best["training"], "options": best["options"]}
            # In front of other cells' trials: rows of the table are finished one by one.
            for seed in self.grid.seeds[:: -1 if trials else 1]:
                self._ask(cell.job(seed, **settings), first=bool(trials))

    def _take(self, answer: Answer) -> None:
        job: Job = answer.task.job
        self.count += 1
        self.open.discard(job.id)
        if answer.error and not answer.final:
            # Not written down: the next start of the grid tries it again.
            self.failed.append(f"{job.describe()}: {answer.error}")
            self.say(f"[{self.count}/{self.total}] {job.describe()}: FAILED, {answer.error}")
            return
        record = {"id": job.id, **job.to_dict(), **(answer.value or {"error": answer.error})}
        record |= {"date": datetime.date.today().isoformat(), "machine": machine()}
        self.done[job.id] = record
        append(self.out, record)
        self.say(f"[{self.count}/{self.total}] {job.describe()}: {_outcome(record)}")


class _PrepareError(DataError):
    """A data set that cannot be read."""


def machine() -> str:
    """The machine in words: what numbers and seconds may hang on."""
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
    return f"{where}, torch {torch.__version__}"


def _outcome(record: Record) -> str:
    if "error" in record:
        return f"stopped: {record['error'].splitlines()[0]}"
    part = "val" if record["trial"] else "test"
    return f"{part} mAP {100 * record[part]['mAP']:.2f}, {record['seconds']:.1f} s"
