"""Probabilities are calibrated, counts are near the true ones, hidden labels rank first."""

import numpy as np
import pandas as pd
import pytest
import torch
from audit_example import hide, noisy_scores
from hypothesis import given
from hypothesis import strategies as st

from halftruth.audit import (
    calibrate,
    missing_labels,
    missing_mask,
    per_class,
    precision_table,
    rank_unknown,
    summary,
    wrong_labels,
)
from halftruth.audit.candidates import count_at_precision
from halftruth.labels import PRESENT, UNKNOWN, LabelMatrix
from halftruth.labels.hiding import single_positive
from halftruth.presence.labelling_model import choose_selection, fit_presence
from halftruth.presence.ranking import NoRankingError, measure_ranking
from halftruth.presence.uncertainty import DOUBT, NEXT_DOUBT, Z90

SHARES = (0.3, 0.2, 0.15, 0.1, 0.05)


def make_data(rows: int = 2000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    truth = (np.random.default_rng(seed).random((rows, 5)) < SHARES).astype(np.int8)
    return truth, noisy_scores(truth, seed)


def missing(truth: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return (truth == PRESENT) & (labels == UNKNOWN)


@pytest.mark.parametrize("seed", [0, 1])
def test_randomly_hidden_labels_are_counted_and_their_probabilities_are_calibrated(
    seed: int,
) -> None:
    truth, scores = make_data(seed=seed)
    labels = hide(truth, 0.5, seed)
    known = calibrate(labels, scores)
    assert known.selection == "missing_at_random"
    hidden = missing(truth, labels)
    assert known.missing_total.value == pytest.approx(hidden.sum(), rel=0.1)
    assert known.missing_total.low < hidden.sum() < known.missing_total.high
    table = missing_labels(labels, scores, calibration=known, classes=list("abcde"))
    right = truth[table["row"], table["class"].map("abcde".index)] == PRESENT
    for taken in (300, 700, 1000):
        expected = table["expected_precision"][taken - 1]
        assert right[:taken].mean() == pytest.approx(expected, abs=0.07)


def test_the_probability_to_be_labelled_is_estimated() -> None:
    truth, scores = make_data(rows=6000)
    fitted = fit_presence(hide(truth, 0.4), scores, selection="missing_at_random")
    assert np.allclose(fitted.label_frequency, 0.6, atol=0.08)


@pytest.mark.parametrize("seed", [0, 1])
def test_one_label_per_row_gives_the_true_count_with_two_doubts(seed: int) -> None:
    truth, scores = make_data(seed=seed)
    labels = single_positive(truth, seed=seed)
    known = calibrate(labels, scores)
    assert known.selection == "single_positive"
    total = known.missing_total
    assert total.value == pytest.approx(missing(truth, labels).sum(), rel=0.1)
    # Rows without a label are empty here, so the number of rows with a class is known. In doubt
    # are the labels next to the shown one, and the model. Chance adds less than 5 %, and that each
    # label counts by itself takes as much off.
    doubt = np.exp(Z90 * (NEXT_DOUBT + DOUBT))
    assert total.high / total.value == pytest.approx(doubt, rel=0.1)
    assert total.value / total.low == pytest.approx(doubt, rel=0.1)


def test_one_label_in_every_row_leaves_the_count_between_the_assumptions() -> None:
    truth, scores = make_data(rows=3000)
    truth, scores = truth[truth.any(axis=1)], scores[truth.any(axis=1)]
    labels = single_positive(truth)
    known = calibrate(labels, scores)
    assert known.selection == "single_positive"
    total, hidden = known.missing_total, missing(truth, labels).sum()
    assert total.low < hidden < total.high
    # Nothing tells whether high scores of one row are confused classes: then few are missing.
    # Above, the assumptions agree, and the doubt of the model is most of the interval.
    assert total.value == pytest.approx(hidden, rel=0.2)
    assert total.high < 2 * total.value
    assert total.low > total.value / 8


def test_hidden_labels_rank_first() -> None:
    truth, scores = make_data()
    labels = hide(truth, 0.5)
    table = missing_labels(labels, scores, classes=list("abcde"))
    first = table.head(200)
    columns = first["class"].map("abcde".index)
    assert (truth[first["row"], columns] == PRESENT).mean() > 0.95
    assert table["probability"].is_monotonic_decreasing
    assert table["rank"].tolist() == list(range(1, len(table) + 1))
    assert len(table) == (labels == UNKNOWN).sum()
    assert table["expected_precision"].iloc[9] == pytest.approx(table["probability"][:10].mean())


def test_wrong_labels_are_found() -> None:
    truth, scores = make_data()
    labels = hide(truth, 0.3)
    mistaken = np.argwhere(truth == 0)[::200]
    labels[tuple(mistaken.T)] = PRESENT
    first = wrong_labels(labels, scores, classes=list("abcde")).head(len(mistaken))
    hits = truth[first["row"], first["class"].map("abcde".index)] == 0
    assert hits.mean() > 0.8
    total = calibrate(labels, scores).wrong_total
    assert len(mistaken) / 2 < total.value < 2 * len(mistaken)
    assert total.low <= len(mistaken) <= total.high


def test_correct_labels_are_not_called_wrong() -> None:
    truth, scores = make_data()
    found = calibrate(hide(truth, 0.4), scores)
    assert found.wrong_total.value < 0.01 * truth.sum()
    assert found.wrong_total.low < 1
    assert np.sort(found.wrong_probability.ravel())[-50:].mean() < 0.15


def test_classes_that_the_scores_do_not_show_are_not_called_wrong() -> None:
    # The scores of two classes are noise: their labels have low scores, and none is wrong.
    truth, scores = make_data()
    scores[:, :2] = np.random.default_rng(5).permutation(scores[:, :2])
    found = calibrate(hide(truth, 0.5), scores)
    assert np.sort(found.wrong_probability.ravel())[-100:].mean() < 0.2


def test_verdicts_override_scores() -> None:
    truth, scores = make_data(rows=500)
    labels = hide(truth, 0.5)
    verified = np.zeros_like(labels)
    verified[:100] = np.where(labels[:100] == UNKNOWN, np.where(truth[:100] > 0, 1, -1), 0)
    present = calibrate(labels, scores, verified=verified).present
    reviewed = verified != 0
    assert np.array_equal(present[reviewed], verified[reviewed] > 0)


def test_known_labels_are_not_candidates() -> None:
    labels = np.array([[1, -1, 0], [1, -1, 1]] * 20)
    scores = np.array([[0.5, 0.5, 0.4], [0.5, 0.5, 0.6]] * 20)
    assert set(missing_labels(labels, scores)["class"]) == {"class2"}
    assert set(wrong_labels(labels, scores)["class"]) == {"class0", "class2"}


def test_arrays_tensors_frames_and_label_matrices_give_the_same_table() -> None:
    truth, scores = make_data(rows=300)
    labels = hide(truth, 0.5)
    names = list("abcde")
    plain = missing_labels(labels, scores, classes=names)
    items = [str(row) for row in range(300)]
    for other in (
        missing_labels(torch.from_numpy(labels), torch.from_numpy(scores), classes=names),
        missing_labels(pd.DataFrame(labels, columns=names), scores),
        missing_labels(LabelMatrix(labels, tuple(names), np.array(items)), scores),
    ):
        pd.testing.assert_frame_equal(plain, other, check_exact=False, rtol=1e-6)


def test_mask_ranking_classes_and_summary_agree_with_the_table() -> None:
    truth, scores = make_data(rows=400)
    labels = hide(truth, 0.5)
    table, mask = missing_labels(labels, scores), missing_mask(labels, scores, precision=0.9)
    taken = int(mask.sum())
    assert (missing_mask(labels, scores) == mask).all()
    assert taken == count_at_precision(table["expected_precision"].to_numpy(), 0.9) > 0
    assert rank_unknown(labels, scores)[:taken].tolist() == [
        [row, int(name.removeprefix("class"))]
        for row, name in zip(table["row"][:taken], table["class"][:taken], strict=True)
    ]
    counts, short = per_class(labels, scores), summary(labels, scores)
    assert counts["missing"].sum() == pytest.approx(short["missing"])
    assert short["at_90_percent_precision"] == taken
    counts = precision_table(table["expected_precision"].to_numpy())
    assert counts.set_index("precision")["candidates"][0.9] == taken
    assert (missing(truth, labels) & mask).sum() / taken > 0.8


def test_the_selection_is_chosen_from_the_labels() -> None:
    assert choose_selection(np.eye(3, dtype=np.int8)) == "single_positive"
    assert choose_selection(np.array([[1, 1, 0]])) == "missing_at_random"
    assert choose_selection(np.array([[1, -1, 0]])) == "missing_at_random"


def test_a_few_rows_with_a_second_label_are_still_one_label_per_row() -> None:
    labels = np.eye(5, dtype=np.int8)[np.arange(200) % 5]
    labels[:2, 0] = labels[:2, 1] = 1
    assert choose_selection(labels) == "single_positive"
    # A blank row shows that labels are missing row by row.
    blank = labels.copy()
    blank[-1] = 0
    assert choose_selection(blank) == "missing_at_random"
    labels[:20, 0] = labels[:20, 1] = 1
    assert choose_selection(labels) == "missing_at_random"


@pytest.mark.parametrize(
    ("labels", "scores", "message"),
    [
        ([[1, 0]], [[0.5]], "shape"),
        ([[1, 0]], [[0.5, 1.5]], r"scores\[0, 1\].*got 1.5.*sigmoid"),
        ([[1, 0]], [[0.5, np.nan]], r"scores\[0, 1\].*nan"),
        ([[0, 0]], [[0.5, 0.5]], "no label is PRESENT"),
        ([[2, 0]], [[0.5, 0.5]], "expected 1"),
    ],
)
def test_invalid_input_is_named(labels: list, scores: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        missing_labels(labels, scores)


@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(1, 4))
def test_any_labels_and_scores_give_probabilities(seed: int, rows: int, classes: int) -> None:
    random = np.random.default_rng(seed)
    labels = random.integers(-1, 2, (rows, classes))
    labels[0, 0] = PRESENT
    scores = random.random((rows, classes)).round(int(seed % 3))
    if (labels == UNKNOWN).any() and not measure_ranking(labels, scores).found:
        scores = (labels == PRESENT) * 0.5 + scores / 2
    try:
        known = calibrate(labels, scores)
    except NoRankingError:
        # Too few labels, however well they are ranked.
        assert rows < 30
        return
    assert np.isfinite(known.present).all()
    assert ((known.present >= 0) & (known.present <= 1)).all()
    assert ((known.wrong_probability >= 0) & (known.wrong_probability <= 1)).all()
    for count in (*known.missing, known.missing_total):
        assert 0 <= count.low <= count.value + 1e-9 <= count.high + 2e-9
