"""Runs with soft labels, weights and votes."""

import numpy as np
import pandas as pd
import pytest
import torch

import halftruth
from halftruth.data import DataError
from halftruth.data.complete_rows import add_complete_rows
from halftruth.data.verdicts import apply_verdicts
from halftruth.labels import LabelMatrix
from halftruth.train.results.evaluate import evaluate
from halftruth.train.run_folder import CheckpointError

CLASSES = ["a", "b", "c"]
SHORT = {
    "method": "bce",
    "epochs": 15,
    "device": "cpu",
    "report": False,
    "head_lr": 0.03,
    "quiet": True,
}


@pytest.fixture
def data(tmp_path):
    """features.npy that show the classes, and truth.csv with complete labels."""
    random = np.random.default_rng(0)
    truth = (random.random((120, 3)) < 0.4).astype(int)
    np.save(tmp_path / "x.npy", (truth + random.normal(0, 0.3, truth.shape)).astype(np.float32))
    part = np.array(["train", "train", "train", "val", "test"])[np.arange(120) % 5]
    frame = pd.DataFrame(truth, columns=CLASSES)
    frame.insert(0, "split", part)
    frame.insert(0, "id", [f"r{k}" for k in range(120)])
    frame.to_csv(tmp_path / "truth.csv", index=False)
    return tmp_path


def compute_map(run, folder):
    reading = {"zero": "absent", "duplicates": "error", "soft": False, "weight_column": None}
    return evaluate(
        run, folder / "truth.csv", features=folder / "x.npy", split="test", reading=reading
    )[0]["mAP"]


def test_rows_of_weight_0_do_not_count(data):
    frame = pd.read_csv(data / "truth.csv")
    wrong = (np.arange(len(frame)) % 3 != 0) & (frame["split"] == "train")
    frame.loc[wrong, CLASSES] = 1 - frame.loc[wrong, CLASSES]
    frame["trust"] = np.where(wrong, 0.0, 1.0)
    frame.to_csv(data / "labels.csv", index=False)
    settings = {**SHORT, "epochs": 45, "features": data / "x.npy", "zero": "absent"}
    halftruth.fit(data / "labels.csv", **settings, weight_column="trust", out=data / "weighted")
    frame.drop(columns="trust").to_csv(data / "plain.csv", index=False)
    halftruth.fit(data / "plain.csv", **settings, out=data / "plain")
    assert compute_map(data / "weighted", data) > 0.85
    assert compute_map(data / "plain", data) < 0.7


def read_outcome(run):
    """Everything about probabilities, decisions and scores that a run has found."""
    result = halftruth.load(run, device="cpu").result
    keys = ("thresholds", "probabilities", "val", "test", "shown")
    return {key: result.get(key) for key in keys}


@pytest.mark.parametrize("settings", [SHORT, {**SHORT, "method": "auto"}], ids=["bce", "auto"])
def test_labels_of_weight_0_are_unknown_everywhere(data, settings):
    if settings["method"] == "auto":
        settings = {key: settings[key] for key in ("method", "device", "report", "quiet")}
    frame = pd.read_csv(data / "truth.csv")
    weights = frame[["id"]].assign(**dict.fromkeys(CLASSES, 1.0))
    # In all parts: training, validation and test.
    ignored = np.random.default_rng(1).random((len(frame), 3)) < 0.3
    weights[CLASSES] = np.where(ignored, 0.0, 1.0)
    weights.to_csv(data / "weights.csv", index=False)
    found = []
    for name in ("one", "other"):
        frame.to_csv(data / f"{name}.csv", index=False)
        out = data / name
        halftruth.fit(
            data / f"{name}.csv", features=data / "x.npy", zero="absent", out=out,
            label_weights=data / "weights.csv", **settings,
        )  # fmt: skip
        found.append(read_outcome(out))
        found[-1]["evaluate"] = evaluate(out, data / f"{name}.csv", features=data / "x.npy")[0]
        frame[CLASSES] = np.where(ignored, 1 - frame[CLASSES], frame[CLASSES])
    assert found[0] == found[1]
    assert found[0]["thresholds"]


