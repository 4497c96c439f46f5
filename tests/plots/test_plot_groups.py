"""Classes joined into categories."""

import numpy as np
import pytest

from halftruth.cli.app import app
from halftruth.data import DataError
from halftruth.labels import LabelMatrix
from halftruth.plots.label_figures import join_classes, read_categories

LABELS = LabelMatrix(np.array([[1, 0, -1], [-1, -1, 0], [0, -1, 1]]), ("cat", "dog", "car"))


def test_a_category_is_present_where_one_of_its_classes_is():
    truth = np.array([[1, 1, -1], [-1, -1, 1], [-1, -1, 1]], dtype=np.int8)
    matrix, complete = join_classes(LABELS, truth, {"pets": ["dog", "cat"]})
    assert matrix.classes == ("pets", "car")
    assert matrix.values.tolist() == [[1, -1], [-1, 0], [0, 1]]
    assert complete.tolist() == [[1, -1], [-1, 1], [-1, 1]]


@pytest.mark.parametrize(
    ("groups", "message"),
    [({"pets": ["cow"]}, "no class 'cow'"), ({"a": ["cat"], "b": ["cat"]}, "'cat' is named twice")],
)
def test_wrong_names_are_refused(groups, message):
    with pytest.raises(DataError, match=message):
        join_classes(LABELS, None, groups)


@pytest.mark.parametrize("text", ["", "- cat", "pets: cat", "pets: ["])
def test_a_file_in_another_format_is_refused(tmp_path, text):
    (tmp_path / "groups.yaml").write_text(text)
    with pytest.raises(DataError, match=r"groups\.yaml"):
        read_categories(tmp_path / "groups.yaml")


def test_the_command_draws_categories(tmp_path):
    (tmp_path / "labels.csv").write_text("image,cat,dog,car\na,1,0,1\nb,0,1,0\nc,1,1,0\n")
    (tmp_path / "groups.yaml").write_text("pets: [cat, dog]\n")
    line = ["plot", "data", tmp_path / "labels.csv", "--groups", tmp_path / "groups.yaml"]
    app([*map(str, line), "--out", str(tmp_path / "figs")], standalone_mode=False)
    tables = "".join(path.read_text() for path in (tmp_path / "figs").glob("*.csv"))
    assert "pets" in tables
    assert "dog" not in tables
