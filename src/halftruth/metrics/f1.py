"""Precision, recall and F-scores at a threshold or of the top k, per class and overall.

Values of each class come from scores and labels (the options are those of ``count``); single
numbers come from the counts, so that one pass over the scores serves all. 0/0 counts as 0.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from torch import Tensor

from halftruth.metrics.counts import Counts, Cut, count, f_beta_of, ratio, warn_undefined
from halftruth.metrics.inputs import Array, as_tensor

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
    **options: Unpack[Cut],
) -> Any:
    """F_β of each class, (K,): recall weighs β times as much as precision.

        F_β = (1+β²)·P·R / (β²·P + R)

    Example:
        >>> f_beta([[0.9, 0.2], [0.8, 0.7]], [[1, 0], [0, 1]], beta=2.0)
        array([0.83333333, 1.        ])
    """
    counts = count(scores, labels, threshold, **options)
    warn_undefined(F=counts.tp + counts.fp + counts.fn == 0)
    return _like(scores, counts.f_beta(beta))


def predictive_values(
    scores: Array, labels: Array, threshold: float | Array = 0.5, **options: Unpack[Cut]
) -> tuple[Any, Any]:
    """PPV = tp/(tp+fp) and NPV = tn/(tn+fn) of each class, (K,) both: can an answer be trusted?

    "Leveraged asymmetric loss with disambiguation" (Fig. 2) reports their means over the classes,
    at the threshold τ of its pseudo labels.

    Example:
        >>> predictive_values([[0.9], [0.8], [0.1]], [[1], [0], [0]])
        (array([0.5]), array([1.]))
    """
    counts = count(scores, labels, threshold, **options)
    warn_undefined(PPV=counts.tp + counts.fp == 0, NPV=counts.tn + counts.fn == 0)
    return _like(scores, counts.precision), _like(scores, counts.negative_precision)


def class_and_overall(counts: Counts) -> dict[str, float]:
    """CP CR CF1 OP OR OF1: per class and then averaged (C), or over all entries at once (O).

    CF1 is the harmonic mean of CP and CR; the mean of the classes' F1, which some code calls CF1,
    is ``macro_F1``.
    """
    class_precision, class_recall = counts.precision.mean(), counts.recall.mean()
    tp, fp, fn = counts.tp.sum(), counts.fp.sum(), counts.fn.sum()
    values = {
        "CP": class_precision,
        "CR": class_recall,
        "CF1": ratio(2 * class_precision * class_recall, class_precision + class_recall),
        "OP": ratio(tp, tp + fp),
        "OR": ratio(tp, tp + fn),
        "OF1": f_beta_of(tp, fp, fn, 1.0),
    }
    return {name: value.item() for name, value in values.items()}


def macro_f_beta(counts: Counts, beta: float = 1.0) -> float:
    """Mean over the classes of F_β."""
    return counts.f_beta(beta).mean().item()


def micro_f_beta(counts: Counts, beta: float = 1.0) -> float:
    """F_β of all entries at once."""
    return f_beta_of(counts.tp.sum(), counts.fp.sum(), counts.fn.sum(), beta).item()


def f2_ciw(counts: Counts, weights: Weights, classes: Sequence[str] | None = None) -> float:
    """F2 averaged with class importance weights: Σ w·F2 / Σ w (Sewer-ML).

    ``weights`` is (K,), or a mapping of class names with ``classes`` to say which column is which,
    e.g. ``SEWER_ML_WEIGHTS``.
    """
    weight = class_weights(weights, classes, len(counts.tp)).to(counts.tp.device)
    return ((weight * counts.f_beta(2.0)).sum() / weight.sum()).item()


def f1_neg(counts: Counts) -> float:
    """F1 of "no class predicted" against "no class present": are empty images recognised?"""
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
            raise ValueError(f"Expected a weight for every class, but there is none for {missing}.")
        weights = [weights[name] for name in classes]
    weight = as_tensor(weights).double()
    if weight.shape != (number,):
        raise ValueError(f"Expected {number} class weights, but got shape {tuple(weight.shape)}.")
    if not bool((weight >= 0).all()) or weight.sum() == 0:
        raise ValueError("Expected class weights >= 0, not all 0, without NaN.")
    return weight


def _like(scores: Array, values: Tensor) -> Any:
    return values if isinstance(scores, Tensor) else values.numpy()
