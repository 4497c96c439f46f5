"""Half precision is for training steps only: scores are float32."""

import numpy as np
import pytest
import torch
from accelerate.state import PartialState

from halftruth import fit, losses
from halftruth.models import build_feature_model, build_image_model
from halftruth.train.config import Config
from halftruth.train.devices import make_accelerator
from halftruth.train.inputs.batches import Features
from halftruth.train.results.trained_run import TrainedRun
from halftruth.train.scoring import score_rows
from halftruth.train.step import Learner

IMAGES = torch.randn(4, 3, 64, 64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("average", [0.0, 0.9])
def test_scores_are_float32_while_training_is_bfloat16(average):
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


def test_a_bfloat16_run_predicts_in_float32(on_features, tmp_path):
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


def test_logits_are_not_rounded_within_autocast():
    model = build_feature_model(8, 3).eval()
    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        logits = model(x)
    assert logits.dtype == torch.float32
    assert not torch.equal(logits, logits.bfloat16().float())


def test_a_second_run_may_use_another_device():
    make_accelerator(Config(device="cpu"))
    assert PartialState()._cpu
    make_accelerator(Config(device="auto"))
    assert not PartialState()._cpu
