"""Random scores and labels with ties, unknown labels and empty classes."""

import numpy as np


def make(seed, samples=60, classes=7, ties=True, unknown=False, rate=0.3):
    """Scores in (0, 1) and labels; class 0 has no positive, class 1 exactly one, 2 no negative."""
    rng = np.random.default_rng(seed)
    scores = rng.random((samples, classes))
    if ties:
        scores = np.round(scores * 8) / 8
    labels = np.where(rng.random((samples, classes)) < rate, 1, -1).astype(np.int8)
    labels[:5] = -1
    if classes >= 3:
        labels[:, 0] = -1
        labels[:, 1] = -1
        labels[rng.integers(samples), 1] = 1
        labels[:, 2] = 1
    if unknown:
        labels[rng.random((samples, classes)) < 0.4] = 0
    return scores, labels
