"""Calibrated probabilities and prevalences, on simulated rows whose complete labels are known."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from halftruth.presence.calibration import calibrate
from halftruth.presence.estimated_scores import estimate_scores
from halftruth.presence.probabilities import Probabilities, fit_probabilities
from halftruth.presence.solvers import sigmoid

ROWS, CLASSES = 2500, 5


class Simulated:
    """Labels drawn from known probabilities; the logits have another scale and level."""

    def __init__(self, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        z = self.random.normal(0, 2.5, (ROWS, CLASSES)) - np.array([1, 1.5, 2, 2.5, 3])
        self.exact = sigmoid(z)
        self.truth = self.random.random(z.shape) < self.exact
        self.logits = 0.6 * z - 1

    def keep(self, rows: np.ndarray) -> "Simulated":
        self.exact, self.truth, self.logits = self.exact[rows], self.truth[rows], self.logits[rows]
        return self

    def show(self, share: float = 0.4) -> np.ndarray:
        """Each present label is shown with a probability."""
        return (self.truth & (self.random.random(self.truth.shape) < share)).astype(np.int8)

    def show_one(self) -> np.ndarray:
        """One present label is shown per row; rows without a present class are blank."""
        chosen = (self.random.random(self.truth.shape) * self.truth).argmax(axis=1)
        labels = np.zeros(self.truth.shape, np.int8)
        labels[np.arange(len(labels)), chosen] = self.truth.any(axis=1)
        return labels

    def check(self, fitted: Probabilities, gap: float) -> None:
        """The truth is inside the intervals, and probabilities are close to the exact ones."""
        count = self.truth.sum(axis=1).mean()
        assert fitted.labels_per_row.low < count < fitted.labels_per_row.high
        prevalence = self.truth.mean(axis=0)
        inside = (fitted.prevalence[:, 1] < prevalence) & (prevalence < fitted.prevalence[:, 2])
        assert inside.all()
        assert np.abs(fitted(self.logits) - self.exact).mean() < gap
        # The estimate of the prevalence is the mean of the probabilities.
        means = fitted(self.logits).mean(axis=0)
        np.testing.assert_allclose(fitted.prevalence[:, 0], means, rtol=1e-6)


@pytest.fixture
def data() -> Simulated:
    return Simulated()


def test_labels_missing_at_random(data):
    fitted = fit_probabilities(data.show(0.4), data.logits)
    assert fitted.selection == "missing_at_random"
    data.check(fitted, gap=0.045)
    assert fitted.shown_probability[:, 0] == pytest.approx(0.4, abs=0.1)
    assert (fitted.shown_probability[:, 1] <= fitted.shown_probability[:, 0]).all()
    assert (fitted.shown_probability[:, 2] >= fitted.shown_probability[:, 0]).all()


def test_one_label_per_row(data):
    data.keep(data.truth.any(axis=1))
    fitted = fit_probabilities(data.show_one(), data.logits)
    assert fitted.selection == "single_positive"
    data.check(fitted, gap=0.12)


def test_blank_rows_settle_the_level_of_one_label_per_row(data):
    fitted = fit_probabilities(data.show_one(), data.logits)
    data.check(fitted, gap=0.025)
    assert fitted.labels_per_row.value == pytest.approx(data.truth.sum(axis=1).mean(), rel=0.05)


def test_complete_labels_give_narrow_intervals(data):
    complete = fit_probabilities(np.where(data.truth, 1, -1).astype(np.int8), data.logits)
    data.check(complete, gap=0.01)
    incomplete = fit_probabilities(data.show(), data.logits)
    narrow, wide = (np.ptp(one.prevalence[:, 1:], axis=1) for one in (complete, incomplete))
    assert (narrow < wide / 5).all()
    assert (complete.shown_probability[:, 0] > 0.97).all()


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_known_negatives_do_not_lower_the_prevalence(data, share):
    """A label that is unknown is less often absent where many absent ones are labelled."""
    negative = ~data.truth & (data.random.random(data.truth.shape) < share)
    labels = np.where(negative, -1, data.show(0.4)).astype(np.int8)
    fitted = fit_probabilities(labels, data.logits)
    data.check(fitted, gap=0.03)
    assert fitted.labels_per_row.value == pytest.approx(data.truth.sum(axis=1).mean(), rel=0.15)


def test_verdicts_of_random_cells_improve_the_estimate(data):
    labels = data.show(0.4)
    verdicts = np.where(data.random.random(labels.shape) < 0.3, np.where(data.truth, 1, -1), 0)
    with_verdicts = fit_probabilities(labels, data.logits, verified=verdicts)
    data.check(with_verdicts, gap=0.02)
    truth = data.truth.sum(axis=1).mean()
    without = fit_probabilities(labels, data.logits)
    errors = [abs(one.labels_per_row.value - truth) for one in (with_verdicts, without)]
    assert errors[0] < errors[1]


def test_a_known_number_of_labels_per_row_is_kept(data):
    data.keep(data.truth.any(axis=1))
    count = float(data.truth.sum(axis=1).mean())
    labels = data.show_one()
    fitted = fit_probabilities(labels, data.logits, labels_per_row=count)
    assert fitted(data.logits).sum(axis=1).mean() == pytest.approx(count, abs=1e-3)
    assert vars(fitted.labels_per_row) == {"value": count, "low": count, "high": count}
    gaps = [
        np.abs(one(data.logits) - data.exact).mean()
        for one in (fitted, fit_probabilities(labels, data.logits))
    ]
    assert gaps[0] < gaps[1]


@pytest.mark.parametrize(
    ("count", "known", "ends"),
    [(7, {}, "0 and less than 5"), (5, {}, "0 and less than 5"),
     (4.5, {0: 0.4}, "the known prevalences add up to, 0.4, and less than 4.4")],
)  # fmt: skip
def test_labels_per_row_that_no_probabilities_add_up_to_are_refused(data, count, known, ends):
    """All classes in all rows, too: no probability is 1."""
    with pytest.raises(ValueError, match=f"labels_per_row.*: expected more than {ends}, .* got"):
        fit_probabilities(data.show(), data.logits, labels_per_row=count, prevalence=known)


def test_a_known_prevalence_is_kept(data):
    labels = data.show()
    before = fit_probabilities(labels, data.logits)
    fitted = fit_probabilities(labels, data.logits, prevalence={1: 0.6})
    assert fitted(data.logits)[:, 1].mean() == pytest.approx(0.6, abs=1e-3)
    assert fitted.prevalence[1] == pytest.approx([0.6, 0.6, 0.6])
    others = [one(data.logits)[:, 2:].mean(axis=0) for one in (fitted, before)]
    np.testing.assert_allclose(*others, rtol=1e-6)
    more = fitted.labels_per_row.value - before.labels_per_row.value
    assert more == pytest.approx(0.6 - before.prevalence[1, 0])


def test_known_prevalence_and_labels_per_row_together(data):
    fitted = fit_probabilities(data.show(), data.logits, prevalence={0: 0.5}, labels_per_row=2.0)
    means = fitted(data.logits).mean(axis=0)
    assert means[0] == pytest.approx(0.5, abs=1e-3)
    assert means.sum() == pytest.approx(2.0, abs=1e-3)


def test_a_complete_class_needs_no_assumption(data):
    complete = np.arange(CLASSES) == 0
    labels = np.where(complete, data.truth, data.show()).astype(np.int8)
    fitted = fit_probabilities(labels, data.logits, complete=complete)
    data.check(fitted, gap=0.03)
    assert fitted.prevalence[0, 0] == pytest.approx(data.truth[:, 0].mean(), rel=0.01)
    assert np.ptp(fitted.prevalence[0]) < 0.2 * np.ptp(fitted.prevalence[1])


def test_nothing_is_known_about_a_class_without_labels(data):
    labels = data.show()
    labels[:, 4] = 0
    fitted = fit_probabilities(labels, data.logits)
    assert fitted.prevalence[4, 1:].tolist() == [0.0, 1.0]
    assert fitted.shown.tolist()[4] == 0


@pytest.mark.parametrize(
    ("rows", "classes", "share"),
    [(200, 3, 0.3), (200, 1, 0.4), (100, 3, 0.9), (60, 8, 0.3), (25, 4, 0.5)],
)
def test_intervals_stay_inside_what_is_possible(rows, classes, share):
    """Scores that know nothing leave the widest intervals."""
    random = np.random.default_rng(0)
    truth = random.random((rows, classes)) < 0.4
    labels = (truth & (random.random(truth.shape) < share)).astype(np.int8)
    labels[: rows // 5][~truth[: rows // 5] & (random.random((rows // 5, classes)) < 0.5)] = -1
    z = random.normal(size=truth.shape)
    fitted = fit_probabilities(labels, z)
    present, absent = (labels == 1).mean(axis=0), (labels == -1).mean(axis=0)
    assert present.sum() <= fitted.labels_per_row.low < fitted.labels_per_row.high
    assert fitted.labels_per_row.high <= classes - absent.sum() + 1e-12
    assert (fitted.prevalence[:, 1] >= present).all()
    assert (fitted.prevalence[:, 2] <= 1 - absent + 1e-12).all()
    assert fitted.not_known
    z += 1.5 * (labels == 1) + 0.5 * truth
    known = calibrate(labels, sigmoid(z))
    unknown = (labels == 0).sum(axis=0)
    assert all(one.high <= count for one, count in zip(known.missing, unknown, strict=True))
    assert known.missing_total.high <= unknown.sum()
    assert known.wrong_total.high <= (labels == 1).sum()
    scores = estimate_scores(sigmoid(z), labels, 0.5, draws=20)
    assert scores.labels_per_row.high <= classes


def test_probabilities_survive_a_file(data):
    fitted = fit_probabilities(data.show(), data.logits)
    again = Probabilities.from_dict(json.loads(json.dumps(fitted.to_dict())))
    np.testing.assert_array_equal(again(data.logits), fitted(data.logits))
    np.testing.assert_array_equal(again.prevalence, fitted.prevalence)
    assert again.labels_per_row == fitted.labels_per_row


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    rows=st.integers(2, 60),
    classes=st.integers(1, 5),
    kind=st.sampled_from(["at random", "one", "both", "listed", "verdicts", "complete rows"]),
    scale=st.sampled_from([1e-3, 1.0, 50.0]),
    ranks=st.booleans(),
)
def test_bounds_hold_on_any_labels(seed, rows, classes, kind, scale, ranks):
    """Curves rise; presence and its interval are at least what is shown, at most what may be."""
    random = np.random.default_rng(seed)
    truth = random.random((rows, classes)) < random.choice([0.02, 0.3, 0.9], classes)
    logits = scale * (random.normal(size=truth.shape) + 2 * ranks * truth)
    labels = (truth & (random.random(truth.shape) < 0.6)).astype(np.int8)
    verified = np.zeros_like(labels)
    if kind == "one":
        labels = np.eye(classes, dtype=np.int8)[random.integers(0, classes, rows)]
    elif kind == "both":
        labels[~truth & (random.random(truth.shape) < 0.5)] = -1
    elif kind == "listed":
        labels[~labels.any(axis=1), 0] = 1
    elif kind == "verdicts":
        verified = np.where(random.random(truth.shape) < 0.3, np.where(truth, 1, -1), 0)
    elif kind == "complete rows":
        labels[: rows // 3] = np.where(truth, 1, -1)[: rows // 3]
    fitted = fit_probabilities(labels, logits, verified=verified)
    line = fitted(np.linspace(-9, 9, 7)[:, None] * np.ones(classes))
    assert np.isfinite(line).all()
    assert (np.diff(line, axis=0) >= 0).all()
    assert (fitted.slope > 0).all()
    values = np.where(verified == 0, labels, verified)
    shown, possible = (values > 0).mean(axis=0), (values >= 0).mean(axis=0)
    value, low, high = fitted.prevalence.T
    assert fitted(logits).mean(axis=0) == pytest.approx(value, abs=1e-6)
    assert (low <= value + 1e-9).all()
    assert (value <= high + 1e-9).all()
    assert ((low >= 0) & (high <= 1)).all()
    assert ((shown - 1e-6 <= value) & (value <= possible + 1e-6)).all()
    count = fitted.labels_per_row
    assert count.low <= count.value + 1e-9 <= count.high + 2e-9
    # Of what is known completely, or where rows without a label are empty, other rows may differ.
    open_ones = (values == 0).any(axis=0) & (not fitted.blank_is_empty)
    assert (low[open_ones] >= shown[open_ones] - 1e-6).all()
    assert (high[open_ones] <= possible[open_ones] + 1e-6).all()
    if open_ones.all():
        assert shown.sum() - 1e-6 <= count.low
        assert count.high <= possible.sum() + 1e-6
    if 1.2 * count.value < classes:
        told = fitted.at_level(logits, 1.2 * count.value, {}).prevalence
        assert (told[:, 0] >= np.minimum(fitted.shown / rows, 1 - 1e-6) - 1e-6).all()
        assert (np.diff(told[:, [1, 0, 2]], axis=1) >= -1e-6).all()
