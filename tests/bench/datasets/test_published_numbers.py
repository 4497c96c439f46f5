"""Label settings by name, and the comparison with published numbers."""

import dataclasses
import re
import warnings

import miniature_datasets as mini
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from halftruth.bench import datasets as benchmarks
from halftruth.bench.datasets.benchmark import agrees
from halftruth.data import DataError, write_labels
from halftruth.labels import PRESENT
from halftruth.labels.hiding import drop_positives, keep_known


@given(arrays(np.int8, (12, 6), elements=st.sampled_from([-1, 1])), st.integers(0, 5))
def test_every_setting_calls_its_function(complete, seed):
    hide = benchmarks.hide
    assert (hide(complete, "left-75", seed) == drop_positives(complete, 0.5, seed)).all()
    assert (hide(complete, "left-40", seed) == drop_positives(complete, 0.8, seed)).all()
    assert (hide(complete, "drop-0.3", seed) == drop_positives(complete, 0.3, seed)).all()
    assert (hide(complete, "known-0.25", seed) == keep_known(complete, 0.25, seed)).all()
    single = hide(complete, "single", seed)
    assert (np.count_nonzero(single, axis=1) == (complete == PRESENT).any(axis=1)).all()


@pytest.mark.parametrize(
    "setting", ["one", "left-50", "drop-1.5", "known-", "known-nan", "keep-0.5"]
)
def test_an_unknown_setting_is_refused(setting):
    with pytest.raises(DataError, match=f"labels='{setting}' is not a label setting"):
        benchmarks.hide(np.ones((2, 2), dtype=np.int8), setting)


@pytest.mark.parametrize(
    ("found", "printed", "same"),
    [
        (5717, "5,717", True),
        (5718, "5,717", False),
        (1.4572, "1.46", True),
        (1.4549, "1.46", False),
        (31.449, "31.4", True),
        (31.451, "31.4", False),
        (2.535, "2.54", True),
        (0, "0", True),
    ],
)
def test_a_number_agrees_if_it_rounds_to_the_published_one(found, printed, same):
    assert agrees(found, printed) is same


def test_every_published_number_has_a_statistic(tmp_path):
    for name, writer in mini.ALL:
        root = tmp_path / writer.__name__
        root.mkdir()
        written = writer(root)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", benchmarks.BenchmarkWarning)
            loaded = benchmarks.load(name, written.root, **written.options)
        for entry in loaded.published:
            assert entry.what in loaded.statistics
            assert re.fullmatch(r"\d+(,\d{3})*(\.\d+)?", entry.value)


def test_a_difference_is_a_warning_with_both_numbers(tmp_path):
    mini.voc(tmp_path)
    with pytest.warns(benchmarks.BenchmarkWarning) as caught:
        loaded = benchmarks.load("voc2012", tmp_path)
    text = str(caught[0].message)
    assert "images_train_and_val: found 5, published 5,717 (LASD, Table 1)" in text
    assert "classes" not in text
    different = {entry.what: (entry.found, entry.value) for entry in loaded.check()}
    assert different["images_test"] == (2, "5,823")
    assert different["observed_labels"] == (7, "8,331")
    assert "differs: images_test: found 2, published 5,823" in loaded.describe()


def test_numbers_of_another_setting_or_share_are_not_compared(tmp_path):
    written = mini.table(tmp_path)
    published = (
        benchmarks.Published("observed_labels", "9", "a", setting="single"),
        benchmarks.Published("images_val", "9", "b", val=0.2),
        benchmarks.Published("images", "9", "c"),
    )
    plain = dataclasses.replace(benchmarks.load("table", written.root), published=published)
    assert [entry.source for entry in plain.check()] == ["b", "c"]
    half = benchmarks.load("table", written.root, val=0.4, labels="single")
    half = dataclasses.replace(half, published=published)
    assert [entry.source for entry in half.check()] == ["a", "c"]


def test_statistics_count_rows_and_labels(tmp_path):
    written = mini.table(tmp_path)
    counted = benchmarks.load("table", written.root, labels="single").statistics
    assert counted["images"] == 6
    assert (counted["images_train"], counted["images_val"]) == (4, 1)
    assert counted["positives_per_image"] == 6 / 5
    assert counted["cardinality"] == 7 / 6
    assert counted["observed_labels"] == 4
    assert counted["negative_rows_train_and_val"] == counted["negative_rows"] == 1
    assert counted["positive_rows_test"] == 1


def test_validation_rows_can_be_switched_off(tmp_path):
    written = mini.table(tmp_path)
    loaded = benchmarks.load("table", written.root, val=0)
    assert loaded.splits.train.tolist() == [0, 1, 3, 4, 5]
    assert not len(loaded.splits.val)
    assert "5 train, 1 test" in loaded.describe()


def test_a_label_file_can_be_compared_with_a_named_data_set(tmp_path):
    written = mini.table(tmp_path)
    with pytest.warns(benchmarks.BenchmarkWarning, match="classes: found 2, published 20"):
        benchmarks.load("table", written.root, compare="voc2012")


def test_a_benchmark_can_be_written_as_label_files(tmp_path):
    written = mini.table(tmp_path)
    loaded = benchmarks.load("table", written.root, labels="single")
    write_labels(loaded.observed, tmp_path / "observed.csv")
    again = benchmarks.load("table", tmp_path / "observed.csv", reading={"zero": "unknown"})
    assert (again.truth == loaded.observed.values).all()
    assert (again.splits.val == loaded.splits.val).all()


def test_misspelt_names_and_options_get_a_hint(tmp_path):
    with pytest.raises(ValueError, match="did you mean 'voc2012'"):
        benchmarks.load("voc2021", tmp_path)
    with pytest.raises(
        TypeError, match="'nuswide' takes no argument 'spilt': did you mean 'split'"
    ):
        benchmarks.load("nuswide", tmp_path, spilt="asl")
    with pytest.raises(DataError, match="split must be one of"):
        benchmarks.load("nuswide", tmp_path, split="random")


def test_opening_missing_images_is_an_error_with_the_reason(tmp_path):
    written = mini.table(tmp_path)
    with pytest.raises(DataError, match="no folder or zip file of images was found"):
        benchmarks.load("table", written.root).store()
