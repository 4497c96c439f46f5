"""All the usual numbers in one call."""

from collections.abc import Sequence

from halftruth.metrics.average_precision import mean_average_precision
from halftruth.metrics.counts import count, warn_undefined
from halftruth.metrics.f1 import (
    Weights,
    class_and_overall,
    f1_neg,
    f2_ciw,
    macro_f_beta,
    micro_f_beta,
)
from halftruth.metrics.inputs import Array
from halftruth.metrics.per_class import Empty


def evaluate(
    scores: Array,
    labels: Array,
    threshold: float | Array = 0.5,
    *,
    top_k: int | None = None,
    class_weights: Weights | None = None,
    classes: Sequence[str] | None = None,
    empty: Empty = "skip",
    inclusive: bool = False,
    ignore_unknown: bool = False,
) -> dict[str, float]:
    """mAP CP CR CF1 OP OR OF1 macro_F1 micro_F1 macro_F2 F1_neg, as fractions in 0..1.

    Args:
        scores: (N, K) probabilities; logits need a threshold for logits.
        labels: (N, K) of +1, 0, -1. Everything that is not +1 is negative.
        threshold: predicted is score > threshold; one for all, or one a class (``thresholds``).
        top_k: adds ``CP@k`` to ``OF1@k``, where the k highest scores of each row are predicted.
        class_weights: adds ``F2_CIW``; (K,), or by name together with ``classes``.
        classes: the names of the columns.
        empty: what a class without positives does to mAP, see ``mean_average_precision``.
        inclusive: predicted is score >= threshold.
        ignore_unknown: leave the 0 (unknown) entries out instead of counting them as negative.

    Example:
        >>> scores, labels = [[0.9, 0.2], [0.8, 0.7], [0.1, 0.3]], [[1, 0], [0, 1], [0, 0]]
        >>> report = evaluate(scores, labels)
        >>> report["mAP"], round(report["CF1"], 3), report["F1_neg"]
        (1.0, 0.857, 1.0)
    """
    counts = count(scores, labels, threshold, inclusive=inclusive, ignore_unknown=ignore_unknown)
    warn_undefined(
        precision=counts.tp + counts.fp == 0,
        recall=counts.tp + counts.fn == 0,
        F1_neg=counts.normal[:3].sum() == 0,
    )
    report = {
        "mAP": mean_average_precision(scores, labels, empty=empty, ignore_unknown=ignore_unknown),
        **class_and_overall(counts),
        "macro_F1": macro_f_beta(counts),
        "micro_F1": micro_f_beta(counts),
        "macro_F2": macro_f_beta(counts, 2.0),
        "F1_neg": f1_neg(counts),
    }
    if class_weights is not None:
        report["F2_CIW"] = f2_ciw(counts, class_weights, classes)
    if top_k is not None:
        highest = count(scores, labels, top_k=top_k, ignore_unknown=ignore_unknown)
        for name, value in class_and_overall(highest).items():
            report[f"{name}@{top_k}"] = value
    return report
