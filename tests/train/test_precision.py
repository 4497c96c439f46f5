"""Half precision is for training steps only: scores are float32."""

import functools
import signal

import numpy as np
import pytest
import torch
from accelerate.state import PartialState

from halftruth import fit, losses
from halftruth.models import build_feature_model, build_image_model
from halftruth.train import devices
from halftruth.train.config import Config, ConfigError
from halftruth.train.devices import make_accelerator, runs_bfloat16_on_cpu
from halftruth.train.inputs.batches import Features
from halftruth.train.results.trained_run import TrainedRun
from halftruth.train.scoring import score_rows
from halftruth.train.step import Learner


@pytest.fixture
def bfloat16():
    """Skip a test that would end the process."""
    if not runs_bfloat16_on_cpu():
        pytest.skip("PyTorch ends the process when it computes in bfloat16 on this CPU")


IMAGES = torch.randn(4, 3, 64, 64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("average", [0.0, 0.9])
def test_scores_are_float32_while_training_is_bfloat16(average, bfloat16):
    config = Config(device="cpu", precision="bf16", ema=average)
    accelerator = make_accelerator(config)
    torch.manual_seed(0)
    model = build_image_model("resnet18", 3, weights="none", image_size=64)
    learner = Learner(model, losses.create("wan"), accelerator, config, 1e-3, 1e-2)
    labels = torch.tensor([[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]], dtype=torch.int8)
    learner.step(IMAGES, labels, torch.arange(4), 1.0, rate=1.0)
    kept = learner.evaluated.eval()
    scores = score_rows(kept, Features(IMAGES), range(4), accelerator, 4)
    with torch.no_grad():
        expected = type(kept).forward(kept, IMAGES)
        with accelerator.autocast():
            rounded = type(kept).forward(kept, IMAGES)
    assert torch.equal(scores, expected)
    assert not torch.equal(rounded, expected)


def test_a_bfloat16_run_predicts_in_float32(on_features, tmp_path, bfloat16):
    fit(**on_features, precision="bf16", out=tmp_path / "run", quiet=True)
    run = TrainedRun(tmp_path / "run", device="cpu")
    assert run.config.precision == "bf16"
    features = np.load(on_features["features"])
    with torch.no_grad():
        expected = torch.sigmoid(run.model(torch.as_tensor(features).float()).double())
    # One product over 44 rows and products over batches of 12 may be added up in another order:
    # a few roundings of float32 (6e-8 each). bfloat16 would differ by 4e-3.
    found = run.score(features=features).raw
    assert found == pytest.approx(expected.numpy(), rel=0, abs=1e-6)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        rounded = torch.sigmoid(run.model(torch.as_tensor(features).bfloat16()).double())
    assert abs(rounded.numpy() - expected.numpy()).max() > 1e-5


def test_logits_are_not_rounded_within_autocast(bfloat16):
    model = build_feature_model(8, 3).eval()
    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        logits = model(x)
    assert logits.dtype == torch.float32
    assert not torch.equal(logits, logits.bfloat16().float())


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="Windows has no such signals")
def test_bfloat16_is_refused_where_it_ends_the_process(monkeypatch, on_features, tmp_path):
    """Tried once, and only where it is about to be used on a CPU."""
    tries = tmp_path / "tries"
    trial = f"""
import os, signal
print("tried", file=open({str(tries)!r}, "a"))
os.kill(os.getpid(), signal.SIGILL)
"""
    monkeypatch.setattr(devices, "_BFLOAT16", trial)
    fresh = functools.cache(devices.runs_bfloat16_on_cpu.__wrapped__)
    monkeypatch.setattr(devices, "runs_bfloat16_on_cpu", fresh)
    make_accelerator(Config(device="cpu"))
    assert not tries.exists()
    for _ in range(2):
        with pytest.raises(ConfigError, match="bf16 ends the process on this CPU") as error:
            fit(**on_features, precision="bf16", out=tmp_path / "run")
    assert "--precision: bf16" in error.value.as_options()
    assert tries.read_text() == "tried\n"
    assert not (tmp_path / "run").exists()


def test_a_second_run_may_use_another_device(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    make_accelerator(Config(device="cpu"))
    assert PartialState()._cpu
    make_accelerator(Config(device="auto"))
    assert not PartialState()._cpu
