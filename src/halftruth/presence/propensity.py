"""Whether some classes are shown in preference to others, by labels alone and by complete rows.

    P(k is shown | present classes C) = e_k / Σ e_m over C          (Plackett and Luce)

e_k is the propensity of class k. All equal: the shown class is drawn at random, as in papers.
People prefer frequent classes: e_k = n_k^γ, with n_k the number of shown labels of class k. One
number γ for all classes can be estimated, a number per class cannot: confused classes look like
classes that are present and not shown (docs/explained/bias.md).

By labels alone (`compare_selections`): two models of the same rows, each with its own propensities
from training to calibration, by the likelihood of the shown class in rows that neither was fitted
on. Where classes are predicted badly, the second can win without any bias, since its weights
regularise more. So a gain counts only where the models explain the labels at all, and beyond the
gain on labels that are drawn evenly by the first model.

By rows that were labelled completely later (`find_preference`): if a row shows s of its m present
labels, and every choice of s labels is as likely as any other, class k is shown in s/m of these
rows. The test compares how often each class is shown with that number, over all classes and along
their frequency. Its p-value is exact: the share of even draws that are at least as far from even in
either way. Rows with s = 0 or s = m do not count. γ follows from the rows that show one label.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from halftruth.labels import PRESENT, find_complete_rows
from halftruth.labels.checks import Array
from halftruth.presence.labelling_model import choose_selection, fit_presence
from halftruth.presence.solvers import fit_choice_exponent, integrate_others, sigmoid
from halftruth.seeds import check_seed

# The exponent γ for training and correcting: with a bias much better than 0, with labels drawn at
# random about as good (docs/explained/bias.md).
EXPONENT = 1.0
# The exponent of the alternative in the test: between a random draw (0) and strict order.
TESTED = 0.5
# Standard errors by which the log-likelihood of the alternative must be higher: than that of the
# random draw, and than for labels drawn evenly. And its gain per row: less does not matter, however
# certain it is.
ENOUGH, BEYOND, WORTH = 1.0, 2.0, 0.001
# The share of the log-likelihood of the shown classes that x must explain for an alarm, and to say
# that there is no bias; with less, nothing can be told about classes that are not shown.
EXPLAINED, CLEAR = 0.1, 0.2
_STEPS = 15

# A preference in complete rows is certain enough from this p-value on.
LEVEL = 0.03
# Even draws for the p-value, fewer where there are many labels.
_DRAWS, _FEWEST_DRAWS, _MOST_CELLS = 1000, 200, 20_000_000
# Enough rows to find that one class is shown twice as often as another: the difference is then
# beyond 2.5 standard errors with a probability of 90 %.
_FACTOR, _ERRORS = 2.0, 2.5 + 1.28
_FEWEST_ROWS, _MOST_ROWS = 20, 500


def frequency_propensities(labels: np.ndarray, exponent: float = EXPONENT) -> np.ndarray:
    """Return e_k = (n_k + 1)^γ per class, with a geometric mean of 1.

    >>> frequency_propensities(np.array([[1, 0], [1, 0], [1, 0], [0, 0]])).round(2).tolist()
    [2.0, 0.5]
    """
    log = exponent * np.log((np.asarray(labels) == PRESENT).sum(axis=0) + 1.0)
    return np.asarray(np.exp(log - log.mean()))


def choose_propensity(
    labels: np.ndarray, bias: LabelBias | None, exponent: float | None = None
) -> np.ndarray | None:
    """Return the propensities for probabilities and estimates; None where no bias was found.

    `exponent`: γ by complete rows, which decide where they tell (`Preference.told`); up to that of
    training. By labels alone γ is that of the test: a level that is too high harms decisions more
    than one that is too low.
    """
    if exponent is None:
        exponent = TESTED if bias is not None and bias.found else 0.0
    exponent = float(np.clip(exponent, -EXPONENT, EXPONENT))
    return frequency_propensities(labels, exponent) if exponent else None


def choose_possible(
    labels: np.ndarray, bias: LabelBias | None, exponent: float | None = None
) -> np.ndarray | None:
    """Return propensities that intervals must cover, too; None where nothing is in doubt.

    Labels alone either cannot tell whether there is a bias, or tell that there is one, but not how
    strong it is. Complete rows (`exponent`) tell both.
    """
    known = bias is None or exponent is not None or (bias.tells and not bias.found)
    return None if known else frequency_propensities(labels)


def shows_one(labels: np.ndarray) -> bool:
    """Return whether rows show one class each, with labels that are unknown: a choice was made."""
    return choose_selection(labels) == "single_positive" and bool((labels == PRESENT).any())


def weigh_pairs(labels: np.ndarray, exponent: float = EXPONENT) -> np.ndarray:
    """Return (K, K): how much a row that shows class j counts as a row without class k.

        w_jk = min(1, 2 e_k / (e_k + e_j + Σ e_m n_m / N)),   w_jj = 1

    It is the probability that k would have been shown if it were present, up to the factor 2 of
    Laplace's rule (see the loss `swan`). The sum is over the classes that are expected in any row.
    """
    e = frequency_propensities(labels, exponent)
    others = float((e * (labels == PRESENT).mean(axis=0)).sum())
    pairs = np.minimum(2 * e / (e + e[:, None] + others), 1.0)
    np.fill_diagonal(pairs, 1.0)
    return np.asarray(pairs)


def shown_log_likelihood(shown: np.ndarray, p: np.ndarray, propensity: np.ndarray) -> np.ndarray:
    """Return log P(the class `shown` (N,) is the one shown | x) per row, for independent classes.

        P(j is shown) = p_j E[e_j / (e_j + Σ e_m y_m)] = p_j ∫₀¹ Π (1 − p_m + p_m t^(e_m/e_j)) dt

    >>> p = np.array([[1.0, 1.0]])
    >>> np.exp(shown_log_likelihood(np.array([0]), p, np.array([3.0, 1.0]))).round(2).tolist()
    [0.75]
    """
    rows = np.arange(len(p))
    first = np.arange(p.shape[1]) == shown[:, None]
    total = np.zeros(len(p))
    for weight, _, others in integrate_others(p, first, propensity, 24):
        total += weight * np.exp(others.sum(axis=1))
    return np.asarray(np.log(np.maximum(p[rows, shown] * total, 1e-300)))


@dataclass(frozen=True)
class LabelBias:
    """Whether frequent classes are named first: the test of γ = 0.5 against a random draw.

    `gain` is the mean gain in log-likelihood per row, `z` that gain in standard errors. `even` is
    the mean z of labels that are drawn evenly, by the model of the random draw; 0 where z is so low
    that it does not matter. `explained` is the share of the log-likelihood that x explains.
    """

    z: float
    gain: float
    rows: int
    even: float = 0.0
    explained: float = 1.0

    @property
    def suspected(self) -> bool:
        """Whether the gain is worth a comparison with labels that are drawn evenly."""
        return bool(self.z > ENOUGH and self.gain > WORTH and self.explained >= EXPLAINED)

    @property
    def found(self) -> bool:
        """Whether the labels are explained better by "frequent classes first"."""
        return self.suspected and bool(self.z - self.even > BEYOND)

    @property
    def tells(self) -> bool:
        """Whether labels alone can tell: not where even labels look biased, too."""
        return self.found or bool(self.explained >= CLEAR and self.even < ENOUGH)

    def describe(self) -> str:
        """Return what the test says, in one sentence."""
        where = f"{self.rows:,} rows with one label each, z = {self.z:.1f}"
        if self.found:
            return (
                f"labels look biased: where several classes are present, the frequent one is named "
                f"({where}; {self.even:.1f} for labels drawn evenly). In rows that show a frequent "
                "class, unknown labels of other classes count little. Some rows with complete "
                "labels would settle it (--complete-rows)"
            )
        if not self.tells:
            why = f"the features explain {max(100 * self.explained, 0):.0f} % of which one is shown"
            if self.explained >= CLEAR:
                why = f"{where}, but {self.even:.1f} for labels drawn evenly"
            return (
                f"whether frequent classes are named first cannot be told from these labels ({why}"
                "). Complete labels of about 100 rows would tell (--complete-rows)"
            )
        return (
            f"labels do not look biased towards frequent classes ({where}). Other preferences, "
            "such as the largest object first, cannot be seen in labels alone"
        )


def compare_selections(
    labels: np.ndarray, by_chance: np.ndarray, frequent_first: np.ndarray
) -> LabelBias:
    """Return the test from out-of-sample logits (N, K) of two models.

    `by_chance` is from a model trained with equal propensities, `frequent_first` from one trained
    with `frequency_propensities(labels, TESTED)`. Rows that show nothing do not count.
    """
    given = labels[(labels == PRESENT).sum(axis=1) == 1]
    if not len(given):
        return LabelBias(0.0, 0.0, 0, explained=0.0)
    shown = (given == PRESENT).argmax(axis=1)
    found = []
    for logits, exponent in ((by_chance, 0.0), (frequent_first, TESTED)):
        e, p = frequency_propensities(labels, exponent), _calibrate(labels, logits, exponent)
        found.append(shown_log_likelihood(shown, p, e))
    gain = found[1] - found[0]
    error = float(gain.std() / np.sqrt(len(gain)))
    mean = float(gain.mean())
    without_x = float(np.log((given == PRESENT).mean(axis=0)[shown]).mean())
    explained = 1 - float(found[0].mean()) / min(without_x, -1e-12)
    return LabelBias(mean / max(error, 1e-12), mean, len(gain), explained=explained)


def draw_evenly(labels: np.ndarray, by_chance: np.ndarray, seed: int) -> np.ndarray:
    """Return labels that the model of the random draw (logits, (N, K)) says could be shown instead.

    Every row must show one class. Present classes are drawn by P(present | x), at least one per
    row, and one of them is shown, all equally likely.
    """
    p, random = _calibrate(labels, by_chance, 0.0), np.random.default_rng(seed)
    present = random.random(p.shape) < p
    # A row without a class gets one, in proportion to the probabilities.
    waiting = random.standard_exponential(p.shape) / np.maximum(p, 1e-12)
    rows = np.arange(len(p))
    empty = ~present.any(axis=1)
    present[rows[empty], waiting[empty].argmin(axis=1)] = True
    found = np.zeros(labels.shape, np.int8)
    found[rows, np.where(present, random.random(p.shape), -1.0).argmax(axis=1)] = PRESENT
    return found


def _calibrate(labels: np.ndarray, logits: np.ndarray, exponent: float) -> np.ndarray:
    """P(present | x) of the rows that show one class, by the choice with these propensities."""
    rows = (labels == PRESENT).sum(axis=1) == 1
    e, scores = frequency_propensities(labels, exponent), sigmoid(logits[rows])
    fit = fit_presence(
        labels[rows], scores, selection="single_positive", propensity=e, steps=_STEPS
    )
    return fit.prior(scores)


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


def find_preference(shown: Array, complete: Array, *, seed: int = 0) -> Preference:
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
    informative = (count > 0) & (count < total)
    row, column = np.nonzero(present[informative])
    kept, count, total = given[informative][row, column], count[informative], total[informative]
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
        fit_choice_exponent(frequency[column], kept, row, np.where(count == 1, 1.0, 0.0)),
    )  # fmt: skip


def _rank_first(found: np.ndarray) -> float:
    """The share of draws (rows) that are as extreme as the first one, by any measure (columns)."""
    # Equal up to rounding is equal.
    rounded = found.round(9)
    above = [len(found) - np.searchsorted(np.sort(one), one) for one in rounded.T]
    smallest = np.min(above, axis=0)
    return float(np.mean(smallest <= smallest[0]))


def choose_rows_to_complete(probabilities: Array, *, seed: int = 0) -> np.ndarray:
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
