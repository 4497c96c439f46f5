"""Label files with probabilities, weights, votes, other classes and hierarchies."""

import numpy as np
import pandas as pd
import pytest

from halftruth.data import DataError, read_labels


def write(folder, name, text):
    path = folder / name
    path.write_text(text)
    return path


def test_probabilities_are_soft_labels(tmp_path):
    path = write(tmp_path, "l.csv", "image,cat,dog\na,0.9,\nb,0.5,0\n")
    labels = read_labels(path, soft=True)
    np.testing.assert_allclose(labels.soft, [[0.9, np.nan], [0.5, 0]], rtol=1e-6)
    assert labels.values.tolist() == [[1, 0], [0, -1]]
    np.save(tmp_path / "l.npy", np.array([[0.9, np.nan], [0.5, 0]]))
    np.testing.assert_allclose(read_labels(tmp_path / "l.npy", soft=True).soft, labels.soft)


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("image,cat\na,1.2\nb,0\n", {}, r"line 2, column 'cat': .*from 0 to 1, .* got '1.2'"),
        ("image,cat\na,yes\nb,0\n", {}, "got 'yes'"),
        ("image,cat\na,-1\nb,0\n", {}, "got '-1'"),
        ("image,cat\na,1\nb,0\n", {"zero": "absent"}, "have no effect with soft labels"),
        ("image,labels\na,cat\nb,dog\n", {}, "soft labels .* one column of probabilities per"),
    ],
)
def test_cells_that_are_no_probabilities_are_refused(tmp_path, text, options, message):
    with pytest.raises(DataError, match=message):
        read_labels(write(tmp_path, "l.csv", text), soft=True, **options)


def test_fractions_without_soft_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"expected a label of 1, 0, -1"):
        read_labels(write(tmp_path, "l.csv", "image,cat\na,0.9\nb,1\nc,1\n"))


def test_weights_come_from_a_column_or_a_file(tmp_path):
    path = write(tmp_path, "l.csv", "image,cat,dog,trust\na,1,0,2\nb,0,1,0.5\n")
    labels = read_labels(path, weight_column="trust")
    assert labels.classes == ("cat", "dog")
    assert labels.weights.tolist() == [[2.0], [0.5]]
    path = write(tmp_path, "l2.csv", "image,cat,dog\na,1,0\nb,0,1\n")
    per_row = write(tmp_path, "w.csv", "image,weight\nb,3\na,1\n")
    assert read_labels(path, label_weights=per_row).weights.tolist() == [[1.0], [3.0]]
    per_label = write(tmp_path, "w2.csv", "image,dog,cat\nb,3,4\na,1,2\n")
    assert read_labels(path, label_weights=per_label).weights.tolist() == [[2, 1], [4, 3]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image,weight\na,1\n", "1 of 2 items of the label file have no row: 'b'"),
        ("image,weight\na,1\nb,-2\n", r"is -2; expected a finite number of at least 0"),
        ("image,weight\na,1\nb,much\n", "column 'weight' does not hold numbers"),
        ("image,cat,other\na,1,1\nb,1,1\n", "one column of weights per class.*none for 'dog'"),
    ],
)
def test_bad_weight_files_are_refused(tmp_path, text, message):
    path = write(tmp_path, "l.csv", "image,cat,dog\na,1,0\nb,0,1\n")
    with pytest.raises(DataError, match=message):
        read_labels(path, label_weights=write(tmp_path, "w.csv", text))


@pytest.mark.parametrize(
    ("cell", "message"),
    [("-1", "got '-1'"), ("", "got ''"), ("inf", "got 'inf'"), ("lots", "got 'lots'")],
)
def test_bad_weight_columns_are_refused(tmp_path, cell, message):
    path = write(tmp_path, "l.csv", f"image,cat,w\na,1,1\nb,0,{cell}\n")
    with pytest.raises(DataError, match=f"line 3, column 'w': expected a weight.*{message}"):
        read_labels(path, weight_column="w")


def test_rows_of_one_item_are_votes(tmp_path):
    text = "image,annotator,cat,dog\na,x,1,0\na,y,1,1\na,z,0,\nb,x,0,1\n"
    path = write(tmp_path, "l.csv", text)
    labels = read_labels(path, duplicates="vote", zero="absent", drop_columns=["annotator"])
    assert labels.items.tolist() == ["a", "b"]
    np.testing.assert_allclose(labels.soft, [[2 / 3, 0.5], [0, 1]], rtol=1e-6)
    assert labels.weights.tolist() == [[3, 2], [1, 1]]
    assert labels.values.tolist() == [[1, 0], [-1, 1]]


def test_files_of_several_annotators_are_votes(tmp_path):
    one = write(tmp_path, "one.csv", "image,cat\na,1\nb,0\n")
    two = write(tmp_path, "two.csv", "image,cat\nb,1\na,1\n")
    labels = read_labels(one, also=[two], duplicates="vote", zero="absent")
    assert labels.soft.tolist() == [[1], [0.5]]
    assert labels.weights.tolist() == [[2], [2]]


