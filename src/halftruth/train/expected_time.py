"""The time that a stage will take, estimated after its first steps."""

import math
import time
from collections.abc import Callable

import torch

# Steps before the clock starts, which are slower, and seconds that it runs at least.
_FIRST_STEPS, _LEAST_SECONDS = 3, 2.0
# A stage that takes less needs no line.
_WORTH_SAYING = 60.0


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
