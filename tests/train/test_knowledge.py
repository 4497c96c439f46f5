"""What the user knows of the labels, in runs and the estimator."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from halftruth import HalftruthClassifier, fit
from halftruth.cli.app import app
from halftruth.data import DataError
from halftruth.train.label_priors import parse_label_priors
from halftruth.train.results.run_result import Result

NAMES = ("cat", "dog", "frog")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Labels of which 40 % are shown, but all of the frogs."""
    folder, random = tmp_path_factory.mktemp("knowledge"), np.random.default_rng(0)
    truth = random.random((300, 3)) < (0.5, 0.4, 0.3)
    x = (truth + random.normal(0, 0.6, truth.shape)).astype(np.float32)
    shown = truth & ((random.random(truth.shape) < 0.4) | (np.array(NAMES) == "frog"))
    table = pd.DataFrame(shown.astype(int), columns=NAMES)
    table.insert(0, "item", [f"row{k}" for k in range(len(table))])
    table.to_csv(folder / "labels.csv", index=False)
    pd.DataFrame({"class": ["dog"], "prevalence": [0.37]}).to_csv(folder / "known.csv", index=False)
    np.save(folder / "x.npy", x)
    return folder, x, shown.astype(int), truth


def train(folder, out, *words):
    line = ["train", folder / "labels.csv", "--features", folder / "x.npy", "--method", "wan"]
    line += ["--epochs", 3, "--head-lr", 0.05, "--device", "cpu", "--no-report", "--out", out]
    result = CliRunner().invoke(app, [str(word) for word in (*line, *words)])
    return result.exit_code, " ".join((result.output + str(result.exception)).split())


def test_training_keeps_what_is_known(data, tmp_path):
    folder, *_ = data
    code, text = train(
        folder, tmp_path / "run", "--prevalence", "cat=0.45", "--prevalence", folder / "known.csv",
        "--complete-classes", "frog",
    )  # fmt: skip
    assert code == 0, text
    found = json.loads((tmp_path / "run" / "result.json").read_text())["probabilities"]
    assert found["prevalence"][0] == [0.45] * 3
    assert found["prevalence"][1] == [0.37] * 3
    value, low, high = found["prevalence"][2]
    assert value == pytest.approx(0.3, abs=0.08)
    # As wide as 18 labels in 60 rows are, and no wider.
    assert high / low < 2.5
    assert found["complete"] == [2]


def test_the_estimator_keeps_what_is_known(data):
    _, x, y, _ = data
    given = {"prevalence": {"cat": 0.45}, "complete_classes": ["frog"], "members": ["linear"]}
    model = HalftruthClassifier(**given).fit(x, pd.DataFrame(y, columns=NAMES))
    assert model.predict_proba(x)[:, 0].mean() == pytest.approx(0.45, abs=0.05)
    assert model.probabilities_.prevalence[2, 0] == pytest.approx(y[:, 2].mean(), abs=0.03)
    by_number = HalftruthClassifier(members=["linear"], prevalence={0: 0.45}).fit(x, y)
    assert by_number.probabilities_.prevalence[0, 0] == 0.45


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--prevalence", "cow=0.2"), "there is no class 'cow'"),
        (("--prevalence", "cat"), "expected class=0.1, or a table"),
        (("--prevalence", "cat=2"), "expected a share of the rows between 0 and 1 for 'cat'"),
        (("--prevalence", "cat=0.4", "--complete-classes", "cat"), "no effect for 'cat'"),
        (("--prevalence", "cat=0.4", "--labels-per-row", "0.3"), "expected more than the known"),
        (("--labels-per-row", "3"), "expected more than 0 and less than 3"),
        (("--complete-classes", "cow"), "there is no class 'cow'"),
        (("--complete-classes", "cat", "--zero", "absent"), "no label of 'cat' is unknown"),
        (("--prevalence", "cat=0.4", "--zero", "absent"), "its labels are complete"),
    ],
)
def test_knowledge_that_cannot_be_or_has_no_effect_is_refused(data, tmp_path, words, message):
    code, text = train(data[0], tmp_path / "run", *words)
    assert code != 0
    assert message in text
    assert words[0] in text or words[2] in text


