"""COCO, VOC, image folders, matrices and ARFF."""

import json

import numpy as np
import pytest

from halftruth.data import DataError, read_features, read_labels


def coco(**changes):
    content = {
        "images": [
            {"id": 9, "file_name": "b.jpg"},
            {"id": 2, "file_name": "a.jpg"},
            {"id": 5, "file_name": "c.jpg"},
        ],
        "annotations": [
            {"image_id": 9, "category_id": 7},
            {"image_id": 9, "category_id": 7},
            {"image_id": 2, "category_id": 3},
        ],
        "categories": [{"id": 7, "name": "dog"}, {"id": 3, "name": "zebra"}],
    }
    return {**content, **changes}


def write_json(path, content):
    path.write_text(json.dumps(content))
    return path


def test_coco_orders_classes_by_id_and_keeps_empty_images(tmp_path):
    path = write_json(tmp_path / "instances.json", coco())
    labels = read_labels(path)
    assert labels.classes == ("zebra", "dog")
    assert labels.items.tolist() == ["b.jpg", "a.jpg", "c.jpg"]
    assert labels.values.tolist() == [[0, 1], [1, 0], [0, 0]]
    assert read_labels(path, zero="absent").values.tolist() == [[-1, 1], [1, -1], [-1, -1]]
    assert read_labels(path, keep_empty=False).items.tolist() == ["b.jpg", "a.jpg"]
    assert read_labels(path, classes=["dog", "zebra", "cow"]).values[0].tolist() == [1, 0, 0]


def test_verified_negatives_of_lvis_are_absent(tmp_path):
    images = [
        {"id": 9, "coco_url": "http://images/b.jpg", "neg_category_ids": [3]},
        {"id": 2, "coco_url": "http://images/a.jpg", "neg_category_ids": []},
    ]
    labels = read_labels(write_json(tmp_path / "lvis.json", coco(images=images)))
    assert labels.items.tolist() == ["b.jpg", "a.jpg"]
    assert labels.values.tolist() == [[-1, 1], [1, 0]]
    images[0]["neg_category_ids"] = [7]
    with pytest.raises(DataError, match=r"images\[0\]: an annotated category is also listed"):
        read_labels(write_json(tmp_path / "lvis.json", coco(images=images)))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "expected COCO instances JSON"),
        (coco(images=[]), "the list 'images' is empty"),
        (coco(categories=None), "'categories' is missing"),
        (coco(annotations=[{"image_id": 1, "category_id": 3}]), r"annotations\[0\] has image_id 1"),
        (
            coco(annotations=[{"image_id": 2, "category_id": 4}]),
            r"annotations\[0\] has category_id 4",
        ),
        (coco(annotations=[{"image_id": "2"}]), r"annotations\[0\]: expected a whole number"),
        (
            coco(categories=[{"id": 3, "name": "a"}, {"id": 3, "name": "b"}]),
            "share an id or a name",
        ),
        (coco(images=[{"id": 2}]), r"images\[0\] has no 'file_name'"),
    ],
)
def test_bad_coco_files_are_refused(tmp_path, content, message):
    if isinstance(content, dict) and len(content["images"]) == 1:
        content = {**content, "annotations": []}
    with pytest.raises(DataError, match=message):
        read_labels(write_json(tmp_path / "instances.json", content))


def voc_folder(tmp_path, objects, lists=None):
    (tmp_path / "Annotations").mkdir()
    for stem, found in objects.items():
        body = "".join(
            f"<object><name>{name}</name><difficult>{difficult}</difficult>"
            "<part><name>head</name></part></object>"
            for name, difficult in found
        )
        text = f"<annotation><filename>{stem}.jpg</filename>{body}</annotation>"
        (tmp_path / "Annotations" / f"{stem}.xml").write_text(text)
    for part, stems in (lists or {}).items():
        (tmp_path / "ImageSets" / "Main").mkdir(parents=True, exist_ok=True)
        (tmp_path / "ImageSets" / "Main" / f"{part}.txt").write_text("\n".join(stems) + "\n")
    return tmp_path


VOC = {"b": [("dog", 0), ("dog", 1), ("cat", 1)], "a": [("cat", 0)], "c": []}


@pytest.mark.parametrize(
    ("difficult", "zero", "row"),
    [
        ("unlisted", "unknown", [0, 1]),
        ("unlisted", "absent", [-1, 1]),
        ("unknown", "absent", [0, 1]),
        ("absent", "unknown", [-1, 1]),
        ("present", "absent", [1, 1]),
    ],
)
def test_difficult_objects_of_voc(tmp_path, difficult, zero, row):
    labels = read_labels(voc_folder(tmp_path, VOC), difficult=difficult, zero=zero)
    assert labels.items.tolist() == ["a.jpg", "b.jpg", "c.jpg"]
    assert labels.classes == ("cat", "dog")
    assert labels.values[1].tolist() == row


