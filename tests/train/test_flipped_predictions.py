"""Predictions averaged over an image and its mirror image."""

import numpy as np
import pytest
from PIL import Image
from tiny_data import IMAGES, command, with_tune

from halftruth import fit
from halftruth.data import DataError
from halftruth.train.results.trained_run import TrainedRun


@pytest.fixture(scope="module")
def run_on_images(data, tmp_path_factory):
    settings = {**IMAGES, "labels": str(data / "labels.csv")}
    settings |= {"images": str(data / "photos"), "method": "em", "head_epochs": 1}
    folder = tmp_path_factory.mktemp("flip") / "run"
    fit(**with_tune(settings, "head"), out=folder, quiet=True)
    return folder


def logit(p):
    return np.log(p / (1 - p))


def test_the_logits_are_the_mean_over_both_images(run_on_images):
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    pixels[:, :16] //= 8
    both = [Image.fromarray(pixels), Image.fromarray(pixels[:, ::-1].copy())]
    plain = TrainedRun(run_on_images, device="cpu").score(both).probabilities
    flipped = TrainedRun(run_on_images, device="cpu", flip=True).score(both).probabilities
    assert not np.allclose(plain[0], plain[1], atol=1e-6)
    assert logit(flipped) == pytest.approx(np.tile(logit(plain).mean(axis=0), (2, 1)), abs=1e-5)


def test_commands_predict_and_evaluate_flip(run_on_images, data, tmp_path):
    images = ("--images", data / "photos", "--device", "cpu")
    tables = []
    for name, more in (("plain", ()), ("flip", ("--flip",))):
        out = tmp_path / f"{name}.csv"
        assert command("predict", run_on_images, *images, "--out", out, *more) == 0
        tables.append(out.read_text())
    assert tables[0] != tables[1]
    words = ("evaluate", run_on_images, data / "labels.csv", *images, "--split", "test", "--flip")
    assert command(*words) == 0


def test_a_run_on_features_refuses_flip(on_features, tmp_path):
    fit(**on_features, out=tmp_path / "run", quiet=True)
    with pytest.raises(DataError, match=r"\(--flip\) is for images"):
        TrainedRun(tmp_path / "run", flip=True)
