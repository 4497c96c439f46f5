"""Feature matrices from arrays and tables."""

import numpy as np
import pandas as pd
import pytest

from halftruth.data import DataError, read_features
from halftruth.data.feature_columns import read_feature_columns
from halftruth.labels import LabelMatrix


def labels_of(*items, classes=("cat", "dog")):
    """One positive per row; without names if the items are None."""
    values = np.eye(len(classes), dtype=np.int8)[np.arange(len(items)) % len(classes)]
    return LabelMatrix(values, classes, None if None in items else np.array(items))


def test_arrays_become_float32(tmp_path):
    np.save(tmp_path / "f.npy", np.arange(6, dtype=np.float16).reshape(2, 3))
    features = read_features(tmp_path / "f.npy", labels=labels_of("a", "b"))
    assert features.dtype == np.float32
    assert features.tolist() == [[0, 1, 2], [3, 4, 5]]
    np.savez(tmp_path / "f.npz", feats=np.ones((2, 2)), other=np.zeros((2, 2)))
    assert read_features(tmp_path / "f.npz").tolist() == [[1, 1], [1, 1]]
    assert read_features(tmp_path / "f.npz", "other").tolist() == [[0, 0], [0, 0]]


def test_names_and_splits_of_a_table_are_not_features(tmp_path):
    path = tmp_path / "f.csv"
    path.write_text("image,split,f0,f1\na,train,1,2e3\nb,test,-1,0\n")
    assert read_features(path).tolist() == [[1, 2000], [-1, 0]]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([[1.0, np.nan]], r"f\.npy row 0, column 1: expected a finite float32 number, got nan"),
        ([[1.0], [np.inf]], r"row 1, column 0: .* got inf"),
        ([[1e39]], r"row 0, column 0: .* got 1e\+39"),
    ],
)
def test_values_must_be_finite(tmp_path, values, message):
    np.save(tmp_path / "f.npy", np.array(values))
    with pytest.raises(DataError, match=message):
        read_features(tmp_path / "f.npy")


def test_rows_must_match_the_labels(tmp_path):
    np.save(tmp_path / "f.npy", np.ones((2, 3)))
    with pytest.raises(DataError, match="has 2 rows, but the labels have 3"):
        read_features(tmp_path / "f.npy", labels=labels_of("a", "b", "c"))


def test_tables_with_other_columns_are_refused(tmp_path):
    path = tmp_path / "f.csv"
    path.write_text("image,f0,sex\na,1,M\nb,2,F\n")
    with pytest.raises(DataError, match=r"line 2, column 'sex': expected a number, got 'M'"):
        read_features(path)
    assert read_features(path, drop_columns=["sex"]).tolist() == [[1], [2]]
    path.write_text("image,f0\na,1\nb,\n")
    with pytest.raises(DataError, match=r"line 3, column 'f0': expected a number, got no value"):
        read_features(path)
    with pytest.raises(DataError, match=r"expected \.npy"):
        read_features(tmp_path / "f.mat")


def write_features(folder, suffix, ids, values):
    path = folder / f"f{suffix}"
    if suffix == ".npz":
        np.savez(path, X=np.array(values), ids=np.array(ids))
        return path
    frame = pd.DataFrame(values, columns=[f"f{k}" for k in range(len(values[0]))])
    frame.insert(0, "id", ids)
    if suffix == ".parquet":
        frame.to_parquet(path, index=False)
    else:
        frame.to_csv(path, index=False, sep="\t" if suffix == ".tsv" else ",")
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet", ".npz"])
@pytest.mark.parametrize("ids", [["b", "c", "a"], [2, 3, 1]])
def test_rows_with_ids_follow_the_items_of_the_labels(tmp_path, suffix, ids):
    path = write_features(tmp_path, suffix, ids, [[2.0, 0.5], [3.0, 0.5], [1.0, 0.5]])
    features = read_features(path, labels=labels_of(*sorted(map(str, ids))))
    assert features[:, 0].tolist() == [1, 2, 3]
    source = read_feature_columns(path)
    values, found = source.to_matrix(), source.ids
    assert values[:, 0].tolist() == [2, 3, 1]
    assert found.tolist() == list(map(str, ids))


@pytest.mark.parametrize(
    ("ids", "items", "message"),
    [
        (["a", "b"], ["a", "b", "c"], "1 of 3 items of the label file have no row: 'c'"),
        (["image_1", "b"], ["image-1", "b"], "did you mean 'image_1'.*ids without labels"),
        (["a", "b", "a"], ["a", "b"], "1 ids occur more than once: 'a'"),
        (["a", "b"], [None, None], "names its rows .* but the label file does not"),
    ],
)
def test_ids_that_do_not_match_are_named(tmp_path, ids, items, message):
    path = write_features(tmp_path, ".csv", ids, [[0.5]] * len(ids))
    with pytest.raises(DataError, match=message):
        read_features(path, labels=labels_of(*items))


def test_ids_without_labels_are_a_warning(tmp_path):
    path = write_features(tmp_path, ".csv", ["x", "b", "a"], [[9.0], [2.0], [1.0]])
    with pytest.warns(UserWarning, match="1 of 3 rows are not used.*'x'"):
        features = read_features(path, labels=labels_of("a", "b"))
    assert features.tolist() == [[1], [2]]


@pytest.mark.parametrize("ids", [[0, 1, 2], [1, 2, 3]])
def test_row_numbers_as_ids_keep_the_order_where_labels_have_no_names(tmp_path, ids):
    path = write_features(tmp_path, ".csv", ids, [[5.0], [6.0], [7.0]])
    assert read_features(path, labels=labels_of(None, None, None)).tolist() == [[5], [6], [7]]


@pytest.mark.parametrize(
    "header",
    ["image,cat,dog", "image,dog,cat", "image,cat,dog,age", "image,cat"],
)
def test_a_table_of_labels_is_refused_as_features(tmp_path, header):
    path = tmp_path / "labels.csv"
    columns = header.split(",")
    path.write_text(f"{header}\na,{','.join('1' * (len(columns) - 1))}\n")
    with pytest.raises(DataError, match=r"these features are labels .*'cat'"):
        read_features(path, labels=labels_of("a"))


def test_a_matrix_of_labels_is_refused_as_features(tmp_path):
    labels = labels_of("a", "b", "c")
    complete = np.maximum(labels.values, [[0, 1], [0, 1], [0, 0]])
    for values in (labels.values, complete):
        np.save(tmp_path / "y.npy", values)
        with pytest.raises(DataError, match="these features are labels"):
            read_features(tmp_path / "y.npy", labels=labels)


def test_binary_features_are_not_taken_for_labels(tmp_path):
    np.save(tmp_path / "x.npy", np.array([[0, 1], [1, 1], [1, 0]]))
    assert read_features(tmp_path / "x.npy", labels=labels_of("a", "b", "c")).shape == (3, 2)
