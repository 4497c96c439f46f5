"""Precision at k that counts rare classes more."""

import numpy as np
import pytest

from halftruth.metrics import (
    precision_at_k,
    propensities,
    propensity_scored_precision_at_k,
)


def slow_psp(scores, labels, k, p):
    """The definition, row by row."""
    gained = best = 0.0
    for row, present in zip(scores, labels, strict=True):
        value = (present > 0) / p
        gained += value[np.argsort(-row)[:k]].sum()
        best += np.sort(value)[::-1][:k].sum()
    return gained / best


@pytest.mark.parametrize("k", [1, 3, 7])
def test_it_is_the_definition(k):
    random = np.random.default_rng(k)
    scores = random.normal(size=(50, 7))
    labels = (random.random((50, 7)) < 0.3).astype(np.int8)
    p = propensities(labels.sum(axis=0), 50)
    found = propensity_scored_precision_at_k(scores, labels, k, p)
    assert found == pytest.approx(slow_psp(scores, labels, k, p))


def test_perfect_scores_have_the_value_1():
    labels = np.array([[1, 0, 1], [0, 1, 0]], dtype=np.int8)
    assert propensity_scored_precision_at_k(labels * 1.0, labels, 1, [0.5, 0.5, 0.5]) == 1


def test_equal_propensities_give_precision_where_rows_have_k_labels():
    random = np.random.default_rng(0)
    scores = random.normal(size=(40, 6))
    labels = np.zeros((40, 6), np.int8)
    for row in labels:
        row[random.choice(6, 2, replace=False)] = 1
    found = propensity_scored_precision_at_k(scores, labels, 2, np.full(6, 0.3))
    assert found == pytest.approx(precision_at_k(scores, labels, 2))


def test_rare_classes_have_low_propensities():
    p = propensities(np.array([1, 10, 100, 1000]), 5000)
    assert (np.diff(p) > 0).all()
    assert ((p > 0) & (p < 1)).all()


@pytest.mark.parametrize(
    ("propensity", "k", "message"),
    [
        ([0.5], 1, "one propensity in .* for each of 2 classes"),
        ([0.5, 0.0], 1, "one propensity in"),
        ([0.5, 1.5], 1, "one propensity in"),
        ([0.5, 0.5], 3, "k between 1 and 2 classes, but got 3"),
    ],
)
def test_bad_propensities_are_refused(propensity, k, message):
    with pytest.raises(ValueError, match=message):
        propensity_scored_precision_at_k([[0.1, 0.2]], [[1, 0]], k, propensity)
    with pytest.raises(ValueError, match="at least 3 rows"):
        propensities([1], 2)
