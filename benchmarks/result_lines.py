"""Files of results: one JSON line per task, so that a run that was stopped goes on where it was."""

import json
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path


def add_task_options(parser: ArgumentParser) -> None:
    """Add the options of benchmarks that use `run_tasks`."""
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--minutes", type=float, default=1e9, help="start nothing after this time")
    parser.add_argument("--out", type=Path, help="file of results; lines in it are not repeated")


def read_lines(path: Path | None) -> list[dict]:
    """Return the lines of a file of results; a last line that was cut off is left out."""
    found = []
    for text in path.read_text().splitlines() if path and path.exists() else ():
        try:
            found.append(json.loads(text))
        except ValueError:
            continue
    return found


def key_of(line: dict) -> tuple:
    """Return what tells two lines apart: data set, setting, seed and row of the table."""
    return line["set"], line["setting"], line["seed"], line["row"]


def run_tasks(
    run: Callable[..., dict],
    tasks: list[tuple],
    out: Path | None,
    describe: Callable[[dict], str],
    *,
    jobs: int = 1,
    minutes: float = 1e9,
    first_alone: bool = False,
) -> None:
    """Compute `run(*task)` in several processes; append each line to `out` when it is there.

    No task starts after `minutes`. A task that fails is printed, and the others go on.
    `first_alone`: the first task has finished before the second one starts.
    """
    started, count = time.time(), 0
    for count, future in enumerate(
        _finish(run, tasks, started + 60 * minutes, jobs, first_alone), 1
    ):
        if error := future.exception():
            print(f"failed: {type(error).__name__}: {error}", flush=True)
            continue
        line = future.result()
        if out:
            with out.open("a") as file:
                file.write(json.dumps(line) + "\n")
        print(
            f"[{time.time() - started:5.0f} s, {count}/{len(tasks)}] {line['set']} "
            f"{line['setting']} seed {line['seed']} {line['row']}: {describe(line)} "
            f"in {line['seconds']} s",
            flush=True,
        )
    print(f"{count} of {len(tasks)} lines done in {time.time() - started:.0f} s")


def _finish(
    run: Callable[..., dict], tasks: list[tuple], deadline: float, jobs: int, first_alone: bool
) -> Iterator["Future[dict]"]:
    """Yield finished tasks. At most `jobs` are waiting, so that none starts after the deadline."""
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        running: set[Future[dict]] = set()
        for number, task in enumerate(tasks):
            if time.time() > deadline:
                break
            running.add(pool.submit(run, *task))
            while len(running) >= (1 if first_alone and not number else jobs):
                future = next(as_completed(running))
                running.discard(future)
                yield future
        yield from as_completed(running)


__all__ = ["add_task_options", "key_of", "read_lines", "run_tasks"]
