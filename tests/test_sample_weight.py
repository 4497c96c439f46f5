"""`sample_weight` in the estimator: per row and per label, in every kind of model, by routing."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from halftruth.estimator import HalftruthClassifier


@pytest.fixture(scope="module")
def half_wrong():
    """Rows of which the first half has random labels, weights of 0 for these, and test rows."""
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(6, 2))
    x, test = rng.normal(size=(300, 6)), rng.normal(size=(400, 6))
    y = (x @ weight > 0.8).astype(int)
    wrong = np.arange(300) < 150
    y[wrong] = rng.integers(0, 2, (150, 2))
    return x, y, np.where(wrong, 0.0, 1.0), test, (test @ weight > 0.8).astype(int)


@pytest.mark.parametrize(
    "settings",
    [
        {"members": ["linear"]},
        {"members": ["forest"]},
        {"members": ["neighbours"]},
        {"method": "bce", "epochs": 10, "lr": 0.04},
    ],
    ids=["linear", "forest", "neighbours", "one model"],
)
def test_rows_of_weight_zero_do_no_harm(half_wrong, settings):
    x, y, weight, test, truth = half_wrong
    model = HalftruthClassifier(**settings)
    plain = model.fit(x, y).score(test, truth)
    by_row = model.fit(x, y, sample_weight=weight).score(test, truth)
    assert by_row > plain + 0.02


def test_mlp_member_uses_weights(half_wrong, monkeypatch):
    monkeypatch.setattr("halftruth.train.ensemble.mlp._STEPS", 200)
    x, y, weight, test, truth = half_wrong
    model = HalftruthClassifier(members=["mlp"])
    plain = model.fit(x, y).score(test, truth)
    assert model.fit(x, y, sample_weight=weight).score(test, truth) > plain


@pytest.mark.parametrize("settings", [{"members": ["linear"]}, {"method": "bce", "epochs": 3}])
def test_equal_weights_per_label_are_those_of_the_row(half_wrong, settings):
    x, y, weight, test, _ = half_wrong
    rows = HalftruthClassifier(**settings).fit(x, y, sample_weight=weight)
    cells = HalftruthClassifier(**settings).fit(x, y, sample_weight=np.c_[weight, weight])
    np.testing.assert_allclose(rows.predict_proba(test), cells.predict_proba(test), atol=1e-4)


def test_only_ratios_of_weights_matter(half_wrong):
    x, y, weight, test, _ = half_wrong
    one = HalftruthClassifier(members=["linear"]).fit(x, y, sample_weight=weight)
    ten = HalftruthClassifier(members=["linear"]).fit(x, y, sample_weight=10 * weight)
    np.testing.assert_allclose(one.predict_proba(test), ten.predict_proba(test), atol=1e-4)


ONE_MODEL = {"method": "bce", "epochs": 3, "options": {"unknown": "negative"}}


@pytest.mark.parametrize("settings", [ONE_MODEL, {"members": ["linear"]}])
def test_labels_of_weight_zero_change_nothing(half_wrong, settings):
    x, y, _, test, _ = half_wrong
    codes = np.where(y > 0, 1, -1)
    weight = np.ones(y.shape)
    weight[:100, 0] = 0
    other = codes.copy()
    other[:100, 0] = -other[:100, 0]
    one, two = (
        HalftruthClassifier(**settings).fit(x, labels, sample_weight=weight)
        for labels in (codes, other)
    )
    # Probabilities, decisions and the model of labelling, not only the model.
    np.testing.assert_allclose(one.predict_proba(test), two.predict_proba(test), atol=1e-6)
    np.testing.assert_allclose(one.thresholds_, two.thresholds_, atol=1e-6)
    assert one.probabilities_.labels_per_row == two.probabilities_.labels_per_row


@pytest.mark.parametrize("settings", [ONE_MODEL, {"members": ["neighbours"]}])
def test_rows_of_weight_zero_are_left_out(half_wrong, settings):
    x, y, weight, test, _ = half_wrong
    weighted = HalftruthClassifier(**settings).fit(x, y, sample_weight=weight)
    without = HalftruthClassifier(**settings).fit(x[weight > 0], y[weight > 0])
    found, expected = (one.predict_proba(test) for one in (weighted, without))
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_hints_of_rows_of_weight_zero_are_left_out(half_wrong):
    x, y, weight, test, _ = half_wrong
    counted, hint = weight > 0, y + np.random.default_rng(1).normal(0, 0.5, y.shape)
    model = HalftruthClassifier(members=["linear"])
    found = model.fit(x, y, hints=hint, sample_weight=weight).predict_proba(test, test[:, :2])
    expected = model.fit(x[counted], y[counted], hints=hint[counted])
    np.testing.assert_allclose(found, expected.predict_proba(test, test[:, :2]), atol=1e-5)


def test_rows_of_weight_zero_are_left_out_of_many_classes():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(80, 4)), np.zeros((80, 1001))
    y[np.arange(80), np.arange(80) % 4] = 1
    weight = np.repeat([0.0, 1.0], 40)
    weighted = HalftruthClassifier().fit(x, y, sample_weight=weight).predict_proba(x)
    expected = HalftruthClassifier().fit(x[40:], y[40:]).predict_proba(x)
    np.testing.assert_allclose(weighted, expected, atol=1e-5)


def test_metadata_routing(half_wrong):
    x, y, weight, test, _ = half_wrong
    direct = HalftruthClassifier("bce", epochs=3).fit(x, y, sample_weight=weight)
    with sklearn.config_context(enable_metadata_routing=True):
        model = HalftruthClassifier("bce", epochs=3).set_fit_request(sample_weight=True)
        scale = StandardScaler().set_fit_request(sample_weight=False)
        pipeline = make_pipeline(scale, model).fit(x, y, sample_weight=weight)
    np.testing.assert_allclose(pipeline.predict_proba(test), direct.predict_proba(test), atol=1e-3)


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.ones(7), "one weight for each of 300 rows"),
        (np.ones((300, 5)), "300 x 2 labels"),
        (-np.ones(300), "at least 0"),
        (np.full(300, np.nan), "finite"),
        (np.zeros(300), "every weight is zero"),
        (np.eye(300)[0], "at least 2 rows"),
        (["many"] * 300, "numbers"),
    ],
    ids=["rows", "classes", "negative", "NaN", "zero", "one row", "text"],
)
def test_bad_weights(half_wrong, weight, message):
    x, y, *_ = half_wrong
    with pytest.raises(ValueError, match=f"sample_weight: .*{message}"):
        HalftruthClassifier("bce", epochs=1).fit(x, y, sample_weight=weight)


def test_missing_labels_of_pandas_are_unknown(half_wrong):
    x, y, *_ = half_wrong
    codes = np.where(y == 1, 1, -1)
    codes[::3, 0] = 0
    frame = pd.DataFrame(codes, columns=["cat", "dog"]).astype("Int8").mask(codes == 0)
    plain = HalftruthClassifier("bce", epochs=2).fit(x, codes)
    missing = HalftruthClassifier("bce", epochs=2).fit(x, frame)
    np.testing.assert_allclose(plain.predict_proba(x), missing.predict_proba(x), atol=1e-6)
