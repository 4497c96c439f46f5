"""Images together with columns of a table, and with text: frozen features side by side."""

import numpy as np
import pandas as pd
import pytest
from tiny_data import CLASSES, IMAGES

import halftruth
from halftruth.audit.make_audit import make_audit
from halftruth.data import DataError, read_labels
from halftruth.train.config import ConfigError
from halftruth.train.results.evaluate import evaluate
from halftruth.train.results.predictions import write_predictions

NETWORK = {name: IMAGES[name] for name in ("backbone", "weights", "image_size", "device", "report")}


@pytest.fixture(scope="module")
def table(data, tmp_path_factory):
    """Columns that know what the labels are, in another order than the labels."""
    path = tmp_path_factory.mktemp("columns") / "table.parquet"
    truth = pd.read_csv(data / "truth.csv")
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"image": truth["image"]})
    for name in CLASSES:
        frame[f"about {name}"] = truth[name] + random.normal(0, 0.2, len(truth))
    frame["site"] = random.choice(["a", "b", None], len(truth))
    frame.sample(frac=1, random_state=0).to_parquet(path, index=False)
    return path


@pytest.fixture(scope="module")
def run(data, table, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "both"
    halftruth.fit(
        data / "labels.csv", images=data / "photos", features=table, method="bce", epochs=20,
        head_lr=0.03, out=out, quiet=True, **NETWORK,
    )  # fmt: skip
    return out


def test_columns_and_images_are_features_of_one_model(run):
    names = halftruth.load(run).encoder.outputs
    assert "about red" in names
    assert "site=a" in names
    assert "image[0]" in names
    assert "frozen network test_efficientnet" in halftruth.load(run).encoder.describe()


def test_a_run_predicts_rows_of_a_table_with_their_images(run, data, table, tmp_path):
    frame = pd.read_parquet(table)
    found = halftruth.predict(run, images=data / "photos", features=frame)
    assert found["item"].tolist() == frame["image"].tolist()
    by_file = halftruth.predict(run, images=data / "photos", features=table)
    pd.testing.assert_frame_equal(found, by_file)
    rows, _ = write_predictions(run, tmp_path / "p.csv", images=data / "photos", features=table)
    assert rows == len(frame)
    complete = {"zero": "absent"}
    metrics = evaluate(run, data / "truth.csv", features=table, reading=complete).metrics
    assert metrics["mAP"] > 0.8


def test_a_column_of_one_image_changes_the_prediction_and_so_does_the_image(run, data, table):
    frame = pd.read_parquet(table).head(1)
    before = halftruth.predict(run, images=data / "photos", features=frame)
    other = frame.assign(**{"about red": 5.0})
    after = halftruth.predict(run, images=data / "photos", features=other)
    assert before["red"][0] != after["red"][0]
    name = str(frame["image"].iloc[0])
    another = frame.assign(image="p1.png" if name != "p1.png" else "p2.png")
    assert (
        halftruth.predict(run, images=data / "photos", features=another)["red"][0]
        != (before["red"][0])
    )


def test_auto_fits_the_ensemble_to_both(data, table, tmp_path):
    result = halftruth.fit(
        data / "labels.csv", images=data / "photos", features=table, out=tmp_path, quiet=True,
        **NETWORK,
    )  # fmt: skip
    assert result.members
    found = make_audit(tmp_path, data / "labels.csv", out=tmp_path / "audit")
    assert found.info["images"]


def test_images_and_text_are_one_model(data, tmp_path):
    frame = pd.read_csv(data / "labels.csv")
    truth = pd.read_csv(data / "truth.csv")
    frame["note"] = [
        " ".join(["it is", *(n for n in CLASSES if row[n])]) for _, row in truth.iterrows()
    ]
    frame.to_csv(tmp_path / "notes.csv", index=False)
    out = tmp_path / "run"
    halftruth.fit(
        tmp_path / "notes.csv", images=data / "photos", text="note", method="bce", epochs=5,
        out=out, quiet=True, **NETWORK,
    )  # fmt: skip
    found = halftruth.predict(out, images=data / "photos", text=tmp_path / "notes.csv")
    assert found["item"].tolist() == frame["image"].tolist()


def test_bad_images_are_refused_or_left_out(data, table, tmp_path):
    import shutil

    photos = tmp_path / "photos"
    shutil.copytree(data / "photos", photos)
    (photos / "p0.png").write_bytes(b"broken")
    settings = {"images": photos, "features": table, "method": "bce", "epochs": 1, **NETWORK}
    settings |= {"quiet": True}
    with pytest.raises(DataError, match="1 of 44 images cannot be read"):
        halftruth.fit(data / "labels.csv", out=tmp_path / "a", **settings)
    out = tmp_path / "b"
    result = halftruth.fit(data / "labels.csv", out=out, bad_images="skip", **settings)
    assert [name for name, _ in result.bad_images] == ["p0.png"]
    assert "p0.png" in (out / "bad_images.csv").read_text()
    with pytest.raises(DataError, match="1 of 44 images cannot be read"):
        halftruth.predict(out, images=photos, features=table)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"tune": "all"}, "tune: has no effect"),
        ({"lr": 0.1}, "lr: has no effect"),
        ({"augment": "none"}, "augment: has no effect"),
    ],
)
def test_the_network_stays_frozen(data, table, more, message):
    with pytest.raises(ConfigError, match=message):
        halftruth.fit(
            data / "labels.csv", images=data / "photos", features=table, **NETWORK, **more
        )


def test_inputs_of_training_are_all_needed(run, data, table, tmp_path):
    with pytest.raises(DataError, match="was trained on images and features"):
        halftruth.predict(run, table)
    frame = pd.read_parquet(table).drop(columns="image")
    with pytest.raises(DataError, match="expected a column that names the image"):
        halftruth.predict(run, images=data / "photos", features=frame)
    labels = read_labels(data / "labels.csv")
    assert len(halftruth.load(run).read_features(table, labels)) == len(labels)


def test_a_changed_network_is_refused(run, tmp_path):
    import shutil

    from halftruth.models.weights import ModelError
    from halftruth.train.run_folder import CheckpointError, write_manifest

    shutil.copytree(run, tmp_path / "run")
    (tmp_path / "run" / "image_network.safetensors").write_bytes(b"broken")
    with pytest.raises(CheckpointError, match=r"image_network\.safetensors damaged or of another"):
        halftruth.load(tmp_path / "run")
    write_manifest(tmp_path / "run")
    with pytest.raises((ModelError, DataError), match=r"image_network\.safetensors"):
        halftruth.load(tmp_path / "run")
