"""Metrics of predictions at a threshold or of the top k: precision, recall, F-scores, Hamming loss.

Values per class are computed from scores and labels (the options are those of ``count``); single
numbers are computed from the counts, so that one pass over the scores is enough. 0/0 counts as 0.
"""

from collections.abc import Mapping, Sequence
from typing import Unpack

from torch import Tensor

from halftruth.metrics.counts import (
    CountOptions,
    Counts,
    count,
    divide_counts,
    f_beta_of,
    predictions,
    warn_undefined,
)
from halftruth.metrics.scores_and_labels import Array, as_tensor

# Class importance weights of Sewer-ML (Haurum and Moeslund, CVPR 2021), in the data set's order.
SEWER_ML_WEIGHTS = {
    "RB": 5.55, "OB": 3.0625, "PF": 1.6075, "DE": 0.9, "FS": 3.5625, "IS": 1.025, "RO": 1.975,
    "IN": 1.7375, "AF": 0.45, "BE": 1.2625, "FO": 1.375, "GR": 0.5, "PH": 2.3125, "PB": 2.3125,
    "OS": 5.0, "OP": 2.125, "OK": 2.44,
}  # fmt: skip

Weights = Mapping[str, float] | Array


def f_beta(
    scores: Array,
    labels: Array,
    beta: float = 1.0,
    threshold: float | Array = 0.5,
    **options: Unpack[CountOptions],
) -> object:
    """F_β per class, (K,): recall is weighted β times as much as precision.

        F_β = (1+β²)·P·R / (β²·P + R)

    Example:
        >>> f_beta([[0.9, 0.2], [0.8, 0.7]], [[1, 0], [0, 1]], beta=2.0)
        array([0.83333333, 1.        ])
    """
    counts = count(scores, labels, threshold, **options)
    warn_undefined(F=counts.tp + counts.fp + counts.fn == 0)
    return _like(scores, counts.f_beta(beta))


def predictive_values(
    scores: Array, labels: Array, threshold: float | Array = 0.5, **options: Unpack[CountOptions]
) -> tuple[object, object]:
    """PPV = tp/(tp+fp) and NPV = tn/(tn+fn) per class, (K,) each.

    "Leveraged asymmetric loss with disambiguation" (Fig. 2) reports their means over the classes,
    at the threshold τ of its pseudo-labels.

    Example:
        >>> predictive_values([[0.9], [0.8], [0.1]], [[1], [0], [0]])
        (array([0.5]), array([1.]))
    """
    counts = count(scores, labels, threshold, **options)
    warn_undefined(PPV=counts.tp + counts.fp == 0, NPV=counts.tn + counts.fn == 0)
    return _like(scores, counts.precision), _like(scores, counts.negative_precision)


def hamming_loss(
    scores: Array, labels: Array, threshold: float | Array = 0.5, **options: Unpack[CountOptions]
) -> float:
    """Share of the entries (with ``ignore_unknown``, the known ones) that are predicted wrong.

    Example:
        >>> hamming_loss([[0.9, 0.2], [0.8, 0.7]], [[1, 0], [0, 1]])
        0.25
    """
    counts = count(scores, labels, threshold, **options)
    wrong, right = (counts.fp + counts.fn).sum(), (counts.tp + counts.tn).sum()
    if wrong + right == 0:
        raise ValueError("Expected at least one known label, but all entries are unknown.")
    return divide_counts(wrong, wrong + right).item()


