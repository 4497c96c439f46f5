"""The head on extracted features, then the whole network: LinearInit."""

import os

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_data import outcome, records, with_tune

from halftruth import fit
from halftruth.train import scoring
from halftruth.train.results.trained_run import TrainedRun
from halftruth.train.run_folder import load_checkpoint
from halftruth.train.trainer import Trainer


@pytest.fixture
def extractions(monkeypatch):
    """The number of rows of each extraction."""
    seen = []
    original = scoring.score_rows

    def counted(forward, inputs, rows, *more):
        seen.append(len(rows))
        return original(forward, inputs, rows, *more)

    monkeypatch.setattr(scoring, "score_rows", counted)
    return seen


def test_the_head_scores_the_same_on_features_and_on_the_backbone(on_images, tmp_path, extractions):
    result = fit(**with_tune(on_images, "head"), out=tmp_path / "run", quiet=True)
    assert result.best_stage == "head"
    assert extractions == [44]
    run = TrainedRun(tmp_path / "run", device="cpu")
    scores = run.score(images=on_images["images"])
    small = load_checkpoint(tmp_path / "run" / "head.safetensors")["model"]
    features = np.load(next((tmp_path / "run" / "cache").glob("features-*.npy")))
    rows = [int(name[1:-4]) for name in scores.items]
    z = (torch.from_numpy(features)[rows] - small["backbone.0.mean"]) / small["backbone.0.std"]
    logits = (z @ small["head.linear.weight"].T + small["head.linear.bias"]).double().numpy()
    offset, slope = run.curves
    expected = 1 / (1 + np.exp(-offset - slope * logits))
    assert scores.probabilities == pytest.approx(expected, abs=1e-5)


def test_the_second_stage_starts_from_the_best_head(on_images, tmp_path, monkeypatch):
    """The first weights of the second stage are those of the best head."""
    starts = {}
    run = Trainer.run

    def recorded(self):
        starts[self.name] = {k: v.clone() for k, v in self.model.state_dict().items()}
        return run(self)

    monkeypatch.setattr(Trainer, "run", recorded)
    settings = {**on_images, "method": "em", "lr": 1e-12, "head_epochs": 3}
    settings["schedule"] = "constant"
    fit(**settings, tune="head-first", out=tmp_path / "both", quiet=True)
    fit(**with_tune(settings, "head"), out=tmp_path / "head", quiet=True)
    alone = load_checkpoint(tmp_path / "head" / "best.safetensors")["model"]
    for name, tensor in starts["all"].items():
        assert torch.equal(tensor, alone[name]), name


@pytest.mark.parametrize(
    "method",
    [
        {"method": "role", "options": {"expected_positives": 1.5}},
        {"method": "role", "options": {"expected_positives": 1.5, "light": True}},
        {
            "method": "class-balanced",
            "options": {"base": {"name": "role", "expected_positives": 1.5}},
        },
    ],
    ids=str,
)
def test_role_continues_with_the_estimates_of_the_best_head(
    on_images, tmp_path, monkeypatch, method
):
    """LinearInit: the estimates of the kept epoch, not of the last epoch."""
    tables, run, end = {}, Trainer.run, Trainer._end_epoch_of_loss

    def table(stage):
        return stage.loss.innermost.estimates().clone()

    def recorded_run(self):
        tables[self.name, "start"] = table(self)
        return run(self)

    def recorded_end(self):
        end(self)
        tables[self.name, self.progress.epoch] = table(self)

    monkeypatch.setattr(Trainer, "run", recorded_run)
    monkeypatch.setattr(Trainer, "_end_epoch_of_loss", recorded_end)
    settings = {**on_images, **method, "head_epochs": 4, "head_lr": 0.1, "epochs": 1}
    fit(**settings, tune="head-first", out=tmp_path / "run", quiet=True)
    chosen = load_checkpoint(tmp_path / "run" / "head.safetensors")["epoch"]
    start = tables["all", "start"]
    close = [
        epoch
        for epoch in ("start", 0, 1, 2, 3)
        if torch.allclose(start, tables["head", epoch], rtol=0, atol=1e-3)
    ]
    assert close == [chosen]


