"""Label settings in which the shown labels are not a random draw, and the measures they need."""

import miniature_datasets as mini
import numpy as np
import pytest
from tiny_grid import HereOnly, tiny_grid

from halftruth.bench import datasets as benchmarks
from halftruth.bench import read_results, run_grid, runner, table
from halftruth.bench.label_settings import BIASES, MEASURES, find_setting, hide
from halftruth.data import DataError

RNG = np.random.default_rng(0)
COMPLETE = np.where(RNG.random((300, 8)) < np.linspace(0.1, 0.8, 8), 1, -1).astype(np.int8)
TABLES = {name: RNG.random(COMPLETE.shape) + 0.01 for name in MEASURES}
PRESENT = COMPLETE == 1


@pytest.mark.parametrize("setting", BIASES)
def test_a_bias_shows_one_label_per_row_or_a_share_of_all(setting):
    shown = hide(COMPLETE, setting, 3, TABLES)
    assert (PRESENT | (shown == 0)).all()
    assert (shown.sum(axis=1) <= 1).all()
    np.testing.assert_array_equal(shown.sum(axis=1), PRESENT.any(axis=1))
    share = hide(COMPLETE, f"{setting}-0.4", 3, TABLES)
    assert (PRESENT | (share == 0)).all()
    assert share.sum() == round(0.4 * PRESENT.sum())


@pytest.mark.parametrize("setting", BIASES)
def test_a_biased_draw_depends_on_the_seed_only(setting):
    first, again, other = (hide(COMPLETE, setting, seed, TABLES) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    always = BIASES[setting].largest_first
    # "Always the first" leaves nothing to chance, except the order that an annotator prefers.
    assert (first != other).any() == (not always or setting == "class-order")


def shown_share(setting):
    """The share of labels shown per class; class 0 is the rarest, 7 the most frequent."""
    return hide(COMPLETE, setting, 0, TABLES).clip(0).sum(axis=0) / PRESENT.sum(axis=0)


def test_frequent_and_rare_classes_are_preferred():
    usual = hide(COMPLETE, "single", 0).sum(axis=0) / PRESENT.sum(axis=0)
    for setting in ("frequent", "most-frequent"):
        assert shown_share(setting)[7] > usual[7]
        assert shown_share(setting)[0] < usual[0]
    for setting in ("rare", "rarest"):
        assert shown_share(setting)[0] > usual[0]
        assert shown_share(setting)[7] < usual[7]
    assert shown_share("most-frequent")[7] == shown_share("rarest")[0] == 1


@pytest.mark.parametrize(
    ("setting", "measure", "sign"),
    [("largest", "area", 1), ("most-central", "centre_distance", -1)],
)
def test_the_first_label_by_a_measure_is_always_shown(setting, measure, sign):
    shown = hide(COMPLETE, setting, 0, TABLES)
    ranked = np.where(PRESENT, sign * TABLES[measure], -np.inf)
    rows = PRESENT.any(axis=1)
    np.testing.assert_array_equal(shown.argmax(axis=1)[rows], ranked.argmax(axis=1)[rows])


def test_the_class_order_of_an_annotator_is_the_same_in_every_row():
    shown = hide(COMPLETE, "class-order", 5)
    # Class a is preferred to b if a was shown where both are present: no row may say otherwise.
    for a in range(8):
        for b in range(a):
            both = PRESENT[:, a] & PRESENT[:, b]
            assert not ((shown[both, a] == 1).any() and (shown[both, b] == 1).any())


def test_a_share_that_keeps_more_than_there_is_is_refused():
    """Objects without an area are never shown."""
    area = TABLES["area"] * (np.arange(8) < 4)
    with pytest.raises(DataError, match=r"labels='size-0\.9': share=0\.9 keeps"):
        hide(COMPLETE, "size-0.9", 1, {"area": area})


@pytest.mark.parametrize(
    "setting", ["frequent-2", "largest-", "uniform", "frequent-0.2-0.3", "class-order-x"]
)
def test_settings_that_do_not_exist_are_refused(setting):
    with pytest.raises(DataError, match=f"labels='{setting}' is not a label setting"):
        find_setting(setting)


@pytest.mark.parametrize("setting", [name for name in BIASES if BIASES[name].measure])
def test_a_setting_without_its_measure_says_what_is_missing(setting):
    with pytest.raises(DataError, match=f"labels='{setting}' needs .* the reader `table` takes"):
        hide(COMPLETE, setting)


def test_a_label_file_is_hidden_by_measures_in_a_file(tmp_path):
    written = mini.table(tmp_path)
    plain = benchmarks.load("table", written.root, val=0)
    size = np.linspace(0.1, 1, plain.truth.size).reshape(plain.truth.shape)
    file = tmp_path / "boxes.npz"
    # The columns are matched by name.
    np.savez(file, area=size[:, ::-1].astype(np.float16), classes=plain.classes[::-1])
    loaded = benchmarks.load("table", written.root, labels="largest", measures=file, val=0)
    rows = loaded.splits.train
    expected = hide(plain.truth[rows], "largest", 1200, {"area": size[rows]})
    np.testing.assert_array_equal(loaded.observed.values[rows], expected)
    np.testing.assert_array_equal(loaded.observed.values[2], plain.truth[2])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"area": np.ones((6, 2))}, "has no key classes"),
        ({"area": np.ones((6, 2)), "classes": ["cat", "cow"]}, r"\[classes\]: has no 'dog'"),
        ({"area": np.ones((5, 2)), "classes": ["cat", "dog"]}, r"\[area\]: .*shape \(6, 2\)"),
        ({"size": np.ones((6, 2)), "classes": ["cat", "dog"]}, "at least one of area, centre"),
    ],
)
def test_files_of_measures_that_do_not_fit_are_refused(tmp_path, arrays, message):
    written = mini.table(tmp_path)
    np.savez(tmp_path / "boxes.npz", **arrays)
    with pytest.raises(DataError, match=message):
        benchmarks.load("table", written.root, labels="size", measures=tmp_path / "boxes.npz")