def test_rows_of_weight_0_are_as_if_they_were_not_there(data):
    frame = pd.read_csv(data / "truth.csv").assign(trust=1.0)
    frame.loc[::4, "trust"] = 0.0
    frame.loc[::4, CLASSES] = 1
    frame.to_csv(data / "weighted.csv", index=False)
    frame[frame.trust > 0].drop(columns="trust").to_csv(data / "fewer.csv", index=False)
    table = pd.DataFrame(np.load(data / "x.npy"), columns=["x", "y", "z"])
    table.insert(0, "id", frame["id"])
    table.to_csv(data / "x.csv", index=False)
    settings = {"features": data / "x.csv", "zero": "absent", "report": False, "quiet": True}
    halftruth.fit(data / "weighted.csv", weight_column="trust", out=data / "a", **settings)
    halftruth.fit(data / "fewer.csv", out=data / "b", **settings)
    one, other = (read_outcome(data / name) for name in "ab")
    assert one == other
    inputs = {"features": data / "x.csv"}
    first = evaluate(data / "a", data / "weighted.csv", **inputs)[0]["mAP"]
    assert first == pytest.approx(evaluate(data / "b", data / "fewer.csv", **inputs)[0]["mAP"])


def test_validation_rows_without_weight_are_refused(data):
    frame = pd.read_csv(data / "truth.csv")
    frame.assign(w=(frame["split"] != "val") * 1.0).to_csv(data / "labels.csv", index=False)
    with pytest.raises(DataError, match="every weight of the 24 validation rows is 0"):
        halftruth.fit(
            data / "labels.csv", features=data / "x.npy", weight_column="w", out=data / "run",
            **SHORT,
        )  # fmt: skip


def test_a_verdict_on_a_label_of_weight_0_counts(data):
    """Also where no file of a joined item has the class."""
    labels = LabelMatrix([[1, -1], [0, 1]], ("a", "b"), ["r1", "r2"], weights=[[1, 1], [0, 1]])
    path = data / "verdicts.csv"
    path.write_text("row,item,class,verdict,by\n1,r2,a,present,me\n")
    found = apply_verdicts(labels, path).ignore_weightless()
    assert found.values.tolist() == [[1, -1], [1, 1]]
    assert found.weights.tolist() == [[1, 1], [1, 1]]


def test_complete_labels_of_weight_0_count(data):
    labels = LabelMatrix([[1, -1], [0, 1]], ("a", "b"), ["r1", "r2"], weights=[[1, 1], [0, 1]])
    (data / "complete.csv").write_text("id,a,b\nr2,1,1\n")
    found, _ = add_complete_rows(labels, data / "complete.csv")
    assert found.ignore_weightless().values.tolist() == [[1, -1], [1, 1]]
    # A list of rows says nothing about labels that do not count.
    (data / "rows.txt").write_text("r2\n")
    listed, _ = add_complete_rows(labels, data / "rows.txt")
    assert listed.ignore_weightless().values.tolist() == [[1, -1], [0, 1]]


def test_a_model_learns_the_probabilities_of_soft_labels(data):
    frame = pd.read_csv(data / "truth.csv")
    soft = frame.copy()
    soft[CLASSES] = np.where(frame[CLASSES] == 1, 0.6, 0.0)
    soft.to_csv(data / "soft.csv", index=False)
    out = data / "run"
    halftruth.fit(
        data / "soft.csv",
        features=data / "x.npy",
        soft=True,
        out=out,
        **{**SHORT, "epochs": 60, "select": "last", "ema": 0.0},
    )
    with torch.no_grad():
        logits = halftruth.load(out, device="cpu").model(torch.from_numpy(np.load(data / "x.npy")))
    # With hard labels the mean would be the share of present labels, near 0.4.
    expected = soft[CLASSES].mean().mean()
    assert float(torch.sigmoid(logits).mean()) == pytest.approx(expected, abs=0.04)
    assert expected < 0.3
    assert compute_map(out, data) > 0.9


