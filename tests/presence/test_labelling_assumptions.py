"""Which assumption fits the labels, and P(present) of every label that follows from it."""

import itertools

import numpy as np
import pytest

from halftruth.labels import hiding
from halftruth.presence import label_frequency
from halftruth.presence.calibration import calibrate
from halftruth.presence.estimated_scores import infer_range
from halftruth.presence.labelling_model import (
    find_class_curves,
    infer_next_to_shown,
    infer_presence,
)
from halftruth.presence.probabilities import fit_probabilities
from halftruth.presence.solvers import logit, sigmoid


def make_rows(seed, rows=700, classes=6):
    random = np.random.default_rng(seed)
    truth = random.random((rows, classes)) < np.linspace(0.15, 0.45, classes)
    z = 3.5 * truth - 2 + random.normal(size=truth.shape)
    return 1 / (1 + np.exp(-z)), truth


def show(truth, share, seed=2):
    return (truth & (np.random.default_rng(seed).random(truth.shape) < share)).astype(np.int8)


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.95])
def test_share_of_shown_labels_is_recovered(keep):
    scores, truth = make_rows(1)
    shown = show(truth, keep)
    found = infer_range(shown, scores)
    assert found.selection == "missing_at_random"
    assert found.low.sum() <= found.middle.sum() <= found.high.sum()
    assert 0.9 * found.low.sum() <= truth.sum() <= 1.1 * found.high.sum()
    assert found.middle.sum() == pytest.approx(truth.sum(), rel=0.2)
    assert (found.middle[shown == 1] == 1).all()


@pytest.mark.parametrize("noise", [1.0, 2.5])
def test_rows_without_a_label_tell_the_share_if_no_row_is_empty(noise):
    """Scores this weak never level off: without the blank rows the share would be unknown."""
    random = np.random.default_rng(0)
    truth = np.eye(6)[random.integers(0, 6, 900)] > 0
    truth |= random.random(truth.shape) < 0.05
    z = truth * 1.5 - 2 + noise * random.normal(size=truth.shape)
    fitted = fit_probabilities(show(truth, 0.4), z)
    assert fitted.assumptions["no empty row"] > 0.8
    assert fitted.labels_per_row.value == pytest.approx(truth.sum(axis=1).mean(), rel=0.15)


def test_empty_rows_refute_the_assumption_that_there_are_none():
    _, truth = make_rows(7)
    truth[:350] = False
    z = 3 * truth - 2 + np.random.default_rng(1).normal(size=truth.shape)
    fitted = fit_probabilities(show(truth, 0.5), z)
    assert "no empty row" not in fitted.assumptions
    assert fitted.labels_per_row.low < truth.sum(axis=1).mean() < fitted.labels_per_row.high


