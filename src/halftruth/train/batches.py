"""The order of the data as a function of (seed, epoch): resumable at any step, any process."""

from collections.abc import Iterator

import numpy as np
import torch

_64_BITS = (1 << 64) - 1


class Batches:
    """Rows of each step of an epoch, and the part of them that falls to this process.

    A step's rows are the same for any number of processes: process r of w takes every w-th of
    them. Where there are fewer rows than processes, a process repeats one with weight 0, so that
    all take part in the exchange of gradients.
    """

    def __init__(
        self, rows: np.ndarray, batch_size: int, seed: int, rank: int = 0, world: int = 1
    ) -> None:
        self.rows, self.batch_size, self.seed = np.asarray(rows), batch_size, seed
        self.rank, self.world = rank, world
        self.epoch = 0
        self.start = 0

    @property
    def steps(self) -> int:
        return -(-len(self.rows) // self.batch_size)

    def of_step(self, epoch: int, step: int) -> np.ndarray:
        """All rows of one step, over all processes."""
        order = np.random.default_rng([self.seed, epoch]).permutation(self.rows)
        return order[step * self.batch_size : (step + 1) * self.batch_size]

    def __len__(self) -> int:
        return self.steps - self.start

    def __iter__(self) -> Iterator[np.ndarray]:
        """This process's rows, from step `start` of `epoch` on: a batch sampler."""
        order = np.random.default_rng([self.seed, self.epoch]).permutation(self.rows)
        for step in range(self.start, self.steps):
            whole = order[step * self.batch_size : (step + 1) * self.batch_size]
            mine = whole[self.rank :: self.world]
            yield np.ascontiguousarray(mine if len(mine) else whole[:1])

    def weight(self, step: int) -> float:
        """What makes the mean over processes the mean over the whole batch.

        Processes hold shares of a batch that may differ by one row; the exchange of gradients
        averages them as if they were equal.
        """
        size = min(self.batch_size, len(self.rows) - step * self.batch_size)
        mine = len(range(self.rank, size, self.world))
        return mine * self.world / size


def seed_step(seed: int, epoch: int, step: int, rank: int, device: torch.device) -> None:
    """The random state as a function of the step, so that none has to be saved.

    Dropout then draws the same numbers after a resume as without one.
    """
    state = 0
    for number in (seed, epoch, step, rank):
        state = _mixed(state + number)
    # torch.manual_seed visits every kind of accelerator: longer than a small step takes.
    torch.default_generator.manual_seed(state)
    if device.type == "cuda":
        torch.cuda.manual_seed(state)
    elif device.type != "cpu":
        torch.manual_seed(state)


def _mixed(number: int) -> int:
    """SplitMix64: near numbers become far ones."""
    z = (number + 0x9E3779B97F4A7C15) & _64_BITS
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _64_BITS
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _64_BITS
    return z ^ (z >> 31)
