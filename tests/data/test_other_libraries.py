"""Label files as other libraries write them: read right, or refused by name."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from halftruth.data import check_data, labels_from_frame, read_labels

CLASSES = ["cat", "dog", "bird"]
ITEMS = ["a.jpg", "b.jpg", "c.jpg"]
VALUES = [[0, 1, 1], [1, 0, 0], [0, 0, 1]]


def write_dataset(path, labels, features=None):
    """The file or the folder that Hugging Face datasets makes of lists."""
    datasets = pytest.importorskip("datasets")
    if not hasattr(datasets, "Dataset"):
        pytest.skip("another package is called datasets")
    dataset = datasets.Dataset.from_dict({"image": ITEMS, "labels": labels})
    writers = {".parquet": "to_parquet", ".jsonl": "to_json", ".csv": "to_csv", "": "save_to_disk"}
    getattr(dataset, writers[path.suffix])(str(path))
    return path


@pytest.mark.parametrize("kind", [float, int, bool])
@pytest.mark.parametrize("name", ["l.parquet", "l.jsonl", "l.csv", "folder"])
def test_multi_hot_lists_are_read_with_names_and_refused_without(tmp_path, name, kind):
    rows = [[kind(value) for value in row] for row in VALUES]
    if name == "l.csv" and kind is bool:
        pytest.skip("NumPy prints truth values without commas, which stays an error")
    path = write_dataset(tmp_path / name, rows)
    labels = read_labels(path, classes=CLASSES, zero="absent")
    assert labels.classes == tuple(CLASSES)
    assert labels.items.tolist() == ITEMS
    assert labels.values.tolist() == [[1 if value else -1 for value in row] for row in VALUES]
    with pytest.raises(ValueError, match=r"one number per class \(multi-hot\).*name the 3 classes"):
        read_labels(path)
    with pytest.raises(ValueError, match=r"name the 3 classes.*classes="):
        read_labels(path, classes=CLASSES[:2])


@pytest.mark.parametrize("cells", [VALUES, [np.array(row) for row in VALUES]])
def test_multi_hot_lists_in_a_frame(cells):
    frame = pd.DataFrame({"image": ITEMS, "labels": cells})
    assert labels_from_frame(frame, classes=CLASSES).values.tolist() == VALUES
    with pytest.raises(ValueError, match="DataFrame row 0: column 'labels' holds one number per"):
        labels_from_frame(frame)


def test_lists_of_probabilities_are_soft_labels(tmp_path):
    path = write_dataset(tmp_path / "l.parquet", [[0.5, 0.25, 1.0]] * 3)
    labels = read_labels(path, classes=CLASSES, soft=True)
    assert labels.soft.tolist() == [[0.5, 0.25, 1.0]] * 3
    with pytest.raises(ValueError, match=r"column 'cat': .*got '0.5'.*soft=True"):
        read_labels(path, classes=CLASSES)


@pytest.mark.parametrize("lists", [[[0], [1], []], [[3, 17], [0, 1], [1, 2]], [[0, 1], [1], [0]]])
def test_lists_of_class_numbers_are_names(tmp_path, lists):
    labels = read_labels(write_dataset(tmp_path / "l.parquet", lists))
    found = [{labels.classes[k] for k in np.flatnonzero(row == 1)} for row in labels.values]
    assert found == [{str(number) for number in row} for row in lists]


# Cells of a column called labels, and the names that are read from them.
CELLS = {
    "Label Studio": (
        ['{"choices":["dog","bird"]}', "big cat", "", '{"choices": ["cat"]}'],
        [{"dog", "bird"}, {"big cat"}, set(), {"cat"}],
    ),
    "Python sets": ([{"cat", "dog"}, {"bird"}, set()], [{"cat", "dog"}, {"bird"}, set()]),
}


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ""])
@pytest.mark.parametrize("kind", CELLS)
def test_cells_of_other_libraries(tmp_path, kind, suffix):
    cells, expected = CELLS[kind]
    frame = pd.DataFrame({"image": [f"{row}.jpg" for row in range(len(cells))], "labels": cells})
    if suffix:
        frame.to_csv(tmp_path / f"l{suffix}", index=False, sep="\t" if suffix == ".tsv" else ",")
        labels = read_labels(tmp_path / f"l{suffix}", label_column="labels")
    else:
        labels = labels_from_frame(frame, label_column="labels")
    found = [{labels.classes[k] for k in np.flatnonzero(row == 1)} for row in labels.values]
    assert found == expected


# Cells that hold no names, and words of the error.
NO_NAMES = {
    "an object": (['{"other":["dog"]}', "cat"], "looks like a list, but cannot be read"),
    "numbers": (["0.5", "1.5"], "the label '0.5' looks like a number.*classes="),
    "the end of a list": (["cat, dog]", "cat"], r"the label 'dog\]' looks like a part of a list"),
    "a set of tuples": (["{('cat', 1)}", "{('dog', 2)}"], "looks like a part of a list"),
}


@pytest.mark.parametrize("kind", NO_NAMES)
def test_names_that_are_parts_of_something_else_are_refused(tmp_path, kind):
    cells, message = NO_NAMES[kind]
    path = tmp_path / "l.csv"
    pd.DataFrame({"image": ITEMS[:2], "labels": cells}).to_csv(path, index=False)
    with pytest.raises(ValueError, match=message):
        read_labels(path, label_column="labels")


def test_odd_class_names_can_be_chosen(tmp_path):
    path = tmp_path / "l.csv"
    pd.DataFrame({"image": ITEMS[:2], "labels": ["[unk]|1.5", "1.5"]}).to_csv(path, index=False)
    labels = read_labels(path, label_column="labels", classes=["[unk]", "1.5"])
    assert labels.values.tolist() == [[1, 1], [0, 1]]


def test_the_comment_mark_of_savetxt_is_no_part_of_a_class(tmp_path):
    np.savetxt(tmp_path / "l.csv", np.eye(3), delimiter=",", header="cat,dog,bird")
    labels = read_labels(tmp_path / "l.csv")
    assert labels.classes == tuple(CLASSES)
    assert labels.values.tolist() == np.eye(3).tolist()


def test_a_folder_of_several_data_sets_names_them(tmp_path):
    datasets = pytest.importorskip("datasets")
    if not hasattr(datasets, "DatasetDict"):
        pytest.skip("another package is called datasets")
    part = datasets.Dataset.from_dict({"image": ITEMS, "cat": [1, 0, 1]})
    datasets.DatasetDict(train=part, test=part).save_to_disk(tmp_path / "d")
    with pytest.raises(ValueError, match=r"DatasetDict .* parts 'train', 'test'; give one .*train"):
        read_labels(tmp_path / "d")
    assert read_labels(tmp_path / "d" / "train").items.tolist() == ITEMS


def test_an_index_of_pandas_in_parquet_names_the_items(tmp_path):
    frame = pd.DataFrame({"cat": [1, 0, 1], "dog": [0, 1, 1]}, index=ITEMS)
    frame.to_parquet(tmp_path / "l.parquet")
    labels = read_labels(tmp_path / "l.parquet")
    assert labels.items.tolist() == ITEMS
    assert labels.classes == ("cat", "dog")


def test_an_export_of_label_studio_in_json_is_refused_with_advice(tmp_path):
    (tmp_path / "l.json").write_text(json.dumps([{"id": 1, "annotations": []}]))
    with pytest.raises(ValueError, match="this is a list; from Label Studio export CSV or COCO"):
        read_labels(tmp_path / "l.json")


# Values of a column called split, and what they mean; a text is the expected error.
SPLITS = {
    "two numbers": ([0, 1, 0], ["train", "test", "train"]),
    "three numbers": ([0, 1, 2], ["train", "val", "test"]),
    "decimals": ([0.0, 1.0, 0.0], ["train", "test", "train"]),
    "a holdout": (["train", "dev", "holdout"], ["train", "dev", "holdout"]),
    "unknown numbers": ([1, 2, 1], "'split' names the split, but '1' is not train, val or test"),
    "truth values": ([True, False, True], "'split' names the split, but 'True' is not train"),
    "labels": ([1, 0, -1], "'split' names the split, but '1' is not train.*name all classes"),
}


@pytest.mark.parametrize("kind", SPLITS)
def test_a_split_column_never_becomes_a_class(tmp_path, kind):
    values, expected = SPLITS[kind]
    path = tmp_path / "l.csv"
    pd.DataFrame({"image": ITEMS, "split": values, "cat": [1, 0, 1]}).to_csv(path, index=False)
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=expected):
            read_labels(path)
        return
    labels = read_labels(path)
    assert labels.classes == ("cat",)
    assert labels.split.tolist() == expected
    assert check_data(labels).ok
    assert ("read split 0 as train" in labels.describe()) == (values[0] == 0)


def test_a_class_called_split_is_named(tmp_path):
    path = tmp_path / "l.csv"
    pd.DataFrame({"image": ITEMS, "split": [0, 1, 0], "cat": [1, 0, 1]}).to_csv(path, index=False)
    assert read_labels(path, classes=["split", "cat"]).values.tolist() == [[0, 1], [1, 0], [0, 1]]


# Cells, options, and what is asked about the classes.
ASKED = {
    "case": (["cat", "Cat", "dog"], {}, "may be one class, spelt differently: 'Cat', 'cat'"),
    "another separator": (
        ["cat|dog", "dog|bird", "cat|bird"],
        {"sep": ";"},
        "3 class names hold '|' and other classes, such as 'cat|bird'; .*--sep '|'",
    ),
    "nothing to ask": (["wine, red|wine, white", "wine, red", "beer"], {"sep": "|"}, ""),
}


@pytest.mark.parametrize("kind", ASKED)
def test_doubtful_classes_are_noted_once(tmp_path, kind):
    cells, options, expected = ASKED[kind]
    path = tmp_path / "l.csv"
    pd.DataFrame({"image": ITEMS, "labels": cells}).to_csv(path, index=False)
    labels = read_labels(path, **options)
    report = check_data(labels).text()
    if not expected:
        assert labels.notes == ()
        return
    pattern = expected.replace("|", r"\|")
    assert re.search(pattern, labels.describe())
    assert len(re.findall(pattern, report)) == 1


def test_a_long_text_is_read(tmp_path):
    path = tmp_path / "l.csv"
    frame = pd.DataFrame({"image": ITEMS, "text": ["x" * 200_000, "y", "z"], "cat": [1, 0, 1]})
    frame.to_csv(path, index=False)
    assert len(read_labels(path, drop_columns=["text"])) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cat,pet\n", "has a header but no rows; .*expected the header child,parent"),
        ("cat,dog\ndog,bird\n", "expected the columns child and parent, got 'cat'"),
    ],
)
def test_a_hierarchy_without_header_is_refused(tmp_path, text, message):
    (tmp_path / "h.csv").write_text(text)
    frame = pd.DataFrame({"image": ITEMS, "labels": ["cat|dog", "bird", "pet"]})
    frame.to_csv(tmp_path / "l.csv", index=False)
    with pytest.raises(ValueError, match=message):
        read_labels(tmp_path / "l.csv", hierarchy=tmp_path / "h.csv")


def test_minus_one_of_a_class_label_is_no_label(tmp_path):
    datasets = pytest.importorskip("datasets")
    if not hasattr(datasets, "ClassLabel"):
        pytest.skip("another package is called datasets")
    kind = datasets.ClassLabel(names=["cat", "dog"])
    features = datasets.Features({"image": datasets.Value("string"), "label": kind})
    dataset = datasets.Dataset.from_dict({"image": ITEMS, "label": [0, -1, 1]}, features=features)
    dataset.to_parquet(str(tmp_path / "l.parquet"))
    assert read_labels(tmp_path / "l.parquet").values.tolist() == [[1, 0], [0, 0], [0, 1]]