@pytest.mark.parametrize("looked_at", [True, False])
def test_blank_rows_are_empty_only_if_their_scores_say_so(looked_at):
    random = np.random.default_rng(3)
    _, truth = make_rows(5, rows=900)
    z = 3 * truth - 2 + random.normal(size=truth.shape)
    labels = hiding.single_positive(truth.astype(np.int8))
    if not looked_at:
        z, labels = z[truth.any(axis=1)], labels[truth.any(axis=1)]
        labels[: len(labels) // 3] = 0
    assert (labels == 0).all(axis=1).mean() > 0.05
    assert fit_probabilities(labels, z).blank_is_empty == looked_at


def test_one_label_per_row_has_a_wide_range():
    scores, truth = make_rows(3)
    truth[~truth.any(axis=1), 0] = True
    shown = hiding.single_positive(truth.astype(np.int8))
    found = infer_range(shown, scores)
    assert found.selection == "single_positive"
    assert found.low.sum() < truth.sum() < found.high.sum()


def test_known_labels_stay_known():
    scores, truth = make_rows(4)
    labels = show(truth, 0.5)
    labels[:100][~truth[:100]] = -1
    found = infer_range(labels, scores)
    for end in (found.low, found.middle, found.high):
        assert (end[labels == -1] == 0).all()
        assert (end[labels == 1] == 1).all()


def test_exactly_one_class_per_row_is_inferred_from_probabilities_that_add_up_to_one():
    p = np.array([[0.8, 0.2, 1e-9], [0.5, 0.3, 0.2]] * 50)
    labels = np.zeros(p.shape, np.int8)
    labels[::4, 0] = 1
    found = infer_presence(labels, p, {"no empty row": 1.0}, 0 * labels)
    # Next to a shown label nothing is missing; without one, one of the classes is.
    assert np.allclose(found[0], [1, 0, 0], atol=1e-3)
    # The first class is shown in half of its rows, so a blank row has rather another one.
    assert np.allclose(found[1].sum(), 1, atol=0.01)
    assert found[1, 0] < 0.5


@pytest.mark.parametrize("selection", ["missing_at_random", "single_positive"])
def test_given_propensities_move_the_prevalences(selection):
    """Class 0 is shown three times as often as the others; ignoring that overestimates it."""
    random = np.random.default_rng(0)
    theta = np.array([1.0, 1 / 3, 1 / 3, 1 / 3])
    truth = random.random((1500, 4)) < 0.4
    truth[~truth.any(axis=1), 1] = True
    z = 1.5 * truth - 1 + random.normal(size=truth.shape)
    if selection == "missing_at_random":
        labels = (truth & (random.random(truth.shape) < 0.75 * theta)).astype(np.int8)
    else:
        weight = theta * truth * -1 / np.log(random.random(truth.shape))
        labels = np.eye(4, dtype=np.int8)[weight.argmax(axis=1)]
    gaps = []
    for propensity in (theta, None):
        fitted = fit_probabilities(labels, z, selection=selection, propensity=propensity)
        ratio = fitted.prevalence[:, 0] / truth.mean(axis=0)
        gaps.append(abs(np.log(ratio[0] / ratio[1:].mean())))
    # Where one label is shown per row, only one of three assumptions depends on it fully.
    assert gaps[0] < (0.5 if selection == "missing_at_random" else 0.85) * gaps[1]


def test_classes_that_go_together_tell_how_many_labels_are_missing(monkeypatch):
    """Scores too weak to level off; next to a shown label of the same kind they do."""
    random = np.random.default_rng(2)
    kind = random.random((800, 2)) < 0.35
    truth = np.repeat(kind, 4, axis=1) ^ (random.random((800, 8)) < 0.02)
    z = 0.7 * truth - 1 + random.normal(size=truth.shape)
    labels = (truth & (random.random(truth.shape) < 0.4)).astype(np.int8)
    together = fit_probabilities(labels, z).labels_per_row
    monkeypatch.setattr(label_frequency, "_FREQUENT", 0)
    alone = fit_probabilities(labels, z).labels_per_row
    assert together.low < truth.sum(axis=1).mean() < together.high
    assert together.high / together.low < 0.7 * alone.high / alone.low


def test_where_every_row_shows_a_label_the_interval_covers_rows_that_were_given_some():
    """No blank row: either all labels are shown, or people gave each row at least one of them."""
    scores, truth = make_rows(0)
    some = truth.any(axis=1)
    scores, truth = scores[some], truth[some]
    order = np.where(truth, np.random.default_rng(1).random(truth.shape), -1.0)
    count = np.where(truth.sum(axis=1) > 2, 2, 1)
    part = truth & (order.argsort(axis=1).argsort(axis=1) >= truth.shape[1] - count[:, None])
    for shown in (part, truth):
        found = fit_probabilities(shown.astype(np.int8), logit(scores)).labels_per_row
        assert found.low - 1e-9 <= truth.sum(axis=1).mean() <= found.high


def test_next_to_a_shown_label_by_enumeration():
    p, theta = np.array([0.6, 0.3, 0.8]), np.array([1.0, 0.4, 0.7])
    for j in range(3):
        weight, present = 0.0, np.zeros(3)
        for y in itertools.product((0, 1), repeat=3):
            y = np.array(y)
            if y[j]:
                chance = np.where(y, p, 1 - p).prod() * theta[j] / (theta @ y)
                weight, present = weight + chance, present + chance * y
        shown = np.arange(3)[None] == j
        at = np.where(shown, 1.0, p)
        found = infer_next_to_shown(at, shown, theta)[0]
        assert found == pytest.approx(present / weight, abs=2e-3)


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
        infer_range(**given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"prevalence": {0: 1.5}}, "prevalence: expected shares between 0 and 1, got 1.5"),
        ({"prevalence": {0: 0.9}, "labels_per_row": 0.5}, "more than the known prevalences"),
        ({"propensity": [1.0]}, "propensity: expected 2 positive numbers"),
        ({"propensity": [1.0, -1.0]}, "propensity: expected 2 positive numbers"),
    ],
)
def test_knowledge_that_cannot_be_is_refused(given, words):
    with pytest.raises(ValueError, match=words):
        fit_probabilities(np.eye(2, dtype=np.int8), logit(np.full((2, 2), 0.4)), **given)


