"""Bad label files: the message names the place, the cause and what to do."""

import re

import pytest

from halftruth.data import DataError, read_column, read_labels

BAD_TEXTS = {
    "empty": ("", {}, r"labels\.csv: the file is empty"),
    "only spaces": ("\n \n", {}, "the file is empty"),
    "header only": ("image,cat\n", {}, "has a header but no rows"),
    "wrong delimiter": (
        "image;cat;dog\na;1;0\n",
        {"delimiter": ","},
        r"line 1: the delimiter ',' gives one column, 'image;cat;dog'; .*semicolon.*delimiter=';'",
    ),
    "two delimiters": ("image,a;b\nx,1;0\n", {}, "separated by comma or semicolon; choose"),
    "ragged row": ("image,a,b\nx,1,0\ny,1\n", {}, r"line 3: expected 3 fields .* got 2"),
    "open quote": ('image,a\n"x,1\ny,0\n', {}, "line 2: cannot be read as CSV"),
    "duplicate columns": ("image,cat,cat\nx,1,0\n", {}, r"more than once: 'cat'; rename"),
    "value of 2": (
        "image,cat\nx,1\ny,2\nz,0\n",
        {},
        r"line 3, column 'cat': expected a label of 1, 0, -1.*got '2' \(1 such cells",
    ),
    "a value of a half": ("image,cat\nx,1\ny,0.5\n", {}, r"line 3, column 'cat'.*got '0\.5'"),
    "words and digits": (
        "image,a,b\nx,true,1\n",
        {},
        r"mixed codes: true at .*line 2, column 'a', but 1 at .*line 2, column 'b'",
    ),
    "0 and -1 both absent": (
        "image,a\nx,0\ny,-1\nz,1\n",
        {"zero": "absent"},
        r"contradictory codes: 0 at .*line 2.* -1 at .*line 3.*minus_one='unknown'",
    ),
    "0 and -1 both unknown": ("image,a\nx,1\n", {"minus_one": "unknown"}, "needs zero='absent'"),
    "no such meaning": (
        "image,a\nx,1\n",
        {"zero": "negative"},
        r"zero \(--zero\): expected one of 'unknown', 'absent', got 'negative'",
    ),
    "blank item": ("image,a\nx,1\n,0\n", {}, r"line 3: column 'image' is blank"),
    "blank split": (
        "image,split,a\nx,train,1\ny,,0\n",
        {"split_column": "split"},
        r"line 3: column 'split' is blank",
    ),
    "no such split column": (
        "image,fold,a\nx,train,1\n",
        {"split_column": "flod"},
        r"split_column='flod' \(--split-column flod\): there is no such column.*mean 'fold'\?\)",
    ),
    "no such image column": ("image,a\nx,1\n", {"image_column": "imag"}, "did you mean 'image'"),
    "no such dropped column": (
        "image,a\nx,1\n",
        {"drop_columns": ["b"]},
        r"drop_columns=\['b'\] \(--drop-column b\): there is no such column",
    ),
    "probabilities": (
        "image,a\nx,0.9\ny,0.1\nz,\n",
        {},
        r"got '0.9'; if the numbers are probabilities .* pass soft=True \(--soft\)",
    ),
    "nothing but names": ("image\nx\ny\n", {}, "no column is left for labels"),
    "no label anywhere": ("image,labels\nx,\ny,\n", {}, "lists no label in any row"),
    "sep for class columns": (
        "image,a\nx,1\n",
        {"sep": "|"},
        "this table has one column per class",
    ),
    "option of another format": ("image,a\nx,1\n", {"difficult": "absent"}, "cannot be used with"),
    "classes as text": (
        "image,a\nx,1\n",
        {"classes": "a"},
        "classes=: expected a list of class names",
    ),
    "a class twice": (
        "image,a\nx,1\n",
        {"classes": ["a", "a"]},
        "classes=: class names must differ",
    ),
    "no classes": ("image,a\nx,1\n", {"classes": []}, "classes= is empty"),
    "label column of codes": (
        "image,cat,dog\nx,1,0\ny,0,1\n",
        {"label_column": "cat"},
        r"column 'cat' holds codes such as '1'.*--label-column.*names of classes",
    ),
    "list as text next to plain text": (
        "image,labels\nx,\"['a', 'b']\"\ny,c\n",
        {"delimiter": ","},
        r"line 3: 'c' is not a list of names.* line 2 is",
    ),
    "truncated list as text": (
        "image,labels\nx,\"['a', 'b'\"\n",
        {"delimiter": ","},
        "line 2: .*looks like a list, but cannot be read",
    ),
    "array of NumPy as text": ("image,labels\nx,['a' 'b']\n", {}, "looks like a list, but cannot"),
    "separator for lists as text": (
        "image\tlabels\nx\t['a', 'b']\n",
        {"sep": ","},
        r"lists written as text.*sep=',' .* has no effect",
    ),
    "typo in the split column": (
        "image,split,cat\nx,train,1\ny,trian,0\nz,val,1\n",
        {},
        r"line 3: column 'split' names the split, but 'trian' .*did you mean 'train'",
    ),
    "blank in the split column": ("image,split,a\nx,train,1\ny,,0\n", {}, "'split' is blank"),
    "typo in the name of the split column": (
        "image,spilt,cat\nx,train,1\ny,val,0\n",
        {},
        r"column 'spilt': .*looks like the split; .*--split-column spilt",
    ),
    "no header, image names": ("a.jpg,1,0\nb.jpg,0,1\n", {}, "line 1: .*not like a header"),
    "no header, repeated codes": ("x1,1,0,0\nx2,0,1,0\n", {}, "line 1: .*not like a header"),
    "no header, two codes": ("x1,1,0\nx2,0,1\n", {}, "line 1: .*not like a header"),
    "no header, label lists": ("a.jpg,cat|dog\nb.jpg,cat\n", {}, "line 1: .*not like a header"),
    "no header, codes only": ("1,0,0\n0,1,0\n", {}, "line 1: .*not like a header"),
    "NUL byte": ("image,a\nx,1\0\n", {}, "line 2: holds a NUL byte"),
}


