"""Properties of every data set."""

import warnings

import miniature_datasets as mini
import numpy as np
import pytest

from halftruth.bench import datasets as benchmarks
from halftruth.data import DataError
from halftruth.labels import ABSENT, PRESENT, UNKNOWN

CASES = [pytest.param(name, writer, id=writer.__name__) for name, writer in mini.ALL]
SAME_READER = {"corel5k", "bibtex", "tabular", "coco2014-features"}


def load(name, written, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", benchmarks.BenchmarkWarning)
        return benchmarks.load(name, written.root, **{**written.options, **options})


def test_every_data_set_has_a_miniature():
    assert {name for name, _ in mini.ALL} | SAME_READER == set(benchmarks.names())


@pytest.mark.parametrize(("name", "writer"), CASES)
def test_parts_cover_the_rows_once_and_are_named(tmp_path, name, writer):
    loaded = load(name, writer(tmp_path))
    splits = loaded.splits
    rows = np.concatenate([splits.train, splits.val, splits.test])
    assert sorted(rows) == list(range(len(loaded.observed)))
    assert len(splits.train)
    assert len(splits.val)
    # The official test labels of Sewer-ML are not public.
    assert len(splits.test) or name == "sewer-ml"
    for part in ("train", "val", "test"):
        assert (loaded.observed.split[getattr(splits, part)] == part).all()


@pytest.mark.parametrize("setting", ["complete", "single", "left-75", "drop-0.3", "known-0.5"])
@pytest.mark.parametrize(("name", "writer"), CASES)
def test_observed_labels_are_true_and_test_rows_complete(tmp_path, name, writer, setting):
    loaded = load(name, writer(tmp_path), labels=setting)
    observed, truth = loaded.observed.values, loaded.truth
    assert observed.dtype == truth.dtype == np.int8
    assert not np.shares_memory(observed, truth)
    assert ((observed == UNKNOWN) | (observed == truth)).all()
    assert (observed[loaded.splits.test] == truth[loaded.splits.test]).all()
    learnt = np.concatenate([loaded.splits.train, loaded.splits.val])
    if setting == "complete":
        assert (observed == truth).all()
    elif setting == "single":
        full = (truth[learnt] == PRESENT).any(axis=1)
        assert (np.count_nonzero(observed[learnt], axis=1) == full).all()
        assert not (observed[learnt] == ABSENT).any()


@pytest.mark.parametrize(("name", "writer"), CASES)
def test_single_positives_are_the_published_draw_over_the_official_training_rows(
    tmp_path, name, writer
):
    loaded = load(name, writer(tmp_path), labels="single")
    learnt = np.sort(np.concatenate([loaded.splits.train, loaded.splits.val]))
    stream = np.random.RandomState(1200)
    for row in learnt:
        held, others = (
            np.nonzero(where)[0] for where in (loaded.truth[row] == 1, loaded.truth[row] != 1)
        )
        stream.shuffle(held)
        stream.shuffle(others)
        assert np.nonzero(loaded.observed.values[row])[0].tolist() == held[:1].tolist()


@pytest.mark.parametrize(("name", "writer"), CASES)
def test_the_error_for_a_missing_data_set_explains_where_to_get_it(tmp_path, name, writer):
    options = writer(tmp_path).options
    place = tmp_path / "elsewhere"
    with pytest.raises(DataError, match="elsewhere") as error:
        benchmarks.load(name, place, **options)
    if name != "table":
        assert benchmarks.explain(name) in str(error.value)


@pytest.mark.parametrize(("name", "writer"), CASES)
def test_the_error_for_an_incomplete_copy_names_the_missing_file(tmp_path, name, writer):
    written = writer(tmp_path)
    for file in written.needed[:3] + written.needed[-1:]:
        kept = file.read_bytes()
        file.unlink()
        with pytest.raises(DataError, match=file.name.replace(".", r"\.")):
            load(name, written)
        file.write_bytes(kept)
    load(name, written)


@pytest.mark.parametrize(("name", "writer"), CASES)
def test_labels_depend_on_the_seed_only(tmp_path, name, writer):
    written = writer(tmp_path)
    once, again = (load(name, written, labels="known-0.5") for _ in range(2))
    assert (once.observed.values == again.observed.values).all()
    assert (once.splits.train == again.splits.train).all()
    other = load(name, written, labels="known-0.5", seed=1)
    assert (once.splits.train == other.splits.train).all()
    assert (once.observed.values != other.observed.values).any()
