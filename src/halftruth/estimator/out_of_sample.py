"""Out-of-sample scores of any classifier of scikit-learn on incomplete labels."""

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_consistent_length, column_or_1d

from halftruth.data.splits import fold_of_rows
from halftruth.estimator import targets
from halftruth.estimator.classifier import HalftruthClassifier
from halftruth.presence.solvers import sigmoid


def score_out_of_sample(
    model: object, X: object, y: object, *, folds: int = 5, groups: Any = None, seed: int = 0
) -> np.ndarray:
    """Return scores (N, K) between 0 and 1 of each row, by models that were not fitted on it.

    `model`: any classifier of scikit-learn; `y`: labels +1, 0 (unknown), -1, as for
    `HalftruthClassifier`. Each class is fitted on its own: present against all other rows, so the
    scores rank rows, and say how often a class is *shown*. `halftruth audit SCORES LABELS`
    estimates from them how often it is present. `cross_val_predict` of scikit-learn instead numbers
    the values of each column of `y` anew, and unknown may become present.

    `groups`: rows with the same value stay in one fold. A class without a present label in the rows
    of the fit has the score 0.

    >>> from sklearn.linear_model import LogisticRegression
    >>> X = np.repeat([[0.0], [1.0]], 20, axis=0)
    >>> y = np.where(X > 0.5, 1, 0) * np.array([1, 0])
    >>> score_out_of_sample(LogisticRegression(), X, y)[[0, -1]].round(1)
    array([[0.2, 0. ],
           [0.8, 0. ]])
    """
    check_consistent_length(X, y)
    labels = targets.to_labels(targets.fill_missing(y))
    targets.check_any_present(labels > 0, len(labels))
    if groups is not None:
        groups = column_or_1d(groups)
        check_consistent_length(X, groups)
    fold, scores = fold_of_rows(len(labels), folds, seed, groups), np.zeros(labels.shape)
    rows_of = X.iloc if hasattr(X, "iloc") else X.tocsr() if hasattr(X, "tocsr") else np.asarray(X)
    for number in range(folds):
        train, held = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        here, there = rows_of[train], rows_of[held]
        if isinstance(model, HalftruthClassifier):
            scores[held] = clone(model).fit(here, labels[train]).predict_proba(there)
            continue
        for k, present in enumerate((labels[train] > 0).T):
            if present.all() or not present.any():
                scores[held, k] = present[0]
                continue
            fitted = clone(model).fit(here, present.astype(int))
            if hasattr(fitted, "predict_proba"):
                scores[held, k] = fitted.predict_proba(there)[:, 1]
            else:
                scores[held, k] = sigmoid(fitted.decision_function(there))
    return scores
