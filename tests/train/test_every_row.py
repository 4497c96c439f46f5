"""An ensemble is fitted to every row, and its scores are out of sample."""

import json

import numpy as np
import pandas as pd
import pytest
from tiny_data import CLASSES, IMAGES, command

import halftruth
from halftruth import fit
from halftruth.audit.make_audit import make_audit
from halftruth.data import DataError
from halftruth.labels import LabelMatrix
from halftruth.plots.run_figures import draw_runs
from halftruth.presence.propensity import LabelBias
from halftruth.train.auto.plan import choose_val, share_of_many
from halftruth.train.config import Config, ConfigError
from halftruth.train.ensemble import fit_ensemble as module
from halftruth.train.plans import choose
from halftruth.train.results.evaluate import evaluate
from halftruth.train.run_folder import load_checkpoint
from halftruth.train.settings import DEFAULTS_ON_FEATURES

QUIET = {"device": "cpu", "report": False, "quiet": True}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Members that are fitted within milliseconds."""
    monkeypatch.setattr(module, "MEMBERS", ("linear", "neighbours"))


@pytest.fixture
def files(data, tmp_path):
    """The label file without its split column, and its settings."""
    table = pd.read_csv(data / "labels.csv").drop(columns="split")
    table.to_csv(tmp_path / "l.csv", index=False)
    # Features that explain the labels.
    features = np.load(data / "features.npy")
    features[:, : len(CLASSES)] += 1.5 * (table[list(CLASSES)].to_numpy() > 0)
    np.save(tmp_path / "x.npy", features)
    return {"labels": tmp_path / "l.csv", "features": tmp_path / "x.npy", **QUIET}


def fitted_rows(folder):
    return load_checkpoint(folder / "best.safetensors")["out_of_sample"]["rows"].numpy()


def test_all_rows_are_fitted_and_every_output_stands_on_out_of_sample_rows(files, tmp_path):
    out = tmp_path / "run"
    result = fit(**files | {"report": True}, out=out)
    np.testing.assert_array_equal(fitted_rows(out), np.arange(44))
    assert result.basis == {"out_of_sample": "estimated"}
    assert (result.val, result.get_observed("val")) == ({}, {})
    observed = result.get_observed("out_of_sample")
    assert result.criterion == "out_of_sample_mAP"
    assert 0 < result.best_score == observed["mAP"] <= 1
    record = json.loads((out / "metrics.jsonl").read_text())
    assert record["out_of_sample_mAP"] == result.best_score
    table = pd.read_csv(out / "classes.csv")
    assert table["out_of_sample_present"].tolist() == table["train_present"].tolist()
    assert table.notna().all(axis=None)
    assert not [name for name in table if name.startswith("val_")]
    page = (out / "report.html").read_text()
    assert "AP, out of sample" in page
    assert "unknown labels of the out-of-sample rows" in page
    assert "validation" not in page
    drawings, _ = draw_runs([out])
    assert [one.name for one in drawings] == ["class-distributions", "classes"]


def test_complete_labels_are_measured_out_of_sample(files, data, tmp_path):
    result = fit(**files, out=tmp_path / "run", truth=data / "truth.csv")
    assert result.basis == {"out_of_sample": "on complete labels"}
    assert "out-of-sample (on complete labels): mAP" in result.describe()
    assert 0.5 < result.out_of_sample["mAP"] < 1


@pytest.mark.parametrize("val", [0.25, 0])
def test_rows_are_held_out_where_they_are_asked_for(files, tmp_path, val):
    result = fit(**files, out=tmp_path / "run", val=val)
    assert len(fitted_rows(tmp_path / "run")) == 44 * (1 - val)
    assert set(result.basis) == ({"val"} if val else {"out_of_sample"})


def test_named_validation_rows_are_not_fitted(files, data, tmp_path):
    result = fit(**files | {"labels": data / "labels.csv"}, out=tmp_path / "run")
    parts = pd.read_csv(data / "labels.csv")["split"]
    np.testing.assert_array_equal(fitted_rows(tmp_path / "run"), np.flatnonzero(parts == "train"))
    assert set(result.basis) == {"val", "test"}


def test_named_validation_rows_need_no_label(files, data, tmp_path):
    table = pd.read_csv(data / "labels.csv")
    table.loc[table["split"] == "val", list(CLASSES)] = 0
    table.to_csv(tmp_path / "some.csv", index=False)
    files["labels"] = tmp_path / "some.csv"
    result = fit(**files, out=tmp_path / "run")
    assert set(result.basis) == {"out_of_sample", "test"}
    with pytest.raises(DataError, match="no label of the 9 validation rows is present"):
        fit(**files, out=tmp_path / "other", method="em")


@pytest.mark.parametrize(
    "settings",
    [{"features": ["x"], "method": "em"}, {"images": ["x"]}],
)
def test_no_validation_rows_are_refused_for_training_by_epochs(settings):
    with pytest.raises(ConfigError, match="val: expected more than 0 for a model that is trained"):
        Config.of({"labels": "l", "weights": "none", "val": 0, **settings})


def test_the_share_of_validation_rows_follows_from_what_is_trained():
    few, many = (
        LabelMatrix(np.zeros((9, k), np.int8), [f"c{n}" for n in range(k)]) for k in (3, 1001)
    )
    usual = {**DEFAULTS_ON_FEATURES, "features": ["x"]}
    on_features, on_images = Config(**usual), Config(images=["x"], tune="head")
    assert choose_val(on_features, few) == choose_val(on_images, few) == 0
    assert choose_val(on_features, many) == share_of_many(9) == 0.1
    assert choose_val(Config(**usual, method="em"), few) == 0.2
    assert choose_val(Config(images=["x"]), few) == 0.2
    large = LabelMatrix(np.zeros((50_000, 1), np.int8), ["c"])
    assert choose_val(Config(images=["x"]), large) == 0.1
    assert choose_val(Config(**usual, val=0.3), few) == 0.3
    assert [share_of_many(rows) for rows in (100_000, 1_000_000)] == [0.05, 0.02]


def test_a_resumed_run_keeps_its_rows(files, tmp_path):
    fit(**files, out=tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    again = fit(out=tmp_path / "run", resume=True, quiet=True)
    assert again.basis == {"out_of_sample": "estimated"}


# ---------------------------------------------------------------------- scores of training rows


def test_training_rows_are_evaluated_out_of_sample(files, data, tmp_path, capsys):
    fit(**files, out=tmp_path / "run")
    run = halftruth.load(tmp_path / "run", device="cpu")
    found = evaluate(
        run, data / "truth.csv", features=files["features"], reading={"zero": "absent"}
    )
    offset, slope = run.curves
    p = 1 / (1 + np.exp(-(offset + slope * run.held_out.logits)))
    truth = pd.read_csv(data / "truth.csv")[list(CLASSES)].to_numpy()
    expected = halftruth.metrics.mean_average_precision(p, truth)
    assert found.metrics["mAP"] == pytest.approx(expected, abs=1e-9)
    assert found.out_of_sample == 44
    own = run.score(features=files["features"]).probabilities
    assert halftruth.metrics.mean_average_precision(own, truth) != pytest.approx(expected, abs=1e-3)
    features = "--features", files["features"], "--device", "cpu"
    assert command("evaluate", tmp_path / "run", files["labels"], *features) == 0
    assert "44 rows are training rows: their scores are out of sample" in capsys.readouterr().out


def test_other_features_are_scored_by_the_model(files, tmp_path):
    fit(**files, out=tmp_path / "run")
    np.save(tmp_path / "turned.npy", np.load(files["features"])[::-1])
    run = halftruth.load(tmp_path / "run", device="cpu")
    found = evaluate(run, files["labels"], features=tmp_path / "turned.npy", unknown="absent")
    assert found.out_of_sample == 0


def test_an_audit_of_an_ensemble_is_out_of_sample(files, tmp_path):
    fit(**files, out=tmp_path / "run")
    said = []
    audit = make_audit(tmp_path / "run", files["labels"], out=tmp_path / "a", log=said.append)
    assert not [line for line in said if "TRAINING ROWS" in line]
    assert audit.info["origin"] == "run run, out-of-sample"
    run = halftruth.load(tmp_path / "run", device="cpu")
    offset, slope = run.curves
    expected = 1 / (1 + np.exp(-(offset + slope * run.held_out.logits)))
    np.testing.assert_allclose(audit.scored.scores, expected, atol=1e-6)


def test_folds_of_an_audit_hold_nothing_out_for_an_ensemble(files, tmp_path):
    make_audit(
        files["labels"], features=files["features"], folds=2, device="cpu", out=tmp_path / "a"
    )
    folder = tmp_path / "a" / "folds" / "fold0"
    assert len(fitted_rows(folder)) == 22
    make_audit(
        files["labels"], features=files["features"], folds=2, device="cpu", out=tmp_path / "b",
        method="em", epochs=20, head_lr=0.05,
    )  # fmt: skip
    parts = pd.read_parquet(tmp_path / "b" / "folds" / "fold0.parquet")["split"]
    assert parts.value_counts().to_dict() == {"test": 22, "train": 20, "val": 2}


# ---------------------------------------------------------------------- images, few rows


@pytest.mark.parametrize("tune", ["head", "head-first"])
def test_frozen_features_of_images_use_every_row(files, data, tmp_path, monkeypatch, tune):
    """With `head-first` the labels look biased, which leads to the same ensemble."""
    found = LabelBias(z=5.0, gain=0.1, rows=900)
    monkeypatch.setattr(choose, "find_frequency_bias", lambda *_: found)
    monkeypatch.setattr(choose, "shows_one", lambda labels: True)
    settings = {key: value for key, value in IMAGES.items() if key != "batch_size"}
    result = fit(
        files["labels"], data / "photos", **settings | QUIET, tune=tune, out=tmp_path / "run"
    )
    np.testing.assert_array_equal(fitted_rows(tmp_path / "run"), np.arange(44))
    assert result.basis == {"out_of_sample": "estimated"}
    run = halftruth.load(tmp_path / "run", device="cpu")
    evaluation = evaluate(run, files["labels"], images=data / "photos")
    assert evaluation.out_of_sample == 44
    assert evaluate(run, files["labels"], images=data / "photos", split="train").out_of_sample == 44


@pytest.mark.parametrize("rows", [2, 3, 12])
def test_few_rows_are_scored_by_layers_that_were_not_fitted_to_them(rows):
    random = np.random.default_rng(0)
    labels = (random.random((rows, 2)) < 0.5).astype(np.int8)
    labels[0] = 1
    x = random.normal(size=(rows, 30)).astype(np.float32)
    found = module.fit_ensemble(x, labels)
    own = found.model(module.torch.from_numpy(x)).numpy()
    assert found.rows.tolist() == list(range(rows))
    # 30 features of noise tell these labels apart in sample, and cannot out of sample.
    assert np.abs(own - found.logits).min() > 1e-3
