"""Test whether frequent classes are named first, by two linear models of the same features."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from halftruth.data.splits import fold_of_rows
from halftruth.labels import PRESENT, find_complete_rows
from halftruth.presence.propensity import (
    TESTED,
    LabelBias,
    compare_selections,
    draw_evenly,
    frequency_propensities,
    shows_one,
)
from halftruth.train.ensemble.member_fits import apply_member
from halftruth.train.ensemble.members import RIDGE, fit_linear_path
from halftruth.train.ensemble.sparse_linear import WideRows

# More rows take longer; with 3,000 rows of COCO features, chance still decides.
_MOST_ROWS, _FEWEST_ROWS = 6_000, 200
_HALVES = 2
# Draws of even labels that a suspicion is compared with.
_DRAWS = 2


def find_frequency_bias(
    x: Tensor | WideRows, labels: np.ndarray, seed: int = 0
) -> LabelBias | None:
    """Return the test on prepared features (N, D), or None where it cannot be made.

    Rows must show one class each: rows without a label have no information on the choice, and
    neither have complete ones. Classes are compared in pairs, so at least two must have labels.
    """
    whole = find_complete_rows(labels)
    rows = np.flatnonzero(((labels == PRESENT).sum(axis=1) == 1) & ~whole)
    used = int((labels[rows] == PRESENT).any(axis=0).sum()) if len(rows) else 0
    if not shows_one(labels) or len(rows) < _FEWEST_ROWS or used < 2:
        return None
    if len(rows) > _MOST_ROWS:
        rows = np.sort(np.random.default_rng(seed).choice(rows, _MOST_ROWS, replace=False))
    given, fold = labels[rows], fold_of_rows(len(rows), _HALVES, seed)
    inputs = x[torch.from_numpy(rows).to(x.device)]
    logits = _score_halves(inputs, given, fold)
    found = compare_selections(given, *logits)
    if not found.suspected:
        return found
    even = []
    for draw in range(_DRAWS):
        fair = draw_evenly(given, logits[0], seed + draw)
        even.append(compare_selections(fair, *_score_halves(inputs, fair, fold)).z)
    return replace(found, even=float(np.mean(even)))


def _score_halves(
    x: Tensor | WideRows, labels: np.ndarray, fold: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Out-of-sample logits of two linear models: equal propensities, and frequent classes first."""
    logits = np.zeros(labels.shape), np.zeros(labels.shape)
    given = torch.from_numpy(labels).to(x.device)
    for half in range(_HALVES):
        inside = torch.from_numpy(fold != half).to(x.device)
        for out, exponent in zip(logits, (0.0, TESTED), strict=True):
            e = frequency_propensities(labels, exponent)
            layer = fit_linear_path(x[inside], given[inside], (RIDGE,), propensity=e)[RIDGE]
            out[fold == half] = apply_member(layer, x[~inside]).numpy()
    return logits
