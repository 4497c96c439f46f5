"""`halftruth.metrics.make_scorer`: scikit-learn's searches on incomplete labels."""

import pickle

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multioutput import MultiOutputClassifier

import halftruth
from halftruth.metrics import make_scorer


def make_data(seed):
    """Features, complete labels and labels of which half are shown."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(600, 6))
    truth = (x[:, :4] + random.normal(0, 0.5, (600, 4)) > 0.5).astype(int)
    return x, truth, truth * (random.random(truth.shape) < 0.5)


@pytest.fixture(scope="module")
def data():
    return make_data(0)


@pytest.fixture(scope="module")
def model():
    return halftruth.HalftruthClassifier(method="bce", epochs=5, random_state=0)


@pytest.mark.parametrize("metric", ["mAP", "CF1", "OF1"])
def test_estimates_are_nearer_to_the_truth_than_unknown_as_absent(model, metric):
    scorer, errors = make_scorer(metric), []
    for seed in range(4):
        x, truth, shown = make_data(seed)
        fitted = model.fit(x[:300], shown[:300])
        true, naive = (
            scorer(fitted, x[300:], np.where(y[300:] > 0, 1, -1)) for y in (truth, shown)
        )
        estimated = scorer(fitted, x[300:], shown[300:])
        errors.append([abs(estimated - true), abs(naive - true)])
    ours, others = np.mean(errors, axis=0)
    assert ours < 0.5 * others


def test_complete_labels_give_the_metric_itself(data, model):
    x, truth, shown = data
    fitted = model.fit(x[:300], shown[:300])
    complete = np.where(truth[300:] > 0, 1, -1)
    for basis in ("estimated", "known"):
        found = make_scorer("mAP", basis=basis)(fitted, x[300:], complete)
        assert found == pytest.approx(fitted.score(x[300:], complete))


def test_known_labels_alone(data, model):
    """Unknown labels are left out: verified absent ones are the only negatives."""
    x, truth, shown = data
    fitted = model.fit(x[:300], shown[:300])
    known = np.where(shown[300:] > 0, 1, 0)
    known[:100] = np.where(truth[300:400] > 0, 1, -1)
    decided = fitted.predict(x[300:])
    right = (decided * (known == 1)).sum()
    precision, recall = right / (decided * (known != 0)).sum(), right / (known == 1).sum()
    found = make_scorer("OF1", basis="known")(fitted, x[300:], known)
    assert found == pytest.approx(2 * precision * recall / (precision + recall))


def test_searches_of_scikit_learn_take_it(data, model):
    x, _, shown = data
    scorer = pickle.loads(pickle.dumps(make_scorer("OF1")))
    y = shown.copy()
    y[:20] = np.where(y[:20] > 0, 1, -1)
    assert np.isfinite(cross_val_score(model, x, y, scoring=scorer, cv=3)).all()
    search = GridSearchCV(model, {"lr": [1e-3, 1e-2]}, scoring=scorer, cv=2).fit(x, y)
    assert 0 < search.best_score_ < 1
    other = MultiOutputClassifier(LogisticRegression())
    assert np.isfinite(cross_val_score(other, x, shown, scoring=make_scorer(), cv=3)).all()


def test_scores_that_do_not_rank_are_not_known(data, model):
    x, _, shown = data
    fitted = model.fit(x[:300], shown[:300])
    with pytest.warns(UserWarning, match="mAP is not known: the inputs do not explain the labels"):
        found = make_scorer()(fitted, np.random.default_rng(1).normal(size=(300, 6)), shown[300:])
    assert np.isnan(found)


@pytest.mark.parametrize("wrong", [{"metric": "f1"}, {"basis": "absent"}])
def test_wrong_arguments(wrong):
    with pytest.raises(ValueError, match=r"expected .*, got"):
        make_scorer(**wrong)