def test_a_method_that_compares_labels_refuses_soft_ones(data):
    frame = pd.read_csv(data / "truth.csv")
    frame[CLASSES] = 0.2 + 0.6 * frame[CLASSES]
    frame.to_csv(data / "soft.csv", index=False)
    settings = {**SHORT, "method": "pr", "features": data / "x.npy", "out": data / "run"}
    with pytest.raises(DataError, match=r"--method\): PairwiseRanking compares the labels"):
        halftruth.fit(data / "soft.csv", soft=True, **settings)


def test_a_run_is_not_resumed_with_other_weights(data):
    frame = pd.read_csv(data / "truth.csv").assign(w=1.0)
    frame.to_csv(data / "labels.csv", index=False)
    settings = {**SHORT, "features": data / "x.npy", "zero": "absent", "out": data / "run"}
    halftruth.fit(data / "labels.csv", weight_column="w", **settings)
    frame.assign(w=np.arange(120) + 1).to_csv(data / "labels.csv", index=False)
    with pytest.raises(CheckpointError, match="belongs to another run"):
        halftruth.fit(
            data / "labels.csv", weight_column="w", resume=True, **{**settings, "epochs": 16}
        )


def test_training_rows_without_weight_are_refused(data):
    frame = pd.read_csv(data / "truth.csv")
    frame.assign(w=(frame["split"] != "train") * 1.0).to_csv(data / "labels.csv", index=False)
    with pytest.raises(DataError, match="every weight of the 72 training rows is 0"):
        halftruth.fit(
            data / "labels.csv",
            features=data / "x.npy",
            weight_column="w",
            out=data / "run",
            **SHORT,
        )


def test_auto_fits_its_ensemble_to_soft_labels(data):
    frame = pd.read_csv(data / "truth.csv")
    soft = frame.copy()
    # Most labels are below a half, and would be absent as hard labels.
    soft[CLASSES] = np.where(frame[CLASSES] == 1, 0.4, 0.05)
    soft.loc[::7, CLASSES] = 0.6
    soft.to_csv(data / "soft.csv", index=False)
    settings = {"device": "cpu", "report": False, "quiet": True}
    result = halftruth.fit(
        data / "soft.csv", features=data / "x.npy", soft=True, out=data / "run", **settings
    )
    assert {one["name"] for one in result.members} >= {"linear", "forest", "neighbours"}
    assert compute_map(data / "run", data) > 0.9


def test_joined_files_learn_each_class_from_its_own_file(data):
    """Rows that were not asked about class c look like rows with it: they must not be negatives."""
    frame = pd.read_csv(data / "truth.csv")
    frame["id"] = [f"r{k:03d}" for k in range(len(frame))]
    has_c = (frame["c"] == 1) & (np.arange(len(frame)) % 4 > 0) & (frame["split"] != "test")
    frame.loc[has_c, ["id", "split", "a", "b"]].to_csv(data / "one.csv", index=False)
    frame[~has_c].to_csv(data / "two.csv", index=False)
    table = pd.DataFrame(np.load(data / "x.npy"), columns=["f0", "f1", "f2"])
    table.insert(0, "id", frame["id"])
    table.to_parquet(data / "x.parquet")
    halftruth.fit(
        data / "one.csv", also=[str(data / "two.csv")], features=data / "x.parquet", zero="absent",
        out=data / "run", device="cpu", report=False, quiet=True,
    )  # fmt: skip
    rows = (frame["split"] == "test") & (frame["c"] == 1)
    found = halftruth.predict(data / "run", data / "x.parquet", raw=True)[rows.to_numpy()]
    assert found["c"].mean() > 0.75


def test_auto_uses_weights(data):
    frame = pd.read_csv(data / "truth.csv")
    wrong = (np.arange(len(frame)) % 3 != 0) & (frame["split"] == "train")
    frame.loc[wrong, CLASSES] = 1 - frame.loc[wrong, CLASSES]
    frame["trust"] = np.where(wrong, 0.0, 1.0)
    frame.to_csv(data / "labels.csv", index=False)
    settings = {**SHORT, "method": "auto", "features": data / "x.npy"}
    del settings["head_lr"], settings["epochs"]
    halftruth.fit(
        data / "labels.csv", zero="absent", weight_column="trust", out=data / "run", **settings
    )
    assert compute_map(data / "run", data) > 0.8
