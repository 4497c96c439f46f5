"""An estimated number with its interval: one class and one level for all of halftruth."""

from __future__ import annotations

from dataclasses import dataclass

# Half the width of a 90 % interval in standard deviations.
Z90 = 1.6449


@dataclass(frozen=True)
class Estimate:
    """A value with a 90 % interval.

    >>> print(Estimate(1234.4, 980.0, 1500.0), Estimate(1.234, 0.9, 1.5))
    1,234 (980 to 1,500) 1.23 (0.9 to 1.5)
    >>> Estimate(0.612, 0.55, 0.68).percent()
    '61.2 (55.0 to 68.0)'
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        value, low, high = (
            f"{one:,.0f}" if abs(self.value) >= 20 else f"{one:.3g}"
            for one in (self.value, self.low, self.high)
        )
        return f"{value} ({low} to {high})"

    def percent(self) -> str:
        """The same in percent."""
        return f"{100 * self.value:.1f} ({100 * self.low:.1f} to {100 * self.high:.1f})"

    @property
    def width(self) -> float:
        """high − low."""
        return self.high - self.low
