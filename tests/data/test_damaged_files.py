"""Every reader refuses a damaged file with one message that names it; never with a traceback."""

import io
import tarfile
import warnings

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from scipy import sparse

from halftruth.data import DataError, read_features, read_labels
from halftruth.data.complete_rows import add_complete_rows
from halftruth.data.hints import read_hints

ITEMS = [f"item{k}.jpg" for k in range(8)]
LABELS = np.array([[k % 2, 1 - k % 2] for k in range(8)])
TABLE = pd.DataFrame({"image": ITEMS, "cat": LABELS[:, 0], "dog": LABELS[:, 1]})
LISTS = pd.DataFrame({"image": ITEMS, "labels": ["cat" if row[0] else "dog" for row in LABELS]})
NUMBERS = pd.DataFrame({"image": ITEMS, "age": np.arange(8.0), "size": np.arange(8.0) / 3})


def write_shard(path):
    with tarfile.open(path, "w") as shard:
        for name in ITEMS:
            file = io.BytesIO()
            Image.new("RGB", (8, 8)).save(file, "JPEG")
            key = name.removesuffix(".jpg")
            for ending, data in (("jpg", file.getvalue()), ("json", b'{"labels": ["cat"]}')):
                info = tarfile.TarInfo(f"{key}.{ending}")
                info.size = len(data)
                shard.addfile(info, io.BytesIO(data))


def write_coco(path):
    images = ", ".join(f'{{"id": {k}, "file_name": "{name}"}}' for k, name in enumerate(ITEMS))
    path.write_text(
        f'{{"images": [{images}], "categories": [{{"id": 1, "name": "cat"}}], '
        '"annotations": [{"image_id": 1, "category_id": 1}]}'
    )


def write_arff(path):
    rows = "\n".join(f"{k}.5,{row[0]},{row[1]}" for k, row in enumerate(LABELS))
    path.write_text(
        "@relation 'x: -C -2'\n@attribute f numeric\n@attribute cat {0,1}\n@attribute dog {0,1}\n"
        f"@data\n{rows}\n"
    )


LABEL_FILES = {
    "labels.csv": lambda path: TABLE.to_csv(path, index=False),
    "labels.csv.gz": lambda path: TABLE.to_csv(path, index=False),
    "labels.tsv": lambda path: TABLE.to_csv(path, index=False, sep="\t"),
    "lists.csv": lambda path: LISTS.to_csv(path, index=False),
    "labels.jsonl": lambda path: LISTS.to_json(path, orient="records", lines=True),
    "labels.parquet": lambda path: TABLE.to_parquet(path),
    "labels.arrow": lambda path: TABLE.to_feather(path),
    "labels.npy": lambda path: np.save(path, LABELS),
    "labels.npz": lambda path: np.savez(path, Y=LABELS),
    "sparse.npz": lambda path: sparse.save_npz(path, sparse.csr_matrix(LABELS)),
    "labels.arff": write_arff,
    "coco.json": write_coco,
    "shard.tar": write_shard,
}
FEATURE_FILES = {
    "x.csv": lambda path: NUMBERS.to_csv(path, index=False),
    "x.jsonl": lambda path: NUMBERS.to_json(path, orient="records", lines=True),
    "x.parquet": lambda path: NUMBERS.to_parquet(path),
    "x.npy": lambda path: np.save(path, np.ones((8, 3))),
    "x.npz": lambda path: np.savez(path, X=np.ones((8, 3))),
    "x.arff": write_arff,
}
DAMAGES = {
    "missing": None,
    "empty": lambda data: b"",
    "half": lambda data: data[: len(data) // 2],
    "zeros": lambda data: bytes(len(data)),
    "noise": lambda data: np.random.default_rng(0).bytes(len(data)),
    "middle": lambda data: data[:20] + np.random.default_rng(0).bytes(40) + data[60:],
    "web page": lambda data: b"<!DOCTYPE html><html><body>Not found</body></html>",
}


def damage(folder, name, write, how):
    path = folder / name
    write(path)
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes(DAMAGES[how](path.read_bytes()))
    return path


def check_refused(read, path):
    """Return what was read; None where reading fails, in a short message with the file name."""
    found, message = None, path.name
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = read(path)
        except DataError as error:
            message = str(error)
    assert not [one for one in caught if one.category is ResourceWarning]
    assert path.name in message
    assert len(message) < 1_000
    return found


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("name", LABEL_FILES)
def test_a_damaged_label_file_is_refused(tmp_path, name, how):
    read = LABEL_FILES[name]
    found = check_refused(read_labels, damage(tmp_path, name, read, how))
    if how in ("missing", "empty", "zeros", "noise"):
        assert found is None
    elif found is not None:
        assert len(found) <= len(ITEMS)


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("name", FEATURE_FILES)
def test_a_damaged_feature_file_is_refused(tmp_path, name, how):
    options = {"arff_labels": -2} if name.endswith(".arff") else {}
    path = damage(tmp_path, name, FEATURE_FILES[name], how)
    found = check_refused(lambda one: read_features(one, **options), path)
    if how in ("missing", "empty", "zeros", "noise", "web page"):
        assert found is None


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("option", ["also", "label_weights", "hierarchy", "complete_rows", "hints"])
def test_a_damaged_second_file_is_refused(tmp_path, option, how):
    TABLE.to_csv(tmp_path / "labels.csv", index=False)
    path = damage(tmp_path, "second.csv", LABEL_FILES["labels.csv"], how)
    labels = read_labels(tmp_path / "labels.csv")

    def read(one):
        if option == "complete_rows":
            return add_complete_rows(labels, one)
        if option == "hints":
            return read_hints([str(one)], labels.classes, labels.items, len(labels), {})
        return read_labels(tmp_path / "labels.csv", **{option: one})

    found = check_refused(read, path)
    if how in ("missing", "empty", "zeros", "noise", "web page"):
        assert found is None
