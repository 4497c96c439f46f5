"""Scorers for `cross_val_score` and `GridSearchCV` of scikit-learn, on incomplete labels."""

import math
import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.base import BaseEstimator

from halftruth.estimator import targets
from halftruth.labels import UNKNOWN
from halftruth.metrics import evaluate
from halftruth.presence.estimated_scores import estimate_scores
from halftruth.presence.ranking import NoRankingError
from halftruth.presence.solvers import sigmoid

METRICS = ("mAP", "CF1", "OF1", "OP", "OR")
BASES = ("estimated", "known")


@dataclass(frozen=True)
class IncompleteScorer:
    """Calls as scikit-learn calls a scorer; see `make_scorer`."""

    metric: str
    basis: str

    def __call__(self, estimator: BaseEstimator, X: object, y: object) -> float:
        """Return the score of a fitted estimator."""
        y = targets.order_columns(y, np.asarray(estimator.classes_)) if hasattr(y, "columns") else y
        labels = targets.to_labels(targets.fill_missing(y))
        p, decided = _score(estimator, X), np.asarray(targets.to_dense(estimator.predict(X))) > 0
        if self.basis == "known" or not (labels == UNKNOWN).any():
            known = {"ignore_unknown": True, "empty": "skip"}
            scores = p if self.metric == "mAP" else decided.astype(float)
            return float(evaluate(scores, labels, **known)[self.metric])  # type: ignore[arg-type]
        try:
            found = estimate_scores(p, labels, decided)
        except NoRankingError as error:
            warnings.warn(f"{self.metric} is not known: {error}", stacklevel=2)
            return math.nan
        return float(getattr(found, self.metric).value)


def make_scorer(metric: str = "mAP", *, basis: str = "estimated") -> IncompleteScorer:
    """Return a scorer that takes labels +1, 0 (unknown) and -1.

    metric: mAP, CF1, OF1, OP or OR. basis: "estimated", what complete labels would give, by the
    model of labelling; or "known", on known labels only, which needs present and absent ones.

    The scorers of scikit-learn take unknown labels for absent, or fail where -1 is among them:

        cross_val_score(HalftruthClassifier(), X, y, scoring=halftruth.metrics.make_scorer("mAP"))
    """
    for name, value, choices in (("metric", metric, METRICS), ("basis", basis, BASES)):
        if value not in choices:
            raise ValueError(f"{name}: expected {', '.join(choices)}, got {value!r}")
    return IncompleteScorer(metric, basis)


def _score(estimator: BaseEstimator, X: object) -> np.ndarray:
    """Return scores (N, K) between 0 and 1 of any classifier of several labels."""
    if not hasattr(estimator, "predict_proba"):
        return sigmoid(np.asarray(estimator.decision_function(X)))
    found = estimator.predict_proba(X)
    # One array (N, 2) per class, or (N, 1) where all labels are alike.
    if isinstance(found, list):
        found = np.stack([one[:, -1] * (one.shape[1] > 1) for one in found], axis=1)
    return np.asarray(found)
