"""Feature matrices from arrays and tables."""

import numpy as np
import pytest

from halftruth.data import DataError, read_features


def test_arrays_become_float32(tmp_path):
    np.save(tmp_path / "f.npy", np.arange(6, dtype=np.float16).reshape(2, 3))
    features = read_features(tmp_path / "f.npy", rows=2)
    assert features.dtype == np.float32
    assert features.tolist() == [[0, 1, 2], [3, 4, 5]]
    np.savez(tmp_path / "f.npz", feats=np.ones((2, 2)), other=np.zeros((2, 2)))
    assert read_features(tmp_path / "f.npz").tolist() == [[1, 1], [1, 1]]
    assert read_features(tmp_path / "f.npz", "other").tolist() == [[0, 0], [0, 0]]


def test_tables_set_names_aside(tmp_path):
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
        read_features(tmp_path / "f.npy", rows=3)


def test_bad_tables(tmp_path):
    path = tmp_path / "f.csv"
    path.write_text("image,f0,sex\na,1,M\nb,2,F\n")
    with pytest.raises(DataError, match=r"line 2, column 'sex': expected a number, got 'M'"):
        read_features(path)
    assert read_features(path, drop_columns=["sex"]).tolist() == [[1], [2]]
    path.write_text("image,f0\na,1\nb,\n")
    with pytest.raises(DataError, match=r"line 3, column 'f0': expected a number, got ''"):
        read_features(path)
    with pytest.raises(DataError, match=r"expected \.npy"):
        read_features(tmp_path / "f.mat")
