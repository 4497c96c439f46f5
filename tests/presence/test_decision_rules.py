"""Every rule of decisions does what it says, on rows that its thresholds were not chosen on."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halftruth.presence.decisions import Decisions, Rule, decide, expect, parse_rule
from halftruth.presence.probabilities import fit_probabilities
from halftruth.presence.solvers import sigmoid

ROWS, CLASSES = 4000, 4
SHOWN = np.full(CLASSES, 100)


@pytest.fixture(scope="module")
def rows():
    """Exact probabilities of two sets of rows, and the labels of the second."""
    random = np.random.default_rng(0)
    level = np.array([0.0, -1.0, -2.0, -3.0])
    first, second = (sigmoid(random.normal(level, 3, (ROWS, CLASSES))) for _ in range(2))
    return first, second, random.random(second.shape) < second


def measure(chosen: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Precision and recall per class."""
    right = (chosen & truth).sum(axis=0)
    return right / np.maximum(chosen.sum(axis=0), 1), right / truth.sum(axis=0)


def f_beta(chosen: np.ndarray, truth: np.ndarray, beta: float) -> np.ndarray:
    right, found, there = (one.sum(axis=0) for one in (chosen & truth, chosen, truth))
    return (1 + beta**2) * right / (found + beta**2 * there)


@pytest.mark.parametrize("level", [0.7, 0.9])
def test_precision_is_reached_with_as_many_predictions_as_possible(rows, level):
    first, second, truth = rows
    found = decide(first, SHOWN, f"precision={level}")
    precision, recall = measure(found(second), truth)
    assert precision == pytest.approx(level, abs=0.04)
    stricter = decide(first, SHOWN, f"precision={(1 + level) / 2}")
    assert (measure(stricter(second), truth)[1] < recall).all()


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_recall_is_reached_with_as_few_predictions_as_possible(rows, level):
    first, second, truth = rows
    found = decide(first, SHOWN, f"recall={level}")
    assert measure(found(second), truth)[1] == pytest.approx(level, abs=0.05)


@pytest.mark.parametrize(("rule", "beta"), [("f1", 1), ("f2", 2)])
def test_no_other_threshold_has_a_much_higher_f(rows, rule, beta):
    first, second, truth = rows
    reached = f_beta(decide(first, SHOWN, rule)(second), truth, beta)
    best = np.max([f_beta(second > t, truth, beta) for t in np.linspace(0.02, 0.98, 49)], axis=0)
    assert (reached > best - 0.01).all()


def test_count_predicts_as_many_as_are_present(rows):
    first, second, truth = rows
    chosen = decide(first, SHOWN, "count")(second)
    assert chosen.sum(axis=0) == pytest.approx(truth.sum(axis=0), rel=0.1)


@pytest.mark.parametrize("price", [0.2, 1, 5])
def test_cost_is_the_lowest_of_all_thresholds(rows, price):
    first, second, truth = rows
    found = decide(first, SHOWN, f"cost={price}")
    assert found.thresholds == pytest.approx(1 / (1 + price))

    def cost(chosen):
        return price * (truth & ~chosen).sum() + (chosen & ~truth).sum()

    lowest = min(cost(second > t) for t in np.linspace(0.02, 0.98, 49))
    assert cost(found(second)) <= 1.02 * lowest


def test_top_takes_the_best_classes_that_may_be_predicted():
    p = np.array([[0.1, 0.9, 0.5, 0.6], [0.2, 0.1, 0.4, 0.05], [0.3, 0.3, 0.3, 0.3]])
    found = decide(p, np.array([1, 0, 5, 5]), "top=2")
    assert found.predicted.tolist() == [True, False, True, True]
    assert found(p).astype(int).tolist() == [[0, 0, 1, 1], [1, 0, 1, 0], [1, 0, 1, 0]]
    assert decide(p, SHOWN, "top=4")(p).all()
    with pytest.raises(ValueError, match="top needs at most 4, the number of classes, got 5"):
        decide(p, SHOWN, "top=5")


def test_a_fixed_threshold_is_the_same_for_all_classes(rows):
    first, second, _ = rows
    np.testing.assert_array_equal(decide(first, SHOWN, "threshold=0.3")(second), second > 0.3)


@pytest.mark.parametrize("rule", ["f1", "f2", "recall=0.9", "threshold=0.5", "top=3", "count"])
def test_a_class_without_labels_is_not_predicted(rows, rule):
    first, second, _ = rows
    found = decide(first, np.array([100, 0, 100, 100]), rule)
    assert found.predicted.tolist() == [True, False, True, True]
    assert not found(second)[:, 1].any()
    assert found(second)[:, 0].any()


def test_a_class_that_cannot_reach_the_precision_is_not_predicted():
    p = np.array([[0.9, 0.3], [0.8, 0.2], [0.1, 0.1]])
    found = decide(p, np.array([5, 5]), "precision=0.85")
    assert found.predicted.tolist() == [True, False]
    assert found(p).tolist() == [[True, False], [True, False], [False, False]]


