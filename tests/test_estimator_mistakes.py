"""Mistakes in what is passed to the estimator: one message in plain words, or one warning."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from halftruth import HalftruthClassifier
from halftruth.data.readers.label_table import question_columns
from halftruth.labels import ABSENT, PRESENT

ROWS = 60
X = np.random.default_rng(0).normal(size=(ROWS, 4))
Y = (X @ np.random.default_rng(1).normal(size=(4, 3)) > 0.7).astype(int)
FRAME, NAMED = pd.DataFrame(X, columns=list("abcd")), pd.DataFrame(Y, columns=["cat", "dog", "cow"])
OTHER_ORDER = NAMED.sample(frac=1, random_state=0)
NAMES = [["cat", "dog"] if row % 2 else ["cow"] for row in range(ROWS)]


PER_ROW = ("groups", "complete_rows", "sample_weight")


def make_model(**settings):
    return HalftruthClassifier("bce", epochs=1, **settings)


@pytest.mark.parametrize(
    ("features", "labels", "more", "words"),
    [
        (FRAME.assign(e=["red", "blue"] * 30), Y, {}, "X: the columns 'e' hold no numbers; encode"),
        (FRAME.assign(a=np.nan), Y, {}, "X: 60 of 240 cells are NaN; fill them in"),
        (["so glad", "sad"] * 30, Y, {}, "X: expected numbers, got texts; sklearn"),
        (FRAME.assign(e=pd.Timestamp("2020-01-01")), Y, {}, "X: holds dates or times"),
        ({"a": X[:, 0]}, Y, {}, "X: expected an array or a DataFrame, got a dict"),
        (X, {"cat": Y[:, 0]}, {}, "y: expected an array or a DataFrame, got a dict"),
        (torch.tensor(X, requires_grad=True), Y, {}, r"X: is a tensor.*pass X\.detach"),
        (X, torch.tensor(Y * 1.0, requires_grad=True), {}, r"y: is a tensor.*pass y\.detach"),
        (X, Y * 0.7 + 0.1, {}, "y holds probabilities .soft labels., which only halftruth.fit"),
        (X, NAMES, {}, "y: expected a matrix with one column per class, got names of classes"),
        (X, [set(names) for names in NAMES], {}, "got names of classes; sklearn.*MultiLabelBinar"),
        (FRAME, OTHER_ORDER, {}, r"y: its index names the rows of X in another order; pass y\.loc"),
        (X.astype("datetime64[s]"), Y, {}, "X: holds dates or times .datetime64.s..; expected"),
        (1e300 * X, Y, {}, "X row 0, column 0: expected a finite float32 number"),
        (X, NAMED.set_axis(["a", "a", "b"], axis=1), {}, "y: these column names occur more than o"),
        (X, Y, {"prevalence": [0.1, 0.2, 0.3]}, "prevalence: expected a dict of classes and sh"),
        (FRAME, NAMED, {"complete_classes": "cat"}, "complete_classes: expected a list of classes"),
        (X, Y, {"complete_rows": [1, 1]}, "each complete row once; a mask of 0 and 1 must be of b"),
        (X, Y, {"complete_rows": np.arange(ROWS) % 2}, "each complete row once"),
        (X, Y, {"sample_weight": Y}, "sample_weight: these weights are the labels, 1 where one"),
        (X, Y, {"decide": "top=4"}, "top needs at most 3, the number of classes, got 4"),
        (
            X,
            Y,
            {"groups": [np.nan] + [1.0, 2.0] * 29 + [3]},
            "groups: 1 rows have no group .the fi",
        ),
        (
            X,
            Y,
            {"groups": [None, "a", "b"] * 20},
            "groups: 20 rows have no group .the first: row 1",
        ),
        (X, Y, {"groups": ["a", "b", " "] * 20}, "groups: 20 rows have no group .the first: row 3"),
        (X, Y, {"groups": [1, 2]}, r"groups: expected one entry per row, 60, got shape \(2,\)"),
        (X, Y, {"groups": [1] * ROWS}, "groups: expected at least 2, got one group of all 60 rows"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_mistake_is_one_message(features, labels, more, words):
    given = {name: more[name] for name in more if name in PER_ROW}
    settings = {name: more[name] for name in more if name not in PER_ROW}
    with pytest.raises(ValueError, match=words):
        make_model(**settings).fit(features, labels, **given)


def test_labels_in_another_order_are_not_scored():
    model = make_model().fit(FRAME, NAMED)
    shuffled = [frame.sample(frac=1, random_state=1) for frame in (FRAME, NAMED)]
    assert model.score(FRAME, NAMED) == pytest.approx(model.score(*shuffled))
    with pytest.raises(ValueError, match="in another order"):
        model.score(FRAME, OTHER_ORDER)


@pytest.mark.parametrize("settings", [{"method": "bce", "epochs": 1}, {}], ids=str)
def test_features_in_other_units_are_questioned(settings):
    model = HalftruthClassifier(**settings).fit(FRAME, NAMED)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(FRAME)
    with pytest.warns(UserWarning, match="1 of 4 columns of the features, such as 'c', are far"):
        model.predict(FRAME.assign(c=1000 * FRAME["c"]))


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        (np.arange(ROWS), "groups: has no effect, since every row has a group of its own"),
        (Y[:, 0], "groups: is 0 or 1 in every row, as labels are"),
    ],
)
def test_groups_that_are_something_else_are_questioned(groups, words):
    with pytest.warns(UserWarning, match=words):
        make_model().fit(X, Y, groups=groups)


@pytest.mark.parametrize("groups", [2, 3, 4])
def test_few_groups_are_enough_for_out_of_sample_scores(groups):
    make_model().fit(X, Y, groups=np.arange(ROWS) % groups)


@pytest.mark.parametrize(
    ("columns", "hints", "words"),
    [
        (np.c_[X, Y[:, 1]], None, "X: a column alone predicts a class .*: '4' the class '1'"),
        (FRAME.assign(e=-5.0 * Y[:, 2]), None, "'e' the class '2'; if it is made from the labels"),
        (X, Y * 1.0, "hint 1: a column alone predicts a class .*: '0' the class '0'"),
        (np.ones((ROWS, 3)), None, "X: the same in all rows, so nothing can be learned from them"),
        (np.r_[X[:-9], X[:9]], None, "X: 9 of 60 rows are copies of other rows"),
        (X, None, None),
    ],
    ids=["copy", "another code", "hint", "constant", "rows", "none"],
)
def test_features_that_tell_too_much_or_nothing_are_questioned(columns, hints, words):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make_model().fit(columns, Y, hints=hints)
    asked = [str(one.message) for one in caught]
    # One epoch is not enough to rank.
    asked = [text for text in asked if not text.startswith("scores are not estimated")]
    assert len(asked) == (words is not None), asked
    assert words is None or re.search(words, asked[0]), asked


def test_class_names_are_questioned():
    with pytest.warns(UserWarning, match="spelt differently: 'hot dog', 'Hot_Dog'"):
        make_model().fit(X, NAMED.set_axis(["hot dog", "Hot_Dog", "cow"], axis=1))


@pytest.mark.parametrize(
    ("name", "column", "asked"),
    [
        ("patient", [0, 1], True),
        ("Subject", [1, 0], True),
        ("person_id", [0, 1], True),
        ("caseId", [0, 1], True),
        ("covid", [0] * 5 + [1] * 5, False),
        ("person", [0, 1], False),
        ("person", [0] * 5 + [1] * 5, True),
        ("Study", [1] * 5 + [0] * 7, True),
        ("study", [1] * 5 + [0] * 4, False),
        ("study", [0] * 5 + [1] * 5 + [0] * 5, False),
        ("personal", [0] * 5 + [1] * 5, False),
    ],
)
def test_columns_that_may_number_patients_are_questioned(name, column, asked):
    codes = np.array(column, dtype=np.int8)[:, None]
    assert len(question_columns([name], codes)) == asked


SHOWN = np.arange(40)[:, None] % [2, 3, 5] == 0


@pytest.mark.parametrize(
    ("columns", "names", "words"),
    [
        (SHOWN, "abc", None),
        (np.c_[SHOWN, SHOWN[:, 0]], "abcd", "'d' is present in the same rows as 'a'; drop one"),
        (np.c_[SHOWN, ~SHOWN[:, 0]], "abcd", "'d' is present in all rows but those of 'a'"),
        (np.c_[SHOWN, SHOWN.any(axis=1)], "abcd", "'d' is present in every row with another class"),
        (np.c_[SHOWN, ~SHOWN.any(axis=1)], "abcd", "'d' is present in every row without another"),
        (np.c_[SHOWN, np.ones(40, bool)], "abcd", "present in every row, so .* to learn: 'd'"),
        (np.ones((40, 1), bool), "a", None),
        (SHOWN[:19] | True, "abc", None),
        (SHOWN, ["a", "b", "is_test"], "'is_test' may say which rows are for training"),
        (SHOWN, ["a", "b", "fold"], "'fold' may say which rows are for training"),
        (SHOWN, ["a", "b", "train"], None),
    ],
)
def test_classes_that_follow_from_others_are_questioned(columns, names, words):
    asked = question_columns(names, columns.astype(np.int8))
    assert len(asked) == (words is not None), asked
    assert words is None or re.search(words, asked[0]), asked


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda model: model.predict(FRAME), "fitted with hints; without them, these are pred"),
        (
            lambda _: make_model().fit(X, Y, sample_weight=ROWS - np.arange(ROWS)),
            "numbers that all",
        ),
        (
            lambda _: make_model().fit(
                FRAME.set_index(np.arange(ROWS) + 5), NAMED.set_index(np.arange(ROWS) + 6)
            ),
            "X and y have different indices; the rows of y are taken in the order of X",
        ),
        (lambda _: make_model().fit(X, Y[::-1]), "scores are not estimated: the inputs do not ex"),
    ],
)
def test_what_is_probably_a_mistake_is_one_warning(ask, words):
    hints = NAMED * 0.3 + 0.3 + 0.2 * X[:, :3]
    model = make_model().fit(FRAME, NAMED, hints=hints)
    with pytest.warns(UserWarning, match=words):
        ask(model)


@pytest.mark.parametrize("level", [9, 0, float("nan"), 0.1, "2"])
def test_a_level_that_cannot_be_is_refused(level):
    model = make_model().fit(X, Y)
    with pytest.raises(ValueError, match="labels_per_row"):
        model.predict(X, labels_per_row=level)


def test_a_level_that_is_set_after_fit_counts():
    model = make_model().fit(X, Y)
    expected = model.predict_proba(X, labels_per_row=2.5)
    np.testing.assert_array_equal(model.set_params(labels_per_row=2.5).predict_proba(X), expected)


def test_a_frame_with_a_column_of_patients_is_questioned():
    with pytest.warns(UserWarning, match="'patient' may number patients"):
        make_model().fit(X, NAMED.set_axis(["patient", "dog", "cow"], axis=1))


def test_few_labels_that_a_column_ranks_by_chance_are_not_questioned():
    from halftruth.data.check import question_features

    labels = np.zeros((30, 5), dtype=np.int8)
    labels[:2] = PRESENT
    labels[2:4] = ABSENT
    noise = np.random.default_rng(0).normal(size=(30, 2000))
    assert question_features(noise, labels, "abcde") == []
    labels[:15] = PRESENT
    assert question_features(noise, labels, "abcde") == []
