"""Seeds of random numbers: one range, and one error outside of it, for everything that draws."""

import operator
from typing import Any

# That of numpy.random.RandomState, which published splits and draws need.
SEED_RANGE = "a whole number from 0 to 2^32 - 1"


class SeedError(ValueError):
    """A seed that is not a whole number from 0 to 2^32 - 1."""

    def as_options(self) -> str:
        """Return the message with the option of the command line."""
        return f"--{self}"


def is_seed(seed: Any) -> bool:
    """Return whether a value is a whole number from 0 to 2^32 - 1.

    >>> is_seed(2**32 - 1), is_seed(2**32), is_seed(-1), is_seed(0.0), is_seed(True)
    (True, False, False, False, False)
    """
    try:
        return not isinstance(seed, bool) and 0 <= operator.index(seed) < 2**32
    except TypeError:
        return False


def check_seed(seed: Any, name: str = "seed") -> int:
    """Return a seed as an int, or raise a SeedError."""
    if not is_seed(seed):
        raise SeedError(f"{name}: expected {SEED_RANGE}, got {seed!r}")
    return operator.index(seed)
