"""Tables of labels: the roles of columns and the meaning of codes."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from halftruth.data import DataError, read_column, read_labels, write_labels
from halftruth.data.readers import text_table
from halftruth.labels import LabelMatrix

CODES = "image,cat,dog\na.jpg,1,0\nb.jpg,-1,\n"


@pytest.fixture
def table(tmp_path):
    def write(text: str, name: str = "labels.csv") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_zero_and_blank_are_unknown_by_default(table):
    labels = read_labels(table(CODES))
    assert labels.values.tolist() == [[1, 0], [-1, 0]]
    assert labels.values.dtype == np.int8
    assert labels.classes == ("cat", "dog")
    assert labels.items.tolist() == ["a.jpg", "b.jpg"]
    assert labels.split is None


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"zero": "absent", "minus_one": "unknown"}, [[1, -1], [0, 0]]),
        ({"blank": "absent"}, [[1, 0], [-1, -1]]),
        ({"zero": "absent", "minus_one": "unknown", "blank": "absent"}, [[1, -1], [0, -1]]),
    ],
)
def test_meaning_of_codes_is_an_option(table, options, expected):
    assert read_labels(table(CODES), **options).values.tolist() == expected


def test_floats_and_words_are_codes(table):
    assert read_labels(table("id,a,b\nx,1.0,nan\ny,-1.0,0.0\n")).values.tolist() == [
        [1, 0],
        [-1, 0],
    ]
    words = table("id,a,b\nx,True,FALSE\ny,,true\n")
    assert read_labels(words, zero="absent").values.tolist() == [[1, -1], [0, 1]]


@pytest.mark.parametrize(
    ("yes", "no"), [("yes", "no"), ("Y", "N"), ("True", "False"), ("t", "f"), ("YES", "No")]
)
def test_words_are_labels_and_the_description_names_them(table, yes, no):
    labels = read_labels(table(f"id,a,b\nx,{yes},{no}\ny,,{yes}\n"), zero="absent")
    assert labels.values.tolist() == [[1, -1], [0, 1]]
    assert labels.describe().endswith(f"read {yes!r} as present and {no!r} as absent")
    unknown = read_labels(table(f"id,a,b\nx,{yes},{no}\ny,,{yes}\n"))
    assert unknown.select([0]).describe().endswith(f"{no!r} as unknown")


@pytest.mark.parametrize(
    "header", ["image,0,1", "id,0,1,2", "0,1,2", "image,1.5 litre,2.5 litre", "photo,2,3"]
)
def test_numbers_in_a_header_can_be_class_names(table, header):
    cells = ["1"] * header.count(",")
    first = "x" if not header.startswith("0") else "1"
    labels = read_labels(table(f"{header}\n{','.join([first, *cells])}\n"))
    assert labels.classes == tuple(header.split(",")[first == "x" :])


def test_class_named_like_a_path_or_a_split(table):
    labels = read_labels(table("image,split,train,path\na,train,1,0\nb,test,0,0\nc,valid,1,1\n"))
    assert labels.classes == ("train", "path")
    assert labels.split.tolist() == ["train", "test", "valid"]


def test_first_column_of_distinct_texts_names_the_items(table):
    labels = read_labels(table("photo,cat,dog\na,1,0\nb,0,1\n"))
    assert labels.items.tolist() == ["a", "b"]


def test_a_text_column_with_repeats_does_not_name_items(table):
    with pytest.raises(DataError, match=r"column 'shown'.*not a column of labels.*drop_columns"):
        read_labels(table("shown,cat,dog\ncat,1,0\ncat,0,1\ndog,0,1\n"))


def test_extra_column_is_an_error_until_it_is_dropped(table):
    path = table("image,age,cat\na,57,1\nb,60,0\nc,1,0\n")
    with pytest.raises(DataError, match=r"line 2, column 'age'.*'57'.*drop_columns=\['age'\]"):
        read_labels(path)
    assert read_labels(path, drop_columns=["age"]).classes == ("cat",)
    assert read_labels(path, classes=["cat"]).classes == ("cat",)
    assert read_column(path, "age").tolist() == ["57", "60", "1"]


def test_a_table_without_item_names_is_read(table):
    labels = read_labels(table("cat,dog\n1,0\n0,1\n1,1\n"))
    assert labels.items is None
    assert labels.values.tolist() == [[1, 0], [0, 1], [1, 1]]


def test_row_counter_of_pandas_is_dropped(table):
    labels = read_labels(table(",image,cat\n0,a,1\n1,b,0\n2,c,0\n"))
    assert labels.classes == ("cat",)
    with pytest.raises(DataError, match="column 1 has no name"):
        read_labels(table(",image,cat\n1,a,1\n1,b,0\n0,c,0\n"))


def test_classes_choose_and_order_columns(table):
    labels = read_labels(table("image,a,b,note\nx,1,0,hm\ny,0,-1,so\n"), classes=["b", "a"])
    assert labels.classes == ("b", "a")
    assert labels.values.tolist() == [[0, 1], [-1, 0]]
    with pytest.raises(DataError, match=r"classes='dgo': there is no such column.*'dog'"):
        read_labels(table("image,cat,dog\nx,1,0\n"), classes=["cat", "dgo"])


def test_a_delimited_column_lists_labels(table):
    path = table("image,split,patient,labels\na,train,1,cat|big dog\nb,test,2,\nc,train,2,cat\n")
    labels = read_labels(path)
    assert labels.classes == ("big dog", "cat")
    assert labels.values.tolist() == [[1, 1], [0, 0], [0, 1]]
    assert labels.split.tolist() == ["train", "test", "train"]
    complete = read_labels(path, zero="absent")
    assert complete.values.tolist() == [[1, 1], [0, 0], [-1, 1]]
    assert read_labels(path, zero="absent", blank="absent").values[1].tolist() == [-1, -1]


def test_the_name_for_no_label_is_not_a_class(table):
    path = table("image,labels\na,No Finding\nb,Mass\nc,\n")
    labels = read_labels(path, sep="|", nothing="No Finding", zero="absent")
    assert labels.classes == ("Mass",)
    assert labels.values.tolist() == [[-1], [1], [0]]
    with pytest.raises(DataError, match="did you mean 'No Finding'"):
        read_labels(path, sep="|", nothing="No Findings")
    both = table("image,labels\na,No Finding|Mass\n")
    with pytest.raises(DataError, match=r"line 2: 'No Finding' stands for no label"):
        read_labels(both, nothing="No Finding")


@pytest.mark.parametrize(
    ("cells", "classes"),
    [
        (["cat;dog", "cat"], ("cat", "dog")),
        (['"cat, dog"', "cat"], ("cat", "dog")),
        (["9|10", "2"], ("2", "9", "10")),
        (["cat", "dog"], ("cat", "dog")),
    ],
)
def test_the_separator_is_found_if_there_is_one(table, cells, classes):
    rows = "".join(f"{k}.jpg,{cell}\n" for k, cell in enumerate(cells))
    assert read_labels(table("image,labels\n" + rows), delimiter=",").classes == classes


def test_an_ambiguous_separator_is_refused(table):
    with pytest.raises(DataError, match=r"line 3: is 'traffic light' one label or several"):
        read_labels(table("image,labels\na,cat\nb,traffic light\n"))
    assert read_labels(table("image,labels\na,cat\nb,dog cat\n"), sep=" ").classes == ("cat", "dog")
    with pytest.raises(DataError, match=r"separated by '\|' .* and ';'"):
        read_labels(table("image,labels\na,cat|dog\nb,cat;dog\n"))


@pytest.mark.parametrize(
    "cell", ["['dog', 'big, cat']", '["dog", "big, cat"]', " ['dog','big, cat'] "]
)
def test_lists_written_as_text_are_lists(table, cell):
    path = table(f"image\tlabels\na\t{cell}\nb\t[]\nc\t\nd\t['dog']\n", "l.tsv")
    labels = read_labels(path)
    assert labels.classes == ("big, cat", "dog")
    assert labels.values.tolist() == [[1, 1], [0, 0], [0, 0], [0, 1]]


def test_a_separator_inside_a_class_name_is_escaped(table):
    path = table("image,labels\na,cat|black\\|white\nb,cat\n")
    assert read_labels(path).classes == ("black|white", "cat")


def test_label_lists_need_no_item_names(table):
    labels = read_labels(table("labels\ncat|dog\ncow\n"))
    assert labels.items is None
    assert labels.values.tolist() == [[1, 0, 1], [0, 1, 0]]
    named = read_labels(table("name,note\ncat|dog,x\ncow,y\n"), label_column="name")
    assert named.items is None
    assert named.classes == ("cat", "cow", "dog")


def test_a_label_column_next_to_class_columns_must_be_named(table):
    path = table("image,observed,cat,dog\na,cat,1,1\nb,dog,0,1\n")
    labels = read_labels(path, label_column="observed")
    assert labels.values.tolist() == [[1, 0], [0, 1]]
    usual = table("image,labels,cat,dog\na,cat,1,1\nb,dog,0,1\n")
    with pytest.raises(DataError, match=r"'labels' or in columns 'cat', 'dog'; choose with"):
        read_labels(usual)


def test_listed_labels_must_be_among_the_given_classes(table):
    path = table("image,labels\na,cat\nb,dgo\n")
    with pytest.raises(DataError, match=r"line 3: label 'dgo' is not among.*'dog'"):
        read_labels(path, classes=["dog", "cat", "cow"])
    fixed = table("image,labels\na,cat\nb,dog\n")
    assert read_labels(fixed, classes=["dog", "cat", "cow"]).values.tolist() == [
        [0, 1, 0],
        [1, 0, 0],
    ]


def test_delimiters_compression_parquet_and_json_lines(table, tmp_path):
    expected = read_labels(table(CODES))
    for text, name in [
        (CODES.replace(",", ";"), "semicolon.csv"),
        (CODES.replace(",", "\t"), "tabs.tsv"),
        (CODES.replace("\n", "\r\n"), "windows.csv"),
        ("\ufeff" + CODES, "bom.csv"),
        ('{"image": "a.jpg", "cat": 1, "dog": 0}\n{"image": "b.jpg", "cat": -1}\n', "x.jsonl"),
    ]:
        same = read_labels(table(text, name))
        assert same.values.tolist() == expected.values.tolist(), name
        assert same.classes == expected.classes
        assert same.items.tolist() == expected.items.tolist()
    packed = tmp_path / "labels.csv.gz"
    packed.write_bytes(gzip.compress(CODES.encode()))
    assert read_labels(packed).values.tolist() == expected.values.tolist()


def test_lists_in_json_lines_and_parquet(table, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    lines = '{"image": "a", "labels": ["dog", "cat"]}\n{"image": "b", "labels": []}\n'
    from_lines = read_labels(table(lines, "l.jsonl"))
    path = tmp_path / "l.parquet"
    pq.write_table(pa.table({"image": ["a", "b"], "labels": [["dog", "cat"], []]}), path)
    for labels in (from_lines, read_labels(path)):
        assert labels.classes == ("cat", "dog")
        assert labels.values.tolist() == [[1, 1], [0, 0]]


def test_parquet_types_are_codes(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "types.parquet"
    columns = {
        "image": pa.array(["a", "b"]).dictionary_encode(),
        "cat": pa.array([1, None], pa.int8()),
        "dog": [float("nan"), -1.0],
    }
    pq.write_table(pa.table(columns), path)
    assert read_labels(path, blank="absent").values.tolist() == [[1, -1], [-1, -1]]


@pytest.mark.parametrize("name", ["labels.csv", "labels.tsv", "labels.parquet"])
def test_written_labels_are_read_back(tmp_path, name):
    labels = LabelMatrix(
        np.array([[1, 0], [-1, 1]], dtype=np.int8),
        ("cat", "big, dog"),
        np.array(["a.jpg", "b.jpg"]),
        np.array(["train", "val"]),
    )
    write_labels(labels, tmp_path / name)
    again = read_labels(tmp_path / name)
    assert again.values.tolist() == labels.values.tolist()
    assert again.classes == labels.classes
    assert again.items.tolist() == labels.items.tolist()
    assert again.split.tolist() == labels.split.tolist()


def test_repeated_items_are_refused_merged_or_kept(table):
    codes = table("image,cat,dog\na,1,0\nb,0,0\na,0,-1\n")
    with pytest.raises(DataError, match=r"line 4: 'a' already has a row at .*line 2 .*merge"):
        read_labels(codes)
    merged = read_labels(codes, duplicates="merge")
    assert merged.items.tolist() == ["a", "b"]
    assert merged.values.tolist() == [[1, -1], [0, 0]]
    assert len(read_labels(codes, duplicates="keep").values) == 3
    clash = table("image,cat\na,1\na,-1\n")
    with pytest.raises(DataError, match="'a': class 'cat' is present in one and absent in another"):
        read_labels(clash, duplicates="merge")


def test_tables_with_one_label_per_row_are_merged(table):
    path = table("image,label\nb,dog\na,cat\nb,cat\n")
    labels = read_labels(path, duplicates="merge", zero="absent")
    assert labels.items.tolist() == ["b", "a"]
    assert labels.values.tolist() == [[1, 1], [1, -1]]
    moved = table("image,split,label\nb,train,dog\nb,test,cat\n")
    with pytest.raises(DataError, match="'b': splits differ"):
        read_labels(moved, duplicates="merge")


def write_codes(path, rows, end="\n", blank_line=False):
    """A table of more than the size from which pyarrow splits the lines."""
    lines = ["image,cat, dog ,note"]
    lines += [f"photo {n}.jpg,{n % 2},{('', '-1', '1')[n % 3]},0" for n in range(rows)]
    lines[5:5] = [""] * blank_line
    path.write_bytes((end.join(lines) + end).encode())


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("blank_line", [False, True])
def test_large_files_are_read_as_small_ones(tmp_path, monkeypatch, end, blank_line):
    path = tmp_path / "labels.csv"
    write_codes(path, 500, end, blank_line)
    small = read_labels(path)
    monkeypatch.setattr(text_table, "_LARGE", 1)
    large = read_labels(path)
    assert small.classes == large.classes == ("cat", "dog", "note")
    assert small.items.tolist() == large.items.tolist()
    assert (small.values == large.values).all()


@pytest.mark.parametrize("cell", ["0,1", '"0', "maybe"])
def test_errors_of_large_files_name_the_same_line(tmp_path, monkeypatch, cell):
    path = tmp_path / "labels.csv"
    write_codes(path, 40)
    text = path.read_text().splitlines()
    text[30] = f"one.jpg,{cell},1,0"
    path.write_text("\n".join(text))
    with pytest.raises(DataError) as small:
        read_labels(path)
    monkeypatch.setattr(text_table, "_LARGE", 1)
    with pytest.raises(DataError) as large:
        read_labels(path)
    assert str(small.value) == str(large.value)
    assert "line 31" in str(small.value)
