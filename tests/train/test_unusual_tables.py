"""Tables that pandas writes with its index, blank and mixed cells, classes called item, labels."""

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import halftruth
from halftruth.cli.app import app
from halftruth.data import DataError
from halftruth.data.feature_columns import feature_columns_from_frame, read_feature_columns
from halftruth.data.hints import read_hint
from halftruth.data.table_encoder import TableEncoder

SHORT = {"method": "bce", "epochs": 40, "device": "cpu", "report": False, "quiet": True}


def example(rows: int = 60) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Labels of two classes, and features: two numbers and a column of true and false."""
    random = np.random.default_rng(0)
    x = pd.DataFrame(random.normal(size=(rows, 2)), columns=["f0", "f1"])
    labels = (x > 0.3).astype(int).set_axis(["cat", "dog"], axis=1)
    return labels, x.assign(wild=x["f0"] > 0)


def call(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output + str(result.exception)
    return result.output


# ---------------------------------------------------------------------- the index of pandas


@pytest.mark.parametrize("names", ["numbers", "words"])
def test_the_index_that_pandas_writes_is_not_a_feature(tmp_path, names):
    """Row numbers are left out and texts name the rows, in every command."""
    labels, x = example()
    if names == "words":
        labels.index = x.index = [f"r{k}" for k in range(len(x))]
    labels.to_csv(tmp_path / "labels.csv")
    x.iloc[::-1].to_csv(tmp_path / "x.csv")
    if names == "numbers":
        x.to_csv(tmp_path / "x.csv")
    given = (tmp_path / "labels.csv", "--features", tmp_path / "x.csv")
    call("data", "check", *given)
    run = tmp_path / "run"
    halftruth.fit(given[0], features=given[2], out=run, **SHORT)
    trained = halftruth.load(run, device="cpu")
    assert trained.inputs == 3
    expected = trained.predict(features=x)["cat"]
    call("predict", run, given[2], "--out", tmp_path / "p.csv", "--device", "cpu")
    found = pd.read_csv(tmp_path / "p.csv", index_col="item")["cat"]
    found.index = found.index.astype(str)
    assert found[list(map(str, x.index))].to_numpy() == pytest.approx(expected, abs=1e-5)
    call("evaluate", run, *given, "--device", "cpu")
    call("audit", run, *given, "--out", tmp_path / "audit")


@pytest.mark.parametrize("name", ["", "Unnamed: 0"])
def test_an_unnamed_column_is_row_numbers_or_names(tmp_path, name):
    path = tmp_path / "x.csv"
    for index, ids in (([0, 1], None), ([7, 9], ["7", "9"]), (["a", "b"], ["a", "b"])):
        table = pd.DataFrame({name: index, "f0": [0.5, 1.5]})
        table.to_csv(path, index=False)
        sources = [read_feature_columns(path), feature_columns_from_frame(table)]
        sources += [read_hint(path, ["f0"], None, 2)] if ids is None else []
        for source in sources[:2]:
            assert list(source.columns) == ["f0"]
            assert (None if source.ids is None else source.ids.tolist()) == ids
        source = read_feature_columns(path)
        values, found = source.to_matrix(), source.ids
        assert values.tolist() == [[0.5], [1.5]]
        assert (None if found is None else found.tolist()) == ids


def test_given_scores_are_matched_by_the_index(tmp_path):
    """Scores in another order than the labels."""
    labels, x = example()
    labels.index = [f"r{k}" for k in range(len(x))]
    labels.to_csv(tmp_path / "labels.csv")
    scores = pd.DataFrame(0.1 + 0.8 * labels, index=labels.index)
    scores.iloc[::-1].to_csv(tmp_path / "scores.csv")
    call("audit", tmp_path / "scores.csv", tmp_path / "labels.csv", "--out", tmp_path / "audit")
    with np.load(tmp_path / "audit" / "scores.npz", allow_pickle=False) as file:
        assert file["scores"] == pytest.approx(scores.to_numpy())


# ---------------------------------------------------------------------- blank and mixed cells


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["", ""], [[2, 1], [2, 1]]),
        ([""], [[2, 1]]),
        (["true", "0"], [[1, 0], [0, 0]]),
        (["True", "", "2.5"], [[1, 0], [2, 1], [2.5, 0]]),
    ],
)
def test_blank_and_mixed_cells_of_a_number_column(tmp_path, cells, expected):
    """The median of training stands for a blank, whatever the other rows hold."""
    trained = pd.DataFrame({"n": [1.0, 2.0, 4.0, None], "f": 0.0})
    encoder = TableEncoder.fit(feature_columns_from_frame(trained), np.arange(4))
    path = tmp_path / "x.csv"
    pd.DataFrame({"n": cells, "f": 0}).to_csv(path, index=False)
    frame = pd.DataFrame({"n": [cell or None for cell in cells], "f": 0})
    for source in (read_feature_columns(path), feature_columns_from_frame(frame)):
        assert encoder.transform(source)[:, :2].tolist() == expected


def test_a_text_in_a_number_column_is_named(tmp_path):
    encoder = TableEncoder.fit(
        feature_columns_from_frame(pd.DataFrame({"n": [1.0, 2.0]})), np.arange(2)
    )
    source = feature_columns_from_frame(pd.DataFrame({"n": ["3", None, "much"]}))
    with pytest.raises(DataError, match=r"row 3, column 'n': expected a number, .* got 'much'"):
        encoder.transform(source)


def test_serve_fills_a_missing_number_in_with_the_median(tmp_path):
    pytest.importorskip("flask")
    from halftruth.serve import make_app

    labels, x = example()
    halftruth.fit(labels, features=x, out=tmp_path / "run", **SHORT)
    run = halftruth.load(tmp_path / "run", device="cpu")
    row = {"f0": None, "f1": 0.0, "wild": None}
    answer = make_app(run).test_client().post("/predict", json={"features": [row]})
    assert answer.status_code == 200, answer.json
    blank = pd.DataFrame({"f0": [np.nan], "f1": 0.0, "wild": [np.nan]})
    expected = run.predict(features=blank)["cat"][0]
    assert answer.json["predictions"][0]["probabilities"]["cat"] == pytest.approx(
        expected, abs=1e-5
    )


# ---------------------------------------------------------------------- names of classes


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_classes_may_have_the_names_of_the_fixed_columns(tmp_path, suffix):
    """predict writes every class under its own name, and audit reads that."""
    labels, x = example()
    labels = labels.set_axis(["item", "labels"], axis=1)
    items = [f"r{k}.jpg" for k in range(len(x))]
    labels.assign(image=items).to_csv(tmp_path / "labels.csv", index=False)
    x.assign(image=items).to_csv(tmp_path / "x.csv", index=False)
    given = tmp_path / "labels.csv"
    halftruth.fit(given, features=tmp_path / "x.csv", out=tmp_path / "run", **SHORT)
    table = halftruth.load(tmp_path / "run", device="cpu").predict(features=tmp_path / "x.csv")
    assert list(table.columns) == ["item_", "labels_", "item", "labels", "basis"]
    assert table["item_"].tolist() == items
    out = tmp_path / f"p.{suffix}"
    call("predict", tmp_path / "run", tmp_path / "x.csv", "--out", out, "--device", "cpu")
    written = pd.read_csv(out) if suffix == "csv" else pd.read_parquet(out)
    assert list(written.columns) == list(table.columns)
    assert written["item"].to_numpy() == pytest.approx(table["item"], abs=1e-5)
    call("audit", out, given, "--out", tmp_path / "audit")
    with np.load(tmp_path / "audit" / "scores.npz", allow_pickle=False) as file:
        expected = table[["item", "labels"]].to_numpy()
        assert file["scores"] == pytest.approx(expected, abs=1e-5)


def test_serve_answers_for_classes_with_the_names_of_the_fixed_columns():
    serve = pytest.importorskip("halftruth.serve")
    from halftruth.train.results.output_tables import make_prediction_table

    classes = ("item", "labels")
    chosen = np.array([[True, False]])
    table = make_prediction_table(["a"], np.array([[0.9, 0.2]]), classes, chosen, "run 1")
    assert serve.to_records(table, classes) == [
        {"item": "a", "labels": ["item"], "probabilities": {"item": 0.9, "labels": 0.2}}
    ]


def test_a_column_of_text_called_labels_is_shown_in_the_predictions(tmp_path):
    labels, _ = example()
    texts = ["meow" if cat else "woof" for cat in labels["cat"]]
    labels.assign(item=texts).to_csv(tmp_path / "labels.csv", index=False)
    halftruth.fit(tmp_path / "labels.csv", text="item", out=tmp_path / "run", **SHORT)
    table = halftruth.load(tmp_path / "run").predict(text=["meow", "woof"])
    assert table["item_"].tolist() == ["meow", "woof"]