def make_listed(
    share: float, seed: int = 0, rows: int = 1500
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, logits and complete labels of the rows that show a label; classes go together."""
    random = np.random.default_rng(seed)
    topic = random.random((rows, 2)) < 0.35
    chance = np.where(np.repeat(topic, 4, axis=1), 0.6, 0.06)
    truth = random.random((rows, 8)) < chance
    z = 2.0 * truth - 1.5 + random.normal(size=truth.shape)
    shown = truth & (random.random(truth.shape) < share)
    listed = shown.any(axis=1)
    return shown[listed].astype(np.int8), z[listed], truth[listed]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("share", [0.3, 0.4, 0.6, 0.9, 1.0])
def test_rows_that_are_not_listed_are_no_sign_of_complete_labels(share: float, seed: int) -> None:
    """Half of the labels per row were estimated: rows without a label were not in the file."""
    labels, z, truth = make_listed(share, seed)
    fitted = fit_probabilities(labels, z)
    assert fitted.only_shown
    count, per_row = fitted.labels_per_row, truth.sum(axis=1).mean()
    assert count.low <= per_row <= count.high
    assert abs(count.value - per_row) < 0.4 * per_row
    # Not so wide that it says nothing: there are eight classes.
    assert count.high < 6
    kept = fit_probabilities(labels, z, unlabelled_rows="kept")
    assert not kept.only_shown
    if share < 0.5:
        assert kept.labels_per_row.value < 0.75 * per_row


def test_stated_rows_are_checked() -> None:
    labels, z, _ = make_listed(0.5)
    stated = fit_probabilities(labels, z, unlabelled_rows="dropped")
    assert stated.only_shown
    labels[:7] = 0
    assert not fit_probabilities(labels, z).only_shown
    with pytest.raises(ValueError, match="got 7 that show none"):
        fit_probabilities(labels, z, unlabelled_rows="dropped")
    with pytest.raises(ValueError, match="expected auto, kept, dropped, got 'left out'"):
        fit_probabilities(labels, z, unlabelled_rows="left out")


@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_an_audit_ranks_at_least_as_well_as_its_scores(seed: int, dropped: bool) -> None:
    random = np.random.default_rng(seed)
    labels, z, truth = make_listed(0.5, seed)
    if not dropped:
        labels[:300] = 0
    p = sigmoid(1.5 * z + 0.3 * random.normal(size=8))
    found = calibrate(labels, p)
    unknown = labels == 0
    right, plain, ours = truth[unknown], p[unknown], found.present[unknown]
    for first in (20, 100, 400):
        best = [right[np.argsort(-one, kind="stable")[:first]].mean() for one in (ours, plain)]
        assert best[0] >= best[1] - 0.02
    for k in range(8):
        order = np.argsort(p[labels[:, k] == 0, k])
        assert (np.diff(found.present[labels[:, k] == 0, k][order]) >= -1e-12).all()


def make_followers(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels of which 40 % are shown, P(shown | x) as scores, and complete labels."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(1000, 5))
    z = 2.5 * x @ random.normal(size=(5, 10)) / 5**0.5 - random.uniform(1.5, 3.0, 10)
    truth = random.random(z.shape) < sigmoid(z)
    shown = truth & (random.random(z.shape) < 0.4)
    return shown.astype(np.int8), 0.4 * sigmoid(z), truth


def test_scores_that_follow_the_shown_labels_do_not_say_that_none_is_missing() -> None:
    """A fifth was counted: curves of all classes were as steep as the scores if none is."""
    found, true = 0.0, 0
    for seed in (0, 1, 2):
        labels, scores, truth = make_followers(seed)
        found += calibrate(labels, scores).missing_total.value
        true += int((truth & (labels == 0)).sum())
    assert found > 0.3 * true


@pytest.mark.parametrize("moved", [0.0, 2.0])
def test_an_audit_leaves_the_order_of_the_scores_only_for_a_reason(moved: float) -> None:
    labels, scores, truth = make_followers(0)
    # Scores of other classes are too high.
    points = sigmoid(logit(scores) + moved * (np.arange(10) % 2))
    unknown = labels == 0
    assert find_class_curves(labels, logit(points)) == (moved > 0)
    ours, plain = (np.argsort(-one[unknown]) for one in (calibrate(labels, points).present, points))
    if moved:
        assert truth[unknown][ours[:800]].mean() > truth[unknown][plain[:800]].mean() + 0.1
    else:
        assert (np.diff(points[unknown][ours]) < 1e-4).all()
