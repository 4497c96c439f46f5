"""`halftruth data check`: the suggestion and the features of the command."""

import numpy as np
import pytest
from typer.testing import CliRunner

from halftruth.cli.app import app, suggest_method
from halftruth.labels import LabelMatrix


def matrix(rows, split=None):
    values = np.array(rows, dtype=np.int8)
    return LabelMatrix(values, tuple(f"c{k}" for k in range(values.shape[1])), None, split)


@pytest.mark.parametrize(
    ("rows", "chosen"),
    [
        ([[1, 0], [0, 1]], "em"),
        ([[1, 1], [0, 1]], "em"),
        ([[1, -1], [-1, 1]], "bce"),
        ([[1, -1], [-1, -1]], "any-class --set base=bce"),
    ],
)
def test_suggested_method(rows, chosen):
    line = suggest_method(matrix(rows))
    assert f"would choose {chosen} (" in line
    assert ("to compare: --method bce" in line) == (chosen != "bce")
    assert "standardised" not in line
    assert "fits an ensemble; to compare: --method bce" in suggest_method(matrix(rows), 5)


def test_the_suggestion_looks_at_the_training_rows():
    labels = matrix([[1, -1], [-1, 1], [0, 1]], split=["train", "train", "test"])
    assert "choose bce" in suggest_method(labels)


def test_features_are_matched_by_id_and_the_suggestion_is_printed(tmp_path):
    (tmp_path / "labels.csv").write_text("image,cat,dog\na,1,0\nb,0,1\n")
    (tmp_path / "features.csv").write_text("id,x,y\nb,0.5,1\na,2,0.1\n")
    arguments = ["data", "check", str(tmp_path / "labels.csv"), "--features"]
    done = CliRunner().invoke(app, [*arguments, str(tmp_path / "features.csv")])
    assert done.exit_code == 0, done.output
    assert "features: 2 rows of 2" in done.output
    assert "auto, the default, fits an ensemble" in done.output
    last = done.output.splitlines()[-1]
    assert last.startswith(f"to train: halftruth train {tmp_path}/labels.csv --features ")
    (tmp_path / "features.csv").write_text("id,x,y\nb,0.5,1\nc,2,0.1\n")
    done = CliRunner().invoke(app, [*arguments, str(tmp_path / "features.csv")])
    assert done.exit_code == 1
    assert "have no row: 'a'" in done.output


def test_the_same_arff_file_holds_labels_and_features(tmp_path):
    path = tmp_path / "toy.arff"
    path.write_text("@relation toy\n@attribute f real\n@attribute cat {0,1}\n@data\n0.5,1\n0.1,0\n")
    arguments = ["data", "check", str(path), "--features", str(path), "--read", "arff_labels=-1"]
    done = CliRunner().invoke(app, arguments)
    assert "features: 2 rows of 1" in done.output, done.output