@pytest.mark.parametrize(("select", "of"), [("auto", max), ("last", lambda scores: scores[-1])])
def test_the_better_of_both_stages_is_kept(select, of, on_images, data, tmp_path):
    """With a learning rate that destroys the backbone, the head alone is kept."""
    settings = {**on_images, "method": "bce", "lr": 100.0, "optimizer": "sgd", "clip": 1.0}
    settings |= {"truth": str(data / "truth.csv"), "head_epochs": 4, "ema": 0.0, "head_lr": 0.1}
    result = fit(**settings, select=select, tune="head-first", out=tmp_path / "run", quiet=True)
    by_stage = {
        name: of([r["select"] for r in records(tmp_path / "run") if r["stage"] == name])
        for name in ("head", "all")
    }
    assert by_stage["head"] > by_stage["all"]
    assert result.best_stage == "head"
    assert result.best_score == by_stage["head"]
    if select == "auto":
        assert result.val["mAP"] == pytest.approx(by_stage["head"])


def test_the_last_epoch_of_the_second_stage_is_kept_if_it_is_better(on_images, data, tmp_path):
    settings = {**on_images, "method": "bce", "head_lr": 1e-9, "lr": 3e-3, "epochs": 4}
    settings |= {"truth": str(data / "truth.csv"), "ema": 0.0, "select": "last"}
    result = fit(**settings, tune="head-first", out=tmp_path / "run", quiet=True)
    scores = [(r["stage"], r["select"]) for r in records(tmp_path / "run")]
    assert scores[-1][1] > scores[1][1]
    assert (result.best_stage, result.best_epoch) == ("all", 4)
    assert result.best_score == scores[-1][1]


def test_tune_all_and_tune_head_have_one_stage(on_images, tmp_path):
    for tune, stages in (("all", {"all"}), ("head", {"head"})):
        fit(**with_tune(on_images, tune), out=tmp_path / tune, quiet=True)
        assert {record["stage"] for record in records(tmp_path / tune)} == stages
        assert outcome(tmp_path / tune)["best_stage"] == tune


def test_features_are_extracted_once_for_all_runs(on_images, tmp_path, extractions):
    settings = {**with_tune(on_images, "head"), "cache_dir": str(tmp_path / "cache")}
    fit(**settings, out=tmp_path / "one", quiet=True)
    fit(**settings, out=tmp_path / "two", quiet=True)
    assert extractions == [44]
    assert records(tmp_path / "one") == records(tmp_path / "two")
    fit(**{**settings, "image_size": 40}, out=tmp_path / "larger", quiet=True)
    fit(**{**settings, "seed": 1}, out=tmp_path / "other weights", quiet=True)
    fit(**{**settings, "backbone": "test_resnet"}, out=tmp_path / "other model", quiet=True)
    assert extractions == [44] * 4


def test_a_changed_image_is_read_and_extracted_again(on_images, tmp_path, extractions):
    photos = tmp_path / "photos"
    photos.mkdir()
    for name in os.listdir(on_images["images"]):
        (photos / name).write_bytes((tmp_path / on_images["images"] / name).read_bytes())
    settings = {**with_tune(on_images, "head"), "images": str(photos), "cache": "disk"}
    settings |= {"cache_dir": str(tmp_path / "cache")}
    fit(**settings, out=tmp_path / "one", quiet=True)
    facts = (photos / "p0.png").stat()
    Image.new("RGB", (32, 32), (255, 255, 255)).save(photos / "p0.png")
    # Older than the others, like a copied file.
    os.utime(photos / "p0.png", ns=(facts.st_atime_ns, facts.st_mtime_ns - 10**12))
    fit(**settings, out=tmp_path / "two", quiet=True)
    assert extractions == [44, 44]
    one, two = (np.load(path) for path in sorted((tmp_path / "cache").glob("features-*.npy")))
    assert (one != two).any(axis=1).nonzero()[0].tolist() == [0]
