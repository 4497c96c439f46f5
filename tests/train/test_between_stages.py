"""From the head alone to the whole network: fitted biases, and the mean of both weights."""

import pytest
import torch
from tiny_data import outcome, records

from halftruth import fit, losses
from halftruth.train.auto.resolve import choose_settings
from halftruth.train.config import ConfigError
from halftruth.train.plans.stages import SHARES, find_least_biases, mix_weights
from halftruth.train.results.trained_run import TrainedRun
from halftruth.train.run_folder import load_checkpoint
from halftruth.train.trainer import Trainer


@pytest.mark.parametrize("method", ["bce", "wan", "em", "swan", "asl", "hill"])
def test_no_class_has_a_gradient_after_its_bias_is_fitted(method):
    random = torch.Generator().manual_seed(0)
    logits = torch.randn(200, 4, generator=random)
    labels = (torch.rand(200, 4, generator=random) < torch.tensor([0.02, 0.1, 0.3, 0.6])).long()
    loss = losses.create(method)
    shift = find_least_biases(loss, logits, labels, torch.arange(200))
    before = loss.value_and_grad(logits, labels)[1].sum(dim=0).abs()
    after = loss.value_and_grad(logits + shift, labels)[1].sum(dim=0).abs()
    assert (after < 1e-3 * before.max()).all()


def test_a_class_without_a_label_gets_a_finite_bias():
    labels = torch.tensor([[1, 0], [0, 0], [1, 0]])
    shift = find_least_biases(losses.create("bce"), torch.zeros(3, 2), labels, torch.arange(3))
    assert shift[1] == -10


def test_the_network_starts_without_a_common_gradient_of_all_rows(on_images, tmp_path, monkeypatch):
    """With a low learning rate the biases of the head are far from their optimum."""
    found, run = {}, Trainer.run

    def recorded(self):
        rows = torch.as_tensor(self.train_rows)
        logits = self.score(self.train_rows)
        gradient = self.loss.value_and_grad(logits, self.labels[rows])[1]
        found[self.name] = gradient.sum(dim=0).abs().max().item()
        return run(self)

    monkeypatch.setattr(Trainer, "run", recorded)
    settings = {**on_images, "method": "swan", "head_lr": 1e-5}
    fit(**settings, tune="head-first", out=tmp_path / "run", quiet=True)
    assert found["all"] < 1e-2 * found["head"]


def test_a_mean_of_weights_keeps_integers_of_the_end():
    start = {"w": torch.tensor([0.0, 4.0]), "n": torch.tensor(3)}
    end = {"w": torch.tensor([4.0, 0.0]), "n": torch.tensor(8)}
    mixed = mix_weights(start, end, 0.25)
    assert mixed["w"].tolist() == [1.0, 3.0]
    assert mixed["n"] == 8


def train_with_scores(on_images, tmp_path, monkeypatch, scores):
    """Train with `select` averaged and given scores of the means; return (before, after, kept)."""
    seen, run, asked = {}, Trainer.run, iter(scores)

    def recorded(self):
        seen["start"] = {k: v.clone() for k, v in self.model.state_dict().items()}
        progress = run(self)
        seen["end"] = {k: v.clone() for k, v in self.learner.evaluated.state_dict().items()}
        return progress

    monkeypatch.setattr(Trainer, "run", recorded)
    monkeypatch.setattr(Trainer, "measure", lambda self, model: next(asked))
    settings = {**on_images, "method": "em", "select": "averaged", "lr": 3e-3, "head_lr": 1e-9}
    out = tmp_path / "run"
    result = fit(**settings, tune="head-first", out=out, quiet=True)
    return seen["start"], seen["end"], load_checkpoint(out / "best.safetensors"), result


