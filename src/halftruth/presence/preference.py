"""Whether some classes are shown in preference to others: a test on rows with complete labels.

Incomplete labels alone hardly distinguish a rare class from one that is rarely shown. A few rows
that were labelled completely later show the difference directly. Suppose that a row shows s of its
m present labels. If every choice of s labels is as likely as any other, class k is shown in s/m of
these rows. The test compares how often each class is shown with that number in two ways: over all
classes, and along their frequency (frequent or rare classes first). Its p-value is exact: the share
of even draws that are at least as far from even in either way.

Rows with s = 0 or s = m contain no information on a preference, and do not count in the test.

How strong a preference for frequent classes is, follows from the rows that show one label: P(k is
shown) = n_k^γ / Σ n_m^γ over the present classes, with n the number of shown labels of a class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from halftruth.labels import PRESENT, find_complete_rows
from halftruth.seeds import check_seed

# A preference is certain enough from this p-value on.
LEVEL = 0.03
# Newton steps for γ, which has the prior N(0, 1).
_STEPS = 20
# Even draws for the p-value, fewer where there are many labels.
_DRAWS, _FEWEST_DRAWS, _MOST_CELLS = 1000, 200, 20_000_000
# Enough rows to find that one class is shown twice as often as another: the difference is then
# beyond 2.5 standard errors with a probability of 90 %.
_FACTOR, _ERRORS = 2.0, 2.5 + 1.28
_FEWEST_ROWS, _MOST_ROWS = 20, 500


@dataclass(frozen=True)
class Preference:
    """How often each class is shown where it is present, and whether chance explains it.

    shown, present: counts per class (K,) in the complete rows.
    expected: how often the class would be shown if a row's labels were chosen evenly, and `chosen`
        how often it is shown, both in the rows that count in the test; `rows` is their number.
    p_value: the probability of such a difference if labels are chosen evenly.
    exponent: γ, above 0 where frequent classes are named first, below where rare ones are.
    """

    shown: np.ndarray
    present: np.ndarray
    chosen: np.ndarray
    expected: np.ndarray
    rows: int
    p_value: float
    exponent: float = 0.0

    @property
    def found(self) -> bool:
        """Whether some classes are preferred."""
        return bool(self.p_value < LEVEL)

    @property
    def told(self) -> float | None:
        """γ, 0 where labels are chosen evenly; None where the rows have no information on it."""
        if not self.rows:
            return None
        return self.exponent if self.found else 0.0

    @property
    def share(self) -> np.ndarray:
        """(K,) the share of the present labels that are shown; NaN where none is present."""
        known = self.present > 0
        return np.where(known, self.shown / np.maximum(self.present, 1), np.nan)


def find_preference(shown: Any, complete: Any, *, seed: int = 0) -> Preference:
    """Test whether the shown labels (N, K) are an even choice from the complete labels (N, K).

    Rows of `complete` with an unknown label do not count, nor do shown labels that are not present.

    >>> complete = np.tile(np.array([1, 1, -1], dtype=np.int8), (40, 1))
    >>> always_the_first = np.tile(np.array([1, 0, 0], dtype=np.int8), (40, 1))
    >>> found = find_preference(always_the_first, complete)
    >>> found.share[:2].tolist(), found.p_value < 0.001
    ([1.0, 0.0], True)
    """
    check_seed(seed)
    truth, seen = np.asarray(complete), np.asarray(shown)
    if truth.ndim != 2 or seen.shape != truth.shape:
        raise ValueError(
            f"expected shown and complete labels of one shape (N, K), got {seen.shape} and "
            f"{truth.shape}"
        )
    whole = find_complete_rows(truth)
    present = truth[whole] == PRESENT
    given = (seen[whole] == PRESENT) & present
    count, total = given.sum(axis=1), present.sum(axis=1)
    telling = (count > 0) & (count < total)
    row, column = np.nonzero(present[telling])
    kept, count, total = given[telling][row, column], count[telling], total[telling]
    rate, width = (count / total)[row], truth.shape[1]
    expected = np.bincount(column, rate, width)
    spread = np.bincount(column, rate * (1 - rate), width)

    # From other rows where there are any: whether a class counts as frequent must not depend on the
    # choices that are tested.
    known = present if whole.all() else seen[~whole] == PRESENT
    frequency = np.log(known.sum(axis=0) + 1.0)

    def measure(which: np.ndarray) -> tuple[float, float]:
        # One more: a class with few labels says little, however unlikely.
        gap = np.bincount(column, which, width) - expected
        return float((gap**2 / (spread + 1)).sum()), abs(float(gap @ frequency))

    p_value = 1.0
    if len(row):
        random = np.random.default_rng(seed)
        draws = int(np.clip(_MOST_CELLS // len(row), _FEWEST_DRAWS, _DRAWS))
        # The first cells of a row in random order are an even choice.
        first = np.arange(len(row)) - np.repeat(np.cumsum(total) - total, total) < count[row]
        even = np.zeros(len(row), dtype=bool)
        found = [measure(kept)]
        for _ in range(draws):
            even[np.argsort(row + random.random(len(row)))] = first
            found.append(measure(even))
        p_value = _rank_first(np.array(found))
    chosen = np.bincount(column, kept, width)
    return Preference(
        given.sum(axis=0), present.sum(axis=0), chosen, expected, len(count), p_value,
        _fit_exponent(np.where(count == 1, 1.0, 0.0), row, frequency[column], kept),
    )  # fmt: skip


def _fit_exponent(rows: np.ndarray, row: np.ndarray, log_n: np.ndarray, kept: np.ndarray) -> float:
    """γ of P(shown) = n^γ / Σ n^γ over the present labels of a row, for rows of weight 1."""
    exponent = 0.0
    for _ in range(_STEPS if rows.any() else 0):
        weight = np.exp(exponent * (log_n - log_n.max()))
        total = np.bincount(row, weight, len(rows))
        share = weight / total[row] * rows[row]
        mean = np.bincount(row, share * log_n, len(rows))
        slope = float((rows[row] * kept * log_n).sum() - mean.sum()) - exponent
        bend = float((share * (log_n - mean[row]) ** 2).sum()) + 1.0
        step = float(np.clip(slope / bend, -0.5, 0.5))
        exponent += step
        if abs(step) < 1e-6:
            break
    return exponent


def _rank_first(found: np.ndarray) -> float:
    """The share of draws (rows) that are as extreme as the first one, by any measure (columns)."""
    # Equal up to rounding is equal.
    rounded = found.round(9)
    above = [len(found) - np.searchsorted(np.sort(one), one) for one in rounded.T]
    smallest = np.min(above, axis=0)
    return float(np.mean(smallest <= smallest[0]))


def choose_rows_to_complete(probabilities: Any, *, seed: int = 0) -> np.ndarray:
    """Choose the rows whose complete labels are most informative, by P(present | x) (N, K); sorted.

    A row is informative if at least two classes are present. Rows are drawn with the probability
    of that as weight: as many as are needed to find a class that is shown twice as often as another
    where both are present, but at least 20 and at most 500.

    >>> len(choose_rows_to_complete(np.full((1000, 10), 0.3)))
    140
    """
    p = np.clip(np.asarray(probabilities, dtype=np.float64), 1e-9, 1 - 1e-9)
    none = np.exp(np.log1p(-p).sum(axis=1))
    several = np.clip(1 - none - none * (p / (1 - p)).sum(axis=1), 1e-12, 1.0)
    waiting = np.random.default_rng(check_seed(seed)).standard_exponential(len(p)) / several
    order = np.argsort(waiting, kind="stable")
    # n rows with two present classes tell the logarithm of the factor up to 2 / sqrt(n).
    enough = (2 * _ERRORS / np.log(_FACTOR)) ** 2
    needed = int(np.searchsorted(np.cumsum(several[order]), enough)) + 1
    return np.sort(order[: int(np.clip(needed, _FEWEST_ROWS, _MOST_ROWS))])
