"""auto with a frozen backbone fits the ensemble to the features of the images."""

import numpy as np
import pytest
from tiny_data import IMAGES

from halftruth import fit
from halftruth.data.images import ImageStore
from halftruth.models.ensemble import EnsembleHead
from halftruth.train.config import Config
from halftruth.train.results.evaluate import evaluate
from halftruth.train.results.trained_run import TrainedRun


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    settings = {name: value for name, value in IMAGES.items() if name != "batch_size"}
    folder = tmp_path_factory.mktemp("frozen") / "run"
    result = fit(
        data / "labels.csv", data / "photos", **settings, tune="head", out=folder, quiet=True
    )
    return folder, result


def test_the_run_has_members_and_predicts_images(run, data):
    folder, result = run
    assert [one["name"] for one in result.members] == ["linear", "forest", "neighbours"]
    trained = TrainedRun(folder, device="cpu")
    assert isinstance(trained.model.head, EnsembleHead)
    table = trained.predict(data / "photos")
    assert len(table) == len(ImageStore([data / "photos"]).names())


def test_evaluation_of_images_equals_that_of_their_features(run, data):
    folder, result = run
    found = evaluate(
        TrainedRun(folder, device="cpu"), data / "labels.csv", images=data / "photos",
        split="test", unknown="absent",
    )  # fmt: skip
    np.testing.assert_allclose(found.metrics["mAP"], result.get_observed("test")["mAP"], atol=1e-3)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({}, True), ({"tune": "head-first"}, False), ({"method": "em"}, False)],
)
def test_frozen_features_get_an_ensemble(changes, expected):
    config = Config(**{"images": ["photos"], "tune": "head", **changes})
    assert config.fits_ensemble is expected
