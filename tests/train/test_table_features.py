"""Tables with numbers, categories, vectors and missing values become a matrix."""

import json

import numpy as np
import pandas as pd
import pytest

from halftruth.data import DataError
from halftruth.data.feature_columns import feature_columns_from_frame, read_feature_columns
from halftruth.data.table_encoder import FEWEST_ROWS, MOST_LEVELS, TableEncoder
from halftruth.labels import LabelMatrix
from halftruth.train.inputs.feature_encoder import FeatureEncoder, read_sources


def mixed(rows=8):
    """A table with a column of every kind."""
    return pd.DataFrame(
        {
            "id": [f"r{k}" for k in range(rows)],
            "age": [20.0, None, *range(30, 30 + rows - 2)],
            "smoker": [True, False] * (rows // 2),
            "town": ["Rome", "Oslo", "Rome", None] * (rows // 4),
            "emb": [[float(k), 1.0] for k in range(rows)],
        }
    )


def encoded(source, rows=None):
    rows = np.arange(len(source)) if rows is None else rows
    encoder = TableEncoder.fit(source, rows)
    return dict(zip(encoder.outputs, encoder.transform(source).T, strict=True)), encoder


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl", "frame"])
def test_every_kind_of_column_becomes_numbers(tmp_path, suffix):
    frame = mixed()
    path = tmp_path / f"t{suffix}"
    if suffix == ".csv":
        frame.drop(columns="emb").to_csv(path, index=False)
    elif suffix == ".parquet":
        frame.to_parquet(path, index=False)
    elif suffix == ".jsonl":
        frame.to_json(path, orient="records", lines=True)
    source = feature_columns_from_frame(frame) if suffix == "frame" else read_feature_columns(path)
    assert source.ids.tolist() == frame["id"].tolist()
    values, _ = encoded(source)
    assert values["age"][:3].tolist() == [20, 32, 30], "a missing number becomes the median"
    assert values["age is missing"].tolist() == [0, 1, 0, 0, 0, 0, 0, 0]
    assert values["smoker"].tolist() == [1, 0] * 4
    assert values["town=Rome"].tolist() == [1, 0, 1, 0] * 2
    assert values["town is missing"].tolist() == [0, 0, 0, 1] * 2
    if suffix != ".csv":
        assert values["emb[0]"].tolist() == list(range(8))


def test_only_training_rows_say_what_columns_become():
    frame = pd.DataFrame({"x": [1.0, 3.0, 100.0, None], "town": ["A", "A", "B", "C"]})
    source = feature_columns_from_frame(frame)
    values, encoder = encoded(source, np.array([0, 1]))
    assert encoder.outputs == ["x", "town=A"], "nothing of the other rows"
    assert values["x"].tolist() == [1, 3, 100, 2]
    assert values["town=A"].tolist() == [1, 1, 0, 0]


def test_rare_and_new_levels_share_a_column():
    levels = ["common"] * FEWEST_ROWS + ["rare"]
    source = feature_columns_from_frame(pd.DataFrame({"town": levels}))
    _, encoder = encoded(source)
    assert encoder.outputs == ["town=common", "town is another"]
    new = feature_columns_from_frame(pd.DataFrame({"town": ["common", "rare", "never seen"]}))
    assert encoder.transform(new).tolist() == [[1, 0], [0, 1], [0, 1]]


def test_a_column_has_at_most_so_many_levels():
    count = 3 * MOST_LEVELS
    levels = [f"level {k}" for k in range(count) for _ in range(FEWEST_ROWS)]
    _, encoder = encoded(feature_columns_from_frame(pd.DataFrame({"town": levels})))
    assert len(encoder.outputs) == MOST_LEVELS + 1


def test_numbers_can_be_categories(tmp_path):
    (tmp_path / "t.csv").write_text("zip,x\n1010,1\n1020,2\n1010,3\n")
    source = read_feature_columns(tmp_path / "t.csv", categorical=["zip"])
    _, encoder = encoded(source)
    assert encoder.outputs[:2] == ["zip=1010", "zip=1020"]


def test_an_encoder_survives_its_files(tmp_path):
    source = feature_columns_from_frame(mixed())
    rows = np.arange(8)
    encoder = FeatureEncoder.fit([source], None, np.ones((8, 1), np.int8), rows)
    encoder.save(tmp_path)
    again = FeatureEncoder.load(tmp_path)
    assert np.array_equal(again.transform([source]), encoder.transform([source]))
    assert json.loads((tmp_path / "encoder.json").read_text())["version"] == 1
    (tmp_path / "encoder.json").write_text('{"tables": [{}]}')
    with pytest.raises(DataError, match=r"encoder\.json: is damaged .* train again"):
        FeatureEncoder.load(tmp_path)


def test_missing_values_of_a_matrix_become_medians(tmp_path):
    np.save(tmp_path / "x.npy", np.array([[1.0, 2.0], [np.nan, 2.0], [3.0, 2.0]]))
    values, encoder = encoded(read_feature_columns(tmp_path / "x.npy"))
    assert encoder.outputs == ["[0]", "[1]", "[0] is missing"]
    assert values["[0]"].tolist() == [1, 2, 3]
    np.save(tmp_path / "y.npy", np.ones((3, 2)))
    _, plain = encoded(read_feature_columns(tmp_path / "y.npy"))
    assert plain.is_plain
    assert not encoder.is_plain


def test_several_sources_are_matched_by_id(tmp_path):
    items = np.array(["a", "b", "c"])
    labels = LabelMatrix(np.eye(3, dtype=np.int8), ("x", "y", "z"), items)
    pd.DataFrame({"id": ["c", "a", "b"], "f": [3, 1, 2]}).to_parquet(tmp_path / "one.parquet")
    np.savez(tmp_path / "two.npz", X=np.array([[20.0], [30.0], [10.0]]), ids=["b", "c", "a"])
    sources = read_sources([tmp_path / "one.parquet", tmp_path / "two.npz"], labels)
    encoder = FeatureEncoder.fit(sources, None, labels.values, np.arange(3))
    assert encoder.transform(sources).tolist() == [[1, 10], [2, 20], [3, 30]]
    alone = read_sources([tmp_path / "one.parquet", tmp_path / "two.npz"])
    assert encoder.transform(alone).tolist() == [[3, 30], [1, 10], [2, 20]]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("id,x\na,1\nb,inf\n", {}, r"t\.csv line 3, column 'x': expected a finite .* got inf"),
        ("id,split\na,train\nb,val\n", {}, "expected columns of features, but none is left"),
        ("id,x\n,1\nb,2\n", {}, r"line 2: column 'id' is blank"),
        (
            "id,x\na,1\nb,2\n",
            {"drop_columns": ["y"]},
            r"drop_columns='y' \(--read-features\): there is no such column",
        ),
        ("id,town\na,1\nb,2\n", {"categorical": ["twon"]}, r"did you mean 'town'"),
        ("id,x\na,1\nb,2\n", {"key": "X"}, r"key='X' is for \.npz files"),
    ],
)
def test_bad_tables_are_refused(tmp_path, text, options, message):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        read_feature_columns(tmp_path / "t.csv", **options)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"v": [[1.0, 2.0], [1.0]]}, r"column 'v': expected lists of one length, got lengths 1, 2"),
        ({"v": [[1.0], None]}, "expected lists of one length"),
        ({"v": [["a"], ["b"]]}, "expected numbers, texts or lists of numbers, got list<"),
        ({"v": pd.to_datetime(["2020-01-01", "2021-01-01"])}, "got timestamp"),
    ],
)
def test_bad_parquet_columns_are_refused(tmp_path, columns, message):
    pd.DataFrame(columns).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match=message):
        read_feature_columns(tmp_path / "t.parquet")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"x": [None, None, 1.0]}, r"column 'x' has no value in any of the 2 training rows"),
        ({"x": [None, None, "a"]}, r"column 'x' has no value in any of the 2 training rows"),
    ],
)
def test_a_column_without_values_in_training_is_refused(columns, message):
    source = feature_columns_from_frame(pd.DataFrame(columns))
    with pytest.raises(DataError, match=message):
        TableEncoder.fit(source, np.array([0, 1]))


