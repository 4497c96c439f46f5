"""The labels of each miniature data set, checked against hand-written values."""

import warnings

import miniature_datasets as mini
import numpy as np
import pytest
from sklearn.model_selection import train_test_split

from halftruth.bench import datasets as benchmarks
from halftruth.bench.datasets.chestxray14 import patient_parts
from halftruth.data import DataError, read_labels
from halftruth.labels import ABSENT, PRESENT, UNKNOWN

pytestmark = pytest.mark.filterwarnings("ignore::halftruth.bench.datasets.BenchmarkWarning")


def held(loaded):
    """The present classes of each item."""
    names = np.array(loaded.classes)
    return {
        str(item): set(names[row == PRESENT].tolist())
        for item, row in zip(loaded.observed.items, loaded.truth, strict=True)
    }


def test_voc_sorts_its_rows_and_does_not_count_difficult_objects(tmp_path):
    written = mini.voc(tmp_path)
    loaded = benchmarks.load("voc2012", tmp_path)
    assert loaded.observed.items.tolist() == [
        "2008_000008.jpg", "2008_000015.jpg", "2008_000019.jpg", "2008_000023.jpg",
        "2008_000028.jpg", "2008_000002.jpg", "2008_000003.jpg",
    ]  # fmt: skip
    assert held(loaded)["2008_000019.jpg"] == {"dog"}
    cat = loaded.classes.index("cat")
    assert loaded.truth[2, cat] == ABSENT
    assert benchmarks.load("voc2012", tmp_path, difficult="unknown").truth[2, cat] == UNKNOWN
    assert benchmarks.load("voc2012", tmp_path, difficult="present").truth[2, cat] == PRESENT
    # The class lists and the annotations say the same.
    lists = written.needed[0].parent
    (lists / "test.txt").unlink()
    boxes = read_labels(tmp_path / "VOCdevkit" / "VOC2012", zero="absent", classes=loaded.classes)
    order = [boxes.items.tolist().index(item) for item in loaded.observed.items]
    assert (boxes.values[order] == loaded.truth).all()
    assert loaded.images == (tmp_path / "VOCdevkit" / "VOC2012" / "JPEGImages",)
    assert benchmarks.load("voc", tmp_path / "VOCdevkit" / "VOC2012").name == "voc2012"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2008_000008 -1\n", "no line for '2008_000015' .4 images are missing"),
        ("2008_000008 2\n", r"bird_train.txt line 1: expected an image and 1, 0 or -1"),
        ("2008_000008\n", r"bird_train.txt line 1: expected an image and 1, 0 or -1"),
    ],
)
def test_voc_refuses_an_incomplete_list(tmp_path, text, message):
    mini.voc(tmp_path)
    mini.write(tmp_path / "VOCdevkit/VOC2012/ImageSets/Main/bird_train.txt", text)
    with pytest.raises(DataError, match=message):
        benchmarks.load("voc2012", tmp_path)


def test_coco_drops_images_without_objects_and_sorts_ids_as_text(tmp_path):
    mini.coco(tmp_path)
    loaded = benchmarks.load("coco2014", tmp_path)
    numbers = [int(name[-16:-4]) for name in loaded.observed.items]
    assert numbers == [10, 100, 25, 30, 9, 139, 42]
    assert loaded.classes == ("person", "dog", "cat")
    for number, name in zip(numbers, loaded.observed.items, strict=True):
        objects = {**mini.COCO_TRAIN, **mini.COCO_VAL}[number]
        assert held(loaded)[str(name)] == set(objects)
    assert loaded.images == (tmp_path / "val2014",)


