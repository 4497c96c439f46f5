"""Metrics for multi-label predictions: exact, vectorised, and aware of unknown labels."""

from halftruth.metrics import thresholds
from halftruth.metrics.average_precision import average_precision, mean_average_precision
from halftruth.metrics.counts import Counts, UndefinedMetricWarning, count
from halftruth.metrics.evaluate import evaluate
from halftruth.metrics.evaluator import Evaluator
from halftruth.metrics.f1 import (
    SEWER_ML_WEIGHTS,
    class_and_overall,
    f1_neg,
    f2_ciw,
    f_beta,
    macro_f_beta,
    micro_f_beta,
    predictive_values,
)
from halftruth.metrics.hamming import cost_sensitive_hamming_loss, hamming_loss
from halftruth.metrics.ranking import precision_at_k, recall_at_k
from halftruth.metrics.roc_auc import mean_roc_auc, roc_auc

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
    "mean_average_precision",
    "mean_roc_auc",
    "micro_f_beta",
    "precision_at_k",
    "predictive_values",
    "recall_at_k",
    "roc_auc",
    "thresholds",
]
