"""Metrics for multi-label predictions: exact, vectorised, and aware of unknown labels."""

import importlib

from halftruth.metrics import thresholds
from halftruth.metrics.counts import Counts, UndefinedMetricWarning, count
from halftruth.metrics.evaluate import Evaluator, evaluate
from halftruth.metrics.rank_metrics import (
    average_precision,
    mean_average_precision,
    mean_roc_auc,
    precision_at_k,
    propensities,
    propensity_scored_precision_at_k,
    recall_at_k,
    roc_auc,
)
from halftruth.metrics.threshold_metrics import (
    SEWER_ML_WEIGHTS,
    class_and_overall,
    cost_sensitive_hamming_loss,
    f1_neg,
    f2_ciw,
    f_beta,
    hamming_loss,
    macro_f_beta,
    micro_f_beta,
    predictive_values,
)

__all__ = [
    "SEWER_ML_WEIGHTS",
    "Counts",
    "Evaluator",
    "UndefinedMetricWarning",
    "average_precision",
    "class_and_overall",
    "cost_sensitive_hamming_loss",
    "count",
    "evaluate",
    "f1_neg",
    "f2_ciw",
    "f_beta",
    "hamming_loss",
    "macro_f_beta",
    "make_scorer",
    "mean_average_precision",
    "mean_roc_auc",
    "micro_f_beta",
    "precision_at_k",
    "predictive_values",
    "propensities",
    "propensity_scored_precision_at_k",
    "recall_at_k",
    "roc_auc",
    "thresholds",
]


def __getattr__(name: str) -> object:
    # Looked for here, but it asks the model of labelling and scikit-learn.
    if name == "make_scorer":
        return importlib.import_module("halftruth.estimator").make_scorer
    raise AttributeError(f"module 'halftruth.metrics' has no attribute {name!r}")
