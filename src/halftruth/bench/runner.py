"""`run_grid`: run the runs that are not in the results file yet."""

import datetime
import platform
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from halftruth.bench.grid import Grid
from halftruth.bench.jobs import Cell, Job, best_trial, start_from
from halftruth.bench.results import Record, append, read_results
from halftruth.bench.workers import Answer, Pool, Prepare, Train
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
    """Run a grid; return the runs that failed, each with its reason.

    root: the folder of data sets. out: the results file (.jsonl); runs in it are not repeated.
    jobs: number of processes; device: auto (all GPUs, or the CPU), or names such as
    "cuda:0,cuda:1,cpu", used in turn. cache: folder of decoded images and features.
    start: results of another grid, such as one on frozen features; a method starts with the
    options and the learning rate of the head that were best on validation there, and searches
    only what the grid itself lists.
    """
    out, root, places = Path(out), Path(root), devices(device)
    out.parent.mkdir(parents=True, exist_ok=True)
    pool = Pool(jobs, places, root, Path(cache or out.with_suffix(".cache")))
    try:
        cells = grid.cells() if start is None else start_from(grid.cells(), read_results(start))
        return _Schedule(grid, cells, out, pool, say).go()
    finally:
        pool.stop()


def devices(given: str) -> list[str]:
    """Return the devices to use in turn; a device that is not available is an error."""
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


class _Schedule:
    """Runs the trials of a cell first, then its seeds with the best settings."""

    def __init__(self, grid: Grid, cells: list[Cell], out: Path, pool: Pool, say: Say) -> None:
        self.grid, self.cells, self.out, self.pool, self.say = grid, cells, out, pool, say
        self.done: dict[str, Record] = {}
        if out.is_file():
            self.done = {record["id"]: record for record in read_results(out)}
        self.failed: list[str] = []
        self.queue: deque[Job] = deque()
        # All jobs requested so far, and those without an answer.
        self.asked: set[str] = set()
        self.open: set[str] = set()
        # Cells with their trials, which take long to compute.
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
        self._run_first_alone()
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
        """Read every data set once, one after another; missing files stop the grid here."""
        seen: set[str] = set()
        for cell in self.cells:
            if cell.data in seen:
                continue
            seen.add(cell.data)
            job = cell.job(self.grid.seeds[0])
            self.pool.workers[0].give(Prepare(job, self._on_features(job)))
            (answer,) = self.pool.answers()
            if answer.error:
                raise DataError(f"data {cell.data}: {answer.error}")
            self.say(f"{cell.data}: {answer.value}")

    def _run_first_alone(self) -> None:
        """Run the first job of each image data set alone: it decodes the images for all."""
        for data in dict.fromkeys(cell.data for cell in self.cells):
            job = next((job for job in self.queue if job.data == data), None)
            if job is not None and not self.grid.on_features(data):
                self.queue.remove(job)
                self.pool.workers[0].give(Train(job, False))
                for answer in self.pool.answers():
                    self._take(answer)
                self._advance()

    def _ask(self, job: Job, first: bool = False) -> None:
        """Queue a run, unless it is finished or requested by another column of the table."""
        if job.id in self.done or job.id in self.asked:
            self.count += 1
            return
        self.asked.add(job.id)
        self.open.add(job.id)
        self.queue.appendleft(job) if first else self.queue.append(job)

    def _advance(self) -> None:
        """Queue the seeds of the cells whose trials are all finished."""
        waiting, self.waiting = self.waiting, []
        for cell, trials in waiting:
            if any(job.id in self.open for job in trials):
                self.waiting.append((cell, trials))
                continue
            if any(job.id not in self.done for job in trials):
                # With fewer trials than the other methods, it would not be comparable.
                continue
            settings: dict[str, Any] = {}
            if trials:
                best = best_trial([self.done[job.id] for job in trials], cell.choose)
                if best is None:
                    name = f"{cell.data} {cell.column} {cell.method}"
                    self.failed.append(f"{name}: every trial failed")
                    continue
                settings = {"training": best["training"], "options": best["options"]}
            # Before other cells' trials, so that rows of the table are finished one by one.
            for seed in self.grid.seeds[:: -1 if trials else 1]:
                self._ask(cell.job(seed, **settings), first=bool(trials))

    def _take(self, answer: Answer) -> None:
        job: Job = answer.task.job
        self.count += 1
        self.open.discard(job.id)
        if answer.error and not answer.final:
            # Not recorded: the next start of the grid tries it again.
            self.failed.append(f"{job.describe()}: {answer.error}")
            self.say(f"[{self.count}/{self.total}] {job.describe()}: FAILED, {answer.error}")
            return
        record = {"id": job.id, **job.to_dict(), **(answer.value or {"error": answer.error})}
        record |= {"date": datetime.date.today().isoformat(), "machine": machine()}
        self.done[job.id] = record
        append(self.out, record)
        self.say(f"[{self.count}/{self.total}] {job.describe()}: {_outcome(record)}")


def machine() -> str:
    """The machine and torch version, on which numbers and times may depend."""
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
    return f"{where}, torch {torch.__version__}"


def _outcome(record: Record) -> str:
    if "error" in record:
        return f"stopped: {record['error'].splitlines()[0]}"
    part = "val" if record["trial"] else "test"
    return f"{part} mAP {100 * record[part]['mAP']:.2f}, {record['seconds']:.1f} s"
