"""Which class of a row is shown: likelihoods, weights of pairs, and the test of label bias."""

import numpy as np
import pytest

from halftruth.bench.label_settings import hide
from halftruth.labels import frequency_weights, keep_by_weight, single_positive
from halftruth.presence.label_frequency import fit_label_frequency
from halftruth.presence.labelling_model import fit_presence
from halftruth.presence.probabilities import fit_probabilities
from halftruth.presence.propensity import (
    TESTED,
    LabelBias,
    choose_possible,
    choose_propensity,
    compare_selections,
    draw_evenly,
    find_preference,
    frequency_propensities,
    shown_log_likelihood,
    shows_one,
    weigh_pairs,
)
from halftruth.presence.solvers import logit, sigmoid
from halftruth.presence.uncertainty import CLASS_DOUBT, DOUBT, Z90


def count_shown(truth: np.ndarray, e: np.ndarray, draws: int) -> np.ndarray:
    """The share of draws in which each class is the one shown."""
    random = np.random.default_rng(0)
    chance = truth * e / (truth * e).sum(axis=1, keepdims=True)
    drawn = [random.choice(len(e), p=row) for row in chance for _ in range(draws)]
    return np.bincount(drawn, minlength=len(e)) / len(drawn)


def test_the_likelihood_of_the_shown_class_is_that_of_draws():
    random = np.random.default_rng(1)
    p, e = np.array([0.9, 0.5, 0.2, 0.7]), np.array([4.0, 1.0, 0.3, 0.1])
    truth = random.random((20_000, 4)) < p
    truth = truth[truth.any(axis=1)]
    nonempty = 1 - np.prod(1 - p)
    found = np.exp(shown_log_likelihood(np.arange(4), np.tile(p, (4, 1)), e))
    np.testing.assert_allclose(found / nonempty, count_shown(truth, e, 1), atol=0.012)


def test_likelihoods_of_all_classes_add_up_to_the_chance_of_any_class():
    p, e = np.array([0.3, 0.99, 0.01]), np.array([100.0, 1.0, 0.01])
    found = np.exp(shown_log_likelihood(np.arange(3), np.tile(p, (3, 1)), e))
    assert found.sum() == pytest.approx(1 - np.prod(1 - p), abs=2e-3)


def test_equal_propensities_do_not_depend_on_their_level():
    p, shown = np.array([[0.3, 0.6, 0.1]]), np.array([1])
    one, other = (shown_log_likelihood(shown, p, np.full(3, level)) for level in (1.0, 7.0))
    np.testing.assert_allclose(one, other)


def test_a_row_that_shows_a_frequent_class_says_little_of_rare_ones():
    labels = np.zeros((111, 3), np.int8)
    labels[:100, 0] = labels[100:110, 1] = labels[110, 2] = 1
    pairs = weigh_pairs(labels)
    assert (np.diag(pairs) == 1).all()
    assert ((pairs > 0) & (pairs <= 1)).all()
    assert pairs[0, 2] < pairs[0, 1] < 0.3
    assert pairs[2, 0] > 0.9


@pytest.mark.parametrize(
    ("labels", "chosen"),
    [
        ([[1, 0, 0], [0, 1, 0]], True),
        ([[1, 0, 0], [0, 0, 0]], True),
        ([[1, 1, -1], [0, 1, 0]], True),
        ([[1, 1, 0], [0, 1, 0]], False),
        ([[1, -1, 0], [0, 1, 0]], False),
        ([[0, 0, 0], [0, 0, 0]], False),
    ],
)
def test_a_choice_was_made_where_incomplete_rows_show_one_class(labels, chosen):
    assert shows_one(np.array(labels, np.int8)) is chosen


