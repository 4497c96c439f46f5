"""Labels and features from pandas DataFrames."""

import numpy as np
import pandas as pd
import pytest

from halftruth.data import DataError, labels_from_frame, read_features
from halftruth.data.feature_columns import feature_columns_from_frame


def test_columns_are_classes_and_the_index_names_the_items():
    labels = labels_from_frame(pd.DataFrame({"cat": [1, 0], "dog": [-1, 1]}, index=["a", "b"]))
    assert labels.classes == ("cat", "dog")
    assert labels.items.tolist() == ["a", "b"]
    assert labels.values.tolist() == [[1, -1], [0, 1]]


@pytest.mark.parametrize(
    ("cells", "options", "expected"),
    [
        ([1.0, 0.0, np.nan], {}, [1, 0, 0]),
        ([1.0, 0.0, np.nan], {"zero": "absent"}, [1, -1, 0]),
        ([True, False, True], {"zero": "absent"}, [1, -1, 1]),
        ([1, 0, None], {"blank": "absent"}, [1, 0, -1]),
        (pd.array([1, 0, pd.NA], dtype="Int8"), {"zero": "absent"}, [1, -1, 0]),
        (["1", "0", ""], {}, [1, 0, 0]),
    ],
)
def test_values_of_any_column_type_are_read(cells, options, expected):
    labels = labels_from_frame(pd.DataFrame({"cat": cells}), **options)
    assert labels.values[:, 0].tolist() == expected
    assert labels.items is None


def test_a_frame_read_from_a_label_file_is_understood():
    frame = pd.DataFrame(
        {"image": ["a.jpg", "b.jpg"], "split": ["train", "val"], "labels": ["cat|dog", None]}
    )
    labels = labels_from_frame(frame)
    assert labels.classes == ("cat", "dog")
    assert labels.items.tolist() == ["a.jpg", "b.jpg"]
    assert labels.split.tolist() == ["train", "val"]
    assert labels.values.tolist() == [[1, 1], [0, 0]]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame({"cat": [1, 2]}), "column 'cat': expected a label"),
        (pd.DataFrame([[1, 0]], columns=["cat", "cat"]), "more than once: 'cat'"),
        (pd.DataFrame({"cat": []}), "has no rows"),
        (pd.DataFrame({"cat": [1, 1]}, index=["a", "a"]), "'a' already has a row"),
        (pd.DataFrame({"cat": [1]}, index=pd.MultiIndex.from_tuples([(1, 2)])), "one index level"),
    ],
)
def test_bad_label_frames_are_refused(frame, message):
    with pytest.raises(DataError, match=message):
        labels_from_frame(frame)


def test_features_keep_the_index_as_ids():
    frame = pd.DataFrame({"x": [1, 2], "y": [0.5, 1.5]}, index=[7, 9])
    source = feature_columns_from_frame(frame)
    values, ids = source.to_matrix(), source.ids
    assert values.dtype == np.float32
    assert values.tolist() == [[1, 0.5], [2, 1.5]]
    assert ids.tolist() == ["7", "9"]


def test_an_id_column_of_a_feature_frame_is_not_a_feature():
    source = feature_columns_from_frame(pd.DataFrame({"id": ["a", "b"], "x": [1.0, 2.0]}))
    values, ids = source.to_matrix(), source.ids
    assert values.tolist() == [[1], [2]]
    assert ids.tolist() == ["a", "b"]


def test_the_default_index_gives_no_ids():
    assert feature_columns_from_frame(pd.DataFrame({"x": [1.0, 2.0]})).ids is None


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_features_that_are_not_finite_are_refused_with_row_and_column(value):
    frame = pd.DataFrame({"x": [1.0, 2.0], "y": [0.0, value]})
    with pytest.raises(DataError, match=r"row 1, column (1 \()?'y'"):
        read_features(frame)


def test_features_that_are_text_are_refused():
    with pytest.raises(DataError, match="column 'colour': expected a number, got 'red'"):
        read_features(pd.DataFrame({"x": [1.0], "colour": ["red"]}))