def test_image_sets_of_voc_give_rows_and_splits(tmp_path):
    folder = voc_folder(tmp_path, VOC, {"train": ["b"], "val": ["a"], "trainval": ["b", "a"]})
    (folder / "ImageSets" / "Main" / "dog_train.txt").write_text("b  1\na -1\n")
    labels = read_labels(folder)
    assert labels.items.tolist() == ["b.jpg", "a.jpg"]
    assert labels.split.tolist() == ["train", "val"]
    assert read_labels(folder / "Annotations").items.tolist() == ["b.jpg", "a.jpg"]


def test_bad_voc_folders_are_refused(tmp_path):
    folder = voc_folder(tmp_path, VOC, {"train": ["b", "gone"]})
    with pytest.raises(DataError, match=r"lists 1 images without an annotation.*'gone'"):
        read_labels(folder)
    (folder / "ImageSets" / "Main" / "train.txt").write_text("b\n../a\n")
    with pytest.raises(DataError, match=r"train\.txt line 2: expected one image name"):
        read_labels(folder)
    (folder / "ImageSets" / "Main" / "train.txt").write_text("b\n")
    (folder / "Annotations" / "b.xml").write_text("<annotation><object>")
    with pytest.raises(DataError, match=r"b\.xml: cannot be read as XML"):
        read_labels(folder)


def test_image_folder_with_metadata(tmp_path):
    for part, name, text in (
        ("train", "metadata.csv", "file_name,cat,dog\nx/1.png,1,0\n2.png,0,1\n"),
        ("validation", "metadata.csv", "file_name,cat,dog\n1.png,0,0\n"),
    ):
        (tmp_path / part).mkdir()
        (tmp_path / part / name).write_text(text)
    labels = read_labels(tmp_path)
    assert labels.items.tolist() == ["train/x/1.png", "train/2.png", "validation/1.png"]
    assert labels.split.tolist() == ["train", "train", "validation"]
    assert labels.values.tolist() == [[1, 0], [0, 1], [0, 0]]
    (tmp_path / "validation" / "metadata.csv").write_text("file_name,cat\n1.png,0\n")
    with pytest.raises(DataError, match=r"metadata\.csv: has other columns .*'dog' are in one"):
        read_labels(tmp_path)


def test_image_folder_with_lists_in_json_lines(tmp_path):
    lines = '{"file_name": "1.png", "tags": ["cat"]}\n{"file_name": "2.png", "tags": []}\n'
    (tmp_path / "metadata.jsonl").write_text(lines)
    labels = read_labels(tmp_path)
    assert labels.items.tolist() == ["1.png", "2.png"]
    assert labels.values.tolist() == [[1], [0]]
    (tmp_path / "metadata.jsonl").write_text('{"image": "1.png", "tags": ["cat"]}\n')
    with pytest.raises(DataError, match=r"image_column='file_name'.*there is no such column"):
        read_labels(tmp_path)


def test_matrices_are_read(tmp_path):
    np.save(tmp_path / "y.npy", np.array([[1, 0], [np.nan, -1]]))
    labels = read_labels(tmp_path / "y.npy", blank="absent")
    assert labels.values.tolist() == [[1, 0], [-1, -1]]
    assert labels.classes == ("class0", "class1")
    np.save(tmp_path / "b.npy", np.array([[True, False]]))
    assert read_labels(tmp_path / "b.npy", zero="absent", classes=["p", "q"]).values.tolist() == [
        [1, -1]
    ]


def test_train_and_test_matrices_are_joined(tmp_path):
    path = tmp_path / "d.npz"
    np.savez(
        path,
        X_test=np.full((1, 3), 2.0),
        X_train=np.ones((2, 3), dtype=np.uint8),
        Y_test=np.array([[0, 1]]),
        Y_train=np.array([[1, 0], [1, 1]], dtype=np.uint8),
        label_names=np.array(["cat", "dog"]),
    )
    labels = read_labels(path)
    assert labels.values.tolist() == [[1, 0], [1, 1], [0, 1]]
    assert labels.split.tolist() == ["train", "train", "test"]
    assert labels.classes == ("cat", "dog")
    assert read_features(path, labels=labels).tolist() == [[1] * 3, [1] * 3, [2] * 3]
    assert read_labels(path, key="Y_test").values.tolist() == [[0, 1]]
    assert len(read_labels(path, key="Y").values) == 3


def test_items_and_splits_in_a_npz(tmp_path):
    path = tmp_path / "d.npz"
    np.savez(path, labels=np.eye(2), images=np.array(["a", "b"]), split=np.array(["train", "val"]))
    labels = read_labels(path)
    assert labels.items.tolist() == ["a", "b"]
    assert labels.split.tolist() == ["train", "val"]