def test_coco_41_is_split_by_the_first_kept_annotation(tmp_path):
    mini.coco_41(tmp_path)
    loaded = benchmarks.load("coco-41", tmp_path)
    assert len(loaded.classes) == 41
    images = {**mini.coco_41_images(1, 12), **mini.coco_41_images(3, 2)}
    assert [int(name[:12]) for name in loaded.observed.items] == list(images)
    assert held(loaded)[f"{1:012d}.jpg"] == {"cat", "dog"}
    assert loaded.statistics["negative_rows"] == 2 * 14
    # In the order of the categories: cat 2, dog 3, pizza 15, and 41 for none.
    kind = {"cat": 2, "dog": 3, "pizza": 15}
    first = [next((kind[name] for name in row if name in kind), 41) for row in images.values()]
    ids = list(images)
    train, rest, _, kinds = train_test_split(
        ids, first, train_size=0.7, stratify=first, random_state=42
    )
    val, test = train_test_split(rest, train_size=0.5, stratify=kinds, random_state=42)
    for part, expected in (("train", train), ("val", val), ("test", test)):
        rows = getattr(loaded.splits, part)
        assert [ids[row] for row in rows] == sorted(expected, key=ids.index)
    with pytest.raises(
        DataError, match=r"published validation part of 10 rows; leave out val=0\.1"
    ):
        benchmarks.load("coco-41", tmp_path, val=0.1)


def test_nus_lists_have_windows_paths(tmp_path):
    mini.nus_official(tmp_path)
    loaded = benchmarks.load("nuswide", tmp_path, split="official")
    expected = {
        name.replace("\\", "/"): set(labels)
        for images in mini.NUS.values()
        for name, labels in images.items()
    }
    assert held(loaded) == expected
    assert loaded.observed.items[loaded.splits.test].tolist() == list(expected)[5:]


def test_nus_drawn_takes_both_lists_in_the_published_proportion(tmp_path):
    mini.nus_official(tmp_path)
    loaded = benchmarks.load("nuswide", tmp_path, split="drawn")
    assert len(loaded.splits.test) == 2
    assert len(loaded.observed) == 7
    other = benchmarks.load("nuswide", tmp_path, split="drawn", draw_seed=3)
    assert held(loaded) == held(other)
    assert loaded.observed.items.tolist() != other.observed.items.tolist()


def test_nus_as_cole_keeps_the_order_and_the_empty_rows(tmp_path):
    mini.nus_cole(tmp_path)
    loaded = benchmarks.load("nuswide", tmp_path, labels="single")
    assert loaded.observed.items[:2].tolist() == ["actor/0000_train.jpg", "actor/0001_train.jpg"]
    assert held(loaded)["actor/0001_train.jpg"] == {"person"}
    assert held(loaded)["actor/0000_train.jpg"] == {"sky"}
    assert held(loaded)["actor/0003_train.jpg"] == set()
    assert len(loaded.splits.val) == 2
    assert loaded.images == (tmp_path / "Flickr",)


def test_nus_as_asl_reads_lists_of_names(tmp_path):
    mini.nus_asl(tmp_path)
    loaded = benchmarks.load("nuswide", tmp_path, split="asl")
    assert held(loaded)["2_2.jpg"] == {"zebra", "animal", "grass"}
    assert loaded.observed.items[loaded.splits.test].tolist() == ["2_2.jpg"]
    assert loaded.classes[42] == "person"


@pytest.mark.parametrize(
    ("change", "split", "message"),
    [
        (("Groundtruth/TrainTestLabels/Labels_sky_Train.txt", "0\n1\n"), "official",
         "expected 5 lines of 0 or 1, one per image of the list, got 2 lines"),
        (("Groundtruth/TrainTestLabels/Labels_sky_Train.txt", "0\n1\n0\n2\n0\n"), "official",
         "got '2'"),
        (("nus_wid_data.csv", "a,b,c\nx.jpg,\"['sky', 'skye']\",train\n"), "asl",
         "line 2: label 'skye' is not among the 81 classes .did you mean 'sky'"),
        (("nus_wid_data.csv", "a,b,c\nx.jpg,['sky'],dev\n"), "asl",
         "line 2: expected train or val, got 'dev'"),
    ],
)  # fmt: skip
def test_nus_errors_name_the_mistake(tmp_path, change, split, message):
    mini.nus_official(tmp_path)
    mini.write(tmp_path / change[0], change[1])
    with pytest.raises(DataError, match=message):
        benchmarks.load("nuswide", tmp_path, split=split)


