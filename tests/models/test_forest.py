"""The forest as tensors agrees with scikit-learn's forest."""

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestRegressor

from halftruth.models.forest import Forest, convert_forests

ROWS, FEATURES, CLASSES = 150, 5, 3


@pytest.fixture(scope="module")
def data():
    """Float32 features, some with few different values; labels with noise."""
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, FEATURES)).astype(np.float32)
    x[:, 0] = random.integers(0, 3, ROWS)
    labels = (x[:, :CLASSES] + random.normal(0, 0.5, (ROWS, CLASSES)) > 0.5).astype(np.float32)
    return x, labels


def grow(x, targets, **settings):
    options = {"n_estimators": 30, "random_state": 0, "max_features": "sqrt", **settings}
    return RandomForestRegressor(**options).fit(x, targets)


def shares(forest: Forest, x: np.ndarray) -> np.ndarray:
    """The mean label share; the logit of `forward` is bounded at 1/400."""
    with torch.no_grad():
        return torch.sigmoid(forest(torch.from_numpy(x))).numpy()


@pytest.mark.parametrize("settings", [{}, {"min_samples_leaf": 4}, {"max_depth": 2}])
def test_predictions_equal_those_of_scikit_learn(data, settings):
    x, labels = data
    fitted = grow(x, labels, **settings)
    forest, _ = convert_forests([fitted], x, labels)
    new = np.random.default_rng(1).normal(size=(200, FEATURES)).astype(np.float32)
    for rows in (x, new):
        expected = np.clip(fitted.predict(rows), 1 / 400, 1 - 1 / 400)
        assert np.abs(shares(forest, rows) - expected).max() < 1 / 255


def test_out_of_bag_shares_equal_those_of_scikit_learn(data):
    x, labels = data
    fitted = grow(x, labels, oob_score=True, n_estimators=60)
    _, held = convert_forests([fitted], x, labels)
    assert np.isfinite(held).all()
    np.testing.assert_allclose(held, fitted.oob_prediction_, atol=1e-5)


def test_a_row_that_every_tree_has_seen_has_no_out_of_bag_share(data):
    x, labels = data
    _, held = convert_forests([grow(x, labels, n_estimators=1)], x, labels)
    seen = np.isnan(held).all(axis=1)
    assert seen.any()
    assert np.isfinite(held[~seen]).all()


def test_shares_are_those_of_the_labels_where_trees_grew_on_mixtures(data):
    """With many classes, trees are grown on mixtures of labels, and leaves count the labels."""
    x, labels = data
    mixed = labels @ np.random.default_rng(0).normal(size=(CLASSES, 2)).astype(np.float32)
    fitted = grow(x, mixed, bootstrap=True, max_depth=4)
    forest, _ = convert_forests([fitted], x, labels)
    reached, expected = fitted.apply(x), np.zeros(labels.shape)
    for tree, drawn in enumerate(fitted.estimators_samples_):
        for row, leaf in enumerate(reached[:, tree]):
            inside = drawn[reached[drawn, tree] == leaf]
            expected[row] += labels[inside].mean(axis=0)
    expected = np.clip(expected / len(fitted.estimators_), 1 / 400, 1 - 1 / 400)
    assert np.abs(shares(forest, x) - expected).max() < 1 / 255


def test_values_on_a_threshold_go_left_in_double_precision_too(data):
    x, labels = data
    forest, _ = convert_forests([grow(x, labels)], x, labels)
    limit = forest.threshold[0, 0]
    rows = torch.from_numpy(x[:4]).clone()
    rows[:, int(forest.feature[0, 0])] = limit
    same = forest.find_leaves(rows), forest.double().find_leaves(rows.double())
    assert torch.equal(*same)


def test_a_forest_is_built_again_from_its_layout(data):
    x, labels = data
    forest, _ = convert_forests([grow(x, labels)], x, labels)
    again = Forest(CLASSES, **forest.layout)
    again.load_state_dict(forest.state_dict())
    np.testing.assert_array_equal(shares(again, x), shares(forest, x))


def test_one_class_and_one_leaf():
    x = np.zeros((6, 2), np.float32)
    labels = np.array([[1], [0], [1], [0], [0], [0]], np.float32)
    fitted = grow(x, labels.ravel(), bootstrap=False, n_estimators=3)
    forest, _ = convert_forests([fitted], x, labels)
    assert shares(forest, x) == pytest.approx(1 / 3, abs=1 / 255)