def test_a_class_that_is_never_present_is_not_predicted_by_count():
    found = decide(np.full((20, 1), 0.01), np.array([3]), "count")
    assert not found.predicted.any()


def test_rows_with_equal_probabilities_are_decided_alike():
    p = np.repeat([[0.7], [0.2]], [10, 30], axis=0)
    assert decide(p, np.array([5]), "f1")(p).sum() == 10
    assert decide(np.full((8, 1), 0.6), np.array([5]), "f1")(np.full((8, 1), 0.6)).all()


@pytest.mark.parametrize(
    ("rule", "rows", "threshold"),
    [
        # 2.6 labels are expected: the third row is as likely as the second and the fourth.
        ("count", 4, 0.3),
        ("recall=0.5", 4, 0.3),
        # The first two rows have an expected precision of 0.7, with their ties it is 0.6.
        ("precision=0.7", 1, 0.7),
        ("precision=0.6", 4, 0.3),
        ("f1", 4, 0.3),
    ],
)
def test_ties_at_the_cut_are_decided_alike_and_keep_what_the_rule_promises(rule, rows, threshold):
    p = np.array([[0.9], [0.5], [0.5], [0.5], [0.1], [0.1]])
    found = decide(p, np.array([5]), rule)
    assert found(p).sum() == rows
    assert found.thresholds == pytest.approx([threshold])


@given(
    level=st.floats(0.05, 0.95),
    p=st.lists(st.sampled_from([0.02, 0.1, 0.3, 0.5, 0.8, 0.99]), min_size=1, max_size=30),
)
def test_an_expected_precision_is_kept_on_rows_with_ties(level, p):
    column = np.array(p)[:, None]
    chosen = decide(column, np.array([5]), f"precision={level:.3f}")(column)
    assert not chosen.any() or column[chosen].mean() >= round(level, 3) - 1e-12


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "expected one of f1"),
        ("f3", "expected one of f1"),
        ("f1=2", "expected one of f1"),
        ("precision", "expected one of f1"),
        ("precision=high", "expected one of f1"),
        ("precision=-0.5", "expected one of f1"),
        ("precision=1.5", "precision needs a number from 0 to 1, got 1.5"),
        ("recall=0", "recall needs a number from 0 to 1"),
        ("top=2.5", "top needs a whole number of at least 1"),
        ("top=0", "top needs a whole number"),
        ("cost=0", "cost needs a positive number"),
    ],
)
def test_wrong_rules_are_refused(text, words):
    with pytest.raises(ValueError, match=f"decide: {words}"):
        parse_rule(text)


def test_rules_may_have_spaces_and_capitals():
    assert parse_rule(" Precision=0.9 ") == Rule("precision", 0.9)


@given(
    st.sampled_from(["precision", "recall", "threshold", "score", "cost", "top"]),
    st.integers(1, 999),
)
def test_a_rule_is_the_same_after_printing(name, number):
    value = number if name == "top" else number / 1000
    rule = parse_rule(f"{name}={value}")
    assert parse_rule(str(rule)) == rule == Rule(name, value)


def test_a_score_cuts_the_sigmoid_and_a_threshold_the_probability():
    """The fixed cuts of the papers are of the sigmoid of the logits (001, Table 7: 0.75)."""
    z = np.random.default_rng(0).normal(size=(200, 3))
    offset, slope = np.array([-2.0, 0.5, 3.0]), np.array([0.5, 1.0, 2.0])
    p = sigmoid(offset + slope * z)
    fitted = fit_probabilities(np.where(z > 0, 1, -1).astype(np.int8), z)
    known = dataclasses.replace(fitted, offset=offset, slope=slope)
    by_score = decide(p, np.ones(3), "score=0.75", known)(p)
    assert (by_score == (sigmoid(z) > 0.75)).all()
    assert (decide(p, np.ones(3), "threshold=0.75")(p) != by_score).any()
    with pytest.raises(ValueError, match=r"decide: score=0\.75 needs curves"):
        decide(p, np.ones(3), "score=0.75")


@given(st.text(max_size=12).filter(lambda text: text.strip().lower() not in ("f1", "f2", "count")))
def test_any_other_text_is_refused(text):
    with pytest.raises(ValueError, match="decide:"):
        parse_rule(text)


@given(
    rule=st.sampled_from(
        ["f1", "f2", "count", "precision=0.9", "recall=0.9", "threshold=0", "top=2", "cost=3"]
    ),
    seed=st.integers(0, 2**31),
    rows=st.integers(1, 30),
    spread=st.sampled_from([0.0, 1.0, 40.0]),
)
def test_thresholds_are_probabilities(rule, seed, rows, spread):
    random = np.random.default_rng(seed)
    p = sigmoid(random.normal(0, spread + 1e-12, (rows, 3)))
    found = decide(p, random.integers(0, 3, 3), rule)
    assert isinstance(found, Decisions)
    assert ((found.thresholds >= 0) & (found.thresholds <= 1)).all()
    assert found(p).shape == p.shape
    assert not found(p)[:, ~found.predicted].any()


