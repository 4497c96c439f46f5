"""Label files that the libraries themselves write: read right, or refused by name."""

import contextlib
import io
import json

import numpy as np
import pytest
from PIL import Image
from scipy.sparse import lil_matrix

import halftruth
from halftruth.data import labels_from_frame, read_labels

CLASSES = ["cat", "dog", "bird"]
ITEMS = ["a.jpg", "b.jpg", "c.jpg"]
VALUES = [[0, 1, 1], [1, 0, 0], [0, 0, 1]]
NAMES = [[name for name, value in zip(CLASSES, row, strict=True) if value] for row in VALUES]
COLUMNS = {name: [row[k] for row in VALUES] for k, name in enumerate(CLASSES)}


def check(labels, items=ITEMS):
    """The same labels, whatever the order of the classes."""
    at = [labels.classes.index(name) for name in CLASSES]
    assert labels.values[:, at].tolist() == VALUES
    assert (None if labels.items is None else labels.items.tolist()) == items


def write_polars(folder, kind, name):
    polars = pytest.importorskip("polars")
    columns = {
        "columns": COLUMNS,
        "bool": {own: [bool(v) for v in column] for own, column in COLUMNS.items()},
        "lists": {"labels": NAMES},
        "numbers": {"labels": VALUES},
    }
    frame = polars.DataFrame({"image": ITEMS, **columns[kind]})
    write = {"csv": "csv", "parquet": "parquet", "jsonl": "ndjson", "arrow": "ipc", "json": "json"}
    getattr(frame, f"write_{write[name]}")(folder / f"l.{name}")
    return folder / f"l.{name}"


@pytest.mark.parametrize("name", ["csv", "parquet", "jsonl", "arrow"])
@pytest.mark.parametrize("kind", ["columns", "bool", "lists", "numbers"])
def test_polars(tmp_path, kind, name):
    if name == "csv" and kind in ("lists", "numbers"):
        pytest.skip("polars writes no lists to CSV")
    path = write_polars(tmp_path, kind, name)
    if kind == "numbers":
        with pytest.raises(ValueError, match=r"one number per class .multi-hot.*name the 3"):
            read_labels(path)
    check(read_labels(path, **({"classes": CLASSES} if kind == "numbers" else {})))


def test_what_polars_has_in_other_forms_is_refused(tmp_path):
    polars = pytest.importorskip("polars")
    with pytest.raises(ValueError, match=r"this is a list; .* JSON lines \(.jsonl\)"):
        read_labels(write_polars(tmp_path, "columns", "json"))
    frame, words = (
        polars.DataFrame(COLUMNS),
        r"expected a DataFrame of pandas, got polars; pass .to",
    )
    with pytest.raises(ValueError, match=words):
        labels_from_frame(frame)
    with pytest.raises(ValueError, match=words):
        halftruth.fit(frame, features=np.eye(3), out=tmp_path / "run")


@pytest.mark.parametrize(
    ("fields", "options", "message"),
    [
        (lambda row: {"json": {"labels": NAMES[row]}}, {}, None),
        (lambda row: {"json": dict(zip(CLASSES, VALUES[row], strict=True))}, {}, None),
        (lambda row: {"txt": " ".join(NAMES[row])}, {"label_column": "txt", "sep": " "}, None),
        (lambda row: {"cls": row}, {}, "'cls' holds lists; pass label_column='cls'"),
        # Two numbers of classes are no labels of a class called cls.
        (lambda row: {"cls": row % 2}, {}, "'cls' holds lists; pass label_column='cls'"),
        (lambda row: {"json": NAMES[row]}, {}, r"a.json: expected an object \{...\}, got"),
        (lambda row: {"npy": np.array(VALUES[row])}, {}, "a.npy: expected UTF-8 text or an image"),
    ],
    ids=["lists", "columns", "txt", "cls", "two classes", "a list", "npy"],
)
def test_webdataset(tmp_path, fields, options, message):
    webdataset = pytest.importorskip("webdataset")
    image = io.BytesIO()
    Image.new("RGB", (8, 8)).save(image, "JPEG")
    with webdataset.TarWriter(str(tmp_path / "l.tar")) as shard:
        for row, item in enumerate(ITEMS):
            shard.write({"__key__": item[:-4], "jpg": image.getvalue(), **fields(row)})
    if message is None:
        check(read_labels(tmp_path / "l.tar", **options))
        return
    with pytest.raises(ValueError, match=message):
        read_labels(tmp_path / "l.tar", **options)
    if message.startswith("'cls'"):
        labels = read_labels(tmp_path / "l.tar", label_column="cls")
        found = [labels.classes[row.argmax()] for row in labels.values]
        assert found == [str(fields(row)["cls"]) for row in range(3)]


@pytest.mark.parametrize("relation", ["x: -C 3", "x"])
def test_liac_arff(tmp_path, relation):
    arff = pytest.importorskip("arff")
    attributes = [*((name, ["0", "1"]) for name in CLASSES), ("my size", "REAL")]
    attributes.append(("colour", ["red", "blue, dark"]))
    data = [[*map(str, row), 0.5, "blue, dark"] for row in VALUES]
    text = arff.dumps({"relation": relation, "attributes": attributes, "data": data})
    (tmp_path / "l.arff").write_text(text)
    check(read_labels(tmp_path / "l.arff", **({"arff_labels": 3} if relation == "x" else {})), None)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("end", ["start", "end"])
