"""`--decide` and `--raw` on the command line: train, predict, evaluate."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import halftruth
from halftruth.cli.app import app
from halftruth.data import read_labels

NAMES = ["cat", "dog", "frog", "yeti"]


def command(*words: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(word) for word in words])
    return result.exit_code, " ".join(
        (result.output + str(result.exception or "")).replace("│", " ").split()
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Labels of which 40 % are shown; nobody has ever labelled a yeti."""
    folder, random = tmp_path_factory.mktemp("decide"), np.random.default_rng(0)
    truth = random.random((480, 4)) < 0.4
    features = truth + random.normal(0, 0.4, truth.shape)
    shown = truth & (random.random(truth.shape) < 0.4) & (np.array(NAMES) != "yeti")
    for file, values in (("labels", shown), ("truth", truth)):
        table = pd.DataFrame(values.astype(int), columns=NAMES)
        table.insert(0, "split", np.resize(["train", "train", "val", "test"], len(table)))
        table.insert(0, "item", [f"row{k}" for k in range(len(table))])
        table.to_csv(folder / f"{file}.csv", index=False)
    np.save(folder / "x.npy", features.astype(np.float32))
    code, text = command(
        "train", folder / "labels.csv", "--features", folder / "x.npy", "--method", "wan",
        "--epochs", 5, "--head-lr", 0.05, "--out", folder / "run", "--decide", "recall=0.9",
        "--labels-per-row", 1.6, "--device", "cpu",
    )  # fmt: skip
    assert code == 0, text
    return folder


def predict(data, tmp_path, *words):
    out = tmp_path / "p.csv"
    files = (data / "run", data / "x.npy", "--out", out, "--overwrite")
    code, text = command("predict", *files, *words)
    assert code == 0, text
    return pd.read_csv(out).fillna({"labels": ""}), text


def test_train_uses_the_rule_and_the_known_number_of_labels(data):
    result = json.loads((data / "run" / "result.json").read_text())
    assert result["decide"] == "recall=0.9"
    assert result["probabilities"]["labels_per_row"] == [1.6, 1.6, 1.6]


def test_predictions_name_the_rule_and_the_classes_that_are_not_predicted(data, tmp_path):
    table, text = predict(data, tmp_path)
    assert "decisions by recall=0.9" in text
    assert "1 class is not predicted" in text
    assert "'yeti' expected on new rows: precision" in text
    assert not table["labels"].str.contains("yeti").any()


def test_the_scores_of_evaluate_have_a_legend(data):
    files = (data / "truth.csv", "--features", data / "x.npy", "--zero", "absent")
    code, text = command("evaluate", data / "run", *files)
    assert code == 0, text
    assert "CP, CR, CF1: precision, recall and F1 as means over classes" in text


def test_predict_by_another_rule(data, tmp_path):
    table, text = predict(data, tmp_path, "--decide", "top=2")
    assert "decisions by top=2" in text
    assert (table["labels"].str.count(r"\|") == 1).all()
    few, _ = predict(data, tmp_path, "--decide", "threshold=0.9")
    assert few["labels"].str.len().sum() < table["labels"].str.len().sum()


def test_raw_scores_change_the_columns_and_not_the_labels(data, tmp_path):
    table, _ = predict(data, tmp_path)
    raw, _ = predict(data, tmp_path, "--raw")
    assert raw["labels"].tolist() == table["labels"].tolist()
    assert not np.allclose(raw[NAMES], table[NAMES], atol=0.01)
    # The curve of a class keeps the order of its rows.
    assert (raw["cat"].rank() == table["cat"].rank()).mean() > 0.99


@pytest.mark.parametrize(
    ("file", "words", "basis"),
    [
        ("labels.csv", ("--unknown", "absent"), "counting unknown as absent"),
        ("truth.csv", ("--zero", "absent"), "on complete labels"),
    ],
)
def test_evaluate_says_what_its_scores_stand_on(data, tmp_path, file, words, basis):
    out = tmp_path / "scores.json"
    code, text = command(
        "evaluate", data / "run", data / file, "--features", data / "x.npy", "--split", "test",
        "--out", out, *words,
    )  # fmt: skip
    assert code == 0, text
    assert f"These scores are measured {basis}." in text
    assert "1 class is not predicted" in text
    found = json.loads(out.read_text())
    assert (found["basis"], found["not_predicted"]) == (basis, ["yeti"])


@pytest.mark.parametrize("words", [(), ("labels.csv", "--features", "x.npy")])
def test_incomplete_labels_give_estimates_and_no_measured_score(data, tmp_path, words):
    out = tmp_path / "scores.json"
    files = [data / word if "." in word else word for word in words]
    code, text = command("evaluate", data / "run", *files, "--out", out)
    assert code == 0, text
    assert "Estimated for complete labels" in text
    assert "measured" not in text
    assert "absent" not in text
    found = json.loads(out.read_text())
    assert (found["metrics"], found["basis"]) == ({}, "estimated")
    value, low, high = found["estimated"]["OF1"]
    assert low < value < high


