"""Written labels are read back unchanged; damaged files raise DataError and nothing else."""

import json
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from halftruth.data import DataError, read_features, read_labels, write_labels
from halftruth.data.readers.label_lists import CHOICES, LIST, join_names, split_names
from halftruth.labels import LabelMatrix

NAME = st.text(
    st.characters(
        codec="utf-8", exclude_categories=("C", "Z"), exclude_characters="|\\'\"{}%?,;\t"
    ),
    min_size=1,
    max_size=6,
).filter(lambda name: name.strip() == name)
CELLS = {1: ["1", "1.0", " 1"], 0: ["0", "", "nan", "0.0"], -1: ["-1", "-1.0"]}


@st.composite
def matrices(draw, codes=(-1, 0, 1)):
    rows, width = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    classes = draw(st.lists(NAME.map("c_".__add__), min_size=width, max_size=width, unique=True))
    row = st.lists(st.sampled_from(codes), min_size=width, max_size=width)
    values = np.array(draw(st.lists(row, min_size=rows, max_size=rows)), dtype=np.int8)
    items = np.array([f"{k}.jpg" for k in range(rows)])
    split = draw(st.sampled_from([None, np.array(["train"] * rows)]))
    return LabelMatrix(values, tuple(classes), items, split)


def same(one: LabelMatrix, other: LabelMatrix) -> None:
    assert one.values.tolist() == other.values.tolist()
    assert one.classes == other.classes
    assert one.items.tolist() == other.items.tolist()
    assert (one.split is None) == (other.split is None)


def in_file(name: str, text: str | bytes, read, **options):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return read(path, **options)


@given(matrices(), st.sampled_from([".csv", ".tsv", ".parquet"]))
def test_written_tables_are_read_back(labels, ending):
    with tempfile.TemporaryDirectory() as folder:
        write_labels(labels, Path(folder) / f"l{ending}")
        same(read_labels(Path(folder) / f"l{ending}"), labels)


@given(matrices(), st.data())
def test_every_spelling_of_the_codes_is_read(labels, data):
    rows = [
        [item, *(data.draw(st.sampled_from(CELLS[value])) for value in row)]
        for item, row in zip(labels.items, labels.values.tolist(), strict=True)
    ]
    text = "\n".join("\t".join(row) for row in [["image", *labels.classes], *rows])
    read = in_file("l.tsv", text, read_labels)
    assert read.values.tolist() == labels.values.tolist()


@given(matrices(codes=(0, 1)), st.sampled_from("|;"))
def test_delimited_labels_are_read(labels, sep):
    lines = ["image\tlabels"]
    for item, row in zip(labels.items, labels.values == 1, strict=True):
        lines.append(f"{item}\t{sep.join(np.array(labels.classes)[row])}")
    read = in_file("l.tsv", "\n".join(lines), read_labels, sep=sep, classes=labels.classes)
    assert read.values.tolist() == labels.values.tolist()


@given(
    st.lists(st.text("ab|;, \\\\[]'\"", min_size=1, max_size=6), min_size=1, max_size=4),
    st.sampled_from(["|", ";", ",", " ", "||", LIST, CHOICES]),
)
@example(["a\\\\", "b"], "|")
@example(["a|", "|b"], "||")
def test_joined_names_are_split_again_or_refused(names, sep):
    try:
        cell = join_names(names, sep)
    except DataError:
        assert len(sep) > 1
    else:
        assert split_names(cell, sep) == names


@given(matrices(codes=(0, 1)), st.booleans())
def test_lists_written_as_text_are_read(labels, as_json):
    lines = ["image\tlabels"]
    for item, row in zip(labels.items, labels.values == 1, strict=True):
        names = [name for name, listed in zip(labels.classes, row, strict=True) if listed]
        cell = json.dumps(names, ensure_ascii=False) if as_json else str(names)
        lines.append(f"{item}\t{cell}")
    read = in_file("l.tsv", "\n".join(lines), read_labels, classes=labels.classes)
    assert read.values.tolist() == labels.values.tolist()