@pytest.mark.parametrize(
    ("arrays", "options", "message"),
    [
        ({"labels": np.eye(2), "Y": np.eye(2)}, {}, "more than one key.*labels, Y"),
        ({"Y": np.eye(2), "Y_train": np.eye(2)}, {}, "more than one key"),
        ({"a": np.eye(2)}, {}, "no key is called labels or Y or targets.*the keys are a"),
        ({"Y": np.eye(2)}, {"key": "y2"}, "has no key 'y2'"),
        ({"Y": np.ones(3)}, {}, r"expected a matrix of rows x columns, got shape \(3,\)"),
        ({"Y": np.array([["a"]])}, {}, "expected numbers"),
        ({"Y": np.array([[1, 2]])}, {}, r"row 0, column 1 \('class1'\): expected .* got 2"),
        ({"Y": np.array([[0, -1]])}, {"zero": "absent"}, "both 0 and -1"),
        ({"Y": np.eye(2)}, {"classes": ["a"]}, "has 2 columns, but 1 class names"),
        ({"Y": np.eye(2), "classes": np.array(["a", "a"])}, {}, "class names must differ"),
        ({"Y_train": np.eye(2), "Y_test": np.eye(3)}, {}, "differ in their columns"),
        ({"Y": np.array([[1, None]], dtype=object)}, {}, "cannot be read as a NumPy file"),
    ],
)
def test_bad_matrices_are_refused(tmp_path, arrays, options, message):
    np.savez(tmp_path / "d.npz", **arrays)
    with pytest.raises(DataError, match=message):
        read_labels(tmp_path / "d.npz", **options)


DENSE = """% a comment
@RELATION 'toy: -C -2'
@attribute 'first one' numeric
@attribute colour {red, 'dark blue'}
@attribute cat {0,1}
@attribute "dog" {0,1}
@data
0.5, red, 1, 0
-2, 'dark blue', ?, 1
"""
SPARSE = DENSE[: DENSE.index("@data")] + "@data\n{0 0.5, 2 1}\n{0 -2, 1 'dark blue', 2 ?, 3 1}\n"


@pytest.mark.parametrize("text", [DENSE, SPARSE], ids=["dense", "sparse"])
def test_arff_files_are_read(tmp_path, text):
    path = tmp_path / "toy.arff"
    path.write_text(text)
    labels = read_labels(path, zero="absent")
    assert labels.classes == ("cat", "dog")
    assert labels.values.tolist() == [[1, -1], [0, 1]]
    assert read_features(path).tolist() == [[0.5, 0.0], [-2.0, 1.0]]
    assert read_labels(path, arff_labels=["dog"]).classes == ("dog",)
    assert read_labels(path, classes=["dog", "cat"]).values.tolist() == [[0, 1], [1, 0]]


def test_label_names_come_from_the_xml_file_of_mulan(tmp_path):
    path = tmp_path / "toy-train.arff"
    path.write_text(DENSE.replace(": -C -2", ""))
    with pytest.raises(DataError, match="which attributes are labels"):
        read_labels(path)
    names = '<label name="dog"/>'
    namespace = 'xmlns="http://mulan.sourceforge.net/labels"'
    (tmp_path / "toy.xml").write_text(f"<labels {namespace}>{names}</labels>")
    assert read_labels(path).classes == ("dog",)
    (tmp_path / "toy.xml").write_text(f"<labels>{names.replace('dog', 'dgo')}</labels>")
    with pytest.raises(DataError, match=r"no attribute is called 'dgo' \(did you mean 'dog'"):
        read_labels(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("cat {0,1}", "cat date", r"line 5: attribute 'cat' is of type 'date'"),
        ("0.5, red, 1, 0", "0.5, red, 1", r"line 8: expected 4 values, got 3"),
        ("0.5, red, 1, 0", "0.5, red, 3, 0", r"line 8: attribute 'cat' must be one of"),
        ("0.5, red, 1, 0", "{2 1, 2 1}", r"line 8: expected 'position value' pairs"),
        ("0.5, red, 1, 0", "{2 1", r"line 8: a sparse row must end"),
        ("0.5, red, 1, 0", "'0.5, red, 1, 0", r"line 8: cannot read values"),
        ("cat {0,1}", "dog {0,1}", "attribute 'dog' is declared twice"),
        ("@data\n", "@dat\n", "line 7: expected @relation, @attribute or @data"),
        ("-C -2", "-C 9", "expected 1 to 4 labels, got arff_labels=9"),
        ("cat {0,1}", "cat {0,1,2}\n@attribute x {0}", "expected 5 values, got 4"),
    ],
)
def test_bad_arff_files_are_refused(tmp_path, old, new, message):
    path = tmp_path / "toy.arff"
    path.write_text(DENSE.replace(old, new))
    with pytest.raises(DataError, match=message):
        read_labels(path)
