"""Members and the test of label bias where frequent classes are named first."""

import numpy as np
import pytest
import torch

from halftruth.labels import frequency_weights, keep_by_weight, single_positive
from halftruth.metrics import mean_average_precision
from halftruth.models.forest import correct_shares
from halftruth.train.auto.frequency_bias import find_frequency_bias
from halftruth.train.ensemble.fit_ensemble import fit_ensemble
from halftruth.train.ensemble.preparation import prepare_features


def make_data(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows with one of five classes, as photos with one object; half of them with class 0, too."""
    random = np.random.default_rng(seed)
    truth = np.zeros((rows, 6), np.int8)
    truth[np.arange(rows), random.integers(1, 6, rows)] = 1
    truth[:, 0] = random.random(rows) < 0.5
    x = 1.5 * truth @ np.random.default_rng(9).normal(size=(6, 10)) + random.normal(size=(rows, 10))
    return x.astype(np.float32), truth


def name_frequent(truth: np.ndarray, strictly: bool = True) -> np.ndarray:
    return keep_by_weight(truth, frequency_weights(truth), largest_first=strictly, seed=0)


@pytest.fixture(scope="module")
def data():
    return make_data(1200)


def test_the_test_finds_labels_that_name_frequent_classes_first(data):
    x, truth = data
    prepared = prepare_features(x)
    assert find_frequency_bias(prepared, name_frequent(truth)).found
    assert not find_frequency_bias(prepared, single_positive(truth, seed=0)).found


@pytest.mark.parametrize("strictly", [True, False])
def test_labels_of_badly_predicted_classes_never_look_biased(data, strictly):
    _, truth = data
    noise = np.random.default_rng(3).normal(size=(len(truth), 30)).astype(np.float32)
    found = find_frequency_bias(prepare_features(noise), name_frequent(truth, strictly))
    assert not found.found
    assert "cannot be told from these labels" in found.describe()


@pytest.mark.parametrize(
    "labels",
    [
        lambda truth: truth,
        lambda truth: np.where(truth > 0, 1, -1).astype(np.int8),
        lambda truth: single_positive(truth, seed=0)[:100],
        lambda truth: np.where(np.arange(6) == 0, single_positive(truth, seed=0), 0).astype(
            np.int8
        ),
    ],
    ids=["several labels", "complete labels", "few rows", "one class"],
)
def test_without_a_choice_among_classes_there_is_no_test(data, labels):
    x, truth = data
    given = labels(truth)
    assert find_frequency_bias(prepare_features(x[: len(given)]), given) is None


@pytest.mark.parametrize("member", ["linear", "forest", "neighbours"])
def test_each_member_ranks_better_than_without_propensities(data, member, monkeypatch):
    x, truth = data
    new, complete = make_data(1500, seed=1)
    labels = name_frequent(truth)
    scores = []
    for on in (True, False):
        if not on:
            for name, value in (("members.shows_one", False), ("member_fits.find_pairs", None)):
                monkeypatch.setattr(f"halftruth.train.ensemble.{name}", lambda labels, v=value: v)
        model = fit_ensemble(x, labels, seed=0, members=[member]).model
        with torch.no_grad():
            scores.append(mean_average_precision(model(torch.from_numpy(new)), complete))
    assert scores[0] > scores[1] + 0.01


def test_a_fitted_ensemble_says_whether_labels_are_biased(data):
    x, truth = data
    fitted = fit_ensemble(x, name_frequent(truth), seed=0, members=["linear"])
    assert fitted.bias.found
    assert "labels look biased" in fitted.describe()[-1]


def test_rows_that_show_nothing_count_as_rows_without_the_class():
    pairs = torch.full((2, 2), 0.5).fill_diagonal_(1.0)
    none, some = correct_shares(torch.tensor([[0.2, 0.0], [0.2, 0.8]]), pairs)
    assert none[0] == pytest.approx(0.2 / (0.2 + 0.8))
    assert some[0] == pytest.approx(0.2 / (0.2 + 0.4))