def test_knowledge_has_no_effect_with_complete_labels(data, tmp_path):
    folder = data[0]
    truth = ("--truth", folder / "labels.csv", "--prevalence", "cat=0.4")
    code, text = train(folder, tmp_path / "run", *truth)
    assert code != 0
    assert "prevalence" in text
    assert "calibrated on complete labels" in text


def test_mistakes_of_the_estimator_are_reported_before_training(data):
    _, x, y, _ = data
    with pytest.raises(DataError, match="there is no class 'cow'"):
        HalftruthClassifier(prevalence={"cow": 0.1}).fit(x, pd.DataFrame(y, columns=NAMES))


def test_names_of_classes_may_hold_an_equals_sign():
    labels = np.array([[1, 0], [0, 1]])
    shares, complete = parse_label_priors(labels, ["=a", "b"], ["=a=0.6"], [], None)
    assert (shares, complete) == ({0: 0.6}, None)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"labels_per_row": 0.3}, r"labels_per_row .*expected at least 0.75, .* got 0.3"),
        ({"prevalence": ["a=0.1"]}, r"prevalence .*expected at least 0.5 for 'a', .* got 0.1"),
    ],
)
def test_a_level_below_what_is_shown_is_refused(tmp_path, settings, words):
    table = pd.DataFrame({"item": list("wxyz"), "a": [1, 1, 0, 0], "b": [0, 0, 1, 0]})
    table.to_csv(tmp_path / "l.csv", index=False)
    np.save(tmp_path / "x.npy", np.eye(4, dtype=np.float32))
    files = {"features": tmp_path / "x.npy", "out": tmp_path / "run", "quiet": True}
    with pytest.raises(DataError, match=words):
        fit(tmp_path / "l.csv", **files, **settings)


def test_rows_of_one_item_stay_in_one_part(tmp_path, capsys):
    """Copies of a row in training and validation would be scored by memory."""
    random = np.random.default_rng(0)
    items = np.repeat([f"r{k}" for k in range(30)], 4)
    table = pd.DataFrame({"item": items, "a": random.integers(0, 2, 120), "b": 1})
    table.to_csv(tmp_path / "l.csv", index=False)
    x = pd.DataFrame(random.normal(size=(30, 3))[np.repeat(np.arange(30), 4)])
    np.save(tmp_path / "x.npy", x)
    reading = {"duplicates": "keep", "method": "em", "epochs": 1, "device": "cpu"}
    result = fit(tmp_path / "l.csv", features=tmp_path / "x.npy", out=tmp_path / "run", **reading)
    assert "90 rows repeat an item; rows of one item stay in one part" in capsys.readouterr().err
    with np.load(tmp_path / "run" / "out_of_sample.npz") as file:
        held, count = np.unique(file["items"], return_counts=True)
    assert len(held)
    assert (count == 4).all()
    assert result.folder == tmp_path / "run"


@pytest.mark.parametrize(
    ("reason", "low", "text"),
    [("", 1.0, "labels per row: 1.50 (1.00 to 2.00)"),
     ("no ranking", 1.0, "labels per row: not known (1.00 to 2.00)"),
     ("no ranking", 2.0, "labels per row: 1.50 (2.00 to 2.00)")],
)  # fmt: skip
def test_the_level_of_a_result_in_words(tmp_path, reason, low, text):
    level = {"labels_per_row": [1.5, low, 2.0], "not_known": reason}
    found = Result(
        folder=tmp_path, method="bce", classes=("a", "b"), best_stage="all", best_epoch=1,
        thresholds=[0.5, 0.5], probabilities=level,
    )  # fmt: skip
    assert text in found.describe()
