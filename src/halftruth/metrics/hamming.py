"""Hamming losses: the share of wrong entries, plain and with the classes' imbalance taken out.

``threshold`` and the options are explained at ``count``.
"""

from typing import Unpack

from halftruth.metrics.counts import Cut, count, predictions, ratio
from halftruth.metrics.inputs import Array


def hamming_loss(
    scores: Array, labels: Array, threshold: float | Array = 0.5, **options: Unpack[Cut]
) -> float:
    """Share of the (known) entries that are predicted wrong.

    Example:
        >>> hamming_loss([[0.9, 0.2], [0.8, 0.7]], [[1, 0], [0, 1]])
        0.25
    """
    counts = count(scores, labels, threshold, **options)
    wrong, right = (counts.fp + counts.fn).sum(), (counts.tp + counts.tn).sum()
    if wrong + right == 0:
        raise ValueError("Expected at least one known label, but all entries are unknown.")
    return ratio(wrong, wrong + right).item()


def cost_sensitive_hamming_loss(
    scores: Array, labels: Array, threshold: float | Array = 0.5, **options: Unpack[Cut]
) -> float:
    """Mean over the rows of the share of missed positives plus the share of false alarms.

        L = Σ_{k present} 1/|y| · [not predicted]  +  Σ_{k absent} 1/(K−|y|) · [predicted]

    Equation 12 of "Leveraged asymmetric loss with disambiguation". The paper prints both
    indicators with the opposite sign, which would reward errors; its text and its proof mean the
    errors, as here. A row without positives (or without negatives) has only the other term; with
    ``ignore_unknown`` the counts are of known entries, and a row without any is left out.

    Example:
        >>> cost_sensitive_hamming_loss([[0.9, 0.2, 0.1, 0.6]], [[1, 1, -1, -1]])
        1.0
    """
    total, rows = 0.0, 0
    for predicted, present, known in predictions(scores, labels, threshold, **options):
        absent = ~present if known is None else ~present & known
        missed, alarms = (present & ~predicted).sum(1), (absent & predicted).sum(1)
        positives, negatives = present.sum(1), absent.sum(1)
        total += (ratio(missed, positives) + ratio(alarms, negatives)).sum().item()
        rows += int((positives + negatives > 0).sum())
    if rows == 0:
        raise ValueError("Expected at least one known label, but all entries are unknown.")
    return total / rows
