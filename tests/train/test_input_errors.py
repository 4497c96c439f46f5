"""Mistakes in the files of a training run: the message names the real cause."""

import os

import numpy as np
import pytest
from PIL import Image

from halftruth import fit
from halftruth.data import DataError


@pytest.fixture
def files(tmp_path):
    random = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", random.normal(size=(20, 4)))
    lines = [f"{k}.png,p{k // 2},{k % 2},{1 - k % 2}" for k in range(20)]
    (tmp_path / "labels.csv").write_text("\n".join(["image,patient,cat,dog", *lines]) + "\n")
    return tmp_path


def test_a_misspelt_group_column_is_reported(files):
    with pytest.raises(DataError, match=r"group_column='patiant'.*did you mean 'patient'"):
        fit(
            files / "labels.csv",
            features=files / "x.npy",
            group_column="patiant",
            out=files / "run",
            quiet=True,
        )


def test_a_label_file_is_refused_as_features(files):
    with pytest.raises(DataError, match="these features are labels"):
        fit(
            files / "labels.csv",
            features=files / "labels.csv",
            reading={"drop_columns": ["patient"]},
            reading_features={"drop_columns": ["patient"]},
            out=files / "run",
            quiet=True,
        )


def test_broken_links_are_reported(files):
    (files / "photos").mkdir()
    for k in range(19):
        Image.new("RGB", (8, 8)).save(files / "photos" / f"{k}.png")
    os.symlink(files / "gone.png", files / "photos" / "19.png")
    with pytest.raises(DataError, match=r"19\.png: is a broken symbolic link: its target"):
        fit(
            files / "labels.csv",
            images=files / "photos",
            reading={"drop_columns": ["patient"]},
            backbone="resnet10t",
            weights="none",
            image_size=32,
            device="cpu",
            out=files / "run",
            quiet=True,
        )


@pytest.mark.parametrize("options", [{}, {"zero": "absent"}])
def test_training_hints_at_zero_absent_if_the_labels_look_complete(files, capsys, options):
    random = np.random.default_rng(0)
    lines = [
        ",".join([str(k), *map(str, row)]) for k, row in enumerate(random.integers(0, 2, (20, 5)))
    ]
    (files / "full.csv").write_text("\n".join(["id,a,b,c,d,e", *lines]) + "\n")
    fit(
        files / "full.csv",
        features=files / "x.npy",
        reading=options,
        method="bce",
        epochs=1,
        out=files / "run",
    )
    shown = " ".join(capsys.readouterr().err.split())
    assert ("hint: the labels may be complete" in shown) == (not options)


@pytest.mark.parametrize(("parts", "reported"), [(("train", "val"), True), (("train",), False)])
def test_val_next_to_named_validation_rows_is_reported(tmp_path, capsys, parts, reported):
    rows = [f"r{i},{parts[i % len(parts)]},{i % 2},{i // 2 % 2}" for i in range(40)]
    (tmp_path / "labels.csv").write_text("\n".join(["item,split,a,b", *rows]))
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(40, 3)))
    fit(
        tmp_path / "labels.csv", features=tmp_path / "x.npy", method="em", epochs=1, val=0.3,
        report=False, out=tmp_path / "run",
    )  # fmt: skip
    assert ("--val has no effect" in capsys.readouterr().err) is reported