def test_cub_reads_lines_with_too_many_fields(tmp_path):
    mini.cub(tmp_path)
    loaded = benchmarks.load("cub", tmp_path)
    assert (loaded.truth == PRESENT).astype(int).tolist() == [
        [0, 1, 0], [1, 0, 1], [0, 0, 1], [0, 0, 0], [1, 1, 1],
    ]  # fmt: skip
    assert loaded.splits.test.tolist() == [0, 4]
    assert loaded.classes[0] == "has_bill_shape::dagger"
    assert loaded.observed.items[0] == "001.Bird/Bird_0001.jpg"
    assert loaded.images == (tmp_path / "CUB_200_2011" / "images",)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("4 2 0 1 0\n", "", "image 4 has no line for attribute 2"),
        ("4 2 0 1 0\n", "4 1 0 1 0\n", "image 4 has 2 lines for attribute 1 .2 such pairs"),
        ("4 2 0 1 0\n", "4 2 7 1 0\n", r"entry 11: expected .* got \[4, 2, 7\]"),
        ("4 2 0 1 0\n", "4 2\n", "entry 11: expected an image of 1 to 5"),
        ("4 2 0 1 0\n", "4 x 0 1 0\n", "entry 11: expected an image of 1 to 5"),
    ],
)
def test_cub_errors_name_the_line(tmp_path, old, new, message):
    written = mini.cub(tmp_path)
    mini.write(written.needed[-1], mini.CUB.replace(old, new))
    with pytest.raises(DataError, match=message):
        benchmarks.load("cub", tmp_path)


def test_open_images_has_verified_absent_and_conflicting_labels(tmp_path):
    mini.openimages(tmp_path)
    with pytest.warns(benchmarks.BenchmarkWarning, match="1 labels are verified both as present"):
        loaded = benchmarks.load("openimages", tmp_path)
    assert loaded.classes == ("Apple", "Cat", "Dog")
    rows = dict(zip(loaded.observed.items.tolist(), loaded.truth.tolist(), strict=True))
    assert rows == {
        "000002b66c9c498e.jpg": [-1, 1, 1],
        "00009e5b390986a0.jpg": [0, 0, 1],
        "0000a16e4b057580.jpg": [1, 0, 0],
        "0000b86e2fd18333.jpg": [1, 0, 0],
        "0000c64e1253d68f.jpg": [1, 0, 0],
        "0001eeaf4aed83f9.jpg": [0, 1, -1],
    }
    some = benchmarks.load("openimages", tmp_path, classes=["Cat", "/m/0bt9lr"], val=0)
    assert some.classes == ("Cat", "Dog")
    assert len(some.observed) == 3


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("class-descriptions-boxable.csv", "014j1m,Apple\n", "expected lines such as /m/011k07"),
        ("train-annotations-human-imagelabels-boxable.csv", "ImageID,LabelName\na,/m/01yrx\n",
         r"line 1: expected the columns .* these columns are missing: Confidence"),
        ("train-annotations-human-imagelabels-boxable.csv",
         "ImageID,Source,LabelName,Confidence\na,machine,/m/01yrx,0.7\n",
         "entry 1: expected a verified label with Confidence 0 or 1, got 0.7"),
    ],
)  # fmt: skip
def test_open_images_refuses_other_files(tmp_path, name, text, message):
    mini.openimages(tmp_path)
    mini.write(tmp_path / name, text)
    with pytest.raises(DataError, match=message):
        benchmarks.load("openimages", tmp_path)


def test_the_header_of_open_images_v7_is_not_a_class(tmp_path):
    written = mini.openimages(tmp_path)
    text = "LabelName,DisplayName\n" + written.needed[0].read_text()
    written.needed[0].unlink()
    mini.write(tmp_path / "oidv7-class-descriptions-boxable.csv", text)
    assert benchmarks.load("openimages", tmp_path).classes == ("Apple", "Cat", "Dog")


def test_sewer_has_seventeen_defects_and_normal_rows(tmp_path):
    mini.sewer(tmp_path)
    loaded = benchmarks.load("sewer-ml", tmp_path)
    assert len(loaded.classes) == 17
    assert held(loaded)["00000010.png"] == {"RB", "OB"}
    assert held(loaded)["00000049.png"] == set()
    assert loaded.statistics["negative_rows"] == 3
    assert loaded.observed.items[loaded.splits.val].tolist() == ["00000048.png", "00000049.png"]
    assert len(loaded.splits.train) == 5, "all of SewerML_Train is trained on, as in the paper"
    assert not loaded.notes
    held_out = benchmarks.load("sewer-ml", tmp_path, split="held-out")
    assert (len(held_out.splits.train), len(held_out.splits.val)) == (4, 1)
    assert (held_out.splits.test == loaded.splits.val).all()