@pytest.mark.parametrize("rule", ["f1", "precision=0.6", "recall=0.7", "count", "threshold=0.3"])
@pytest.mark.parametrize("scale", [1.0, 1e-5])
def test_a_shared_threshold_is_that_of_all_classes_as_one(rule, scale):
    """Also where all probabilities are below those that usually count."""
    p = scale * np.random.default_rng(0).uniform(0.1, 1, (200, 20))
    shown = np.arange(20)
    shared = decide(p, shown, rule, shared=True)
    if scale == 1:
        one = decide(p.reshape(-1, 1), np.array([1]), rule)
        np.testing.assert_allclose(shared.thresholds, one.thresholds[0])
        assert shared.predicted.tolist() == [False, *[True] * 19]
    assert shared.thresholds.shape == (20,)
    assert not shared.predicted[0]


def test_the_default_lies_between_the_class_cut_and_one_cut_for_all():
    """A class whose scores hardly rank was predicted in nearly every row."""
    random = np.random.default_rng(0)
    # One class with good scores, and nine of which nothing is known but that they are rare.
    good = sigmoid(4 * random.normal(size=(2000, 1)) - 2)
    p = np.concatenate([good, np.clip(0.08 + 0.01 * random.normal(size=(2000, 9)), 0, 1)], axis=1)
    shown = np.full(10, 50)
    by_class, between = (decide(p, shown, rule) for rule in ("macro-f1", "f1"))
    assert by_class(p)[:, 1:].mean() > 0.5
    assert between(p)[:, 1:].mean() < 0.01
    # The good class loses little.
    assert between(p)[:, 0].sum() > 0.9 * by_class(p)[:, 0].sum()
    # One class: the cuts are the same.
    assert (
        decide(good, shown[:1], "f1").thresholds == decide(good, shown[:1], "macro-f1").thresholds
    )


@pytest.mark.parametrize("seed", range(3))
def test_a_promised_precision_holds_for_the_fewest_labels(seed):
    random = np.random.default_rng(seed)
    truth = random.random((1500, 5)) < 0.3
    z = 2.5 * truth - 1.5 + random.normal(size=truth.shape)
    labels = (truth & (random.random(truth.shape) < 0.4)).astype(np.int8)
    fitted = fit_probabilities(labels, z)
    p, shown = fitted(z), labels.sum(axis=0)
    safe, middle = decide(p, shown, "precision=0.8", fitted), decide(p, shown, "precision=0.8")
    assert truth[safe(p)].mean() >= 0.8
    assert (safe.thresholds >= middle.thresholds).all()
    assert safe(p).sum() > 100
    weak = 0.7 * truth + 2 * random.normal(size=truth.shape)
    fitted = fit_probabilities(labels, weak)
    with pytest.warns(UserWarning, match=r"class is predicted; the highest .* 0\.[0-9]"):
        nothing = decide(fitted(weak), shown, "precision=0.99", fitted)
    assert not nothing(fitted(weak)).any()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("setting", ["at random", "one"])
def test_expected_precision_and_recall_contain_the_truth(seed, setting):
    """And a promised recall holds for the most labels; where the level is open, it is said."""
    random = np.random.default_rng(seed)
    truth = random.random((1500, 5)) < 0.3
    truth[~truth.any(axis=1), 0] = True
    z = 2.5 * truth - 1.5 + random.normal(size=truth.shape)
    labels = (truth & (random.random(truth.shape) < 0.4)).astype(np.int8)
    if setting == "one":
        first = np.where(truth, random.random(truth.shape), -1).argmax(axis=1)
        labels = np.eye(5, dtype=np.int8)[first]
    fitted = fit_probabilities(labels, z)
    p, shown = fitted(z), labels.sum(axis=0)
    for rule in ("f1", "recall=0.8"):
        found = decide(p, shown, rule, fitted)
        chosen, words = found(p), expect(found, p, fitted)
        assert words.precision.low <= truth[chosen].mean() <= words.precision.high
        assert words.recall.low <= chosen[truth].mean() <= words.recall.high
        assert words.predicted.low <= chosen.sum(axis=1).mean() <= words.predicted.high
        assert ("one label each" in words.describe()) == (setting == "one")
    assert chosen[truth].mean() >= 0.77
    nothing = decide(p, np.zeros(5), "f1", fitted)
    assert "nothing is predicted. To know more: --labels-per-row" in (
        expect(nothing, p, fitted).describe()
    )


def test_as_many_rows_are_predicted_as_are_expected():
    p = np.array([[0.9], [0.6], [0.4], [0.1]])
    assert decide(p, np.array([5]), "count")(p).ravel().tolist() == [True, True, False, False]
