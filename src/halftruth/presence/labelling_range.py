"""The range of P(present) that incomplete labels allow: a smallest, a middle and a largest fit.

How many labels are missing is visible in the scores only indirectly. Two assumptions identify it:

- The share c = P(shown | present) is the same for all classes and scores. Then P(shown | score)
  levels off at c where the scores are highest. c is not fitted freely: the curves are fitted for
  each c of a grid, and the likelihoods of these fits, tempered, are the weights of the grid.
- Each row shows one of its positives. Then classes are independent given their scores, or
  independent given that at least one is present (see `labelling_model`).

Where rows show several positives the first assumption is used: its quantiles 5 % and 95 % are the
ends of the range. Where each row shows at most one, both are possible. They contradict each other
on some data sets and neither is always right, so the range covers both.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from halftruth.labels import ABSENT, PRESENT, UNKNOWN
from halftruth.presence.calibration import SELECTIONS, Selection, check_labels_and_scores
from halftruth.presence.labelling_model import (
    Presence,
    choose_selection,
    fit_presence,
    logit,
    sigmoid,
)

_SHARES = np.array([0.97, 0.9, 0.8, 0.7, 0.6, 0.5, 0.42, 0.34, 0.27, 0.2, 0.14])
# The model is wrong in the details, so more rows do not make its likelihood more certain.
_ROWS_BELIEVED = 300
# The curves are fitted on at most this many labels.
_MOST_LABELS = 200_000
# The grid of shares is compared on at most this many.
_LABELS_FOR_SHARES = 60_000


@dataclass(frozen=True)
class PresenceRange:
    """P(present | score, label), (N, K): the best estimate, and the ends of what is plausible.

    `low` and `high` are the fits with the fewest and the most present labels, about 90 % apart.
    """

    middle: np.ndarray
    low: np.ndarray
    high: np.ndarray
    selection: str


def fit_presence_range(
    labels: Any, scores: Any, *, selection: Selection = "auto", seed: int = 0
) -> PresenceRange:
    """Fit the smallest, the middle and the largest P(present) to scores of rows not trained on.

    `labels` are (N, K) of +1, 0, -1, `scores` (N, K) probabilities. Pass the `selection` of the
    training rows where these rows are few; "auto" decides from the labels.

    >>> random = np.random.default_rng(1)
    >>> present = random.random((500, 3)) < 0.3
    >>> scores = sigmoid(4 * present - 2 + random.normal(size=present.shape))
    >>> shown = (present & (random.random(present.shape) < 0.5)).astype(np.int8)
    >>> fitted = fit_presence_range(shown, scores)
    >>> bool(fitted.low.sum() < present.sum() < fitted.high.sum())
    True
    """
    values, points = check_labels_and_scores(labels, scores)
    if selection not in SELECTIONS:
        raise ValueError(f"selection: expected {' or '.join(SELECTIONS)}, got {selection!r}")
    if not (values == PRESENT).any():
        raise ValueError("no label is PRESENT (1), so the scores of present classes are not known")
    how = choose_selection(values) if selection == "auto" else selection
    rows = _rows_to_fit(values.shape, values == PRESENT, seed)
    by_share = [fit.posterior(values, points) for fit in fit_shares(values[rows], points[rows])]
    if how == "random":
        return PresenceRange(by_share[1], by_share[0], by_share[2], how)
    # A row without a label shows none of its positives, so it has none.
    blank = ~(values == PRESENT).any(axis=1, keepdims=True)
    certain = np.where(blank & (values == 0), ABSENT, values).astype(np.int8)
    fit = partial(fit_presence, certain[rows], points[rows], selection="one")
    by_row = [fit(given_one=given).posterior(certain, points) for given in (True, False)]
    middle = (by_share[1] + by_row[0] + by_row[1]) / 3
    by_size = sorted([*by_share, *by_row], key=np.sum)
    return PresenceRange(middle, by_size[0], by_size[-1], how)


def fit_shares(labels: np.ndarray, scores: np.ndarray) -> list[Presence]:
    """Fits with the largest, the mean and the smallest plausible share of shown labels."""
    fits: list[Presence] = []
    likelihood = []
    fit = partial(fit_presence, labels, scores, selection="random")
    # One number for all classes needs fewer rows than their curves.
    some = _rows_to_fit(labels.shape, labels == PRESENT, 0, _LABELS_FOR_SHARES)
    part, points = labels[some], scores[some]
    start = fit_presence(part, points, selection="random", steps=1)
    for share in _SHARES:
        start = fit_presence(
            part, points, selection="random", share=float(share), start=start, steps=40
        )
        fits.append(start)
        likelihood.append(_log_likelihood(part, points, start))
    excess = np.array(likelihood) - max(likelihood)
    weight = np.exp(excess * min(1.0, _ROWS_BELIEVED / len(part)))
    weight /= weight.sum()
    z = logit(_SHARES)
    below = np.cumsum(weight) - weight / 2
    ends = np.interp([0.05, 0.95], below, z)
    near = [int(np.abs(z - at).argmin()) for at in (ends[0], weight @ z, ends[1])]
    wanted = zip((ends[0], weight @ z, ends[1]), near, strict=True)
    return [fit(share=float(sigmoid(at)), start=fits[i], steps=40) for at, i in wanted]


def _log_likelihood(labels: np.ndarray, scores: np.ndarray, fit: Presence) -> float:
    """Return the likelihood of the labels of all classes with shown and with unknown ones."""
    p = np.clip(fit.prior(scores), 1e-9, 1 - 1e-9)
    unknown = p * (1 - fit.chance) + (1 - p) * (1 - fit.absent_chance)
    absent = (1 - p) * np.maximum(fit.absent_chance, 1e-9)
    of_label = np.where(labels == PRESENT, p * fit.chance, unknown)
    of_label = np.log(np.where(labels == ABSENT, absent, of_label))
    telling = (labels == UNKNOWN).any(axis=0) & (labels == PRESENT).any(axis=0)
    return float(of_label[:, telling].sum())


def _rows_to_fit(
    shape: tuple[int, ...], shown: np.ndarray, seed: int, labels: int = _MOST_LABELS
) -> np.ndarray:
    most = max(labels // shape[1], 1)
    if shape[0] <= most:
        return np.arange(shape[0])
    rows = np.sort(np.random.default_rng(seed).choice(shape[0], most, replace=False))
    return rows if shown[rows].any() else np.arange(shape[0])
