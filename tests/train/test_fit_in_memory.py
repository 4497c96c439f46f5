"""`fit` on DataFrames and arrays: trained as from files, resumed and used without the data."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from tiny_data import CLASSES, command, outcome

import halftruth
from halftruth.data import DataError
from halftruth.train import CheckpointError

SETTINGS = {"method": "wan", "device": "cpu", "epochs": 2, "batch_size": 6, "head_lr": 0.05}
SETTINGS |= {"report": False, "quiet": True}


@pytest.fixture(scope="module")
def frames(data):
    labels = pd.read_csv(data / "labels.csv").set_index("image")
    features = pd.DataFrame(np.load(data / "features.npy"), index=labels.index)
    return labels, features


@pytest.fixture(scope="module")
def from_files(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("files") / "run"
    halftruth.fit(data / "labels.csv", features=data / "features.npy", out=out, **SETTINGS)
    return outcome(out)


def test_dataframes_train_the_same_model_as_files(frames, from_files, tmp_path):
    labels, features = frames
    halftruth.fit(labels, features=features, out=tmp_path / "run", **SETTINGS)
    assert outcome(tmp_path / "run") == from_files


def test_features_are_matched_by_the_index(frames, from_files, tmp_path):
    labels, features = frames
    halftruth.fit(labels, features=features[::-1], out=tmp_path / "run", **SETTINGS)
    assert outcome(tmp_path / "run") == from_files


def test_arrays_have_numbered_classes_and_may_be_sparse(frames, tmp_path):
    labels, features = frames
    y, x = labels[list(CLASSES)].to_numpy(), features.to_numpy()
    result = halftruth.fit(y, features=x, out=tmp_path / "dense", **SETTINGS)
    assert result.classes == ("class0", "class1", "class2")
    thin = sparse.csr_array(x)
    halftruth.fit(y == 1, features=thin, truth=y, out=tmp_path / "sparse", **SETTINGS)
    table = halftruth.load(tmp_path / "dense", device="cpu").predict(x[:2])
    assert table.columns.tolist() == ["item", "labels", "class0", "class1", "class2", "basis"]


def test_options_of_reading_apply_to_dataframes(frames, tmp_path):
    labels, features = frames
    frame = labels.rename(columns={"split": "part"})
    result = halftruth.fit(
        frame, features=features, split_column="part", zero="absent", out=tmp_path, **SETTINGS
    )
    assert result.classes == CLASSES


def test_a_run_is_resumed_without_the_data_or_with_the_same(frames, tmp_path):
    labels, features = frames
    out = tmp_path / "run"
    halftruth.fit(labels, features=features, out=out, **SETTINGS)
    before = outcome(out)
    assert command("train", "--resume", "--out", out, "--quiet") == 0
    halftruth.fit(labels, features=features, out=out, resume=True, **SETTINGS)
    assert outcome(out) == before
    for other in ({"features": features + 1}, {"features": features, "labels": labels[:40]}):
        with pytest.raises(CheckpointError, match=r"belongs to another run: its (features|labels)"):
            halftruth.fit(other.pop("labels", labels), **other, out=out, resume=True, **SETTINGS)


def test_an_existing_run_keeps_its_data(frames, tmp_path):
    labels, features = frames
    halftruth.fit(labels, features=features, out=tmp_path, **SETTINGS)
    files = {path: path.read_bytes() for path in (tmp_path / "data").iterdir()}
    assert sorted(path.name for path in files) == ["features.parquet", "labels.parquet"]
    with pytest.raises(CheckpointError, match="already holds a run"):
        halftruth.fit(labels, features=features * 2, out=tmp_path, **SETTINGS)
    assert {path: path.read_bytes() for path in files} == files


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (7, "labels: expected a file, a DataFrame or an array"),
        ([1, 0], r"labels: expected a file, .* of shape \(2,\)"),
        (np.array([["a", "b"]]), "labels: expected a file, a DataFrame or an array of numbers"),
        (np.array([[1, 5]] * 44), "expected a label of 1, 0, -1"),
        (pd.DataFrame({"cat": [1, 5] * 22}), "'cat': expected a label"),
        (pd.DataFrame([[1, 0]] * 44, columns=["cat", "cat"]), "Duplicate column names"),
    ],
)
def test_labels_that_cannot_be_used_are_refused(data, tmp_path, labels, message):
    with pytest.raises(DataError, match=message):
        halftruth.fit(labels, features=data / "features.npy", out=tmp_path, **SETTINGS)
