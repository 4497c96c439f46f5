"""Missing values of y are unknown labels in the estimator."""

import warnings

import numpy as np
import pandas as pd
import pytest

from halftruth import HalftruthClassifier


@pytest.fixture(scope="module")
def data():
    random = np.random.default_rng(0)
    truth = np.where(random.random((80, 3)) < 0.4, 1, -1)
    X = truth + random.normal(0, 0.5, truth.shape)
    known = random.random(truth.shape) < 0.6
    return X, truth, known


def fit(X, y):
    return HalftruthClassifier("bce", epochs=3, lr=0.03).fit(X, y)


@pytest.mark.parametrize(
    "make",
    [
        lambda y, known: np.where(known, y, np.nan),
        lambda y, known: np.where(known, y, None),
        lambda y, known: pd.DataFrame(y, columns=list("abc")).where(known),
        lambda y, known: pd.DataFrame(y, columns=list("abc")).where(known).astype("Int8"),
        lambda y, known: np.where(known, y, np.nan).tolist(),
    ],
    ids=["nan", "None", "DataFrame", "pandas NA", "lists"],
)
def test_missing_values_are_unknown(data, make):
    X, truth, known = data
    expected = fit(X, np.where(known, truth, 0)).decision_function(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = make(truth, known)
        model = fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), expected)
    assert 0 <= model.score(X, y) <= 1
    if hasattr(y, "columns"):
        assert model.classes_.tolist() == ["a", "b", "c"]


def test_zeros_next_to_missing_values_are_a_warning(data):
    X, truth, known = data
    y = np.where(known, (truth > 0) * 1.0, np.nan)
    with pytest.warns(UserWarning, match="both are read as unknown.*from_zero_absent"):
        fit(X, y)
