"""Paired tests between methods over seeds, with a correction for many comparisons."""

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.stats import permutation_test, ttest_1samp

from halftruth.bench.result_tables import REFERENCES, as_markdown, one_setting, split_setups
from halftruth.bench.results import Record
from halftruth.data import DataError

# Up to this many pairs, every sign pattern is counted; above, a Student t test would be as good.
MOST_EXACT = 16
TESTS = ("t", "sign-flip")


@dataclass(frozen=True)
class Comparison:
    """Two methods over the same seeds: mean difference in percent, p, and p after correction."""

    data: str
    labels: str
    first: str
    second: str
    difference: float
    seeds: int
    p: float
    corrected: float = math.nan


def compare(
    records: Iterable[Record],
    metric: str = "mAP",
    part: str = "test",
    test: str = "t",
    against: str | None = None,
) -> list[Comparison]:
    """Compare methods pair by pair, in every data set and label setting.

    A pair has the seeds that both methods were run with. `against`: compare every method with this
    one only. The correction is that of Holm, over all pairs of a data set and label setting.
    """
    if test not in TESTS:
        raise DataError(f"test: expected one of {', '.join(TESTS)}, got {test!r}")
    places: dict[tuple[str, str, int], dict[str, list[Record]]] = {}
    for setup, several in enumerate(split_setups(records)):
        for run in several:
            measured = not run["trial"] and (run.get(part) or {}).get(metric)
            if measured and run["method"] not in REFERENCES:
                here = places.setdefault((run["data"], run["column"], setup), {})
                here.setdefault(run["method"], []).append(run)
    found: list[Comparison] = []
    for (data, labels, setup), methods in places.items():
        place = data + (f" (set-up {setup + 1})" if setup else ""), labels
        values = {
            method: {
                (run.get("label_seed"), run["seed"]): 100 * run[part][metric]
                for run in one_setting(several)
            }
            for method, several in methods.items()
        }
        if against is not None and against not in values:
            known = ", ".join(values)
            raise DataError(f"against: there are no runs of {against!r} here; there are: {known}")
        tested = []
        for first, second in combinations(values, 2):
            seeds = sorted(values[first].keys() & values[second].keys(), key=str)
            if against in (None, first, second) and len(seeds) > 1:
                a, b = ([values[method][seed] for seed in seeds] for method in (first, second))
                tested.append(_compare(*place, first, second, np.subtract(a, b), test))
        found += correct(tested)
    return found


def _compare(
    data: str, labels: str, first: str, second: str, differences: np.ndarray, test: str
) -> Comparison:
    p = paired_t(differences) if test == "t" else sign_flips(differences)
    mean = float(differences.mean())
    if mean < 0:
        first, second, mean = second, first, -mean
    return Comparison(data, labels, first, second, mean, len(differences), p)


def paired_t(differences: Sequence[float] | np.ndarray) -> float:
    """The two-sided p of Student's paired t test.

    >>> round(paired_t([1.0, 2.0, 3.0]), 4)
    0.0742
    """
    if np.ptp(differences) == 0:
        return float(np.mean(differences) == 0)
    return float(ttest_1samp(differences, 0).pvalue)


def sign_flips(differences: Sequence[float] | np.ndarray) -> float:
    """The exact two-sided p of the sign-flip (paired permutation) test; no normality assumed.

    With n pairs it is never below 2 / 2^n: five seeds cannot show p < 0.05 (0.0625 at best).

    >>> sign_flips([1.0, 2.0, 3.0])
    0.25
    """
    if np.size(differences) > MOST_EXACT:
        return paired_t(differences)
    # Without a limit of resamples, every sign pattern is counted.
    found = permutation_test(
        (np.asarray(differences),), np.sum, permutation_type="samples", n_resamples=np.inf
    )
    return float(found.pvalue)


def correct(tested: list[Comparison]) -> list[Comparison]:
    """Add the p of Holm's correction: the probability of any false positive stays below it."""
    order = sorted(range(len(tested)), key=lambda place: tested[place].p)
    corrected, so_far = [math.nan] * len(tested), 0.0
    for rank, place in enumerate(order):
        so_far = max(so_far, min(1.0, tested[place].p * (len(tested) - rank)))
        corrected[place] = so_far
    return [dataclasses.replace(one, corrected=p) for one, p in zip(tested, corrected, strict=True)]


def significance_table(compared: list[Comparison], metric: str, test: str, level: float) -> str:
    """The comparisons as Markdown, the smallest corrected p first, and how to read them."""
    if not compared:
        return "no two methods have two seeds in common\n"
    rows = [["data, labels", "better", "than", "difference", "seeds", "p", "p corrected"]]
    place = {name: number for number, name in enumerate(dict.fromkeys(map(_column, compared)))}
    for one in sorted(compared, key=lambda c: (place[_column(c)], c.corrected, -c.difference)):
        mark = "**" if one.corrected < level else ""
        cells = [_column(one), f"`{one.first}`", f"`{one.second}`", f"{one.difference:+.2f}"]
        rows.append([*cells, str(one.seeds), _p(one.p), f"{mark}{_p(one.corrected)}{mark}"])
    names = {"t": "Student's paired t test", "sign-flip": "exact paired sign-flip test"}
    text = (
        f"{metric} in percent; {names[test]} over seeds, two-sided; corrected by Holm over the "
        f"pairs of a data set and label setting; bold below {level:g}. Seeds vary the initial "
        "weights and the order of rows (with label_seed: seed also the shown labels), not the "
        "data: a small p says that a difference on this data set is not due to the seed, not that "
        "it holds on others."
    )
    return f"{as_markdown(rows)}\n\n{text}\n"


def _p(p: float) -> str:
    return "< 0.0001" if p < 0.0001 else f"{p:.4f}"


def _column(one: Comparison) -> str:
    return f"{one.data}, {one.labels}"
