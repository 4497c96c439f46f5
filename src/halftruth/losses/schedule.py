"""Numbers that change linearly from the first epoch to the last."""

import math
from collections.abc import Sequence

Span = tuple[float, float]


def check_span(given: float | Sequence[float], name: str) -> Span:
    """A number, or a pair (start, end), as a pair.

    >>> check_span(2, "q"), check_span([0, 1.5], "q")
    ((2.0, 2.0), (0.0, 1.5))
    """
    pair = (given, given) if isinstance(given, int | float) else given
    try:
        start, end = (float(x) for x in pair)
    except (TypeError, ValueError):
        start = end = math.nan
    if not (math.isfinite(start) and math.isfinite(end)):
        raise ValueError(f"expected {name} to be a finite number or (start, end), got {given!r}")
    return start, end


def value_at(span: Span, share: float) -> float:
    """The number at a share of the schedule, 0 to 1."""
    start, end = span
    return start + (end - start) * share
