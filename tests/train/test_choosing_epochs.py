"""Which epoch is kept, with and without complete labels, and after resuming a run."""

import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from halftruth import fit
from halftruth.metrics import mean_average_precision, mean_roc_auc
from halftruth.train.results.run_result import Result
from halftruth.train.results.trained_run import TrainedRun
from halftruth.train.run_folder import load_checkpoint

LONG = {"epochs": 12, "head_lr": 0.2}


@pytest.fixture
def on_features(on_features):
    """Settings with a method that tries no alternatives."""
    return {**on_features, "method": "wan"}


def records(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").open()]


def test_incomplete_labels_are_compared_by_map_and_auc(on_features, data, tmp_path):
    result = fit(**on_features | LONG, out=tmp_path, quiet=True)
    series = [record["val_both_observed"] for record in records(tmp_path)]
    assert result.criterion == "val_both_observed"
    assert (result.best_epoch, result.best_score) == (1 + int(np.argmax(series)), max(series))
    table = pd.read_csv(data / "labels.csv")
    rows = np.flatnonzero(table["split"] == "val")
    run = TrainedRun(tmp_path)
    scores = run.score(features=np.load(data / "features.npy")[rows]).probabilities
    observed = table[list(run.classes)].to_numpy()[rows]
    by_hand = mean_average_precision(scores, observed) * mean_roc_auc(scores, observed)
    assert by_hand**0.5 == pytest.approx(max(series), abs=1e-9)


def test_complete_labels_are_compared_by_map(on_features, tmp_path):
    result = fit(**on_features, zero="absent", out=tmp_path, quiet=True)
    assert result.criterion == "val_mAP_observed"
    assert result.best_score == max(record["val_mAP_observed"] for record in records(tmp_path))


def test_select_last_keeps_the_last_epoch(on_features, tmp_path):
    # With this learning rate the last epoch is worse than others.
    settings = on_features | LONG | {"head_lr": 3.0}
    result = fit(**settings, select="last", out=tmp_path, quiet=True)
    series = [record["select"] for record in records(tmp_path)]
    assert len(series) == 12
    assert max(series) > series[-1] == result.best_score
    assert result.best_epoch == 12
    kept, last = (load_checkpoint(tmp_path / f"{name}.safetensors") for name in ("best", "last"))
    for name, weights in kept["model"].items():
        assert torch.equal(weights, last["ema"]["module." + name])


def test_patience_stops_a_run_with_select_last(on_features, tmp_path):
    settings = on_features | {"epochs": 40, "head_lr": 0.3, "patience": 3, "select": "last"}
    result = fit(**settings, out=tmp_path, quiet=True)
    series = [record["select"] for record in records(tmp_path)]
    assert len(series) == int(np.argmax(series)) + 1 + 3 < 40
    assert (result.best_epoch, result.best_score) == (len(series), series[-1])


def test_scores_of_two_criteria_are_not_compared_after_a_resume(on_features, data, tmp_path):
    truth = str(data / "truth.csv")
    short = on_features | {"epochs": 2, "schedule": "constant", "truth": truth}
    before = fit(**short, out=tmp_path, quiet=True)
    more = {**short, "epochs": 5, "select": "observed"}
    after = fit(**more, out=tmp_path, resume=True, quiet=True)
    series = [record["val_mAP_observed"] for record in records(tmp_path)]
    assert before.best_score > max(series)
    assert after.best_epoch == 3 + int(np.argmax(series[2:]))
    assert after.best_score == max(series[2:])


def test_a_resumed_run_chooses_the_same_epoch(on_features, tmp_path):
    whole = fit(**on_features | LONG, out=tmp_path / "whole", quiet=True)
    part = on_features | LONG | {"schedule": "constant"}
    fit(**part | {"epochs": 5}, out=tmp_path / "parts", quiet=True)
    parts = fit(**part, out=tmp_path / "parts", resume=True, quiet=True)
    alone = fit(**part, out=tmp_path / "alone", quiet=True)
    assert whole.criterion == parts.criterion == "val_both_observed"
    assert (parts.best_epoch, parts.best_score) == (alone.best_epoch, alone.best_score)


def test_the_last_epoch_is_kept_and_one_message_shown_where_the_criterion_is_undefined(
    tmp_path, capsys, recwarn
):
    """Every validation row has the only class, so AUC is not defined."""
    rows = [("train", 1), ("train", 0)] * 8 + [("val", 1)] * 4
    table = pd.DataFrame({"split": [s for s, _ in rows], "cat": [y for _, y in rows]})
    table.to_csv(tmp_path / "labels.csv", index=False)
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(20, 3)))
    given = {"features": str(tmp_path / "x.npy"), "epochs": 2, "device": "cpu"}
    given |= {"method": "wan", "select": "auc"}
    result = fit(tmp_path / "labels.csv", **given, out=tmp_path / "run")
    assert result.best_epoch == 2
    message = "not defined: validation AUC on the observed labels. No class of the"
    assert capsys.readouterr().err.count(message) == 1
    assert not [warning for warning in recwarn if "No class" in str(warning.message)]


def test_rows_without_a_present_label_are_not_measured():
    scores = {"mAP": math.nan, "CF1": 0.0, "OF1": 0.0}
    result = Result(Path("run"), "em", ("a",), "all", 3, [0.5], test=scores)
    assert "test: not measured, no label of these rows is present" in result.describe()
    assert "0.00" not in result.describe()
