"""The scikit-learn classifier: checks of scikit-learn, labels, settings, everyday use."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_multilabel_classification
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MultiLabelBinarizer, StandardScaler
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

from halftruth import losses
from halftruth.estimator import HalftruthClassifier, training
from halftruth.labels import from_zero_absent, single_positive
from halftruth.metrics import mean_average_precision
from halftruth.train.config import ConfigError

CODES = "uses labels 1 and 2; halftruth uses 1, 0 and -1 (run on recoded labels below)"
TWO_COLUMNS = "expects two probabilities for one class, present and absent"
REPEATED = "a weight changes the loss of a row; folds, batches and calibration are still by rows"
EXPECTED_FAILURES = {
    "check_estimators_dtypes": CODES,
    "check_classifier_data_not_an_array": CODES,
    "check_fit2d_1feature": CODES,
    "check_classifiers_classes": "uses a vector of class names instead of one column per class",
    "check_decision_proba_consistency": "uses a vector of labels instead of one column per class",
    "check_classifiers_train": "expects a vector of predictions, and " + TWO_COLUMNS,
    "check_estimator_sparse_array": TWO_COLUMNS,
    "check_estimator_sparse_matrix": TWO_COLUMNS,
    "check_sample_weights_pandas_series": CODES,
    "check_sample_weights_not_an_array": CODES,
    "check_sample_weights_shape": CODES,
    "check_sample_weights_not_overwritten": CODES,
    "check_sample_weight_equivalence_on_dense_data": REPEATED,
    "check_sample_weight_equivalence_on_sparse_data": REPEATED,
}


class Recoded(HalftruthClassifier):
    """Takes any two label values."""

    def fit(self, X, y, sample_weight=None):
        y = np.asarray(y)
        return super().fit(X, y == y.max(), sample_weight=sample_weight)


@parametrize_with_checks(
    # The checks of scikit-learn expect a class to be predicted above 0.5.
    [HalftruthClassifier("swan", epochs=5, decide="threshold=0.5")],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
    xfail_strict=True,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("name", [name for name, why in EXPECTED_FAILURES.items() if why is CODES])
def test_scikit_learn_checks_with_other_label_codes(name):
    getattr(estimator_checks, name)("Recoded", Recoded("swan", epochs=5))


@pytest.fixture(scope="module")
def data():
    X, Y = make_multilabel_classification(
        300, n_features=12, n_classes=5, n_labels=2, allow_unlabeled=False, random_state=0
    )
    return X, Y


@pytest.fixture(scope="module")
def fitted(data):
    X, Y = data
    model = HalftruthClassifier("swan", epochs=8, lr=0.01)
    return model.fit(X, single_positive(Y, seed=0))


def test_learns_from_one_positive_per_row(data, fitted):
    X, Y = data
    chance = mean_average_precision(np.zeros(Y.shape), Y)
    assert fitted.score(X, Y) > chance + 0.25
    probabilities = fitted.predict_proba(X)
    assert fitted.score(X, Y) == pytest.approx(mean_average_precision(probabilities, Y))
    np.testing.assert_array_equal(fitted.predict(X), probabilities > fitted.thresholds_)
    np.testing.assert_allclose(probabilities, 1 / (1 + np.exp(-fitted.decision_function(X))))
    assert fitted.classes_.tolist() == [0, 1, 2, 3, 4]


def test_unknown_and_absent_are_trained_differently(data):
    X, Y = data
    unknown = HalftruthClassifier("bce", options={"unknown": "ignore"}, epochs=8, lr=0.01)
    rows = torch.from_numpy(X)
    # Before calibration, which would bring both to the estimated level.
    ignored = torch.sigmoid(unknown.fit(X, Y).model_(rows))
    told = torch.sigmoid(unknown.fit(X, from_zero_absent(Y)).model_(rows))
    assert ignored.min() > told.min()
    assert ignored.mean() > told.mean() + 0.1


def test_results_repeat_and_the_random_state_of_torch_is_unchanged(data, fitted):
    X, Y = data
    y = single_positive(Y, seed=0)
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    again = clone(fitted).fit(X, y)
    assert torch.equal(before, torch.random.get_rng_state())
    np.testing.assert_array_equal(again.predict_proba(X), fitted.predict_proba(X))
    short = HalftruthClassifier("em", epochs=2, val=0.2)
    first = clone(short).fit(X, y).predict_proba(X)
    other = clone(short).set_params(random_state=1).fit(X, y)
    assert not np.array_equal(other.predict_proba(X), first)
    with ThreadPoolExecutor(2) as pool:
        for done in pool.map(lambda _: clone(short).fit(X, y), range(3)):
            np.testing.assert_array_equal(done.predict_proba(X), first)


def test_survives_pickling(data, fitted):
    X, _ = data
    back = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(back.predict_proba(X), fitted.predict_proba(X))


@pytest.mark.parametrize("container", [sparse.csr_array, sparse.csc_matrix, sparse.coo_array])
def test_sparse_features_and_labels_give_what_dense_ones_give(data, container):
    X, Y = data
    X = np.where(X > 4, X, 0.0)
    model = HalftruthClassifier("swan", epochs=3, val=0.2)
    whole = model.fit(X, Y).predict_proba(X)
    thin = container(X)
    part = model.fit(thin, sparse.csr_array(Y)).predict_proba(thin)
    np.testing.assert_allclose(part, whole, rtol=1e-4)


def test_sparse_features_with_long_indices(data):
    X, Y = data
    thin = sparse.csr_array(X)
    thin.indices, thin.indptr = thin.indices.astype(np.int64), thin.indptr.astype(np.int64)
    assert HalftruthClassifier("swan", epochs=1).fit(thin, Y).predict(thin).shape == Y.shape


def test_columns_far_from_zero_keep_their_digits(data):
    X, Y = data
    shifted = X + 1.7e9
    model = HalftruthClassifier("swan", epochs=3)
    near, far = model.fit(X, Y).predict_proba(X), model.fit(shifted, Y).predict_proba(shifted)
    np.testing.assert_allclose(far, near, atol=1e-4)


def test_dataframes_give_class_and_feature_names(data):
    X, Y = data
    table = pd.DataFrame(X, columns=[f"x{k}" for k in range(X.shape[1])])
    labels = pd.DataFrame(Y, columns=["sky", "sea", "sand", "sun", "ship"])
    model = HalftruthClassifier("swan", epochs=1).fit(table, labels)
    assert model.classes_.tolist() == ["sky", "sea", "sand", "sun", "ship"]
    assert model.feature_names_in_.tolist() == list(table.columns)
    assert 0 < model.score(table, labels) <= 1
    with pytest.raises(ValueError, match="feature names"):
        model.predict(table.rename(columns={"x0": "other"}))


def test_grid_search_in_a_pipeline(data):
    X, Y = data
    pipeline = make_pipeline(StandardScaler(), HalftruthClassifier("swan", epochs=2, val=0.2))
    grid = {
        "halftruthclassifier__method": ["bce", "wan"],
        "halftruthclassifier__hidden": np.array([0, 4]),
    }
    search = GridSearchCV(pipeline, grid, cv=2).fit(X, Y)
    assert search.cv_results_["mean_test_score"].shape == (4,)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_estimator_.predict(X).shape == Y.shape


def test_texts_and_tags_in_a_pipeline():
    texts = ["red sun over the sea", "blue sea", "red sun", "blue sea and ship", "sun", "ship"] * 5
    tags = [["sun"], ["sea"], ["sun"], ["ship"], ["sun"], ["ship"]] * 5
    binarizer = MultiLabelBinarizer(sparse_output=True)
    pipeline = make_pipeline(TfidfVectorizer(), HalftruthClassifier("em", epochs=30, lr=0.03))
    pipeline.fit(texts, binarizer.fit_transform(tags))
    best = pipeline.predict_proba(["red sun, blue sea"])[0].argsort()[-2:]
    assert set(binarizer.classes_[best]) == {"sun", "sea"}
    chosen = binarizer.inverse_transform(pipeline.predict(["red sun, blue sea"]))
    assert set(chosen[0]) <= {"sun", "sea"}


def test_held_out_rows_choose_the_epoch_and_calibrate(data):
    X, Y = data
    model = HalftruthClassifier("swan", epochs=30, lr=0.1, val=0.3, patience=2).fit(X, Y)
    assert model.n_iter_ < 30
    assert model.n_iter_ == model.best_epoch_ + 2
    assert model.probabilities_.rows == 90
    kept = clone(model).set_params(epochs=30, patience=None).fit(X, Y)
    assert kept.n_iter_ == 30


@pytest.mark.parametrize("method", ["em", "bce", "wan"])
def test_decisions_do_not_depend_on_the_level_of_a_loss(data, method):
    """`em` alone would predict nearly every class, assume-negative hardly any."""
    X, Y = data
    model = HalftruthClassifier(method, epochs=20, lr=0.01).fit(X, single_positive(Y, seed=0))
    assert 0.5 < model.predict(X).sum() / Y.sum() < 1.6
    assert 0.5 < model.predict_proba(X).sum() / Y.sum() < 1.4


def test_auto_fits_an_ensemble_and_lists_its_members(data):
    X, Y = data
    model = HalftruthClassifier().fit(X, single_positive(Y, seed=0))
    # A line about biased labels may follow.
    assert [line.split()[0] for line in model.reasons_[:5]] == [
        "member", "linear", "forest", "neighbours", "all",
    ]  # fmt: skip
    alone = HalftruthClassifier(members=["linear"]).fit(X, single_positive(Y, seed=0))
    assert [line.split()[0] for line in alone.reasons_[:3]] == ["member", "linear", "all"]


def test_the_interval_of_labels_per_row_holds_in_most_draws(data):
    X, Y = data
    fits = (
        HalftruthClassifier(members=["linear"]).fit(X, single_positive(Y, seed=seed))
        for seed in range(4)
    )
    counts = [model.probabilities_.labels_per_row for model in fits]
    inside = [count.low < Y.sum(axis=1).mean() < count.high for count in counts]
    # A 90 % interval; with complete labels it would be a point.
    assert sum(inside) >= 3
    assert all(count.high < 1.5 * Y.sum(axis=1).mean() for count in counts)


def test_a_class_without_labels_is_never_predicted(data):
    X, Y = data
    y = single_positive(Y, seed=0)
    y[:, 2] = 0
    model = HalftruthClassifier(members=["linear"], decide="recall=0.99").fit(X, y)
    assert model.not_predicted_.tolist() == [2]
    assert not model.predict(X)[:, 2].any()


def test_known_labels_per_row_set_the_level(data):
    X, Y = data
    y = single_positive(Y, seed=0)
    for known in (1.2, 3.0):
        model = HalftruthClassifier(members=["linear"], labels_per_row=known).fit(X, y)
        assert model.predict_proba(X).sum(axis=1).mean() == pytest.approx(known, rel=0.15)
        assert model.probabilities_.labels_per_row.value == known


def test_rules_of_decisions(data):
    X, Y = data
    y = single_positive(Y, seed=0)
    counts = {}
    for rule in ("precision=0.9", "f1", "f2", "recall=0.95"):
        model = HalftruthClassifier("em", epochs=8, lr=0.01, val=0.3, decide=rule)
        counts[rule] = model.fit(X, y).predict(X)
    numbers = [int(chosen.sum()) for chosen in counts.values()]
    assert numbers == sorted(numbers)
    assert numbers[0] < numbers[-1]
    top = model.set_params(decide="top=2").fit(X, y).predict(X)
    assert (top.sum(axis=1) == 2).all()


def test_all_wrong_settings_are_in_one_error(data):
    X, Y = data
    wrong = HalftruthClassifier(
        "wann", epochs=0, lr=-1.0, val=1.5, decide="best", optimizer="adamm", device="gpu"
    )
    with pytest.raises(ValueError) as caught:
        wrong.fit(X, Y)
    for text in ("wan", "epochs", "lr", "val", "decide", "optimizer", "device"):
        assert text in str(caught.value)
    for absent in ("labels:", "images", "features:", "head_lr"):
        assert absent not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"patience": 3}, "held-out rows"),
        ({"decide": "f3"}, "decide: expected f1, macro-f1, f2"),
        ({"decide": "precision=1.5"}, "decide"),
        ({"labels_per_row": 0}, "labels_per_row"),
        ({"members": "linear"}, "members: expected a list"),
        ({"members": ["tree"]}, "members: expected a list"),
        ({"members": ["linear"], "method": "em"}, "members: has no effect"),
        ({"method": "consistency"}, "views"),
        ({"options": {"wait": 1}}, "wait"),
        pytest.param(
            {"device": "cuda"},
            "device: there is no CUDA device",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="the device is there"),
        ),
    ],
)
def test_a_wrong_setting_is_named(data, settings, message):
    with pytest.raises(ValueError, match=message):
        HalftruthClassifier(**settings).fit(*data)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, Y: (X, Y * 2), r"labels\[\d+, \d+\].* is 2; expected 1"),
        (lambda X, Y: (X, Y * 0), "no label of the 300 rows is present"),
        (lambda X, Y: (X, Y * 0.5), "Unknown label type"),
        (lambda X, Y: (X, Y[:, 0]), r"expected labels of shape \(N, K\)"),
        (lambda X, Y: (X, Y.sum(axis=1)), "Only binary classification"),
        (lambda X, Y: (np.where(X > 5, np.nan, X), Y), "Input X contains NaN"),
        (lambda X, Y: (np.where(X > 5, np.inf, X), Y), "Input X contains infinity"),
        (lambda X, Y: (X, np.where(Y > 0, np.nan, -1.0)), "no label of the 300 rows is present"),
        (lambda X, Y: (X, np.where(Y > 0, np.inf, 0.0)), "contains infinity"),
        (lambda X, Y: (X[:-1], Y), "inconsistent numbers of samples"),
    ],
)
def test_data_that_cannot_be_used_is_refused(data, change, message):
    with pytest.raises(ValueError, match=message):
        HalftruthClassifier("swan", epochs=1).fit(*change(*data))


@pytest.mark.filterwarnings("ignore:em-apl with warmup")
@pytest.mark.parametrize(
    "method", [n for n in losses.names() if n not in ("consistency", "em-teacher", "lagc", "scl")]
)
def test_every_method_learns_from_features(data, method):
    X, Y = data
    values = {"expected_positives": 2.0, "tau": 0.6}
    arguments = losses.registry.signature(method)
    options = {
        k: v
        for k, v in values.items()
        if k in arguments and arguments[k].default is arguments[k].empty
    }
    # Held-out rows: otherwise models of parts of the rows are trained, too.
    model = HalftruthClassifier(method, options=options, epochs=5, lr=0.03, val=0.2).fit(X, Y)
    chance = mean_average_precision(np.zeros(Y.shape), Y)
    assert model.score(X, Y) > chance + 0.15


def test_groups_are_held_out_together(monkeypatch):
    """Rows of one group are on one side only."""
    x, y = make_multilabel_classification(n_samples=90, n_classes=4, random_state=0)
    groups, seen = np.arange(90) // 3, []
    real = training.split_rows

    def parts(count, **options):
        train, val = real(count, **options)
        seen.append(np.isin(groups[val], groups[train]).any())
        return train, val

    monkeypatch.setattr(training, "split_rows", parts)
    HalftruthClassifier("swan", epochs=1, val=0.3).fit(x, y, groups=groups)
    assert seen == [False]
    with pytest.raises(ValueError, match="one entry per row, 90, got shape"):
        HalftruthClassifier("swan", epochs=1).fit(x, y, groups=groups[:-1])


@pytest.mark.parametrize("method", ["auto", "ensemble"])
@pytest.mark.parametrize(
    "setting", [{"epochs": 21}, {"val": 0.1}, {"batch_size": 64}, {"lr": 0.01}, {"hidden": 8}]
)
def test_a_setting_of_one_model_never_changes_what_is_fitted(data, method, setting):
    with pytest.raises(ConfigError, match="the ensemble and given scores are not; name a `method`"):
        HalftruthClassifier(method, **setting).fit(*data)


@pytest.mark.parametrize(
    ("given", "plan"),
    [
        ({"members": ["linear"]}, {"method": "ensemble", "options": None}),
        ({"method": "bce", "epochs": 3}, {"method": "bce", "epochs": 3, "options": None}),
        (
            {"method": "wan", "options": {"weight": 0.3}, "epochs": 20},
            {"method": "wan", "options": {"weight": 0.3}},
        ),
    ],
)
def test_the_plan_fits_the_same_again(data, given, plan):
    X, Y = data
    model = HalftruthClassifier(**given).fit(X, Y)
    assert model.plan_ == plan
    members = {"members": given["members"]} if "members" in given else {}
    again = HalftruthClassifier(**model.plan_, **members).fit(X, Y)
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_quality_fast_fits_the_fast_members_and_is_part_of_the_plan(data):
    X, y = data[:2]
    model = HalftruthClassifier(quality="fast").fit(X, y)
    named = HalftruthClassifier(members=["linear", "forest", "neighbours"]).fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X), named.predict_proba(X))
    assert model.plan_ == {"method": "ensemble", "quality": "fast", "options": None}


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"method": "em", "quality": "fast"}, "quality: has no effect, since method 'em' fits no"),
        ({"quality": "best"}, "quality: has no effect, since more than the default helps"),
        ({"quality": "fast", "members": ["linear"]}, "since the members are named"),
    ],
)
def test_a_quality_without_effect_is_refused(data, parameters, words):
    with pytest.raises(ValueError, match=words):
        HalftruthClassifier(**parameters).fit(*data[:2])


def test_masked_labels_are_unknown(data):
    X, Y = data
    hidden = np.random.default_rng(0).random(Y.shape) < 0.5
    known = np.where(Y > 0, 1, -1)
    masked = HalftruthClassifier("bce", epochs=2).fit(X, np.ma.masked_array(known, hidden))
    zero = HalftruthClassifier("bce", epochs=2).fit(X, np.where(hidden, 0, known))
    np.testing.assert_array_equal(masked.predict_proba(X), zero.predict_proba(X))


def test_columns_of_a_frame_are_scored_by_name(data):
    X, Y = data
    frame = pd.DataFrame(Y, columns=list("abcde"))
    model = HalftruthClassifier("bce", epochs=2).fit(X, frame)
    assert model.score(X, frame[list("edcba")]) == model.score(X, frame)
    with pytest.raises(ValueError, match="expected the columns a, b, c, d, e, as in fit, got"):
        model.score(X, frame.rename(columns={"a": "other"}))


def test_rule_and_level_can_be_changed_after_the_fit():
    """`predict(decide=)`, `set_params(decide=)` and `labels_per_row=` equal another fit."""
    random = np.random.default_rng(0)
    x = random.normal(size=(300, 4))
    y = ((x[:, :3] > 0.4) & (random.random((300, 3)) < 0.6)).astype(int)
    model = HalftruthClassifier(method="bce", epochs=3, random_state=0).fit(x, y)
    for rule in ("recall=0.9", "precision=0.6", "threshold=0.3", "top=1"):
        other = HalftruthClassifier(method="bce", epochs=3, random_state=0, decide=rule).fit(x, y)
        np.testing.assert_array_equal(model.predict(x, decide=rule), other.predict(x))
        np.testing.assert_array_equal(clone(model).set_params(decide=rule).fit(x, y).predict(x),
                                      other.predict(x))  # fmt: skip
    model.set_params(decide="recall=0.9")
    np.testing.assert_array_equal(model.predict(x), model.predict(x, decide="recall=0.9"))
    told = HalftruthClassifier(method="bce", epochs=3, random_state=0, labels_per_row=1.6).fit(x, y)
    np.testing.assert_allclose(
        model.predict_proba(x, labels_per_row=1.6), told.predict_proba(x), atol=1e-6
    )
    told.set_params(decide="recall=0.9")
    np.testing.assert_array_equal(model.predict(x, labels_per_row=1.6), told.predict(x))
    with pytest.raises(ValueError, match="labels_per_row: expected at least"):
        model.predict(x, labels_per_row=0.01)
