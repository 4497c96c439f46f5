"""Learning rates as a function of the step: nothing to save, nothing to resume."""

import math


def rate(schedule: str, step: int, steps: int, warmup: float) -> float:
    """The factor of the learning rate at a step of a stage.

    "one-cycle" climbs in a cosine from 1/25 over the first `warmup` share of the steps and falls
    in one to 1e-4 of that; "cosine" climbs in a line from 0 and falls to 0; "constant" stays.

    >>> [round(rate("one-cycle", step, 11, 0.2), 3) for step in (0, 2, 10)]
    [0.04, 1.0, 0.0]
    """
    if schedule == "constant":
        return 1.0
    last = max(steps - 1, 1)
    climb = warmup * last
    if schedule == "cosine":
        if step < climb:
            return (step + 1) / (climb + 1)
        return _cosine(1.0, 0.0, (step - climb) / max(last - climb, 1e-9))
    if step < climb:
        return _cosine(1 / 25, 1.0, step / climb)
    return _cosine(1.0, 4e-6, (step - climb) / max(last - climb, 1e-9))


def _cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * min(share, 1.0))) / 2