def test_scikit_multilearn(tmp_path, sparse, end):
    library = pytest.importorskip("skmultilearn.dataset")
    path = tmp_path / "l.arff"
    library.save_to_arff(
        lil_matrix(np.random.default_rng(0).random((3, 2))), lil_matrix(np.array(VALUES)),
        label_location=end, save_sparse=sparse, filename=str(path),
    )  # fmt: skip
    labels = read_labels(path, arff_labels=3 if end == "start" else -3)
    assert labels.values.tolist() == VALUES


def make_coco():
    annotations = [
        {"id": n, "image_id": int(row) + 1, "category_id": 10 * int(k) + 5, "bbox": [0, 0, 4, 4],
         "area": 16, "iscrowd": 0}
        for n, (row, k) in enumerate(zip(*np.nonzero(VALUES), strict=True))
    ]  # fmt: skip
    images = [{"id": k + 1, "file_name": name} for k, name in enumerate(ITEMS)]
    categories = [{"id": 10 * k + 5, "name": name} for k, name in enumerate(CLASSES)]
    return {"images": images, "annotations": annotations, "categories": categories}


def test_pycocotools(tmp_path):
    library = pytest.importorskip("pycocotools.coco")
    coco, found = library.COCO(), make_coco()["annotations"]
    coco.dataset = make_coco()
    with contextlib.redirect_stdout(io.StringIO()):
        coco.createIndex()
        detected = coco.loadRes([{**one, "score": 0.9} for one in found])
    (tmp_path / "whole.json").write_text(json.dumps(detected.dataset))
    check(read_labels(tmp_path / "whole.json"))
    (tmp_path / "detections.json").write_text(json.dumps(detected.dataset["annotations"]))
    with pytest.raises(ValueError, match=r"expected COCO instances JSON.* but this is a list"):
        read_labels(tmp_path / "detections.json")


@pytest.mark.filterwarnings("ignore")
def test_supervision(tmp_path):
    library = pytest.importorskip("supervision")
    paths = [str(tmp_path / item) for item in ITEMS]
    for path in paths:
        Image.new("RGB", (16, 16)).save(path)
    found = {
        path: library.Detections(
            xyxy=np.array([[1.0, 1.0, 5.0, 5.0]] * sum(row)), class_id=np.flatnonzero(row)
        )
        for path, row in zip(paths, VALUES, strict=True)
    }
    dataset = library.DetectionDataset(classes=CLASSES, images=paths, annotations=found)
    dataset.as_coco(annotations_path=str(tmp_path / "coco.json"))
    check(read_labels(tmp_path / "coco.json"))
    (tmp_path / "voc").mkdir()
    dataset.as_pascal_voc(annotations_directory_path=str(tmp_path / "voc" / "Annotations"))
    voc = read_labels(tmp_path / "voc")
    assert sorted(voc.classes) == sorted(CLASSES)
    at = [voc.classes.index(name) for name in CLASSES]
    assert voc.values[:, at].tolist() == VALUES
    dataset.as_yolo(annotations_directory_path=str(tmp_path / "yolo"))
    with pytest.raises(ValueError, match=r"yolo: is a folder with neither Annotations/\*.xml"):
        read_labels(tmp_path / "yolo")


@pytest.mark.parametrize("form", ["CSV", "TSV", "JSON_MIN", "JSON"])
def test_label_studio(tmp_path, form):
    library = pytest.importorskip("label_studio_sdk.converter.converter")
    config = (
        '<View><Image name="image" value="$image"/><Choices name="labels" toName="image" '
        'choice="multiple"><Choice value="cat"/><Choice value="dog"/><Choice value="bird"/>'
        "</Choices></View>"
    )
    kind = {"from_name": "labels", "to_name": "image", "type": "choices"}
    times = {"created_at": "2024-01-01", "updated_at": "2024-01-01", "lead_time": 1.0}
    tasks = [
        {
            "id": row + 1,
            "data": {"image": item},
            "annotations": [
                {"id": row, "completed_by": {"id": 1}, "was_cancelled": False, **times,
                 "result": [{**kind, "value": {"choices": NAMES[row]}}]}
            ],
        }
        for row, item in enumerate(ITEMS)
    ]  # fmt: skip
    (tmp_path / "tasks.json").write_text(json.dumps(tasks))
    out = tmp_path / "out"
    library.Converter(config, str(tmp_path)).convert(
        str(tmp_path / "tasks.json"), str(out), form, is_dir=False
    )
    (path,) = (one for one in out.rglob("*") if one.is_file())
    if form.startswith("JSON"):
        with pytest.raises(
            ValueError, match=r"this is a list; from Label Studio export CSV or COCO"
        ):
            read_labels(path)
        return
    with pytest.raises(ValueError, match="could be in column 'labels' or in columns 'lead_time'"):
        read_labels(path)
    check(read_labels(path, label_column="labels"))
