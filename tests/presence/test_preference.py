"""The test whether some classes are shown in preference to others."""

import numpy as np
import pytest

from halftruth.bench.label_settings import hide
from halftruth.labels import single_positive
from halftruth.presence.propensity import choose_rows_to_complete, find_preference


def draw(rows=150, classes=8, seed=0):
    random = np.random.default_rng(seed)
    present = random.random((rows, classes)) < np.linspace(0.1, 0.6, classes)
    return np.where(present, 1, -1).astype(np.int8)


def test_even_draws_are_called_biased_about_as_often_as_the_level_says():
    found = [
        find_preference(single_positive(complete, seed), complete).p_value
        for seed in range(30)
        for complete in [draw(60, seed=seed)]
    ]
    # 30 p-values that are uniform on [0, 1]: 1.5 below 0.05 are expected, standard deviation 1.2.
    assert np.sum(np.array(found) < 0.05) <= 4
    assert 0.3 < np.mean(found) < 0.7


@pytest.mark.parametrize("setting", ["most-frequent", "rarest", "class-order"])
def test_biased_draws_are_found(setting):
    found = [
        find_preference(hide(complete, setting, seed), complete).p_value
        for seed in range(10)
        for complete in [draw(seed=seed)]
    ]
    assert sum(p < 0.05 for p in found) >= 9


@pytest.mark.parametrize("setting", ["drop-0.5", "frequent-0.5"])
def test_rows_that_show_several_labels_are_tested_too(setting):
    complete = draw(rows=400)
    found = find_preference(hide(complete, setting, 1), complete)
    assert (found.p_value < 0.01) == (setting == "frequent-0.5")


def test_counts_are_of_complete_rows_and_present_labels():
    complete = np.array([[1, 1, -1], [1, 0, 1], [1, -1, -1], [1, 1, 1]], dtype=np.int8)
    shown = np.array([[1, 0, 1], [1, 0, 0], [1, 0, 0], [1, 0, 0]], dtype=np.int8)
    found = find_preference(shown, complete)
    # The second row is not complete; the third shows all it has; the third class of the first row
    # is shown, and absent.
    assert found.shown.tolist() == [3, 0, 0]
    assert found.present.tolist() == [3, 2, 1]
    assert found.share.tolist() == [1, 0, 0]
    assert found.rows == 2
    assert found.expected == pytest.approx([1 / 2 + 1 / 3, 1 / 2 + 1 / 3, 1 / 3])
    assert found.chosen.tolist() == [2, 0, 0]


@pytest.mark.parametrize("rows", [0, 3])
def test_rows_that_tell_nothing_have_no_small_p_value(rows):
    complete = np.tile(np.array([1, -1], dtype=np.int8), (rows, 1))
    found = find_preference(complete.clip(0), complete)
    assert (found.rows, found.p_value) == (0, 1.0)
    assert np.isnan(found.share[1])


def test_shapes_must_agree():
    with pytest.raises(ValueError, match=r"one shape \(N, K\), got \(2, 3\) and \(2, 2\)"):
        find_preference(np.zeros((2, 3)), np.zeros((2, 2)))


def test_the_result_depends_on_the_seed_only():
    complete = draw()
    shown = hide(complete, "frequent", 0)
    first, again = (find_preference(shown, complete, seed=3).p_value for _ in range(2))
    assert first == again


def test_rows_with_several_expected_classes_are_chosen():
    p = np.full((600, 5), 0.01)
    p[::3, :2] = 0.9
    rows = choose_rows_to_complete(p)
    assert (np.diff(rows) > 0).all()
    assert np.mean(rows % 3 == 0) > 0.9
    # 119 rows with two present classes are needed; 0.81 of the likely ones have them.
    assert 100 < len(rows) < 200


@pytest.mark.parametrize(("p", "count"), [(1e-6, 500), (0.999, 119), (0.5, 238)])
def test_the_number_of_rows_depends_on_how_many_tell_something(p, count):
    found = len(choose_rows_to_complete(np.full((1000, 3), p)))
    assert found == pytest.approx(count, abs=2)
    assert 20 <= found <= 500


@pytest.mark.parametrize(
    ("setting", "low", "high"),
    [("single", -0.3, 0.3), ("frequent", 0.2, 1.0), ("rare", -3, -0.5), ("most-frequent", 2, 20)],
)
def test_complete_rows_tell_how_strongly_frequent_classes_are_preferred(setting, low, high):
    complete = draw(rows=600)
    shown = hide(complete, setting, 0)
    labels = shown.copy()
    labels[:300] = complete[:300]
    found = find_preference(shown, labels)
    assert low < found.exponent < high
    assert found.found == (setting != "single")


def test_only_rows_that_show_one_label_tell_an_exponent():
    complete = np.ones((100, 4), np.int8)
    complete[:, 3] = -1
    shown = np.where(np.arange(4) < 2, complete, 0)
    assert find_preference(hide(complete, "complete", 0), complete).exponent == 0
    assert find_preference(shown, complete).exponent == 0
