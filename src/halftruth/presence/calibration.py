"""Calibrated probabilities of missing and of wrong labels, and how many there are of each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from halftruth.audit.arrays import check_verified, scored
from halftruth.labels import ABSENT, PRESENT, UNKNOWN
from halftruth.presence.model import Presence, choose_selection, fit_presence, logit

Selection = Literal["auto", "random", "one"]
# The curves are fitted on no more labels than this; counts are taken over all rows.
_MOST_LABELS = 400_000
# How far logit P(there) is off, over all and in a single class, where the assumption on missing
# labels holds roughly only: standard deviations, from data sets whose complete labels are known.
SPREAD, CLASS_SPREAD = 0.5, 0.5
# Likewise for counts: of the logarithm of the total, by selection, and of that of a class.
_DOUBT, _CLASS_DOUBT = {"random": 0.25, "one": 0.15}, 0.5


@dataclass(frozen=True)
class Count:
    """An estimated number with its interval, meant to hold 95 % of the time."""

    estimate: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.estimate:,.0f} ({self.low:,.0f} to {self.high:,.0f})"


@dataclass(frozen=True)
class Calibration:
    """P(there) of every label, P(wrong) of every PRESENT one, and counts.

    `missing` and `wrong` have a `Count` a class, `missing_total` and `wrong_total` one over all.
    """

    present: np.ndarray
    wrong_probability: np.ndarray
    missing: list[Count]
    missing_total: Count
    wrong: list[float]
    wrong_total: float
    selection: str


def calibrate(
    labels: Any,
    scores: Any,
    *,
    verified: Any = None,
    selection: Selection = "auto",
    draws: int = 20,
    seed: int = 0,
) -> Calibration:
    """Turn out-of-sample scores into probabilities, without complete labels.

    `verified` (N, K) holds verdicts of a review: +1 there, -1 not there, 0 not looked at.
    `selection` says how labels came to be missing (see `halftruth.presence.model`); "auto" takes
    "one" where no row has more than one PRESENT label and none is ABSENT, else "random".
    Counts are the geometric mean of the fewest and the most that the scores allow (see there),
    which are also the ends of the intervals, widened by what `draws` bootstraps of the rows say.
    So more may be missing than the probabilities add up to: labels that the scores do not show.
    """
    data = scored(labels, scores)
    verdicts = check_verified(verified, data.labels)
    if selection not in get_args(Selection):
        raise ValueError(f"expected selection in {get_args(Selection)}, got {selection!r}")
    if not (data.labels == PRESENT).any():
        raise ValueError("no label is PRESENT (1), so nothing tells how a present class scores")
    if draws < 2:
        raise ValueError(f"expected draws of at least 2, got {draws}")
    how = choose_selection(data.labels) if selection == "auto" else selection
    random = np.random.default_rng(seed)
    some = _rows_to_fit(data.labels.shape, random)
    fit = partial(
        fit_presence, data.labels[some], data.scores[some], selection=how, verified=verdicts[some]
    )
    fitted = fit(given_one=how == "one")
    present = fitted.posterior(data.labels, data.scores, verdicts)
    fewest = most = missing_count(present, data.labels)
    if how == "one":
        outright = fit(given_one=False).posterior(data.labels, data.scores, verdicts)
        most = np.maximum(missing_count(outright, data.labels), fewest)
    drawn = []
    for _ in range(draws):
        weights = random.poisson(1.0, len(some)).astype(float)
        once = fit(given_one=how == "one", weights=weights, start=fitted, steps=5)
        there = once.posterior(data.labels[some], data.scores[some], verdicts[some])
        # Of labels that are there with p each, another number than their sum p may be.
        spread = np.sqrt((there * (1 - there)).sum(axis=0))
        count = missing_count(there, data.labels[some]) + spread * random.normal(size=len(spread))
        drawn.append(count * len(present) / len(some))
    chance = np.array(drawn)
    estimate = np.sqrt(fewest * most)
    sides = zip(estimate, fewest, most, chance.T, strict=True)
    wrong = _wrong(data.labels, data.scores, verdicts, fitted)
    return Calibration(
        present=present,
        wrong_probability=wrong,
        missing=[_count(*side, _CLASS_DOUBT) for side in sides],
        missing_total=_count(
            estimate.sum(), fewest.sum(), most.sum(), chance.sum(axis=1), _DOUBT[how]
        ),
        wrong=[float(value) for value in wrong.sum(axis=0)],
        wrong_total=float(wrong.sum()),
        selection=how,
    )


def missing_count(present: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """(K,) expected number of labels that are there and not labelled."""
    return np.where(labels == UNKNOWN, present, 0.0).sum(axis=0)


def _rows_to_fit(shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    most = max(_MOST_LABELS // shape[1], 1)
    if shape[0] <= most:
        return np.arange(shape[0])
    return np.sort(random.choice(shape[0], most, replace=False))


def _count(estimate: float, fewest: float, most: float, drawn: np.ndarray, doubt: float) -> Count:
    """From the lower side of the fewest to the upper side of the most, as wide as draws differ."""
    spread = float(np.std(drawn)) / max(float(fewest), 1.0)
    factor = float(np.exp(1.96 * np.hypot(spread, doubt)))
    return Count(float(estimate), float(fewest) / factor, float(most) * factor)


def _wrong(
    labels: np.ndarray, scores: np.ndarray, verified: np.ndarray, fitted: Presence
) -> np.ndarray:
    """P(not there | PRESENT, score) = ε (1 − p) / (ε (1 − p) + c p), 0 for other labels.

    ε, the chance of a mistaken label, is the surplus of PRESENT labels in the half of the rows
    that scores lowest, over the c p that is expected there. Hard positives that look like
    negatives are in it, so P(wrong) is rather too high than too low.
    """
    p = fitted.prior(scores)
    low = logit(scores) <= np.median(logit(scores), axis=0)
    listed = labels == PRESENT
    surplus = np.where(low, listed - fitted.chance * p, 0.0).sum(axis=0)
    mistake = np.clip(surplus, 0, None) / np.maximum(low.sum(axis=0), 1)
    odds = mistake * (1 - p)
    wrong = np.where(listed, odds / np.maximum(odds + fitted.chance * p, 1e-300), 0.0)
    return np.where(listed & (verified != 0), verified == ABSENT, wrong)
