"""Rows labelled completely: reading their names, and what becomes of their unknown labels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from halftruth.data import DataError
from halftruth.data.complete_rows import (
    add_complete_rows,
    apply_complete_rows,
    check_complete_rows,
    read_complete_rows,
)
from halftruth.labels import LabelMatrix, find_complete_rows

VALUES = np.array([[1, 0, -1], [0, 1, 0], [0, 0, 0], [1, -1, -1]], dtype=np.int8)
NAMED = LabelMatrix(VALUES, ("cat", "dog", "cow"), ["a.jpg", "b c.jpg", "7", "d.jpg"])
PLAIN = LabelMatrix(VALUES, ("cat", "dog", "cow"))


@pytest.mark.parametrize(
    ("labels", "text", "rows"),
    [
        (NAMED, "b c.jpg\n7\n", [1, 2]),
        (NAMED, "\ufeffimage\r\na.jpg\r\n\r\na.jpg", [0]),
        (NAMED, '"b c.jpg"\n', [1]),
        (PLAIN, "1\n3\n", [0, 2]),
        (PLAIN, "row\n4", [3]),
    ],
)
def test_rows_are_read_by_name_or_by_number(tmp_path, labels, text, rows):
    (tmp_path / "rows.txt").write_text(text, encoding="utf-8")
    found = read_complete_rows(tmp_path / "rows.txt", labels)
    assert found.dtype == bool
    assert np.flatnonzero(found).tolist() == rows


@pytest.mark.parametrize(
    ("labels", "text", "message"),
    [
        (NAMED, "a.jpg\nd.jgp\n", r"1 of its 2 lines are not items .*'d\.jgp'.*mean 'd\.jpg'"),
        (NAMED, "\n \n", "the file is empty"),
        (NAMED, "image\n", "names no row"),
        (PLAIN, "0\n", "row numbers from 1 to 4, one per line.*got '0'"),
        (PLAIN, "5\n", "got '5'"),
        (PLAIN, "a.jpg\n", "got 'a.jpg'"),
    ],
)
def test_files_that_do_not_name_rows_are_refused(tmp_path, labels, text, message):
    (tmp_path / "rows.txt").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        read_complete_rows(tmp_path / "rows.txt", labels)


def test_a_missing_file_names_the_option(tmp_path):
    with pytest.raises(DataError, match=r"complete_rows \(--complete-rows\): there is no file"):
        add_complete_rows(NAMED, tmp_path / "rows.txt")


@given(
    values=arrays(np.int8, (6, 4), elements=st.sampled_from([-1, 0, 1])),
    complete=arrays(bool, 6),
)
def test_only_unknown_labels_of_complete_rows_become_absent(values, complete):
    labels = LabelMatrix(values, tuple("abcd"))
    if not (complete[:, None] & (values == 0)).any():
        with pytest.raises(DataError, match="has no effect, since the labels of its"):
            apply_complete_rows(labels, complete, "rows.txt")
        return
    found = apply_complete_rows(labels, complete, "rows.txt").values
    np.testing.assert_array_equal(found[~complete], values[~complete])
    np.testing.assert_array_equal(found[complete], np.where(values == 0, -1, values)[complete])
    np.testing.assert_array_equal(find_complete_rows(found), complete | (values != 0).all(axis=1))


def test_soft_labels_of_complete_rows_are_0_where_they_were_unknown():
    soft = np.array([[0.9, np.nan], [np.nan, 0.4]], dtype=np.float32)
    labels = LabelMatrix(np.array([[1, 0], [0, -1]]), ("a", "b"), soft=soft)
    found = apply_complete_rows(labels, np.array([True, False]), "rows.txt")
    np.testing.assert_array_equal(found.soft, np.array([[0.9, 0], [np.nan, 0.4]], np.float32))


def test_masks_and_row_numbers_are_the_same():
    expected = [False, True, False, True]
    assert check_complete_rows([3, 1], 4).tolist() == expected
    assert check_complete_rows(np.array(expected), 4).tolist() == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([0, 4], "between 0 and 3, counted from 0, got 4"),
        ([-1], "got -1"),
        ([True, False], "for 4 rows, got 2"),
        ([0.5], "row numbers or as a mask"),
        ([[1]], r"with shape \(1, 1\)"),
        (["a"], "row numbers or as a mask"),
    ],
)
def test_bad_row_numbers_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        check_complete_rows(given, 4)


def test_a_list_of_rows_leaves_no_labels_that_were_shown_at_first(tmp_path):
    for name, text in (("rows.txt", "b c.jpg\n"), ("rows.csv", "image\nb c.jpg\n")):
        (tmp_path / name).write_text(text)
        labels, shown = add_complete_rows(NAMED, tmp_path / name)
        assert shown is None
        assert labels.values[1].tolist() == [-1, 1, -1]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("whole.csv", "image,cow,cat,dog\nb c.jpg,1,0,1\n7,0,1,0\n"),
        ("whole.tsv", "image\tcow\tcat\tdog\nb c.jpg\t1\t-1\t1\n7\t\t1\t\n"),
        ("list.csv", "image,split,labels\nb c.jpg,test,cow|dog\n7,train,cat\n"),
    ],
)
def test_a_second_label_file_has_the_complete_labels_of_some_rows(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    labels, shown = add_complete_rows(NAMED, tmp_path / name)
    expected = [[1, 0, -1], [-1, 1, 1], [1, -1, -1], [1, -1, -1]]
    assert labels.values.tolist() == expected
    np.testing.assert_array_equal(shown, VALUES)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image,cat,dog\na.jpg,1,1\n", "has no column 'cow', so its labels are not complete"),
        ("image,cat,dog,cow,cows\na.jpg,1,1,0,0\n", "no class 'cows' .did you mean 'cow'"),
        ("image,cat,dog,cow\nd.jgp,1,1,0\n", "1 of its 1 items are not in the label file"),
        ("image,cat,dog,cow\nd.jpg,1,0,0\n", "has no effect, since the labels of its 1 rows"),
    ],
)
def test_second_label_files_that_do_not_fit_are_refused(tmp_path, text, message):
    (tmp_path / "whole.csv").write_text(text)
    with pytest.raises(DataError, match=message):
        add_complete_rows(NAMED, tmp_path / "whole.csv")


def test_rows_of_two_label_files_are_matched_by_item(tmp_path):
    (tmp_path / "whole.csv").write_text("image,cat,dog,cow\na.jpg,1,1,0\n")
    with pytest.raises(DataError, match="the items of both label files must be named"):
        add_complete_rows(PLAIN, tmp_path / "whole.csv")


def test_soft_labels_take_the_complete_ones_where_they_were_unknown(tmp_path):
    (tmp_path / "whole.csv").write_text("image,a,b\nx,0,1\n")
    soft = np.array([[0.9, np.nan], [np.nan, 0.4]], dtype=np.float32)
    labels = LabelMatrix(np.array([[1, 0], [0, -1]]), ("a", "b"), ["x", "y"], soft=soft)
    found, _ = add_complete_rows(labels, tmp_path / "whole.csv")
    np.testing.assert_array_equal(found.soft, np.array([[0.9, 1], [np.nan, 0.4]], np.float32))


def test_complete_labels_that_contradict_the_label_file_are_refused(tmp_path):
    labels = LabelMatrix(np.array([[1, 0], [0, 1]], np.int8), ("cat", "dog"), np.array(["a", "b"]))
    (tmp_path / "complete.csv").write_text("image,cat,dog\na,0,1\n")
    with pytest.raises(
        DataError, match=r"in 1 labels: 'cat' of a, for instance, is present in the label"
    ):
        add_complete_rows(labels, tmp_path / "complete.csv")
