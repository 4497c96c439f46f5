"""The range of fits covers the number of present labels."""

import numpy as np
import pytest

from halftruth.labels import hiding
from halftruth.presence.labelling_range import fit_presence_range


def make_rows(seed, rows=700, classes=6):
    random = np.random.default_rng(seed)
    truth = random.random((rows, classes)) < np.linspace(0.15, 0.45, classes)
    z = 3.5 * truth - 2 + random.normal(size=truth.shape)
    return 1 / (1 + np.exp(-z)), truth


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.95])
def test_share_of_shown_labels_is_recovered(keep):
    scores, truth = make_rows(1)
    shown = truth & (np.random.default_rng(2).random(truth.shape) < keep)
    found = fit_presence_range(shown.astype(np.int8), scores)
    assert found.selection == "random"
    assert found.low.sum() <= found.middle.sum() <= found.high.sum()
    assert 0.9 * found.low.sum() <= truth.sum() <= 1.1 * found.high.sum()
    assert found.middle.sum() == pytest.approx(truth.sum(), rel=0.2)
    assert (found.middle[shown] == 1).all()


def test_one_label_per_row_has_a_wide_range():
    scores, truth = make_rows(3)
    shown = hiding.single_positive(truth.astype(np.int8))
    found = fit_presence_range(shown, scores)
    assert found.selection == "one"
    assert found.low.sum() < truth.sum() < found.high.sum()


def test_absent_labels_stay_absent():
    scores, truth = make_rows(4)
    labels = (truth & (np.random.default_rng(5).random(truth.shape) < 0.5)).astype(np.int8)
    labels[:100][~truth[:100]] = -1
    found = fit_presence_range(labels, scores)
    for end in (found.low, found.middle, found.high):
        assert (end[labels == -1] == 0).all()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"labels": [[0, 0]], "scores": [[0.5, 0.5]]}, "no label is PRESENT"),
        ({"labels": [[1, 0]], "scores": [[0.5, 2.0]]}, "probability in 0..1"),
        ({"labels": [[1, 0]], "scores": [[0.5, 0.5]], "selection": "most"}, "selection"),
    ],
)
def test_bad_inputs_are_named(given, words):
    with pytest.raises(ValueError, match=words):
        fit_presence_range(**given)
