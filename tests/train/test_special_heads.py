"""Heads other than the linear one: training, resuming, prediction."""

import pytest
import torch
from tiny_data import assert_same_run, records, with_tune

from halftruth import fit
from halftruth.train import ConfigError
from halftruth.train.results.trained_run import TrainedRun
from halftruth.train.run_folder import load_checkpoint
from halftruth.train.step import Learner
from halftruth.train.trainer import Trainer


class Crash(BaseException):
    """Ends a run like a crash."""


@pytest.fixture
def crash_in_the_second_epoch(monkeypatch):
    step = Trainer._step

    def crashing(self, raw, rows):
        if (self.progress.epoch, self.progress.step) == (1, 3):
            raise Crash
        return step(self, raw, rows)

    def run(settings, out):
        with monkeypatch.context() as patch:
            patch.setattr(Trainer, "_step", crashing)
            with pytest.raises(Crash):
                fit(**settings, out=out, quiet=True)

    return run


@pytest.mark.parametrize("inputs", ["features", "images"])
def test_mime_with_the_variational_head_resumes_exactly(
    on_features, on_images, tmp_path, crash_in_the_second_epoch, inputs
):
    """The random codes of a step are the same after a resume."""
    settings = {**on_features} if inputs == "features" else {**with_tune(on_images, "all")}
    settings |= {"head": "variational", "method": "mime", "options": {"warmup": 1, "theta": 0.5}}
    settings |= {"checkpoint_every": 2, "epochs": 3}
    fit(**settings, out=tmp_path / "whole", quiet=True)
    crash_in_the_second_epoch(settings, tmp_path / "crashed")
    fit(out=tmp_path / "crashed", resume=True, quiet=True)
    assert_same_run(tmp_path / "whole", tmp_path / "crashed")
    given = {k: on_images[k] for k in ("images",)} if inputs == "images" else {}
    given = given or {"features": on_features["features"]}
    scores = [TrainedRun(tmp_path / "whole", device="cpu").score(**given) for _ in range(2)]
    assert (scores[0].probabilities == scores[1].probabilities).all()


def test_spatial_consistency_resumes_exactly(on_images, tmp_path, crash_in_the_second_epoch):
    settings = {**with_tune(on_images, "all"), "head": "cam", "method": "scl"}
    settings |= {"options": {"base": "wan", "side": 3}, "checkpoint_every": 2, "epochs": 3}
    fit(**settings, out=tmp_path / "whole", quiet=True)
    crash_in_the_second_epoch(settings, tmp_path / "crashed")
    fit(out=tmp_path / "crashed", resume=True, quiet=True)
    assert_same_run(tmp_path / "whole", tmp_path / "crashed")
    maps = load_checkpoint(tmp_path / "whole" / "last.safetensors")["loss"]["memory.values"]
    assert maps.shape == (27, 3, 3, 3)
    assert (maps > 0).float().mean() > 0.9


def test_with_several_views_the_maps_of_the_whole_image_are_stored(on_images, tmp_path):
    settings = with_tune(on_images, "all") | {"epochs": 1}
    settings |= {"head": "cam", "method": "consistency"}
    settings |= {"options": {"base": {"name": "scl", "side": 3}}}
    fit(**settings, out=tmp_path / "run", quiet=True)
    kept = load_checkpoint(tmp_path / "run" / "last.safetensors")["loss"]["base.memory.values"]
    assert kept.shape == (27, 3, 3, 3)
    assert (kept > 0).all(), "the whole image is covered"


def test_the_penalty_of_a_head_is_part_of_the_loss(on_features, tmp_path, monkeypatch):
    seen = []
    original = Learner._loss

    def recorded(self, logits, labels, index, weight, boxes):
        value = original(self, logits, labels, index, weight, boxes)
        alone = self.loss(logits, labels, index=index)
        seen.append((value.item(), alone.item(), self.model.head.penalty.item()))
        return value

    monkeypatch.setattr(Learner, "_loss", recorded)
    fit(**{**on_features, "epochs": 1}, head="variational", out=tmp_path / "run", quiet=True)
    for value, alone, penalty in seen:
        assert penalty > 0
        assert value == pytest.approx(alone + penalty, rel=1e-6)


def test_the_label_query_head_trains(on_images, data, tmp_path):
    settings = {**with_tune(on_images, "all"), "head": "label-query", "epochs": 3}
    settings |= {"truth": str(data / "truth.csv"), "reading_truth": {"zero": "absent"}}
    fit(**settings, out=tmp_path / "run", quiet=True)
    losses = [record["loss"] for record in records(tmp_path / "run")]
    assert losses[-1] < losses[0]
    weights = TrainedRun(tmp_path / "run", device="cpu").model.state_dict()
    assert all(torch.isfinite(tensor.float()).all() for tensor in weights.values())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"head": "label-query"}, "head: 'label-query' needs feature maps, which only images"),
        ({"head": "boostlu"}, "head: 'boostlu' needs feature maps"),
        ({"method": "scl"}, "method: scl needs class maps"),
        (
            {"head": "queries"},
            "expected one of boostlu, cam, label-query, linear, variational",
        ),
    ],
)
def test_heads_that_do_not_fit_the_inputs_are_refused(on_features, tmp_path, change, message):
    with pytest.raises(ConfigError, match=message):
        fit(**{**on_features, **change}, out=tmp_path / "run", quiet=True)
