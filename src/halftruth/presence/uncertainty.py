"""Every constant that makes an interval wider, and an estimate with its interval.

A spread is a standard deviation: of a logit, or of the logarithm of a number, as its line says.
"checked by" names the document whose table shows how often the truth is inside; the spreads were
chosen on data sets with complete labels. "not measured alone" is a choice no table isolates.
"""

from __future__ import annotations

from dataclasses import dataclass

# Half the width of a 90 % interval in standard deviations.
Z90 = 1.6449

# Probabilities (`probabilities`, `calibration`): log of the number of missing labels; checked by
# docs/results.md, "Decisions" (benchmarks/decisions.py).
# Shared by all classes, where the assumption on missing labels holds only roughly.
DOUBT = 0.25
# The same of a single class.
CLASS_DOUBT = 0.5
# The same of the labels next to the only one that a row shows; blank rows tell nothing of them.
NEXT_DOUBT = 0.5

# Estimated scores (`estimated_scores`); checked by benchmarks/results/decisions.md, "Estimated
# labels", columns "inside" (benchmarks/decisions.py).
# Error of logit P(present) that all classes share.
SCORE_SPREAD = 0.3
# The same of a single class.
SCORE_CLASS_SPREAD = 0.5
# Added to the variance of the shared error, divided by the mean number of shown labels per class.
SCORE_FEW_LABELS = 4.0
# Log of the scores "by probabilities": the shape of the fitted curve is wrong.
SCORE_SHAPE = 0.2
# Draws go this much beyond the range of the fits, which holds the truth too rarely.
SCORE_BEYOND = 1.2

# The number of wrong labels of an audit without verdicts is known up to this factor, and may be 0;
# from data sets with 0, 2 and 10 % wrong labels (benchmarks/wrong_labels.py).
WRONG_FACTOR = 5.0
# The low end of P(wrong) allows for at least this share of hard examples among PRESENT labels, its
# high end for at most that share of wrong ones; docs/explained/audit.md.
WRONG_LEAST_HARD, MOST_WRONG = 0.05, 0.2

# Relative spread of the missing labels that scores do not show (`remaining`); not measured alone.
UNSEEN_SPREAD = 0.5

# Verified labels (`verification`): relative error of the recalibrated model that remains; not
# measured alone. Coverage: benchmarks/results/decisions.md, "Verified labels".
MODEL_ERROR = 0.03


@dataclass(frozen=True)
class Spreads:
    """Normal priors of the error of a logit that verdicts correct (`remaining`).

    `shared`: of the error over all classes; `own`: of that of one class; `steep`: of how
    overconfident likely candidates are.
    """

    shared: float
    steep: float
    own: float


# Of missing labels; checked by benchmarks/results/audit.md, lines "expected"
MISSING_SPREADS = Spreads(shared=0.5, steep=0.5, own=0.5)
# Of wrong labels, which are known less well than missing ones; benchmarks/wrong_labels.py.
WRONG_SPREADS = Spreads(shared=1.5, steep=0.5, own=0.7)


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