@pytest.mark.parametrize("place", [0, 1, 2])
def test_the_mean_of_weights_with_the_best_score_is_kept(place, on_images, tmp_path, monkeypatch):
    scores = [2.0, 2.0, 2.0]
    scores[place] = 3.0
    start, end, best, result = train_with_scores(on_images, tmp_path, monkeypatch, scores)
    if best["stage"] == "head":
        pytest.fail("the second stage must be better for this test")
    expected = mix_weights(start, end, SHARES[place])
    for name, tensor in expected.items():
        assert torch.allclose(best["model"][name].float(), tensor.float(), atol=1e-6), name
    assert (best["share"], result.best_score) == (SHARES[place], 3.0)


def test_the_trained_weights_are_kept_if_no_mean_is_better(on_images, tmp_path, monkeypatch):
    _, end, best, result = train_with_scores(on_images, tmp_path, monkeypatch, [-1.0] * 3)
    assert best["share"] == 1
    assert all(torch.equal(best["model"][name], tensor) for name, tensor in end.items())
    assert result.best_score == records(tmp_path / "run")[-1]["select"]


def test_a_finished_run_that_is_resumed_is_not_averaged_again(on_images, tmp_path, monkeypatch):
    _, _, best, _ = train_with_scores(on_images, tmp_path, monkeypatch, [3.0, 2.0, 2.0])
    before = outcome(tmp_path / "run")
    fit(out=tmp_path / "run", labels=on_images["labels"], resume=True, quiet=True)
    again = load_checkpoint(tmp_path / "run" / "best.safetensors")
    assert all(torch.equal(best["model"][k], again["model"][k]) for k in best["model"])
    assert outcome(tmp_path / "run") == before


def test_means_of_weights_need_both_stages(on_images, tmp_path):
    settings = {k: v for k, v in on_images.items() if k not in ("head_epochs", "head_lr")}
    with pytest.raises(ConfigError, match="head-first"):
        fit(**settings, method="em", tune="all", select="averaged", out=tmp_path / "run")


def train_with_frozen(on_images, out, monkeypatch, score):
    """Train with `quality` best and a given score of the average."""
    monkeypatch.setattr(Trainer, "measure", lambda self, model: score)
    settings = {**on_images, "method": "em", "select": "last", "head_lr": 1e-9, "lr": 3e-3}
    fit(**settings, tune="head-first", quality="best", out=out, quiet=True)
    return load_checkpoint(out / "best.safetensors")


def test_predictions_are_the_mean_of_the_network_and_the_frozen_ensemble(
    on_images, tmp_path, monkeypatch
):
    best = train_with_frozen(on_images, tmp_path / "run", monkeypatch, 3.0)
    assert outcome(tmp_path / "run")["best_score"] == 3.0
    model = TrainedRun(tmp_path / "run", device="cpu").model
    x = torch.rand(5, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        z = [
            (head(backbone(x)) - mean) / std
            for head, backbone, mean, std in zip(
                model.head.heads,
                (model.backbone.first, model.backbone.second),
                model.head.mean,
                model.head.std,
                strict=True,
            )
        ]
        expected = model.head.mean[0] + model.head.std[0] * (z[0] + z[1]) / 2
        assert torch.allclose(model(x), expected, atol=1e-5)
    trained = best["model"]["backbone.first.conv_stem.weight"]
    frozen = best["model"]["backbone.second.conv_stem.weight"]
    assert not torch.equal(trained, frozen)
    fit(out=tmp_path / "run", labels=on_images["labels"], resume=True, quiet=True)
    again = load_checkpoint(tmp_path / "run" / "best.safetensors")["model"]
    assert all(torch.equal(value, again[name]) for name, value in best["model"].items())


def test_the_network_alone_is_kept_if_the_frozen_ensemble_does_not_help(
    on_images, tmp_path, monkeypatch
):
    best = train_with_frozen(on_images, tmp_path / "run", monkeypatch, -1.0)
    assert "layout" not in best
    assert len(TrainedRun(tmp_path / "run", device="cpu").score(on_images["images"]).items) == 44


def test_auto_averages_weights_of_a_network():
    assert (
        choose_settings(torch.eye(4, dtype=torch.int8).numpy(), 8).settings["select"] == "averaged"
    )
