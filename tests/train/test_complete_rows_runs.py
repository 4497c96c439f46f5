"""`complete_rows`: rows labelled completely, in training, on the command line, in the estimator."""

import numpy as np
import pandas as pd
import pytest
from tiny_data import CLASSES, command, outcome

from halftruth.data import DataError
from halftruth.estimator import HalftruthClassifier
from halftruth.train.config import Config
from halftruth.train.run import train
from halftruth.train.task import load_task


@pytest.fixture
def complete(tmp_path):
    """The first six items, as a file."""
    path = tmp_path / "complete.txt"
    path.write_text("".join(f"p{row}.png\n" for row in range(6)))
    return path


def test_unknown_labels_of_complete_rows_are_absent_in_training(on_features, complete):
    on_features = {**on_features, "features": [on_features["features"]]}
    plain = load_task(Config(**on_features)).labels.values
    given = load_task(Config(**on_features, complete_rows=str(complete))).labels.values
    np.testing.assert_array_equal(given[6:], plain[6:])
    np.testing.assert_array_equal(given[:6], np.where(plain[:6] == 0, -1, plain[:6]))


def test_a_run_is_the_same_as_with_the_absent_labels_in_the_file(
    data, on_features, complete, tmp_path
):
    frame = pd.read_csv(data / "labels.csv")
    first = frame.loc[:5, list(CLASSES)]
    frame.loc[:5, list(CLASSES)] = first.where(first == 1, -1)
    frame.to_csv(tmp_path / "labels.csv", index=False)
    one = {**on_features, "complete_rows": str(complete), "out": str(tmp_path / "one")}
    other = {**on_features, "labels": str(tmp_path / "labels.csv"), "out": str(tmp_path / "other")}
    for settings in (one, other):
        train(settings, quiet=True)
    assert outcome(tmp_path / "one") == outcome(tmp_path / "other")


def test_rows_without_an_unknown_label_are_refused_on_the_command_line(
    data, on_features, complete, tmp_path, capsys
):
    words = ["train", data / "truth.csv", "--features", on_features["features"]]
    words += ["--zero", "absent", "--out", tmp_path / "run", "--complete-rows", complete]
    assert command(*words) == 2
    assert "has no effect, since the labels of its 6 rows are all known" in " ".join(
        capsys.readouterr().err.split()
    )


def test_a_missing_file_is_one_message(data, on_features, tmp_path, capsys):
    words = ["train", data / "labels.csv", "--features", on_features["features"]]
    words += ["--out", tmp_path / "run", "--complete-rows", tmp_path / "none.txt"]
    assert command(*words) == 2
    text = " ".join(capsys.readouterr().err.split())
    assert "complete_rows (--complete-rows): there is no file" in text
    assert "Traceback" not in text


def test_misspelt_items_are_named(on_features, tmp_path):
    path = tmp_path / "rows.txt"
    path.write_text("p1.png\np2.jpg\n")
    settings = {**on_features, "features": [on_features["features"]], "complete_rows": str(path)}
    with pytest.raises(DataError, match=r"not items of the label file: 'p2\.jpg' \(did you mean"):
        load_task(Config(**settings))


RANDOM = np.random.default_rng(0)
TRUTH = np.where(RANDOM.random((60, 3)) < 0.5, 1, -1)
X = TRUTH + RANDOM.normal(0, 0.5, TRUTH.shape)
SHOWN = np.where(np.arange(3) == TRUTH.argmax(axis=1)[:, None], TRUTH, 0).clip(0)


@pytest.mark.parametrize("rows", [np.arange(10), np.arange(60) < 10])
def test_the_estimator_reads_complete_rows_as_numbers_or_as_a_mask(rows):
    labels = SHOWN.copy()
    labels[:10] = TRUTH[:10].clip(0)
    model = HalftruthClassifier("em", epochs=3)
    with_rows = model.fit(X, labels, complete_rows=rows).predict_proba(X)
    labels[:10] = TRUTH[:10]
    in_labels = model.fit(X, labels).predict_proba(X)
    np.testing.assert_array_equal(with_rows, in_labels)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([70], "between 0 and 59"),
        ([True], "for 60 rows, got 1"),
        (np.zeros(60, bool), "has no effect"),
    ],
)
def test_the_estimator_refuses_complete_rows_that_do_not_fit(rows, message):
    with pytest.raises(ValueError, match=message):
        HalftruthClassifier("em", epochs=1).fit(X, SHOWN, complete_rows=rows)
