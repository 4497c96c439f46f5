"""Scores for an audit, of any classifier of scikit-learn, on incomplete labels."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict

from halftruth import HalftruthClassifier
from halftruth.data.splits import fold_of_rows
from halftruth.estimator import score_out_of_sample

ROWS = 200
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(ROWS, 5))
TRUTH = (X[:, :3] + 0.5 * RANDOM.normal(size=(ROWS, 3)) > 0.5).astype(int)
# Of each kind a column: shown or unknown, unknown or absent, all three; no class at the end.
Y = TRUTH * (RANDOM.random(TRUTH.shape) < 0.7)
Y[:, 1] = np.where(TRUTH[:, 1] == 0, -1, Y[:, 1])
Y = np.c_[Y, np.where(RANDOM.random(ROWS) < 0.5, -1, 0)]


@pytest.mark.parametrize(
    "model",
    [LogisticRegression(), RidgeClassifier(), RandomForestClassifier(20, random_state=0)],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.parametrize("kind", [np.asarray, pd.DataFrame, sparse.csr_matrix])
def test_scores_rank_the_complete_labels(model, kind):
    scores = score_out_of_sample(model, kind(X), Y)
    assert scores.shape == Y.shape
    assert ((scores >= 0) & (scores <= 1)).all()
    assert all(roc_auc_score(TRUTH[:, k], scores[:, k]) > 0.75 for k in range(3))
    # No label of the last class is present: unknown never becomes present.
    assert (scores[:, 3] == 0).all()


def test_no_row_is_scored_by_a_model_that_was_fitted_on_it():
    """Computed by a second way, fold by fold; and on labels that features cannot explain."""
    scores = score_out_of_sample(LogisticRegression(), X, Y, folds=3, seed=1)
    fold = fold_of_rows(ROWS, 3, seed=1)
    for number in range(3):
        inside, held = fold != number, fold == number
        fitted = LogisticRegression().fit(X[inside], Y[inside, 0] > 0)
        np.testing.assert_allclose(scores[held, 0], fitted.predict_proba(X[held])[:, 1])
    noise = (np.random.default_rng(5).random((ROWS, 1)) < 0.4).astype(int)
    forest = RandomForestClassifier(20, random_state=0)
    assert roc_auc_score(noise[:, 0], score_out_of_sample(forest, X, noise)[:, 0]) < 0.65


def test_rows_of_a_group_stay_in_one_fold():
    copies, labels = np.repeat(X[:40], 5, axis=0), np.repeat(RANDOM.integers(0, 2, (40, 1)), 5, 0)
    forest, groups = RandomForestClassifier(20, random_state=0), np.repeat(np.arange(40), 5)
    alone = score_out_of_sample(forest, copies, labels)[:, 0]
    together = score_out_of_sample(forest, copies, labels, groups=groups)[:, 0]
    assert roc_auc_score(labels[:, 0], alone) > 0.95
    assert roc_auc_score(labels[:, 0], together) < 0.8


def test_the_own_estimator_gets_the_labels_as_they_are():
    model = HalftruthClassifier("bce", epochs=5)
    scores = score_out_of_sample(model, X, Y, folds=2)
    fold = fold_of_rows(ROWS, 2)
    fitted = HalftruthClassifier("bce", epochs=5).fit(X[fold == 1], Y[fold == 1])
    np.testing.assert_allclose(scores[fold == 0], fitted.predict_proba(X[fold == 0]))


def test_cross_val_predict_takes_unknown_for_present():
    """The reason for the function: -1 and 0 are numbered anew, 0 and 1."""
    theirs = cross_val_predict(LogisticRegression(), X, Y[:, 3], method="predict_proba")[:, 1]
    assert theirs.mean() > 0.4


@pytest.mark.parametrize(
    ("labels", "more", "words"),
    [
        (np.zeros_like(Y), {}, "no label of the 200 rows is present"),
        (2 * Y, {}, "expected 1 .present., 0 .unknown. or -1 .absent."),
        (Y[:50], {}, "inconsistent numbers of samples"),
        (Y, {"folds": 1}, "folds: expected 2 to 200"),
        (Y, {"groups": [0] * ROWS}, "one group of all 200 rows"),
    ],
)
def test_mistakes_are_one_message(labels, more, words):
    with pytest.raises(ValueError, match=words):
        score_out_of_sample(LogisticRegression(), X, labels, **more)
