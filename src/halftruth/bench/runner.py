"""`run_grid`: run what is not in the results file yet; `read_records`: what belongs to grids."""

import datetime
import platform
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from halftruth.bench.cells import BenchCell, Job, is_on_features, records_of, start_from
from halftruth.bench.grid import Grid
from halftruth.bench.processes import Answer, Pool, devices
from halftruth.bench.results import Record, append, read_results
from halftruth.data import DataError

Say = Callable[[str], None]


def run_grid(
    grids: Grid | Sequence[Grid],
    root: str | Path,
    out: str | Path,
    *,
    jobs: int = 1,
    device: str = "auto",
    cache: str | Path | None = None,
    start: str | Path | None = None,
    say: Say = print,
) -> list[str]:
    """Run one or several grids; return the runs that failed, each with its reason.

    root: the folder of data sets. out: the results file (.jsonl); runs in it are not repeated.
    jobs: number of processes; device: auto (all GPUs, or the CPU), or names such as
    "cuda:0,cuda:1,cpu", used in turn. cache: folder of decoded images and features.
    start: results of another grid, such as one on frozen features; a method starts with the
    options and the learning rate of the head that were best on validation there, and searches
    only what the grid itself lists.
    """
    out, root, places = Path(out), Path(root), devices(device)
    cells = _make_cells([grids] if isinstance(grids, Grid) else grids, start)
    out.parent.mkdir(parents=True, exist_ok=True)
    pool = Pool(jobs, places, root, Path(cache or out.with_suffix(".cache")))
    try:
        return _Schedule(cells, out, pool, say).go()
    finally:
        pool.stop()


def read_records(grids: Sequence[Grid], out: Path, start: str | Path | None = None) -> list[Record]:
    """The records of these grids: a file may also hold other runs, with other rows or settings."""
    return records_of(_make_cells(grids, start), read_results(out) if out.is_file() else [])


def _make_cells(grids: Sequence[Grid], start: str | Path | None) -> list[BenchCell]:
    cells = [cell for grid in grids for cell in grid.cells()]
    return cells if start is None else start_from(cells, read_results(start))


class _Schedule:
    """Runs the trials of a cell first, then its seeds with the best settings."""

    def __init__(self, cells: list[BenchCell], out: Path, pool: Pool, say: Say) -> None:
        self.out, self.pool, self.say = out, pool, say
        self.done = {one["id"]: one for one in (read_results(out) if out.is_file() else [])}
        self.failed: list[str] = []
        self.queue: deque[Job] = deque()
        # All jobs requested so far, and those without an answer.
        self.asked: set[str] = set()
        self.open: set[str] = set()
        self.cells = self.waiting = cells
        self.total = sum(
            len(c.seeds) * len(c.samples) + (c.count if c.count > 1 else 0) for c in cells
        )
        self.count = 0

    def go(self) -> list[str]:
        self._prepare()
        for cell in self.cells:
            for job in cell.own_trials:
                self._ask(job)
        self._advance()
        # The first job of each data set of images runs alone: it decodes the images for all.
        for data in dict.fromkeys(cell.data for cell in self.cells):
            first = next((job for job in self.queue if job.data == data), None)
            if first is not None and not is_on_features(first.source):
                self.queue.remove(first)
                self.pool.give("run", first)
                self._take_answers()
        while self.queue or self.open:
            while self.queue and self.pool.free:
                self.pool.give("run", self.queue.popleft())
            self._take_answers()
        return self.failed

    def _prepare(self) -> None:
        """Read every data set once, one after another; missing files stop the grid here."""
        first: dict[str, BenchCell] = {}
        for cell in self.cells:
            first.setdefault(cell.data, cell)
        for cell in first.values():
            self.pool.give("prepare", cell.job(cell.seeds[0]))
            (answer,) = self.pool.answers()
            if answer.error:
                raise DataError(f"data {cell.data}: {answer.error}")
            self.say(f"{cell.data}: {answer.value}")

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
        for cell in waiting:
            trials = cell.own_trials
            if any(job.id in self.open for job in trials):
                self.waiting.append(cell)
            elif any(job.id not in self.done for job in trials):
                # With fewer trials than the other methods, it would not be comparable.
                continue
            elif runs := cell.jobs(self.done)[len(trials) :]:
                # Before other cells' trials, so that rows of the table are finished one by one.
                for job in runs[:: -1 if trials else 1]:
                    self._ask(job, first=bool(trials))
            else:
                self.failed.append(f"{cell.data} {cell.column} {cell.method}: every trial failed")

    def _take_answers(self) -> None:
        for answer in self.pool.answers():
            self._take(answer)
        self._advance()

    def _take(self, answer: Answer) -> None:
        job = answer.job
        self.count += 1
        self.open.discard(job.id)
        said = f"[{self.count}/{self.total}] {job.describe()}:"
        if answer.error and not answer.final:
            # Not recorded: the next start of the grid tries it again.
            self.failed.append(f"{job.describe()}: {answer.error}")
            self.say(f"{said} FAILED, {answer.error}")
            return
        record = {"id": job.id, **job.to_dict(), **(answer.value or {"error": answer.error})}
        record |= {"date": datetime.date.today().isoformat(), "machine": machine()}
        self.done[job.id] = record
        append(self.out, record)
        self.say(f"{said} {_outcome(record)}")


def machine() -> str:
    """The machine and torch version, on which numbers and times may depend."""
    where = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
    return f"{where}, torch {torch.__version__}"


def _outcome(record: Record) -> str:
    if "error" in record:
        return f"stopped: {record['error'].splitlines()[0]}"
    part = "val" if record["trial"] else "test"
    return f"{part} mAP {100 * record[part]['mAP']:.2f}, {record['seconds']:.1f} s"
