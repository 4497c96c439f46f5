"""What a run says while it goes: metrics.jsonl, TensorBoard, a progress bar, lines of text."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from halftruth.train.checkpoint import write_text
from halftruth.train.criterion import CRITERIA
from halftruth.train.result import plain_json

# Both have a line an epoch: numbers, and counts of probabilities for figures.
METRICS, HISTOGRAMS = "metrics.jsonl", "histograms.jsonl"
Watch = Callable[[dict[str, Any]], None]


class Journal:
    """Writes a run's metrics and talks to the user; silent where it is not the main process."""

    def __init__(
        self,
        folder: Path | None,
        *,
        main: bool = True,
        quiet: bool = False,
        tensorboard: bool = False,
        watch: Watch | None = None,
    ) -> None:
        """`watch` hears the record of every epoch, once it is written; it may stop the run."""
        self.folder = folder
        self.watch = watch
        self.main = main
        self.console = Console(stderr=True, quiet=quiet or not main)
        self._writer: Any = None
        if tensorboard and main and folder is not None:
            from torch.utils.tensorboard import SummaryWriter

            self._writer = SummaryWriter(str(folder / "tensorboard"))

    def say(self, text: str) -> None:
        """One message to the user."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def tell(self, record: dict[str, Any], epochs: int, criterion: str, improved: bool) -> None:
        """An epoch's record in a line; a star where it is the best so far."""
        shown = f"{record['stage']} epoch {record['epoch'] + 1}/{epochs}: loss {record['loss']:.5f}"
        if "select" in record:
            kind, _, on = CRITERIA[criterion].partition(" on ")
            shown += f", {kind} {100 * record['select']:.2f}{' on ' + on if on else ''}"
        if "val_mAP" in record and criterion != "val_mAP":
            shown += f" (mAP {100 * record['val_mAP']:.2f} on the truth)"
        self.say(f"{shown}, {record['seconds']:.1f} s{'  *' if improved else ''}")
        if self.watch is not None:
            self.watch(record)

    def write(self, record: dict[str, Any]) -> None:
        """A line of metrics.jsonl and of histograms.jsonl, on disk before training goes on."""
        if not self.main or self.folder is None:
            return
        where = {"stage": record["stage"], "epoch": record["epoch"]}
        counts = where | record.get("histograms", {})
        record = {key: value for key, value in record.items() if key != "histograms"}
        for name, line in ((HISTOGRAMS, counts), (METRICS, record)):
            with (self.folder / name).open("a", encoding="utf-8") as file:
                file.write(json.dumps(plain_json(line)) + "\n")
                file.flush()
                os.fsync(file.fileno())
        if self._writer is not None:
            for key, value in record.items():
                if isinstance(value, float):
                    self._writer.add_scalar(f"{record['stage']}/{key}", value, record["epoch"])
            self._writer.flush()

    def rewind(self, epochs_done: int) -> None:
        """Drop what was written after the checkpoint that a run resumes from."""
        for name in (METRICS, HISTOGRAMS):
            if not self.main or self.folder is None or not (self.folder / name).exists():
                continue
            lines = (self.folder / name).read_text(encoding="utf-8").splitlines()[:epochs_done]
            write_text(self.folder / name, "".join(line + "\n" for line in lines))

    @contextmanager
    def progress(self, text: str, total: int, done: int = 0) -> Iterator[Any]:
        """A bar with the time left in a terminal; nothing elsewhere."""
        if self.console.quiet or not self.console.is_terminal:
            yield lambda count=1: None
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self.console, transient=True) as bar:
            task = bar.add_task(text, total=total, completed=done)
            yield lambda count=1: bar.advance(task, count)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
