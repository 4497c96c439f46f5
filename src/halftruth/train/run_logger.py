"""Output of a run while it trains: metrics.jsonl, messages, progress bars, the expected time."""

import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, ClassVar

import torch
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from halftruth.train.records import CRITERIA
from halftruth.train.run_folder import append_line, to_json, write_text
from halftruth.train.trackers import Trackers

# Files with one line per epoch: numbers, and counts of probabilities for figures.
METRICS, HISTOGRAMS = "metrics.jsonl", "histograms.jsonl"
OnEpoch = Callable[[dict[str, Any]], None]

# Steps before the clock starts, which are slower, and seconds that it runs at least.
_FIRST_STEPS, _LEAST_SECONDS = 3, 2.0
# A stage that takes less needs no line.
_WORTH_SAYING = 60.0


class RunLogger:
    """Writes the metrics of a run and shows its messages, in the main process only."""

    def __init__(
        self,
        folder: Path | None,
        *,
        main: bool = True,
        quiet: bool = False,
        trackers: Trackers | None = None,
        on_epoch: OnEpoch | None = None,
    ) -> None:
        """`on_epoch` is called with the record of every epoch; it may stop the run by raising."""
        self.folder = folder
        self.on_epoch = on_epoch
        self.main = main
        self.console = Console(stderr=True, quiet=quiet or not main)
        self._logged: set[str] = set()
        self.trackers = trackers
        # The time of the epochs that earlier starts of a resumed run have trained.
        self.seconds_before = 0.0

    def log(self, text: str) -> None:
        """Show a message."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def log_once(self, text: str) -> None:
        """Show a message that was not shown before."""
        if text not in self._logged:
            self._logged.add(text)
            self.log(text)

    def log_epoch(
        self, record: dict[str, Any], epochs: int, criterion: str, improved: bool
    ) -> None:
        """Show an epoch in one line, with a star if it is the best so far."""
        shown = f"{record['stage']} epoch {record['epoch']}/{epochs}: loss {record['loss']:.5f}"
        if "select" in record:
            kind, _, on = CRITERIA[criterion].partition(" on ")
            shown += f", {kind} {100 * record['select']:.2f}{' on ' + on if on else ''}"
        if "val_mAP" in record and criterion != "val_mAP":
            shown += f" (mAP {100 * record['val_mAP']:.2f} on the complete labels)"
        self.log(f"{shown}, {record['seconds']:.1f} s{'  *' if improved else ''}")
        if self.on_epoch is not None:
            self.on_epoch(record)

    def write(self, record: dict[str, Any]) -> None:
        """Append a line to metrics.jsonl and histograms.jsonl, and wait until it is on disk."""
        if not self.main or self.folder is None:
            return
        place = {"stage": record["stage"], "epoch": record["epoch"]}
        counts = place | record.get("histograms", {})
        record = {key: value for key, value in record.items() if key != "histograms"}
        append_line(self.folder / HISTOGRAMS, to_json(counts))
        append_line(self.folder / METRICS, to_json(record))
        if self.trackers is not None:
            self.trackers.log(record)

    def rewind(self, epochs_done: int) -> None:
        """Remove the lines that were written after the checkpoint that a run resumes from."""
        for name in (METRICS, HISTOGRAMS):
            if not self.main or self.folder is None or not (self.folder / name).exists():
                continue
            lines = (self.folder / name).read_text(encoding="utf-8").splitlines()[:epochs_done]
            write_text(self.folder / name, "".join(line + "\n" for line in lines))
            if name == METRICS:
                self.seconds_before = sum(json.loads(line).get("seconds", 0) for line in lines)

    # The open display of this process: further bars are added to it, also those of quiet runs.
    _display: ClassVar[Progress | None] = None

    @contextmanager
    def progress(self, text: str, total: int, done: int = 0) -> Iterator[Callable[..., None]]:
        """Show a progress bar; yield a function that adds to the count.

        Nothing is shown outside a terminal. A bar inside another bar is shown below it.
        """
        outer = RunLogger._display
        if outer is None and (self.console.quiet or not self.console.is_terminal):
            yield lambda count=1: None
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        # Output that goes to a file must not be redirected to the terminal.
        display = outer or Progress(
            *columns, console=self.console, transient=True, redirect_stdout=sys.stdout.isatty()
        )
        with nullcontext() if outer else display:
            RunLogger._display = display
            task = display.add_task(text, total=total, completed=done)
            try:
                yield lambda count=1: display.advance(task, count)
            finally:
                display.remove_task(task)
                RunLogger._display = outer

    def close(self) -> None:
        if self.trackers is not None:
            self.trackers.close()


class StageClock:
    """Times steps of the first epoch, and logs once how long an epoch and the stage will take."""

    def __init__(
        self,
        name: str,
        steps: int,
        epochs: int,
        *,
        validation: float,
        device: torch.device,
        log: Callable[[str], None],
    ) -> None:
        """`validation`: the rows that are scored after an epoch, as a share of those trained on."""
        self.name, self.steps, self.epochs = name, steps, epochs
        # Without a backward pass, a row takes about a third of the time.
        self.more = 1 + validation / 3
        self.device, self.log = device, log
        self.done, self.started = 0, math.nan

    def count_step(self) -> None:
        """Note that a step has ended."""
        self.done += 1
        if self.done == _FIRST_STEPS:
            self.started = self._read()
        elif self.done > _FIRST_STEPS and time.perf_counter() - self.started >= _LEAST_SECONDS:
            each = (self._read() - self.started) / (self.done - _FIRST_STEPS)
            epoch = each * self.steps * self.more
            # Never again.
            self.started = math.inf
            if epoch * self.epochs >= _WORTH_SAYING:
                self.log(describe_time(self.name, epoch, self.epochs))

    def _read(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()


def describe_time(name: str, epoch: float, epochs: int) -> str:
    """Return the expected time of a stage in words.

    >>> describe_time("head", 90, 10)
    'time: about 2 minutes per epoch of stage head, 15 minutes for 10 epochs'
    >>> describe_time("all", 180, 1)
    'time: about 3 minutes for the epoch of stage all'
    """
    if epochs == 1:
        return f"time: about {format_time(epoch)} for the epoch of stage {name}"
    return (
        f"time: about {format_time(epoch)} per epoch of stage {name}, "
        f"{format_time(epoch * epochs)} for {epochs} epochs"
    )


def format_time(seconds: float) -> str:
    """Return a time in words.

    >>> format_time(8.2), format_time(1000), format_time(10_000)
    ('9 seconds', '17 minutes', '2.8 hours')
    """
    if seconds < 90:
        return f"{math.ceil(seconds)} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
