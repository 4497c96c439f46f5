"""The report of `check_data`."""

import json

import numpy as np
import pytest
from PIL import Image

from halftruth.data import DataError, ImageStore, check_data, read_labels
from halftruth.labels import LabelMatrix


def matrix(rows, items=None, split=None, classes=None):
    values = np.array(rows, dtype=np.int8)
    names = classes or [f"c{k}" for k in range(values.shape[1])]
    return LabelMatrix(values, tuple(names), items, split)


def test_rows_and_labels_are_counted():
    report = check_data(matrix([[1, 0, -1], [1, 1, 0], [0, 0, 0], [-1, -1, -1]]))
    assert (report.rows, report.present, report.absent, report.unknown) == (4, 3, 4, 5)
    assert report.positives_per_row == 0.75
    assert report.rows_by_positives == {"0": 2, "1": 1, "2": 1, "3": 0, "4": 0, "5+": 0}
    assert (report.empty_rows, report.empty_share, report.unannotated_rows) == (2, 0.5, 1)
    assert report.never_present == ["c2"]
    assert report.rarely_present == ["c0", "c1"]
    assert [(c.present, c.absent, c.unknown) for c in report.classes] == [
        (2, 1, 1),
        (1, 1, 2),
        (0, 2, 2),
    ]
    assert report.ok
    assert json.loads(json.dumps(report.to_dict()))["classes"][1]["name"] == "c1"
    assert "1 classes never occur and cannot be learned: 'c2'" in report.text()


def test_missing_bad_unused_images_and_duplicates_are_listed(tmp_path):
    for name in ("a.png", "b.png", "extra.png"):
        Image.new("RGB", (4, 4)).save(tmp_path / name)
    (tmp_path / "bad.jpg").write_text("no image")
    (tmp_path / "labels.csv").write_text(
        "image,cat\na.png,1\nb.png,0\na.png,1\nbad.jpg,0\ngone,1\n"
    )
    labels = read_labels(tmp_path / "labels.csv", duplicates="keep")
    report = check_data(labels, ImageStore(tmp_path))
    assert report.duplicate_items == ["a.png"]
    assert report.missing_images == ["gone"]
    assert [name for name, _ in report.bad_images] == ["gone", "bad.jpg"]
    assert report.unused_images == ["extra.png"]
    assert not report.ok
    assert len(report.errors) == 3
    shallow = check_data(labels, ImageStore(tmp_path), decode=False)
    assert [name for name, _ in shallow.bad_images] == ["gone"]


def test_two_names_of_one_image_are_an_error(tmp_path):
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    report = check_data(matrix([[1], [1]], items=["a", "a.png"]), ImageStore(tmp_path))
    assert any("'a' and 'a.png' are one image (a.png); keep" in text for text in report.errors)


def test_labels_without_names_cannot_have_images(tmp_path):
    report = check_data(matrix([[1]]), ImageStore(tmp_path))
    assert "image_column=" in report.errors[0]


def test_features_must_have_the_rows_of_the_labels():
    labels = matrix([[1], [0]])
    assert check_data(labels, features=np.ones((2, 3), dtype=np.float32)).features == (2, 3)
    wrong = check_data(labels, features=np.array([[1.0], [np.nan], [0.0]]))
    assert "has 3 rows, but the labels have 2" in wrong.errors[0]


def test_splits_and_groups_are_checked():
    labels = matrix([[1, 0], [0, 1], [0, 0]], split=["train", "val", "test"])
    report = check_data(labels, groups=np.array(["p", "q", "p"]))
    assert report.splits == {"test": 1, "train": 1, "val": 1}
    assert any("both the training and the test part" in error for error in report.errors)
    assert any("no positive in the training part: 'c1'" in warning for warning in report.warnings)
    assert any("the test part has no positive" in warning for warning in report.warnings)
    odd = check_data(matrix([[1], [1]], split=["train", "fold"]))
    assert "got 'fold'" in odd.errors[0]


def test_suspicious_class_names_are_warned_about():
    names = ["Cat", "cat", "No Finding"]
    warnings = " ".join(check_data(matrix([[1, 1, 1]], classes=names)).warnings)
    assert "spelt differently: 'Cat', 'cat'" in warnings
    assert "nothing='No Finding'" in warnings


def test_labels_without_positives_are_an_error():
    assert "nothing to learn" in check_data(matrix([[0, -1]])).errors[0]
    with pytest.raises(DataError, match="at least one row"):
        check_data(matrix(np.zeros((0, 2))))


def test_features_are_matched_by_id():
    labels = matrix([[1], [0]], items=["a", "b"])
    values = np.ones((3, 2), dtype=np.float32)
    report = check_data(labels, features=values, feature_ids=np.array(["b", "x", "a"]))
    assert report.ok
    assert any("1 of 3 rows are not used" in warning for warning in report.warnings)
    wrong = check_data(labels, features=values, feature_ids=np.array(["b", "x", "c"]))
    assert "1 of 2 items of the label file have no row: 'a'" in wrong.errors[0]


def test_progress_counts_every_image_once(tmp_path):
    names = [f"{k}.png" for k in range(5)]
    for name in names:
        Image.new("RGB", (4, 4)).save(tmp_path / name)
    steps = []
    check_data(matrix([[1]] * 5, items=names), ImageStore(tmp_path), progress=steps.append)
    assert steps == [1] * 5


def test_a_broken_link_and_unreadable_images_are_reported(tmp_path):
    (tmp_path / "a.png").symlink_to(tmp_path / "nowhere.png")
    (tmp_path / "b.png").write_text("no image")
    (tmp_path / "c.png").write_bytes(b"")
    report = check_data(matrix([[1]] * 3, items=["a.png", "b.png", "c.png"]), ImageStore(tmp_path))
    assert "broken symbolic link" in report.errors[0]
    assert "all of 2 images cannot be read" in report.errors[1]
    assert report.errors[1].count("not an image of a known format") == 1


@pytest.mark.parametrize(
    ("rows", "hinted"),
    [
        ([[1, 1, 0, 0, 1], [0, 1, 1, 0, 0], [0, 0, 0, 1, 0]], True),
        ([[1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 0, 1, 1]], False),
        ([[1, 1, -1, 0, 1], [0, 1, 1, 0, 0], [0, 0, 0, 1, 0]], False),
        ([[1, 1, 0], [1, 1, 1]], False),
    ],
)
def test_labels_that_look_complete_get_a_hint_about_zero(rows, hinted):
    report = check_data(matrix(rows))
    assert bool(report.hints) == hinted
    assert ("zero='absent' (--zero absent)" in " ".join(report.hints)) == hinted
    assert report.ok
