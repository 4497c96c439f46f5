"""Calibrated probabilities of missing and of wrong labels, and how many there are of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from halftruth.labels import ABSENT, PRESENT, UNKNOWN, LabelMatrix, check
from halftruth.presence.estimate import Z90, Estimate
from halftruth.presence.labelling_model import logit
from halftruth.presence.probabilities import (
    CLASS_DOUBT,
    DOUBT,
    SELECTIONS,
    Selection,
    fit_probabilities,
)
from halftruth.presence.wrong_labels import find_wrong

# An unknown label has at most the probability 1 − this of being present.
_DOUBT_OF_ANY = 0.005


@dataclass(frozen=True)
class Calibration:
    """P(present) of every label, P(wrong) of every PRESENT label with its range, and counts.

    `missing` has one estimate per class and `wrong` one number; the totals are over all classes.
    """

    present: np.ndarray
    wrong_probability: np.ndarray
    missing: list[Estimate]
    missing_total: Estimate
    wrong: list[float]
    wrong_total: Estimate
    selection: str
    wrong_least: np.ndarray
    wrong_most: np.ndarray


def calibrate(
    labels: Any,
    scores: Any,
    *,
    verified: Any = None,
    selection: Selection = "auto",
    propensity: Any = None,
    possible: Any = None,
    seed: int = 0,
) -> Calibration:
    """Turn out-of-sample scores into probabilities, without complete labels.

    `verified` (N, K) holds the verdicts of a review: +1 present, -1 absent, 0 not reviewed.
    Reviewed labels are no longer missing or wrong in the counts. `selection`, `propensity` and
    `possible` are how labels came to be missing (`halftruth.presence.probabilities`).
    """
    values, points = check_labels_and_scores(labels, scores)
    verdicts = _check_verified(verified, values)
    if selection not in SELECTIONS:
        raise ValueError(f"selection: expected {' or '.join(SELECTIONS)}, got {selection!r}")
    if not (values == PRESENT).any():
        raise ValueError("no label is PRESENT (1), so the scores of present classes are not known")
    z = logit(points)
    fitted = fit_probabilities(
        values, z, selection=selection, verified=verdicts, propensity=propensity,
        possible=possible, seed=seed,
    )  # fmt: skip
    found = fitted.infer(values, z, verified=verdicts, propensity=propensity)
    # No unknown label is certain, however high its score: the order stays the same.
    open_ones = (values == UNKNOWN) & (verdicts == 0)
    present = np.where(open_ones, found.middle * (1 - _DOUBT_OF_ANY * found.middle), found.middle)
    middle, low, high = (
        np.where(open_ones, one, 0.0).sum(axis=0) for one in (found.middle, found.low, found.high)
    )
    chance = np.where(open_ones, found.middle * (1 - found.middle), 0.0).sum(axis=0)
    of_class = np.hypot(DOUBT, CLASS_DOUBT)
    # The labels of the file, less rows that cannot show a class: reviewed labels were chosen by
    # their scores, and without them the others would look too good.
    shown = np.where(values == PRESENT, PRESENT, np.minimum(verdicts, values))
    suspect = find_wrong(shown, fitted.offset + fitted.slope * z, present, verdicts)
    # A reviewed label has a verdict, not a probability; it is not counted any more.
    doubtful = suspect.probability
    wrong = np.where(verdicts == 0, doubtful, (verdicts == ABSENT) & (values == PRESENT))
    return Calibration(
        present=present,
        wrong_probability=wrong,
        missing=[_count(*one, of_class) for one in zip(middle, low, high, chance, strict=True)],
        missing_total=_count(middle.sum(), low.sum(), high.sum(), chance.sum(), DOUBT),
        wrong=[float(value) for value in doubtful.sum(axis=0)],
        wrong_total=_count(
            float(doubtful.sum()),
            suspect.low,
            suspect.high,
            float((doubtful * (1 - doubtful)).sum()),
            0.0,
        ),
        selection=fitted.selection,
        wrong_least=np.where(verdicts == 0, suspect.least, wrong),
        wrong_most=np.where(verdicts == 0, suspect.most, wrong),
    )


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


def _count(value: float, low: float, high: float, chance: float, doubt: float) -> Estimate:
    """An interval from low..high, widened by doubt of the model and by chance."""
    value = float(value)
    spread = np.hypot(doubt, np.sqrt(chance) / max(value, 1.0))
    factor = float(np.exp(Z90 * spread))
    return Estimate(value, float(min(low, value)) / factor, float(max(high, value)) * factor)
