"""The same rows, labels and seed give the same ensemble, whichever way it is fitted."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from tiny_data import command

import halftruth
from halftruth.bench import training
from halftruth.bench.run_data import BenchRows, Place
from halftruth.data.splits import Splits
from halftruth.estimator import HalftruthClassifier
from halftruth.train.ensemble import fit_ensemble as module

ROWS, CLASSES = 60, ("cat", "dog", "cow")
QUIET = {"device": "cpu", "report": False, "quiet": True}
# Predictions: the command computes in float32, the estimator in double precision.
TOLERANCE = 1e-5


@pytest.fixture
def quick(monkeypatch):
    """Members that are fitted within milliseconds."""
    monkeypatch.setattr(module, "MEMBERS", ("linear", "neighbours"))


def make_data(empty=True):
    """Features in double precision, and labels of which half are shown."""
    random = np.random.default_rng(3)
    truth = random.random((ROWS, 3)) < 0.4
    truth[~truth.any(axis=1), 0] = not empty
    x = truth @ random.normal(size=(3, 5)) + random.normal(0, 0.5, (ROWS, 5))
    shown = truth & (random.random(truth.shape) < 0.7)
    if not empty:
        shown |= truth & ~shown.any(axis=1, keepdims=True)
    # Offsets of a date in seconds: float32 keeps fewer digits than these have.
    return x + 1e4, shown.astype(np.int8)


def weights_of(model):
    return {name: value.double() for name, value in model.state_dict().items()}


def assert_same(run, model, x):
    """Equal parameters and thresholds; probabilities up to the precision of predictions."""
    ours, theirs = weights_of(run.model), weights_of(model.model_)
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        assert torch.equal(value, theirs[name]), name
    np.testing.assert_array_equal(run.thresholds, model.thresholds_)
    found = run.score(features=x).probabilities
    np.testing.assert_allclose(found, model.predict_proba(x), atol=TOLERANCE)


@pytest.mark.parametrize("empty", [True, False])
@pytest.mark.parametrize("seed", [0, 42, 2**31 - 1])
def test_files_memory_estimator_and_bench_give_one_model(tmp_path, quick, monkeypatch, empty, seed):
    x, shown = make_data(empty)
    model = HalftruthClassifier(random_state=seed).fit(x, shown)
    halftruth.fit(shown, features=x, out=tmp_path / "fit", seed=seed, **QUIET)
    assert_same(halftruth.load(tmp_path / "fit", device="cpu"), model, x)
    pd.DataFrame(shown, columns=CLASSES).to_csv(tmp_path / "labels.csv", index=False)
    np.save(tmp_path / "x.npy", x)
    files = "train", tmp_path / "labels.csv", "--features", tmp_path / "x.npy"
    options = "--out", tmp_path / "run", "--seed", seed, "--device", "cpu", "--no-report", "-q"
    assert command(*files, *options) == 0
    assert_same(halftruth.load(tmp_path / "run", device="cpu"), model, x)
    none, kept = np.arange(0), []
    splits = Splits(np.arange(ROWS), none, none)
    rows = BenchRows(shown, splits, 1.0, features=x, x=torch.zeros(ROWS, 5))
    monkeypatch.setattr(training, "_scores_of", lambda model, x: kept.append(model))
    job = SimpleNamespace(loss="auto", seed=seed, source={"reader": "features"}, training={})
    training.train_cell(job, rows, Place(tmp_path, tmp_path, "cpu"))
    for name, value in weights_of(kept[0]).items():
        assert torch.equal(value, weights_of(model.model_)[name]), name


def test_all_members_are_the_same(tmp_path):
    x, shown = make_data()
    model = HalftruthClassifier(random_state=7).fit(x, shown)
    halftruth.fit(shown, features=x, out=tmp_path / "run", seed=7, **QUIET)
    assert_same(halftruth.load(tmp_path / "run", device="cpu"), model, x)


@pytest.mark.parametrize("name", ["{}", "patient {}"])
def test_groups_count_by_their_rows_not_by_their_names(tmp_path, quick, name):
    x, shown = make_data()
    patients = np.random.default_rng(0).permutation(ROWS) // 4
    model = HalftruthClassifier(random_state=1).fit(x, shown, groups=patients)
    table = pd.DataFrame(shown, columns=CLASSES)
    table["patient"] = [name.format(one) for one in patients]
    table.to_csv(tmp_path / "labels.csv", index=False)
    halftruth.fit(
        tmp_path / "labels.csv", features=x, group_column="patient", out=tmp_path / "run", seed=1,
        **QUIET,
    )  # fmt: skip
    assert_same(halftruth.load(tmp_path / "run", device="cpu"), model, x)


def test_one_group_of_all_rows_is_refused():
    x, shown = make_data()
    with pytest.raises(ValueError, match="groups: expected at least 2, got one group of all 60"):
        HalftruthClassifier().fit(x, shown, groups=np.ones(ROWS))


def test_weights_and_complete_rows_have_the_same_effect(tmp_path, quick):
    x, shown = make_data()
    random = np.random.default_rng(2)
    weight, rows = random.choice([0.0, 0.5, 1.0], ROWS), np.arange(0, ROWS, 5)
    weight[rows] = 1.0
    model = HalftruthClassifier(random_state=3)
    model.fit(x, shown, sample_weight=weight, complete_rows=rows)
    table = pd.DataFrame(shown, columns=CLASSES).assign(w=weight)
    table.to_csv(tmp_path / "labels.csv", index=False)
    (tmp_path / "rows.txt").write_text("".join(f"{row + 1}\n" for row in rows))
    halftruth.fit(
        tmp_path / "labels.csv", features=x, weight_column="w", out=tmp_path / "run", seed=3,
        complete_rows=tmp_path / "rows.txt", **QUIET,
    )  # fmt: skip
    assert_same(halftruth.load(tmp_path / "run", device="cpu"), model, x)


def test_labels_of_test_rows_have_no_part(tmp_path, quick):
    x, shown = make_data()
    model = HalftruthClassifier().fit(x, shown)
    random = np.random.default_rng(5)
    table = pd.DataFrame(np.concatenate([shown, np.eye(3, dtype=int)[[2] * 20]]), columns=CLASSES)
    table.insert(0, "split", ["train"] * ROWS + ["test"] * 20)
    table.to_csv(tmp_path / "labels.csv", index=False)
    features = np.concatenate([x, random.normal(size=(20, 5))])
    halftruth.fit(tmp_path / "labels.csv", features=features, out=tmp_path / "run", **QUIET)
    assert_same(halftruth.load(tmp_path / "run", device="cpu"), model, x)


def test_text_by_the_command_equals_its_sparse_matrix_in_the_estimator(
    tmp_path, quick, monkeypatch
):
    for place in ("halftruth.data.wide_matrix", "halftruth.estimator.classifier"):
        monkeypatch.setattr(f"{place}.MOST_FEATURES", 16)
    shown = make_data()[1]
    words = np.array([["meow", "purr"], ["bark", "bone"], ["milk", "hay"]])
    random = np.random.default_rng(1)
    texts = [
        " ".join([*words[row > 0, random.integers(2)], *random.choice(list("abcdefgh"), 4)])
        for row in shown
    ]
    table = pd.DataFrame(shown, columns=CLASSES).assign(comment=texts)
    table.to_csv(tmp_path / "comments.csv", index=False)
    halftruth.fit(tmp_path / "comments.csv", text="comment", out=tmp_path / "run", seed=5, **QUIET)
    run = halftruth.load(tmp_path / "run", device="cpu")
    matrix = run.encoder.transform([], texts)
    assert matrix.shape[1] > 16
    model = HalftruthClassifier(random_state=5).fit(matrix.sparse, shown)
    ours, theirs = weights_of(run.model), weights_of(model.model_)
    assert all(torch.equal(value, theirs[name]) for name, value in ours.items())
    found = run.score(text=texts).probabilities
    np.testing.assert_allclose(found, model.predict_proba(matrix.sparse), atol=TOLERANCE)


def test_many_classes_give_one_model(tmp_path):
    from scipy import sparse

    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, 5)).astype(np.float32)
    labels = sparse.csr_matrix((random.random((ROWS, 1001)) < 0.01).astype(np.int8))
    sparse.save_npz(tmp_path / "labels.npz", labels)
    model = HalftruthClassifier(random_state=4).fit(x, labels)
    halftruth.fit(tmp_path / "labels.npz", features=x, out=tmp_path / "run", seed=4, **QUIET)
    run = halftruth.load(tmp_path / "run", device="cpu")
    for name, value in weights_of(run.model).items():
        assert torch.equal(value, weights_of(model.model_)[name]), name
    predicted = model.decisions_.predicted
    np.testing.assert_array_equal(run.decisions.predicted, predicted)
    np.testing.assert_allclose(run.thresholds[predicted], model.thresholds_[predicted], rtol=1e-6)


def test_dense_and_sparse_features_give_one_model(quick):
    from scipy import sparse

    x, shown = make_data()
    x = np.where(np.abs(x - 1e4) > 0.5, x - 1e4, 0.0)
    dense = HalftruthClassifier().fit(x, shown)
    thin = HalftruthClassifier().fit(sparse.csr_matrix(x), shown)
    for name, value in weights_of(dense.model_).items():
        assert torch.equal(value, weights_of(thin.model_)[name]), name