@pytest.mark.parametrize("case", BAD_TEXTS)
def test_bad_tables_are_refused(tmp_path, case):
    text, options, message = BAD_TEXTS[case]
    path = tmp_path / "labels.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_labels(path, **options)


def test_text_that_is_not_utf8_is_refused(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_bytes("image,café\na,1\n".encode("latin1"))
    with pytest.raises(DataError, match=r"line 1: byte 0xe9 is not UTF-8; save the file as UTF-8"):
        read_labels(path)
    path.write_bytes("image,cat\na,1\n".encode("utf-16"))
    with pytest.raises(DataError, match="UTF-16 text; save it as UTF-8"):
        read_labels(path)


def test_damaged_gzip_and_parquet_are_refused(tmp_path):
    for name, message in (
        ("l.csv.gz", "cannot be read"),
        ("l.parquet", "cannot be read as Parquet"),
    ):
        (tmp_path / name).write_bytes(b"\x1f\x8b no, not really")
        with pytest.raises(DataError, match=message):
            read_labels(tmp_path / name)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: is not JSON"),
        ("[1]", r"line 2: expected an object"),
        ('{"image": "b", "labels": {"x": 1}}', r"line 2, field 'labels': expected text"),
        ('{"image": "b", "labels": [["x"]]}', r"line 2, field 'labels': expected a flat list"),
    ],
)
def test_bad_json_lines_are_refused(tmp_path, line, message):
    path = tmp_path / "labels.jsonl"
    path.write_text('{"image": "a", "labels": ["cat"]}\n' + line + "\n")
    with pytest.raises(DataError, match=message):
        read_labels(path)


def test_sources_that_are_not_label_files_are_refused(tmp_path):
    with pytest.raises(DataError, match="there is no such file or folder"):
        read_labels(tmp_path / "none.csv")
    with pytest.raises(DataError, match=re.escape("neither Annotations/*.xml (VOC) nor metadata")):
        read_labels(tmp_path)
    (tmp_path / "labels.docx").write_text("x")
    with pytest.raises(DataError, match="unknown kind of label file"):
        read_labels(tmp_path / "labels.docx")


def test_a_misspelt_group_column_is_reported_under_its_own_option(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("image,patient,cat\nx,1,1\ny,2,0\n")
    expected = r"group_column='patiant' \(--group-column patiant\): .*did you mean 'patient'"
    with pytest.raises(DataError, match=expected):
        read_column(path, "patiant", option="group_column")