@pytest.mark.parametrize(
    "words", [("--split", "test"), ("--zero", "absent"), ("--unknown", "absent")]
)
def test_options_for_a_label_file_are_refused_without_one(data, words):
    code, text = command("evaluate", data / "run", *words)
    assert code != 0
    assert words[0] in text
    assert "no effect without a label file" in text


def test_the_last_lines_of_training_and_result_json_have_no_score_as_if_complete(data):
    result = json.loads((data / "run" / "result.json").read_text())
    assert result["val"] == result["test"] == {}
    assert result["basis"] == {"val": "estimated", "test": "estimated"}
    assert set(result["estimated"]) == {"mAP", "CF1", "OF1", "OP", "OR"}
    assert set(result["counting_unknown_as_absent"]) == {"val", "test"}


def test_evaluate_by_another_rule_changes_decisions_and_not_the_ranking(data, tmp_path):
    found = []
    for rule in ("threshold=0.3", "threshold=0.9"):
        out = tmp_path / "scores.json"
        code, text = command(
            "evaluate", data / "run", data / "truth.csv", "--zero", "absent", "--features",
            data / "x.npy", "--decide", rule, "--out", out, "--overwrite",
        )  # fmt: skip
        assert code == 0, text
        found.append(json.loads(out.read_text())["metrics"])
    low, high = found
    assert low["mAP"] == high["mAP"]
    assert low["OR"] > high["OR"]


AGAIN = {
    "a rule": ["precision=0.5"],
    "a level": [None, "--labels-per-row", "1.9"],
    "a share": [None, "--prevalence", "dog=0.6"],
    "a rule and a level": ["recall=0.5", "--labels-per-row", "1.2", "--prevalence", "cat=0.3"],
    "nothing": [None],
}


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("change", AGAIN)
def test_decide_equals_predict_with_the_same_rule_and_level(data, tmp_path, change, ending):
    rule, *level = AGAIN[change]
    read = pd.read_csv if ending == "csv" else pd.read_parquet
    new, table = tmp_path / f"new.{ending}", tmp_path / f"p.{ending}"
    command("predict", data / "run", data / "x.npy", "--out", table)
    words = [] if rule is None else ["--rule", rule]
    code, text = command("decide", table, "--run", data / "run", "--out", new, *words, *level)
    assert code == 0, text
    words = [] if rule is None else ["--decide", rule]
    words += ["--overwrite", *level]
    code, text = command("predict", data / "run", data / "x.npy", "--out", table, *words)
    assert code == 0, text
    found, expected = read(new), read(table)
    assert list(found.columns) == list(expected.columns)
    assert found["labels"].fillna("").tolist() == expected["labels"].fillna("").tolist()
    assert found[NAMES].to_numpy() == pytest.approx(expected[NAMES].to_numpy(), abs=2e-5)


OTHERS = {
    "another order of rows": (lambda table: table.assign(item=table["item"][::-1].to_numpy()),
                              "the rows are in another order than the labels"),
    "swapped classes": (lambda table: table.rename(columns={"cat": "dog", "dog": "cat"}),
                        "another class order: that of 'dog' fits the labels of 'cat'"),
    "inverted": (lambda table: table.assign(**{name: 1 - table[name] for name in NAMES}),
                 "lower scores for them than the others: 'cat', 'dog', 'frog'"),
    "itself": (lambda table: table, None),
}  # fmt: skip


@pytest.mark.parametrize("change", OTHERS)
def test_complete_labels_that_do_not_suit_the_scores_are_questioned(data, tmp_path, change):
    make, words = OTHERS[change]
    make(pd.read_csv(data / "truth.csv")).sort_values("item").to_csv(
        tmp_path / "t.csv", index=False
    )
    x = pd.DataFrame(np.load(data / "x.npy"), columns=["0", "1", "2", "3"])
    x.assign(item=[f"row{k}" for k in range(len(x))]).to_csv(tmp_path / "x.csv", index=False)
    run, p = tmp_path / "run", (tmp_path / "t.csv", "--zero", "absent", "--features")
    train = ("train", data / "labels.csv", "--features", tmp_path / "x.csv", "--method", "bce")
    code, text = command(*train, "--epochs", 5, "--head-lr", 0.05, "--device", "cpu", "--out", run)
    assert code == 0, text
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        code, text = command("evaluate", run, *p, tmp_path / "x.csv")
    assert code == 0, text
    asked = [str(one.message) for one in caught]
    assert any((words or "order") in one for one in asked) is (words is not None), asked


def test_predictions_are_no_labels(data, tmp_path):
    predict(data, tmp_path)
    notes = read_labels(tmp_path / "p.csv").notes
    assert notes[0].startswith("warning: this is a table of halftruth predict, whose labels are")