def test_files_with_other_classes_are_joined(tmp_path):
    one = write(tmp_path, "one.csv", "image,split,cat,dog\na,train,1,0\nb,val,0,1\n")
    two = write(tmp_path, "two.csv", "image,split,dog,car\nc,train,1,0\nb,val,1,1\n")
    labels = read_labels(one, also=two, zero="absent")
    assert labels.classes == ("cat", "dog", "car")
    assert labels.items.tolist() == ["a", "b", "c"]
    assert labels.split.tolist() == ["train", "val", "train"]
    assert labels.values.tolist() == [[1, -1, 0], [-1, 1, 1], [0, 1, -1]]
    # Nobody was asked about car in a, and about cat in c.
    assert labels.weights.tolist() == [[1, 1, 0], [1, 1, 1], [0, 1, 1]]
    assert "2 labels do not count" in labels.describe()


def test_an_unknown_label_of_a_class_that_the_file_has_still_counts(tmp_path):
    one = write(tmp_path, "one.csv", "image,cat,dog\na,1,0\n")
    two = write(tmp_path, "two.csv", "image,cat,car\nb,0,1\n")
    labels = read_labels(one, also=two)
    assert labels.values.tolist() == [[1, 0, 0], [0, 0, 1]]
    assert labels.weights.tolist() == [[1, 1, 0], [1, 0, 1]]


def test_joined_files_keep_their_weights_and_what_a_hierarchy_says(tmp_path):
    one = write(tmp_path, "one.csv", "image,cat\na,1\nc,-1\n")
    two = write(tmp_path, "two.csv", "image,animal\nb,-1\n")
    tree = write(tmp_path, "tree.csv", "child,parent\ncat,animal\n")
    weights = write(tmp_path, "w.csv", "image,weight\na,2\nb,3\nc,4\n")
    labels = read_labels(one, also=two, hierarchy=tree, label_weights=weights)
    assert labels.items.tolist() == ["a", "c", "b"]
    assert labels.values.tolist() == [[1, 1], [-1, 0], [-1, -1]]
    assert labels.weights.tolist() == [[2, 2], [4, 0], [3, 3]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image,cat\na,0\n", r"present in one and absent in another; if the rows are votes"),
        ("cat\n1\n", "does not name its items"),
        ("image,split,cat\nb,train,1\n", "has a split column, unlike"),
    ],
)
def test_files_that_cannot_be_joined_are_refused(tmp_path, text, message):
    one = write(tmp_path, "one.csv", "image,cat\na,1\n")
    with pytest.raises(DataError, match=message):
        read_labels(one, also=write(tmp_path, "two.csv", text), zero="absent")


def test_a_hierarchy_completes_the_labels(tmp_path):
    path = write(tmp_path, "l.csv", "image,animal,cat,dog\na,0,1,0\nb,-1,0,0\n")
    tree = write(tmp_path, "tree.csv", "child,parent\ncat,animal\ndog,animal\n")
    labels = read_labels(path, hierarchy=tree)
    assert labels.values.tolist() == [[1, 1, 0], [-1, -1, -1]]
    assert "3 labels follow from the hierarchy" in labels.describe()


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ("child,parent\ncta,animal\n", "'cta' is not a class; did you mean 'cat'"),
        ("child,parent\ncat,animal\nanimal,cat\n", "are their own ancestors"),
        ("a,b,c\ncat,animal,x\n", "expected the columns child and parent, got 'a', 'b', 'c'"),
        ("child,parent\ndog,animal\n", "row 0: 'dog' is present, but 'animal'"),
    ],
)
def test_bad_hierarchy_files_are_refused(tmp_path, tree, message):
    path = write(tmp_path, "l.csv", "image,animal,cat,dog\na,-1,0,1\nb,0,1,0\n")
    with pytest.raises(DataError, match=message):
        read_labels(path, hierarchy=write(tmp_path, "tree.csv", tree))


def test_text_without_header_and_with_quotation_marks(tmp_path):
    path = write(tmp_path, "l.tsv", '"Hi" she said\tcat,dog\tx1\nfine\tdog\tx2\n')
    with pytest.raises(DataError, match=r"quotes=False"):
        read_labels(path, columns=["text", "labels", "id"], drop_columns=["text"])
    options = {"columns": ["text", "labels", "id"], "quotes": False, "drop_columns": ["text"]}
    labels = read_labels(path, **options)
    assert labels.items.tolist() == ["x1", "x2"]
    assert labels.values.tolist() == [[1, 1], [0, 1]]
    with pytest.raises(DataError, match="line 1: expected 2 fields as in columns=, got 3"):
        read_labels(path, columns=["text", "labels"], quotes=False)
    pd.DataFrame({"cat": [1]}).to_parquet(tmp_path / "l.parquet")
    with pytest.raises(DataError, match="columns is for text files"):
        read_labels(tmp_path / "l.parquet", columns=["cat"])


def test_a_class_as_the_column_of_weights_is_questioned(tmp_path):
    """The class is no class then, and the rows that do not show it do not count."""
    rows = [f"i{row},{row % 2},{row % 3 == 0:d}" for row in range(12)]
    (tmp_path / "l.csv").write_text("\n".join(["image,cat,dog", *rows]))
    labels = read_labels(tmp_path / "l.csv", weight_column="cat")
    assert labels.classes == ("dog",)
    assert (
        "column 'cat' are all 0 or 1, as labels are, and 6 rows do not count" in labels.describe()
    )
    weights = [f"i{row},{row % 2},{0.5 + row % 2}" for row in range(12)]
    (tmp_path / "l.csv").write_text("\n".join(["image,dog,weight", *weights]))
    assert "warning" not in read_labels(tmp_path / "l.csv", weight_column="weight").describe()