def test_free_text_is_no_category():
    texts = [f"comment number {k}" for k in range(2 * MOST_LEVELS)]
    source = feature_columns_from_frame(pd.DataFrame({"comment": texts}))
    with pytest.raises(DataError, match=r"200 different texts in 200 .*--text"):
        TableEncoder.fit(source, np.arange(len(texts)))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"y": [1.0], "town": ["A"]}, "has no column 'x', with which the run was trained"),
        ({"x": ["high"], "town": ["A"]}, r"column 'x': expected a number, as in training, got 'hi"),
        ({"x": [[1.0, 2.0]], "town": ["A"]}, "expected numbers, as in training, got vectors"),
    ],
)
def test_prediction_needs_the_columns_of_training(columns, message):
    train = feature_columns_from_frame(pd.DataFrame({"x": [1.0, 2.0], "town": ["A", "B"]}))
    _, encoder = encoded(train)
    with pytest.raises(DataError, match=message):
        encoder.transform(feature_columns_from_frame(pd.DataFrame(columns)))
    more = pd.DataFrame({"town": ["B"], "note": ["not used"], "x": [5.0]})
    assert encoder.transform(feature_columns_from_frame(more)).tolist() == [[5, 0, 1]]


def test_a_matrix_on_disk_is_not_copied_into_memory(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((50, 4), np.float32))
    source = read_feature_columns(tmp_path / "x.npy")
    encoder = FeatureEncoder.fit([source], None, np.ones((50, 1), np.int8), np.arange(40))
    matrix = encoder.transform([source])
    assert isinstance(matrix.base, np.memmap) or isinstance(matrix, np.memmap)
    matrix[0, 0] = 5
    assert np.load(tmp_path / "x.npy")[0, 0] == 1, "the file stays as it is"