@given(matrices(codes=(0, 1)))
def test_coco_labels_are_read(labels):
    content = {
        "images": [{"id": k, "file_name": str(name)} for k, name in enumerate(labels.items)],
        "categories": [{"id": k, "name": name} for k, name in enumerate(labels.classes)],
        "annotations": [
            {"image_id": int(row), "category_id": int(k)}
            for row, k in np.argwhere(labels.values == 1)
        ],
    }
    read = in_file("l.json", json.dumps(content), read_labels)
    assert read.values.tolist() == labels.values.tolist()
    assert read.classes == labels.classes


@given(matrices(codes=(0, 1)), st.booleans(), st.integers(0, 3))
def test_arff_labels_and_features_are_read(labels, sparse, width):
    features = np.random.RandomState(0).randn(len(labels.values), width).astype(np.float32)
    header = [f"@attribute f{k} numeric" for k in range(width)]
    header += [f"@attribute '{name}' {{0,1}}" for name in labels.classes]
    rows = []
    for x, y in zip(features, labels.values, strict=True):
        cells = [repr(float(value)) for value in x] + [str(value) for value in y]
        if sparse:
            cells = [f"{k} {cell}" for k, cell in enumerate(cells) if cell != "0"]
        rows.append("{" + ",".join(cells) + "}" if sparse else ",".join(cells))
    text = "\n".join(["@relation toy", *header, "@data", *rows])
    count = -len(labels.classes)
    read = in_file("l.arff", text, read_labels, arff_labels=count)
    assert read.values.tolist() == labels.values.tolist()
    assert read.classes == labels.classes
    if width:
        again = in_file("l.arff", text, read_features, arff_labels=count)
        assert np.array_equal(again, features)


VALID = {
    "l.csv": "image,split,cat,dog\na.jpg,train,1,0\nb.jpg,test,-1,\nc.jpg,val,0,1\n",
    "d.csv": 'image,labels\na.jpg,cat|dog\n"b,.jpg",\nc.jpg,cat\n',
    "l.jsonl": '{"image": "a", "labels": ["cat"]}\n{"image": "b", "cat": 1, "labels": []}\n',
    "l.json": json.dumps(
        {
            "images": [{"id": 1, "file_name": "a", "neg_category_ids": [2]}],
            "categories": [{"id": 1, "name": "c"}, {"id": 2, "name": "d"}],
            "annotations": [{"image_id": 1, "category_id": 1}],
        }
    ),
    "l.arff": "@relation 'x: -C 2'\n@attribute c {0,1}\n@attribute 'd' {0,1}\n@attribute f real\n"
    "@data\n1,0,2.5\n{0 1, 2 1e3}\n",
}
EDIT = st.tuples(
    st.floats(0, 1),
    st.integers(0, 4),
    st.one_of(
        st.text(max_size=4),
        st.sampled_from([*",;|\t\"'{}@%\n\r\0[]:", "2", "nan", "null", "-1", "train", "\ufeff"]),
    ),
)


@given(st.sampled_from(sorted(VALID)), st.lists(EDIT, min_size=1, max_size=4))
@example("l.json", [(0.0, 4, "")])
@example("l.csv", [(0.0, 5, "")])
def test_damaged_files_raise_only_data_errors(name, edits):
    text = VALID[name]
    for share, removed, new in edits:
        at = int(share * len(text))
        text = text[:at] + new + text[at + removed :]
    data = text.encode("utf-8", errors="surrogatepass")
    with suppress(DataError):
        labels = in_file(name, data, read_labels)
        assert set(np.unique(labels.values)) <= {-1, 0, 1}
        assert labels.values.shape[1] == len(set(labels.classes))


@given(st.sampled_from(["l.csv", "l.parquet", "l.json", "l.npz", "l.npy", "l.arff"]), st.binary())
def test_arbitrary_bytes_raise_only_data_errors(name, data):
    with suppress(DataError):
        in_file(name, data, read_labels)