def test_sewer_subsets_have_a_ratio_of_positive_and_negative_rows(tmp_path):
    """Table 5 of the any-class paper: 50,000 positive rows and 1, 2 or 5 times as many others."""
    mini.sewer(tmp_path)
    drawn = benchmarks.load("sewer-ml", tmp_path, positives=1, negatives=2)
    assert drawn.statistics["positive_rows_train"] == 1
    assert drawn.statistics["negative_rows_train"] == 2
    assert len(drawn.splits.val) == 2
    assert not drawn.notes
    again = benchmarks.load("sewer-ml", tmp_path, positives=1, negatives=2)
    assert (drawn.observed.items == again.observed.items).all()
    few = benchmarks.load("sewer-ml", tmp_path, positives=2, negatives=5)
    assert few.notes == ("the subset has only 2 of 10 rows without a defect",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "x"}, "split must be one of"),
        ({"positives": 5}, "expected positives and negatives together"),
        ({"positives": 0, "negatives": 1}, "expected positives >= 1"),
    ],
)
def test_sewer_refuses_wrong_options(tmp_path, options, message):
    mini.sewer(tmp_path)
    with pytest.raises(DataError, match=message):
        benchmarks.load("sewer-ml", tmp_path, **options)


def test_sewer_notes_rows_whose_defect_disagrees(tmp_path):
    written = mini.sewer(tmp_path)
    rows = [mini.SEWER_COLUMNS, mini.sewer_row("1.png", set(), 1), mini.sewer_row("2.png", {"OK"})]
    mini.write_rows(written.needed[1], rows)
    with pytest.warns(benchmarks.BenchmarkWarning, match="SewerML_Val.csv: 1 rows in which Defect"):
        benchmarks.load("sewer-ml", tmp_path)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([["Filename", "RB"], ["a.png", 1]], "these columns are missing: Defect, OB"),
        ([mini.SEWER_COLUMNS, ["", *mini.sewer_row("x", set())[1:]]], "entry 1: has no Filename"),
        ([mini.SEWER_COLUMNS, ["a.png", 0, 1, 5, *[0] * 18]], "entry 1, column RB: expected 0 or"),
    ],
)  # fmt: skip
def test_sewer_refuses_invalid_values(tmp_path, rows, message):
    written = mini.sewer(tmp_path)
    mini.write_rows(written.needed[0], rows)
    with pytest.raises(DataError, match=message):
        benchmarks.load("sewer-ml", tmp_path)


def test_chest_rows_without_finding_are_empty(tmp_path):
    mini.chest(tmp_path)
    loaded = benchmarks.load("chestxray14", tmp_path)
    lines = (tmp_path / "Data_Entry_2017_v2020.csv").read_text().splitlines()[1:]
    expected = {line.split(",")[0]: set(line.split(",")[1].split("|")) for line in lines}
    assert held(loaded) == {name: found - {"No Finding"} for name, found in expected.items()}
    assert loaded.statistics["negative_rows"] == sum("No Finding" in line for line in lines) > 0
    assert not (loaded.truth == UNKNOWN).any()


@pytest.mark.parametrize("split", ["any-class", "official"])
def test_chest_keeps_patients_whole(tmp_path, split):
    mini.chest_official(tmp_path)
    loaded = benchmarks.load("chestxray14", tmp_path, split=split)
    patients = np.array([item[:8] for item in loaded.observed.items])
    parts = [set(patients[rows]) for rows in vars(loaded.splits).values()]
    assert len(set.union(*parts)) == sum(map(len, parts)) == 40
    if split == "official":
        assert parts[2] == {f"{patient:08d}" for patient in range(31, 41)}