def test_decide_reads_what_a_spreadsheet_writes(data, tmp_path):
    table, _ = predict(data, tmp_path)
    table.to_csv(tmp_path / "p.csv", index=False, sep=";")
    out = ("--run", data / "run", "--out", tmp_path / "new.csv")
    code, text = command("decide", tmp_path / "p.csv", *out)
    assert code == 0, text
    assert pd.read_csv(tmp_path / "new.csv").fillna("")["labels"].tolist() == [*table["labels"]]


def test_probabilities_agree_with_the_level(data, tmp_path):
    run = halftruth.load(data / "run")
    moved = run.at_level(1.9, ["dog=0.6"])
    p = 1 / (1 + np.exp(-(moved.curves[0] + moved.curves[1] * run.held_out.logits)))
    assert p.sum(axis=1).mean() == pytest.approx(1.9, abs=1e-6)
    assert p.mean(axis=0)[1] == pytest.approx(0.6, abs=1e-6)
    assert run.curves is not moved.curves


def blank(table):
    table.loc[3, NAMES[0]] = np.nan
    return table


def state(basis):
    return lambda table: table.assign(basis=basis)


# The options of predict, a change of its table, the options of decide, words of the message.
MISTAKES = {
    "a level below what is shown": ([], None, ["--labels-per-row", 0.1], "expected at least"),
    "an unknown class": ([], None, ["--prevalence", "cow=0.1"], "'cow'"),
    "a wrong rule": ([], None, ["--rule", "best"], "expected one of f1"),
    "more than all classes": ([], None, ["--rule", "top=5"], "top needs at most 4, the number of"),
    "no table of predict": ([], lambda table: table[NAMES], [], "none for 'labels', 'basis'"),
    "a missing probability": ([], blank, [], "expected a probability of every class in every row"),
    "raw scores": (["--raw"], None, [], "not probabilities; predict again without --raw"),
    "another level": (["--labels-per-row", 1.9], None, [], "give the same level (--labels-per-row"),
    "two levels": (
        ["--labels-per-row", 1.9],
        None,
        ["--labels-per-row", 1.7],
        "give the same leve",
    ),
    "another share": (["--prevalence", "dog=0.6"], None, [], "give the same level"),
    "another run": (
        [],
        state("run 12345678"),
        [],
        "a table of another run, or the run has changed",
    ),
    "two tables": ([], lambda t: pd.concat([t, state("run 1")(t)]), [], "several tables in one"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_of_decide(data, tmp_path, mistake):
    before, change, words, message = MISTAKES[mistake]
    table = tmp_path / "p.csv"
    command("predict", data / "run", data / "x.npy", "--out", table, *before)
    if change is not None:
        change(pd.read_csv(table)).to_csv(table, index=False)
    out = ("--run", data / "run", "--out", tmp_path / "new.csv")
    code, text = command("decide", table, *out, *words)
    assert code != 0
    assert message in text
    assert not (tmp_path / "new.csv").exists()


def test_a_table_that_is_decided_at_a_level_is_decided_again_at_it(data, tmp_path):
    table, level = tmp_path / "p.csv", ("--labels-per-row", 1.9)
    command("predict", data / "run", data / "x.npy", "--out", table)
    for out in ("once.csv", "twice.csv"):
        code, text = command("decide", table, "--run", data / "run", "-o", tmp_path / out, *level)
        assert code == 0, text
        table = tmp_path / out
    once, twice = (pd.read_csv(tmp_path / name) for name in ("once.csv", "twice.csv"))
    assert set(once["basis"].str.partition(", ")[2]) == {"labels_per_row=1.9"}
    pd.testing.assert_frame_equal(once, twice)


@pytest.mark.parametrize("name", ["predict", "evaluate"])
@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("best", "expected one of f1, macro-f1, f2, precision=0.9, recall=0.9, threshold=0.5"),
        ("precision=2", "precision needs a number from 0 to 1, got 2"),
    ],
)
def test_a_wrong_rule_is_refused(data, name, rule, message):
    code, text = command(name, data / "run", data / "labels.csv", "--decide", rule)
    assert code == 2
    assert "--decide" in text
    assert message in text


def test_every_command_says_what_its_decisions_are_expected_to_be(data, tmp_path):
    """The same words for the same rule; another level changes them."""
    told = json.loads((data / "run" / "result.json").read_text())["expected"]
    assert "expected on new rows: precision" in told
    _, first = predict(data, tmp_path)
    _, evaluated = command("evaluate", data / "run")
    _, stricter = predict(data, tmp_path, "--decide", "precision=0.8")
    decided = ("decide", tmp_path / "p.csv", "--run", data / "run", "--out", tmp_path / "d.csv")
    _, again = command(*decided, "--labels-per-row", 1.9, "--overwrite")
    assert told in first
    assert told in evaluated
    assert "expected on new rows: precision" in stricter
    assert "expected on new rows: precision" in again
    assert told not in stricter
    assert told not in again
