"""Figures of label files: counts compared with plain loops, legible for few and many classes."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from legible import assert_legible

from halftruth.data import DataError
from halftruth.plots.label_figures import (
    class_counts,
    draw_co_occurrence,
    draw_data,
    draw_positives,
    read_with_truth,
)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("classes", [1, 5, 45, 312])
def test_figures_can_be_read(labels, classes):
    drawings = draw_data(*labels(classes))
    several = ["co-occurrence"] if classes > 1 else []
    assert [one.name for one in drawings] == ["counts", "positives", *several, "hiding"]
    for drawing in drawings:
        assert_legible(drawing.figure)


def test_an_empty_file_is_refused(labels):
    observed, _ = labels(3)
    with pytest.raises(DataError, match="no rows"):
        draw_data(observed.select(slice(0, 0)))


def test_without_complete_labels_nothing_hidden_is_drawn(labels):
    observed, _ = labels(5)
    drawings = draw_data(observed)
    assert [one.name for one in drawings] == ["counts", "positives", "co-occurrence"]
    assert "hidden" not in drawings[0].numbers


def test_class_counts_equal_plain_loops(labels):
    observed, truth = labels(7)
    table = class_counts(observed, truth).set_index("class")
    for k, name in enumerate(observed.classes):
        shown = [int(v) for v in observed.values[:, k]]
        true = [int(v) for v in truth[:, k]]
        hidden = sum(s == 0 and t == 1 for s, t in zip(shown, true, strict=True))
        assert table.loc[name, "labelled"] == shown.count(1)
        assert table.loc[name, "hidden"] == hidden
        assert table.loc[name, "unannotated_positive"] == pytest.approx(hidden / shown.count(0))
    total = table["labelled"] + table["hidden"]
    assert total.is_monotonic_decreasing


def test_positives_per_row_are_counted(labels):
    observed, truth = labels(6)
    numbers = draw_positives(observed, truth).numbers.set_index(["kind", "positives"])["rows"]
    assert numbers["labelled", 2] == sum((row == 1).sum() == 2 for row in observed.values)
    assert numbers["complete labels", 0] == sum((row == 1).sum() == 0 for row in truth)
    assert numbers.groupby("kind").sum().tolist() == [300, 300]


def test_co_occurrence_uses_the_complete_labels(labels):
    observed, truth = labels(6)
    numbers = draw_co_occurrence(observed, truth).numbers.set_index(["class", "with"])
    a, b = observed.classes[0], observed.classes[1]
    both = int(((truth[:, 0] == 1) & (truth[:, 1] == 1)).sum())
    assert numbers.loc[(a, b), "rows"] == both
    assert numbers.loc[(a, b), "share"] == pytest.approx(both / (truth[:, 0] == 1).sum())


def test_one_label_per_row_has_no_co_occurrence(labels):
    observed, _ = labels(4)
    one = replace(observed, stored=np.eye(4, dtype=np.int8)[np.arange(300) % 4])
    assert [drawing.name for drawing in draw_data(one)] == ["counts", "positives"]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "labels.csv"
    frame = {"image": [f"{n}.jpg" for n in range(6)], "cat": [1, 1, 1, 0, 0, 1]}
    pd.DataFrame({**frame, "dog": [1, 1, 0, 1, 0, 0], "cow": [1, 0, 0, 0, 0, 0]}).to_csv(
        path, index=False
    )
    return path


def test_complete_labels_of_a_second_file_are_matched_by_item_and_class(file, tmp_path):
    table = pd.read_csv(file)
    table["dog"] = 1
    table[::-1][["image", "cow", "dog", "cat"]].to_csv(tmp_path / "truth.csv", index=False)
    observed, truth = read_with_truth(file, {}, tmp_path / "truth.csv", {})
    assert truth[:, observed.classes.index("dog")].tolist() == [1] * 6
    assert truth[:, observed.classes.index("cow")].tolist() == [1, -1, -1, -1, -1, -1]