def test_a_grid_runs_under_biased_labels_and_prints_them_as_columns(monkeypatch, root, tmp_path):
    monkeypatch.setattr(runner, "Pool", HereOnly)
    grid = tiny_grid(labels=["single", "most-frequent", "rarest"], methods=["bce"], seeds=[0])
    out = tmp_path / "r.jsonl"
    assert run_grid(grid, root, out, say=lambda _: None) == []
    printed = table(read_results(out))
    assert all(f"toy, {name}" in printed for name in grid.labels)
    failed = run_grid(tiny_grid(labels=["largest"]), root, out, say=lambda _: None)
    assert any("labels='largest' needs the share of the image" in text for text in failed)


def test_voc_2012_has_area_and_position_of_its_objects(tmp_path):
    mini.voc(tmp_path)
    reader = benchmarks.registry.create("voc2012")
    labels = reader.read(tmp_path).labels
    measures = reader.read_measures(tmp_path, labels)
    present = labels.values == 1
    assert (measures["area"][present] > 0).all()
    np.testing.assert_array_equal(np.isnan(measures["centre_distance"]), ~present)
    # The first object of an image is in the centre, the second is larger and at the side.
    several = np.flatnonzero(present.sum(axis=1) > 1)
    assert len(several)
    for setting, expected in (("most-central", 0.0), ("largest", np.hypot(0.25, 0.2))):
        shown = hide(labels.values, setting, 0, measures)
        found = measures["centre_distance"][several][shown[several] == 1]
        assert found == pytest.approx(np.full(len(several), expected))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "is missing; it has the boxes"),
        ("<annotation/>", "expected a size and objects with a box"),
        ("<annotation", "expected a size and objects with a box"),
    ],
)
def test_annotations_without_boxes_are_an_error_only_where_they_are_needed(tmp_path, text, message):
    mini.voc(tmp_path)
    file = sorted(tmp_path.rglob("*.xml"))[0]
    file.unlink() if text is None else file.write_text(text)
    with pytest.raises(DataError, match=message):
        benchmarks.load("voc2012", tmp_path, labels="size")
    with pytest.warns(benchmarks.BenchmarkWarning):
        benchmarks.load("voc2012", tmp_path, labels="frequent")
