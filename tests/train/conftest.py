"""Data that the tests of training share."""

import pytest
import tiny_data


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    return tiny_data.make_data(tmp_path_factory.mktemp("training") / "data")


@pytest.fixture
def on_features(data):
    """Settings of a run on features."""
    return {
        "labels": str(data / "labels.csv"),
        "features": str(data / "features.npy"),
        "method": "wan",
        "device": "cpu",
        "epochs": 3,
        "batch_size": 6,
        "head_lr": 0.05,
        "report": False,
    }


@pytest.fixture
def on_images(data):
    """Settings of a run on images: two epochs of the head, two of the whole network."""
    return {
        **tiny_data.IMAGES,
        "labels": str(data / "labels.csv"),
        "images": str(data / "photos"),
        "head_epochs": 2,
        "epochs": 2,
        "head_lr": 0.01,
        "lr": 0.001,
    }
