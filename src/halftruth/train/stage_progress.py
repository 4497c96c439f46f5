"""Where training is, and the two ways in which it ends early."""

import math
from dataclasses import dataclass


class TrainingStopped(RuntimeError):
    """Training could not go on; the last checkpoint is good."""


class Interrupted(KeyboardInterrupt):
    """The user asked to stop; everything is saved."""


@dataclass
class Progress:
    """Where a stage is: all of it goes into the checkpoint."""

    stage: str
    epoch: int = 0
    step: int = 0
    # The sum of this epoch's losses so far.
    total: float = 0.0
    best: float = -math.inf
    best_epoch: int = -1
    # What `best` is a value of, a key of an epoch's record, and the value of the epoch kept.
    criterion: str = ""
    kept: float = math.nan
    # What the stage before came to: an epoch below it is not kept.
    floor: float = -math.inf
    # Lines of metrics.jsonl written so far, those of earlier stages among them.
    records: int = 0
