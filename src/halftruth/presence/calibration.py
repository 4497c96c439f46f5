"""Calibrated probabilities of missing and of wrong labels, and how many there are of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from halftruth.labels import ABSENT, PRESENT, UNKNOWN, LabelMatrix, check
from halftruth.presence.labelling_model import Presence, choose_selection, fit_presence
from halftruth.presence.wrong_labels import find_wrong

Selection = Literal["auto", "random", "one"]
SELECTIONS: tuple[str, ...] = get_args(Selection)
# An unknown label has at most the probability 1 − this of being present.
_DOUBT_OF_ANY = 0.005
# The curves are fitted on at most this many labels; counts use all rows.
_MOST_LABELS = 400_000
# Standard deviation of the error of logit P(present), over all classes and of a single class, where
# the assumption on missing labels holds only roughly; from data sets with complete labels.
SPREAD, CLASS_SPREAD = 0.5, 0.5
# The same for counts: of the logarithm of the total, by selection, and of the count of a class.
_DOUBT, _CLASS_DOUBT = {"random": 0.25, "one": 0.15}, 0.5


@dataclass(frozen=True)
class Count:
    """An estimated number with a 95 % interval."""

    estimate: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.estimate:,.0f} ({self.low:,.0f} to {self.high:,.0f})"


@dataclass(frozen=True)
class Calibration:
    """P(present) of every label, P(wrong) of every PRESENT label, and counts.

    `missing` has one `Count` per class and `wrong` one number; the totals are over all classes.
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

    `verified` (N, K) holds the verdicts of a review: +1 present, -1 absent, 0 not reviewed.
    Reviewed labels are no longer missing or wrong in the counts.
    `selection` is how labels came to be missing (see `halftruth.presence.labelling_model`); "auto"
    takes "one" where no row has more than one PRESENT label and none is ABSENT, else "random".
    A count is the geometric mean of the smallest and the largest number that the scores allow. They
    are also the ends of the interval, which `draws` bootstrap samples of the rows then widen.
    A count may exceed the sum of the probabilities: some labels do not show in the scores.
    """
    values, points = check_labels_and_scores(labels, scores)
    verdicts = _check_verified(verified, values)
    if selection not in SELECTIONS:
        raise ValueError(f"selection: expected {' or '.join(SELECTIONS)}, got {selection!r}")
    if not (values == PRESENT).any():
        raise ValueError("no label is PRESENT (1), so the scores of present classes are not known")
    if draws < 2:
        raise ValueError(f"expected draws of at least 2, got {draws}")
    how = choose_selection(values) if selection == "auto" else selection
    random = np.random.default_rng(seed)
    rows = _rows_to_fit(values.shape, random)
    sample = values[rows], points[rows], verdicts[rows]
    fit = partial(fit_presence, *sample[:2], selection=how, verified=sample[2])
    fitted = fit(given_one=how == "one")
    present = fitted.posterior(values, points, verdicts)
    # No unknown label is certain, however high its score: the order stays the same.
    open_ones = (values == UNKNOWN) & (verdicts == 0)
    present = np.where(open_ones, present * (1 - _DOUBT_OF_ANY * present), present)
    fewest = most = _missing_count(present, values, verdicts)
    if how == "one":
        independent = fit(given_one=False).posterior(values, points, verdicts)
        most = np.maximum(_missing_count(independent, values, verdicts), fewest)
    refit = partial(fit, given_one=how == "one", start=fitted, steps=5)
    drawn = _bootstrap_counts(refit, sample, draws, random) * len(values) / len(rows)
    wrong = find_wrong(values, points, present)
    # A reviewed label has a verdict, not a probability; it is not counted any more.
    not_reviewed = np.where(verdicts == 0, wrong, 0.0)
    wrong = np.where(verdicts == 0, wrong, (verdicts == ABSENT) & (values == PRESENT))
    estimate = np.sqrt(fewest * most)
    per_class = zip(estimate, fewest, most, drawn.T, strict=True)
    return Calibration(
        present=present,
        wrong_probability=wrong,
        missing=[_count(*one, _CLASS_DOUBT) for one in per_class],
        missing_total=_count(
            estimate.sum(), fewest.sum(), most.sum(), drawn.sum(axis=1), _DOUBT[how]
        ),
        wrong=[float(value) for value in not_reviewed.sum(axis=0)],
        wrong_total=float(not_reviewed.sum()),
        selection=how,
    )


def _missing_count(present: np.ndarray, labels: np.ndarray, verified: np.ndarray) -> np.ndarray:
    """(K,) expected number of labels that are present, not labelled and not yet reviewed."""
    return np.where((labels == UNKNOWN) & (verified == 0), present, 0.0).sum(axis=0)


def check_labels_and_scores(labels: Any, scores: Any) -> tuple[np.ndarray, np.ndarray]:
    """(N, K) labels as int8 and probabilities as float64; an error names the first invalid one."""
    values = labels.values if isinstance(labels, LabelMatrix) else np.asarray(check(labels))
    if hasattr(scores, "detach"):
        scores = scores.detach().cpu().float()
    points = np.asarray(scores, dtype=np.float64)
    if points.shape != values.shape:
        raise ValueError(
            f"expected scores of the shape of the labels, rows x classes {values.shape}, "
            f"got {points.shape}"
        )
    invalid = find_invalid(points)
    if invalid is not None:
        row, column = invalid
        raise ValueError(
            f"scores[{row}, {column}]: expected a probability in 0..1, got {points[row, column]} "
            "(apply the sigmoid to logits first)"
        )
    return values, points


def find_invalid(scores: np.ndarray) -> tuple[int, int] | None:
    """Row and column of the first score that is not a number in 0..1."""
    invalid = ~((scores >= 0) & (scores <= 1))
    if not invalid.any():
        return None
    row, column = np.argwhere(invalid)[0]
    return int(row), int(column)


def _check_verified(verified: Any, labels: np.ndarray) -> np.ndarray:
    if verified is None:
        return np.zeros(labels.shape, dtype=np.int8)
    verdicts = np.asarray(check(verified))
    if verdicts.shape != labels.shape:
        raise ValueError(f"expected verified of shape {labels.shape}, got {verdicts.shape}")
    return verdicts


def _rows_to_fit(shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    most = max(_MOST_LABELS // shape[1], 1)
    if shape[0] <= most:
        return np.arange(shape[0])
    return np.sort(random.choice(shape[0], most, replace=False))


def _bootstrap_counts(
    refit: Callable[..., Presence],
    sample: tuple[np.ndarray, np.ndarray, np.ndarray],
    draws: int,
    random: np.random.Generator,
) -> np.ndarray:
    """(draws, K) missing labels in the sample, by fits to bootstrap weights of its rows."""
    drawn = []
    for _ in range(draws):
        weights = random.poisson(1.0, len(sample[0])).astype(float)
        present = refit(weights=weights).posterior(*sample)
        # The number of present labels varies around the sum of their probabilities.
        spread = np.sqrt((present * (1 - present)).sum(axis=0))
        drawn.append(
            _missing_count(present, sample[0], sample[2]) + spread * random.normal(size=len(spread))
        )
    return np.array(drawn)


def _count(estimate: float, fewest: float, most: float, drawn: np.ndarray, doubt: float) -> Count:
    """An interval around fewest..most, widened by the spread of the draws and by `doubt`."""
    spread = float(np.std(drawn)) / max(float(fewest), 1.0)
    factor = float(np.exp(1.96 * np.hypot(spread, doubt)))
    return Count(float(estimate), float(fewest) / factor, float(most) * factor)