def cost_sensitive_hamming_loss(
    scores: Array, labels: Array, threshold: float | Array = 0.5, **options: Unpack[CountOptions]
) -> float:
    """Mean over the rows of the share of missed positives plus the share of false alarms.

        L = Σ_{k present} 1/|y| · [not predicted]  +  Σ_{k absent} 1/(K−|y|) · [predicted]

    Equation 12 of "Leveraged asymmetric loss with disambiguation". The paper prints both
    indicators with the opposite sign, which would reward errors; its text and its proof count
    errors, as here. A row without positives (or without negatives) has only the other term. With
    ``ignore_unknown`` only known entries count, and a row without any is left out.

    Example:
        >>> cost_sensitive_hamming_loss([[0.9, 0.2, 0.1, 0.6]], [[1, 1, -1, -1]])
        1.0
    """
    total, rows = 0.0, 0
    for predicted, present, known in predictions(scores, labels, threshold, **options):
        absent = ~present if known is None else ~present & known
        missed, alarms = (present & ~predicted).sum(1), (absent & predicted).sum(1)
        positives, negatives = present.sum(1), absent.sum(1)
        total += (divide_counts(missed, positives) + divide_counts(alarms, negatives)).sum().item()
        rows += int((positives + negatives > 0).sum())
    if rows == 0:
        raise ValueError("Expected at least one known label, but all entries are unknown.")
    return total / rows


def class_and_overall(counts: Counts) -> dict[str, float]:
    """CP CR CF1 OP OR OF1: averaged over the classes (C), or over all entries at once (O).

    CF1 is the harmonic mean of CP and CR; the mean F1 over the classes, which some code calls CF1,
    is ``macro_F1``.
    """
    class_precision, class_recall = counts.precision.mean(), counts.recall.mean()
    tp, fp, fn = counts.tp.sum(), counts.fp.sum(), counts.fn.sum()
    values = {
        "CP": class_precision,
        "CR": class_recall,
        "CF1": divide_counts(2 * class_precision * class_recall, class_precision + class_recall),
        "OP": divide_counts(tp, tp + fp),
        "OR": divide_counts(tp, tp + fn),
        "OF1": f_beta_of(tp, fp, fn, 1.0),
    }
    return {name: value.item() for name, value in values.items()}


def macro_f_beta(counts: Counts, beta: float = 1.0) -> float:
    """Mean of F_β over the classes."""
    return counts.f_beta(beta).mean().item()


def micro_f_beta(counts: Counts, beta: float = 1.0) -> float:
    """F_β of all entries at once."""
    return f_beta_of(counts.tp.sum(), counts.fp.sum(), counts.fn.sum(), beta).item()


def f2_ciw(counts: Counts, weights: Weights, classes: Sequence[str] | None = None) -> float:
    """F2 averaged with class importance weights: Σ w·F2 / Σ w (Sewer-ML).

    ``weights`` is (K,), or a mapping from class names, e.g. ``SEWER_ML_WEIGHTS``, together with
    ``classes``, the class of each column.
    """
    weight = class_weights(weights, classes, len(counts.tp)).to(counts.tp.device)
    return ((weight * counts.f_beta(2.0)).sum() / weight.sum()).item()


def f1_neg(counts: Counts) -> float:
    """F1 of recognising empty rows: "no class predicted" against "no class present"."""
    tp, fp, fn, _ = counts.normal
    return f_beta_of(tp, fp, fn, 1.0).item()


def class_weights(weights: Weights, classes: Sequence[str] | None, number: int) -> Tensor:
    """(K,) float64 weights in the order of the columns, all >= 0 and not all 0."""
    if isinstance(weights, Mapping):
        if classes is None:
            raise ValueError(
                "Expected classes=[...] (the names of the columns) with weights given by name. "
                "If the weights are in the order of the columns, pass list(weights.values())."
            )
        missing = [name for name in classes if name not in weights]
        if missing:
            raise ValueError(f"Expected a weight for every class, but {missing} have none.")
        weights = [weights[name] for name in classes]
    weight = as_tensor(weights).double()
    if weight.shape != (number,):
        raise ValueError(f"Expected {number} class weights, but got shape {tuple(weight.shape)}.")
    if not bool(((weight >= 0) & weight.isfinite()).all()) or weight.sum() == 0:
        raise ValueError(
            f"Expected finite class weights >= 0, not all 0, but got {weight.tolist()}."
        )
    return weight


def _like(scores: Array, values: Tensor) -> object:
    return values if isinstance(scores, Tensor) else values.numpy()
