"""Hints are matched by item and class; mistakes in their files are reported."""

import numpy as np
import pandas as pd
import pytest

from halftruth.data import DataError
from halftruth.data.hints import read_hint, read_hint_names, read_hints

CLASSES, ITEMS = ("cat", "dog", "cow"), ("a", "b", "c")


def write(folder, text, name="scores.csv"):
    path = folder / name
    path.write_text(text)
    return path


def test_rows_and_columns_are_matched_by_name_and_missing_ones_are_nan(tmp_path):
    path = write(tmp_path, "image,dog,cat\nc,0.9,0.1\na,0.2,\nz,1,1\n")
    hint = read_hint(path, CLASSES, ITEMS, 3)
    expected = [[np.nan, 0.2, np.nan], [np.nan] * 3, [0.1, 0.9, np.nan]]
    np.testing.assert_array_equal(hint.scores, expected)
    assert "2 of 3 classes for 2 of 3 rows" in hint.note


def test_other_names_of_classes_come_from_a_mapping_file(tmp_path):
    path = write(tmp_path, "image,poodle,terrier,felis\na,0.1,0.7,0.2\nb,0.3,,0.4\n")
    names = write(tmp_path, "hint,class\npoodle,dog\nterrier,dog\nfelis,cat\n", "names.csv")
    found = read_hints([path], CLASSES, ITEMS, 3, read_hint_names(names, CLASSES))
    np.testing.assert_array_equal(found[0].scores[:2, :2], [[0.2, 0.7], [0.4, 0.3]])


def test_data_frame_array_and_npy_file_say_the_same(tmp_path):
    values = np.arange(9.0).reshape(3, 3)
    np.save(tmp_path / "scores.npy", values)
    frame = pd.DataFrame(values, columns=CLASSES, index=ITEMS).iloc[::-1]
    for source in (values, frame, tmp_path / "scores.npy"):
        np.testing.assert_array_equal(read_hint(source, CLASSES, ITEMS, 3).scores, values)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("image,catt\na,1\n", "none of its columns.*did you mean 'cat'.*--hint-names"),
        ("image,cat\nx,1\n", "none of its ids.*'x'"),
        ("image,cat\na,1\na,2\n", "more than once: 'a'"),
        ("image,cat\na,high\n", "'cat' does not hold numbers"),
        ("image,cat\na,inf\n", "line 2, column 'cat'.*got inf"),
        ("image,cat\na,\n", "no score at all"),
        ("cat\n1\n", "expected 3 rows.*got 1"),
    ],
)
def test_a_bad_file_is_refused_with_the_place(tmp_path, text, expected):
    with pytest.raises(DataError, match=f"scores.csv:? .*{expected}"):
        read_hint(write(tmp_path, text), CLASSES, ITEMS, 3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a,b\n1,2\n", "the columns hint and class"),
        ("hint,class\nfelis,catt\n", "no class 'catt'.*did you mean 'cat'"),
        ("hint,class\nfeli,cat\n", "no hint has the column 'feli'.*did you mean 'felis'"),
    ],
)
def test_a_bad_mapping_file_is_refused(tmp_path, text, expected):
    names, path = write(tmp_path, text, "names.csv"), write(tmp_path, "image,felis,dog\na,1,2\n")
    with pytest.raises(DataError, match=expected):
        read_hints([path], CLASSES, ITEMS, 3, read_hint_names(names, CLASSES))


def test_what_is_left_out_or_constant_is_said(tmp_path):
    path = write(tmp_path, "image,cat,dogs\na,1,0\nb,1,1\n")
    note = read_hint(path, CLASSES, ITEMS, 3).note
    assert "tells nothing: 'cat'" in note
    assert "left out: 'dogs' (did you mean 'dog'?)" in note
