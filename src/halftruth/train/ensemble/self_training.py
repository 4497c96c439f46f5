"""Estimates of unknown labels, for a second fit of the members that have no robust loss."""

import numpy as np

from halftruth.labels import PRESENT, UNKNOWN
from halftruth.presence.labelling_model import choose_selection
from halftruth.presence.probabilities import fit_probabilities

# An unknown label counts as present by this part of its probability. With less, shown labels stay
# in charge where the probability is wrong.
PART = 0.5


def impute_unknown_labels(labels: np.ndarray, logits: np.ndarray) -> np.ndarray | None:
    """Return soft labels (N, K) from out-of-sample logits, or None where they cannot be trusted.

    An unknown label gets a part of P(present | x, label). Where every row shows one label, the
    number of labels that are missing cannot be known, and nothing is estimated.

    >>> labels = np.tile(np.array([[1, 1, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]], np.int8), (50, 1))
    >>> impute_unknown_labels(labels, np.where(labels > 0, 1.0, -1.0)).shape
    (200, 3)
    """
    unknown = labels == UNKNOWN
    if not unknown.any() or not (labels == PRESENT).any():
        return None
    # Before the model of labelling is fitted, which takes seconds.
    if choose_selection(labels) != "missing_at_random":
        return None
    p = fit_probabilities(labels, logits).infer(labels, np.asarray(logits, np.float64)).middle
    soft: np.ndarray = np.where(unknown, PART * p, labels == PRESENT).astype(np.float32)
    return soft