def make_rows(rows: int = 3000, classes: int = 8, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Logits of independent classes with very different frequencies, and labels drawn by them."""
    random = np.random.default_rng(seed)
    z = random.normal(size=(rows, classes)) * 3 + np.linspace(1, -4, classes)
    return z, (random.random(z.shape) < 1 / (1 + np.exp(-z))).astype(np.int8)


@pytest.mark.parametrize("seed", range(3))
def test_frequent_first_is_found_and_a_random_draw_is_not(seed):
    z, truth = make_rows(seed=seed)
    first = keep_by_weight(truth, frequency_weights(truth), seed=seed)
    biased = compare_selections(first, z, z)
    fair = compare_selections(single_positive(truth, seed=seed), z, z)
    assert biased.found
    assert not fair.found
    assert "frequent one is named" in biased.describe()
    assert "do not look biased" in fair.describe()
    assert fair.rows == truth.any(axis=1).sum()


def test_propensities_follow_the_shown_labels():
    labels = np.eye(4, dtype=np.int8)[[0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 2]]
    e = frequency_propensities(labels, TESTED)
    assert e[0] / e[3] == pytest.approx(8**TESTED)
    assert np.log(e).mean() == pytest.approx(0)


@pytest.mark.parametrize(
    ("test", "text"),
    [
        (LabelBias(4.0, 0.1, 900, even=-1.0), "labels look biased"),
        (LabelBias(4.0, 0.1, 900, even=3.0), "z = 4.0, but 3.0 for labels drawn evenly"),
        (LabelBias(4.0, 0.1, 900, explained=0.02), "explain 2 % of which one is shown"),
        (LabelBias(-4.0, -0.1, 900, explained=0.15), "cannot be told from these labels"),
        (LabelBias(4.0, 0.1, 900, explained=0.15), "labels look biased"),
        (LabelBias(-4.0, -0.1, 900), "do not look biased"),
        (LabelBias(4.0, 1e-4, 90_000), "do not look biased"),
    ],
)
def test_only_a_gain_beyond_that_of_even_labels_is_an_alarm(test, text):
    assert text in test.describe()
    assert test.found == ("look biased: " in test.describe())
    assert test.tells != ("cannot be told" in test.describe())


def test_labels_that_are_drawn_evenly_are_one_per_row_and_as_frequent_as_the_shown_ones():
    z, truth = make_rows()
    shown = single_positive(truth, seed=0)
    rows = shown.any(axis=1)
    drawn = draw_evenly(shown[rows], z[rows], seed=1)
    assert (drawn.sum(axis=1) == 1).all()
    np.testing.assert_allclose(drawn.mean(axis=0), shown[rows].mean(axis=0), atol=0.03)
    assert not compare_selections(drawn, z[rows], z[rows]).found


FOUND, CANNOT_TELL = LabelBias(5.0, 0.1, 900), LabelBias(0.0, 0.0, 900, explained=0.01)


@pytest.mark.parametrize(
    ("bias", "setting", "sign"),
    [
        (None, None, 0), (FOUND, None, 1), (CANNOT_TELL, None, 0),
        (CANNOT_TELL, "frequent", 1), (FOUND, "rare", -1), (FOUND, "single", 0),
    ],
)  # fmt: skip
def test_complete_rows_decide_on_propensities_and_otherwise_labels_alone(bias, setting, sign):
    _, truth = make_rows()
    truth = np.where(truth > 0, 1, -1).astype(np.int8)
    shown = hide(truth, setting or "single", 0)
    labels = shown.copy()
    labels[:300] = truth[:300]
    exponent = None if setting is None else find_preference(shown, labels).told
    e = choose_propensity(shown, bias, exponent)
    assert (0 if e is None else np.sign(e[0] - e[-1])) == sign
    unsure = choose_possible(shown, bias, exponent)
    # Labels alone do not tell how strong a bias is, either.
    assert (unsure is not None) == (bias is not None and setting is None)


def test_intervals_cover_propensities_that_cannot_be_excluded():
    z, truth = make_rows(1500)
    shown = hide(np.where(truth > 0, 1, -1), "most-frequent", 0)
    rows = shown.any(axis=1)
    one, other = (
        fit_probabilities(shown[rows], z[rows], possible=possible)
        for possible in (None, frequency_propensities(shown))
    )
    np.testing.assert_allclose(one.offset, other.offset)
    assert other.labels_per_row.high > 1.1 * one.labels_per_row.high
    assert other.most > one.most
    assert (other.prevalence[:, 2] >= one.prevalence[:, 2] - 1e-12).all()
    assert one.infer(shown[rows], z[rows]).high.sum() < other.infer(shown[rows], z[rows]).high.sum()


@pytest.mark.parametrize("selection", ["single_positive", "missing_at_random"])
def test_intervals_under_possible_bias_are_those_of_both_fits(selection):
    """A second computation of the ends, from the fits of each assumption."""
    z, truth = make_rows(900, 5)
    shown = hide(
        np.where(truth > 0, 1, -1), "frequent" if selection == "single_positive" else "drop-0.5", 0
    )
    labels = shown[shown.any(axis=1)] if selection == "single_positive" else shown
    z = z[shown.any(axis=1)] if selection == "single_positive" else z
    scores, theta = sigmoid(z), frequency_propensities(labels)

    def find_levels(propensity):
        """Labels per row by each fit: the estimate, the fewest and the most; priors are (N, K)."""
        shares = fit_label_frequency(
            labels, scores, propensity, use_blank_rows=selection == "missing_at_random"
        )
        found = [(shares.prior(scores), shares.low, shares.high)]
        if selection == "single_positive":
            for given in (False, True):
                fit = fit_presence(
                    labels,
                    scores,
                    selection="single_positive",
                    at_least_one=given,
                    propensity=propensity,
                )
                found.append((fit.prior(scores), 1.0, 1.0))
        return found

    even, biased = find_levels(None), find_levels(theta / theta.max())
    middle = sigmoid(np.mean([logit(prior) for prior, _, _ in even], axis=0)).sum()
    ends = [prior.sum() * np.array([low, high]) for prior, low, high in even + biased]
    fitted = fit_probabilities(labels, z, selection=selection, possible=theta)
    assert fitted.fewest == pytest.approx(min(1.0, np.min(ends) / middle), rel=1e-6)
    assert fitted.most == pytest.approx(max(1.0, np.max(ends) / middle), rel=1e-6)
    alone = max(prior.sum() * high for prior, _, high in even) / middle
    assert fitted.most > 1.03 * alone
    # Only their relations to each other count.
    again = fit_probabilities(labels, z, selection=selection, possible=7 * theta)
    np.testing.assert_allclose(again.prevalence, fitted.prevalence, rtol=1e-9)
    assert again.most == pytest.approx(fitted.most, rel=1e-9)
    # The highest level of the fits, widened by sampling and by doubt of the missing labels.
    p, counts = fitted(z).mean(axis=0), (labels == 1).sum(axis=0)
    missing = np.maximum(1 - counts / (len(z) * p), 0)
    wide = np.exp(Z90 * np.hypot(1 / np.sqrt(counts), missing * np.hypot(DOUBT, CLASS_DOUBT)))
    levels = [prior.mean(axis=0) * end for prior, *two in even + biased for end in two]
    high = np.minimum(np.max([p, *levels], axis=0) * wide, 1)
    np.testing.assert_allclose(fitted.prevalence[:, 2], high, rtol=1e-6)
    low = np.maximum(np.min([p, *levels], axis=0) / wide, counts / len(z))
    np.testing.assert_allclose(fitted.prevalence[:, 1], low, rtol=1e-6)
