"""Test whether frequent classes are named first, by two linear models of the same features."""

import numpy as np
import torch
from torch import Tensor

from halftruth.data.splits import fold_of_rows
from halftruth.labels import PRESENT
from halftruth.presence.propensity import (
    TESTED,
    LabelBias,
    compare_selections,
    frequency_propensities,
    shows_one,
)
from halftruth.train.ensemble.members import RIDGE, fit_linear_path

# More rows take longer and change little; with fewer, chance decides.
_MOST_ROWS, _FEWEST_ROWS = 3_000, 200
_HALVES = 2


def find_label_bias(x: Tensor, labels: np.ndarray, seed: int = 0) -> LabelBias | None:
    """Return the test on prepared features (N, D), or None where it cannot be made.

    Rows must show one class each; rows without a label tell nothing of the choice. Classes are
    compared in pairs, so two at least must have labels.
    """
    rows = np.flatnonzero((labels == PRESENT).sum(axis=1) == 1)
    used = int((labels[rows] == PRESENT).any(axis=0).sum()) if len(rows) else 0
    if not shows_one(labels) or len(rows) < _FEWEST_ROWS or used < 2:
        return None
    if len(rows) > _MOST_ROWS:
        rows = np.sort(np.random.default_rng(seed).choice(rows, _MOST_ROWS, replace=False))
    given, fold = labels[rows], fold_of_rows(len(rows), _HALVES, seed)
    inputs = x[torch.from_numpy(rows).to(x.device)]
    logits = [np.zeros(given.shape), np.zeros(given.shape)]
    for half in range(_HALVES):
        inside = torch.from_numpy(fold != half).to(x.device)
        for out, exponent in zip(logits, (0.0, TESTED), strict=True):
            e = frequency_propensities(labels, exponent)
            known = torch.from_numpy(given).to(x.device)[inside]
            layer = fit_linear_path(inputs[inside], known, (RIDGE,), propensity=e)[RIDGE]
            with torch.no_grad():
                out[fold == half] = layer.to(x.device)(inputs[~inside]).cpu().numpy()
    return compare_selections(given, *logits)