def test_patient_parts_equal_the_split_of_scikit_learn():
    rng = np.random.RandomState(5)
    patients = np.repeat(rng.permutation(101), rng.randint(1, 4, size=101)).astype(str)
    everyone = list(dict.fromkeys(patients))
    train, rest = train_test_split(everyone, test_size=0.3, random_state=42)
    val, test = train_test_split(rest, test_size=0.5, random_state=42)
    place = {
        p: part for part, group in (("train", train), ("val", val), ("test", test)) for p in group
    }
    assert patient_parts(patients).tolist() == [place[patient] for patient in patients]


def test_chest_error_names_an_image_in_no_list(tmp_path):
    written = mini.chest_official(tmp_path)
    lines = written.needed[2].read_text().splitlines()
    mini.write(written.needed[2], "\n".join(lines[1:]))
    with pytest.raises(DataError, match=f"neither lists '{lines[0]}' .1 images of the table"):
        benchmarks.load("chestxray14", tmp_path, split="official")


def test_mulan_files_and_arrays_give_features_and_labels(tmp_path):
    mini.yeast(tmp_path)
    loaded = benchmarks.load("yeast", tmp_path)
    assert loaded.features.dtype == np.float32
    assert loaded.features.ravel().tolist() == [0.5, -1.25, 2.0, 3.0, 4.0, 7.0]
    assert loaded.truth.tolist() == [[1, -1], [-1, 1], [1, 1], [-1, -1], [1, -1], [-1, 1]]
    assert loaded.splits.test.tolist() == [5]
    written = mini.scene(tmp_path)
    arrays = np.load(written.root)
    scene = benchmarks.load("tabular", tmp_path, dataset="scene")
    assert (scene.features == np.concatenate([arrays["X_train"], arrays["X_test"]])).all()
    assert (scene.truth[8:] == np.where(arrays["Y_test"], 1, -1)).all()
    assert scene.classes == ("Beach", "Sunset", "Field", "Urban")


def test_packed_features_are_unpacked_and_put_in_the_published_order(tmp_path):
    written = mini.features(tmp_path)
    loaded = benchmarks.load("features", tmp_path)
    assert loaded.observed.items.tolist() == ["10", "100", "11", "30", "7", "9", "25", "8"]
    rows = [mini.FEATURE_IDS.tolist().index(int(item)) for item in loaded.observed.items]
    bits = np.random.RandomState(1).rand(8, 11) < 0.4
    assert ((loaded.truth == PRESENT) == bits[rows]).all()
    assert (loaded.features == np.arange(16).reshape(8, 2)[rows] * np.float32(0.5)).all()
    assert loaded.splits.test.tolist() == [6, 7]
    assert (benchmarks.load("features", written.needed[0]).truth == loaded.truth).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"names": np.array(["a"] * 9)}, "class names must differ"),
        ({"names": np.array([f"c{k}" for k in range(17)])}, r"expected uint8 of shape \(8, 3\)"),
        ({"names": np.array([f"c{k}" for k in range(9)])}, "bits are set beyond the 9 classes"),
        ({"split": np.full(8, 3)}, "expected 0 .train., 1 .test. or 2 .val."),
        ({"features": np.full((8, 2), np.nan)}, "expected a finite float32 number"),
        ({"features": np.zeros((7, 2))}, "has 7 rows, but the labels have 8"),
    ],
)
def test_inconsistent_packed_features_are_refused(tmp_path, change, message):
    written = mini.features(tmp_path)
    arrays = dict(np.load(written.needed[0]))
    np.savez(written.needed[0], **{**arrays, **change})
    with pytest.raises(DataError, match=message):
        benchmarks.load("features", tmp_path)


def test_any_label_file_can_be_a_data_set(tmp_path):
    written = mini.table(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = benchmarks.load("table", written.root, images=tmp_path)
    assert loaded.truth[3].tolist() == [-1, -1]
    assert loaded.images == (tmp_path,)
    chosen = benchmarks.load("table", written.root, reading={"drop_columns": ["dog"]})
    assert chosen.classes == ("cat",)
    mini.write(written.root, "image,cat\na.jpg,1\n")
    with pytest.raises(DataError, match="no split column for training and test rows"):
        benchmarks.load("table", written.root)
