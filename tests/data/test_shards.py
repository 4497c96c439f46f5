"""Shards: WebDataset tar files, Parquet and Arrow files of images, and their bad inputs."""

import importlib
import io
import json
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from halftruth.data import (
    BadImage,
    DataError,
    ImageStore,
    decode_all,
    read_labels,
    write_shards,
)
from halftruth.data.readers.arrow_file import ArrowFile
from halftruth.data.shards import expand_shards


def png(value):
    file = io.BytesIO()
    Image.fromarray(np.full((6, 6, 3), value, np.uint8)).save(file, "PNG")
    return file.getvalue()


def tar(path, files):
    """Write a tar file; `files` are (name, bytes or object) pairs."""
    with tarfile.open(path, "w") as archive:
        for name, content in files:
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def sample(key, value, labels):
    return [(f"{key}.png", png(value)), (f"{key}.json", {"labels": labels})]


@pytest.fixture
def shards(tmp_path):
    folder = tmp_path / "shards"
    folder.mkdir()
    tar(folder / "s-00.tar", [*sample("a/0", 10, ["cat"]), *sample("a/1", 20, ["cat", "dog"])])
    tar(folder / "s-01.tar", [*sample("b/2", 30, ["dog"]), *sample("b/3", 40, [])])
    return folder


@pytest.mark.parametrize("form", ["", "*.tar", "s-{00..01}.tar"])
def test_shards_are_read_by_folder_pattern_and_range(shards, form):
    labels = read_labels(shards / form, label_column="labels")
    assert labels.classes == ("cat", "dog")
    assert labels.items.tolist() == ["a/0.png", "a/1.png", "b/2.png", "b/3.png"]
    assert labels.values.tolist() == [[1, 0], [1, 1], [0, 1], [0, 0]]
    store = ImageStore(shards / form)
    pixels = decode_all(store, labels.items.tolist(), 4).pixels
    assert pixels[:, 0, 0, 0].tolist() == [10, 20, 30, 40]
    assert [store.get_shard(name) for name in labels.items] == [0, 0, 1, 1]


def test_a_label_file_names_images_of_shards(shards, tmp_path):
    (tmp_path / "l.csv").write_text("image,cat\n1,1\n3,0\n")
    labels, store = read_labels(tmp_path / "l.csv"), ImageStore(shards)
    assert [store.read(name).getpixel((0, 0))[0] for name in labels.items] == [20, 40]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "holds no files; remove the empty shard"),
        ([*sample("0", 1, ["a"]), *sample("0", 2, ["a"])], r"holds '0\.png' more than once"),
        ([*sample("0", 1, ["a"]), ("1.png", png(1))], "1 of 2 samples have no labels"),
        ([("0.png", png(1))], "no sample has labels"),
        ([*sample("0", 1, ["a"]), ("1.json", {})], "the sample '1' has no image"),
        ([("0.png", png(1)), ("0.json", b"{broken")], r"0\.json: is not JSON"),
        ([("0.png", png(1)), ("0.json", ["a"])], "expected an object"),
        ([("0.png", png(1)), ("0.jpg", png(1))], "is the second image of this sample"),
        ([("0.png", png(1)), ("0.npy", b"\x93NUMPY\xff")], "expected UTF-8 text or an image"),
        ([("0.png", png(1)), ("0.json", {"labels": [["a"]]})], "expected a flat list of label"),
    ],
)
def test_bad_samples_are_refused(tmp_path, files, message):
    path = tar(tmp_path / "s.tar", files)
    with pytest.raises(DataError, match=message):
        read_labels(path, label_column="labels")


def test_a_broken_image_in_a_shard_is_listed(tmp_path):
    path = tar(tmp_path / "s.tar", [("0.png", png(1)), ("1.png", b"no image"), ("2.png", b"")])
    done = decode_all(ImageStore(path), ["0", "1", "2"], 4, on_bad="skip")
    assert done.good.tolist() == [True, False, False]
    assert "not an image of a known format" in done.bad[0][1]


def test_the_same_key_in_two_shards_is_refused(tmp_path):
    for name in ("a.tar", "b.tar"):
        tar(tmp_path / name, sample("0", 1, ["x"]))
    with pytest.raises(BadImage, match="is in more than one place"):
        ImageStore(tmp_path).read("0.png")
    with pytest.raises(DataError, match="already has a row"):
        read_labels(tmp_path, label_column="labels")


@pytest.mark.parametrize("kind", ["truncated", "text", "gz"])
def test_files_that_are_no_tar_are_refused(tmp_path, kind):
    path = tar(tmp_path / "s.tar", sample("0", 1, ["a"]))
    if kind == "gz":
        path = path.rename(tmp_path / "s.tar.gz")
        with pytest.raises(DataError, match="compressed tar file"):
            ImageStore(path)
        return
    path.write_bytes(path.read_bytes()[:700] if kind == "truncated" else b"hello" * 300)
    with pytest.raises((DataError, BadImage), match="cannot be read"):
        ImageStore(path).read("0.png")


def test_a_pattern_without_files_is_refused(tmp_path):
    with pytest.raises(DataError, match="no file fits this pattern"):
        expand_shards(tmp_path / "*.tar")
    with pytest.raises(DataError, match="from a smaller to a larger"):
        expand_shards(tmp_path / "s-{3..1}.tar")


def test_shards_of_several_kinds_are_refused(shards):
    (shards / "x.parquet").write_bytes(b"")
    with pytest.raises(DataError, match="shards of several kinds"):
        ImageStore(shards)


def image_table(paths):
    images = [{"bytes": png(10 * row), "path": path} for row, path in enumerate(paths)]
    return pa.table(
        {"image": images, "labels": [["cat"] if row % 2 else ["dog"] for row in range(4)]}
    )


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
@pytest.mark.parametrize("named", [True, False])
def test_images_in_parquet_and_arrow_files(tmp_path, ending, named):
    table = image_table([f"{row}.png" if named else None for row in range(4)])
    path = tmp_path / f"train.{ending}"
    if ending == "parquet":
        pq.write_table(table, path, row_group_size=3)
    else:
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table, max_chunksize=3)
    labels = read_labels(path, label_column="labels")
    wanted = [f"{row}.png" if named else f"train-{row:07d}" for row in range(4)]
    assert labels.items.tolist() == wanted
    store = ImageStore(path)
    assert store.names() == wanted
    assert [store.read(name).getpixel((0, 0))[0] for name in wanted] == [0, 10, 20, 30]


def test_few_parts_of_parquet_files_are_kept_in_memory(tmp_path, monkeypatch):
    noise = np.random.default_rng(0).bytes
    for number in range(40):
        images = [{"bytes": noise(50_000), "path": f"{number}-{row}.png"} for row in range(4)]
        pq.write_table(pa.table({"image": images}), tmp_path / f"{number}.parquet")
    columns = []
    read_part = ArrowFile.read_part

    def follow(*arguments):
        table = read_part(*arguments)
        columns.append(table["image"].chunk(0))
        return table

    monkeypatch.setattr(ArrowFile, "read_part", follow)
    allocated = pa.total_allocated_bytes()
    store = ImageStore(str(tmp_path / "*.parquet"))
    assert len([store.read_bytes(name) for name in store.names()]) == 160
    assert len(columns) == 40
    size = sum(column.nbytes for column in columns)
    columns.clear()
    assert pa.total_allocated_bytes() - allocated < size / 2


def test_bad_tables_of_images_are_refused(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(DataError, match="expected one column of images"):
        ImageStore(path)
    pq.write_table(pa.table({"image": [{"bytes": b"", "path": "x.png"}] * 2}).slice(0, 0), path)
    with pytest.raises(DataError, match="has columns but no rows"):
        ImageStore(path)
    images = pa.array(
        [{"bytes": None, "path": "0.png"}],
        pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
    )
    pq.write_table(pa.table({"image": images}), path)
    with pytest.raises(BadImage, match="has no bytes in the file"):
        ImageStore(path).read("0.png")


@pytest.fixture
def datasets():
    """The package of Hugging Face; another one of this name has no such module."""
    pytest.importorskip("datasets.arrow_dataset", reason="needs datasets of Hugging Face")
    return importlib.import_module("datasets")


def test_hugging_face_data_sets_are_read_from_disk(datasets, tmp_path):
    """A folder that `save_to_disk` wrote, with labels as a list of names."""
    images = [Image.fromarray(np.full((6, 6, 3), 10 * row, np.uint8)) for row in range(4)]
    made = datasets.Dataset.from_dict({"image": images, "labels": [["a"], ["a", "b"], [], ["b"]]})
    made = made.cast_column("image", datasets.Image())
    made.save_to_disk(tmp_path / "saved")
    labels = read_labels(tmp_path / "saved", label_column="labels")
    assert labels.values.tolist() == [[1, 0], [1, 1], [0, 0], [0, 1]]
    store = ImageStore(tmp_path / "saved")
    assert [store.read(name).getpixel((0, 0))[0] for name in labels.items] == [0, 10, 20, 30]


@pytest.fixture
def hugging_face(datasets):
    """A data set with numbers of classes, whose names it knows."""
    kinds = datasets.Features(
        {
            "image": datasets.Image(),
            "labels": datasets.Sequence(datasets.ClassLabel(names=["cat", "dog"])),
        }
    )
    images = [Image.fromarray(np.full((6, 6, 3), 10 * row, np.uint8)) for row in range(5)]
    lists = [[0], [0, 1], [], [1], [1]]
    return datasets.Dataset.from_dict({"image": images, "labels": lists}, features=kinds)


@pytest.mark.parametrize("streaming", [True, False])
def test_a_hugging_face_stream_becomes_shards(hugging_face, tmp_path, streaming):
    data = hugging_face.to_iterable_dataset() if streaming else hugging_face
    assert write_shards(data, tmp_path / "s", per_shard=2) == 5
    assert len(list((tmp_path / "s").iterdir())) == 3
    labels = read_labels(tmp_path / "s", label_column="labels")
    assert labels.classes == ("cat", "dog")
    assert labels.values.tolist() == [[1, 0], [1, 1], [0, 0], [0, 1], [0, 1]]
    store = ImageStore(tmp_path / "s")
    assert [store.read(n).getpixel((0, 0))[0] for n in labels.items] == [0, 10, 20, 30, 40]


@pytest.mark.parametrize("form", ["disk", "parquet"])
def test_saved_data_sets_keep_the_names_of_their_classes(hugging_face, tmp_path, form):
    if form == "disk":
        hugging_face.save_to_disk(tmp_path / "saved")
    else:
        (tmp_path / "saved").mkdir()
        hugging_face.to_parquet(tmp_path / "saved" / "train.parquet")
    labels = read_labels(tmp_path / "saved", label_column="labels")
    assert labels.classes == ("cat", "dog")
    assert labels.values.tolist() == [[1, 0], [1, 1], [0, 0], [0, 1], [0, 1]]
    assert len(ImageStore(tmp_path / "saved").names()) == 5


@pytest.mark.parametrize(
    ("samples", "options", "message"),
    [
        ([], {}, "expected at least one sample"),
        ([{"picture": png(1)}], {}, "has no field 'image' with the image"),
        ([{"image": 3}], {}, "expected an image .* got int"),
        ([{"image": png(1), "x": object()}], {}, "neither text, a number nor a list"),
        ([{"image": png(1)}], {"per_shard": 0}, "per_shard: expected at least 1"),
    ],
)
def test_bad_streams_are_refused_and_leave_no_shard(tmp_path, samples, options, message):
    with pytest.raises(DataError, match=message):
        write_shards(samples, tmp_path / "s", **options)
    assert not (tmp_path / "s").exists() or not list((tmp_path / "s").iterdir())


def test_a_folder_with_files_is_not_overwritten(tmp_path):
    (tmp_path / "x").write_text("")
    with pytest.raises(DataError, match="expected a new or an empty folder"):
        write_shards([{"image": png(1)}], tmp_path)


def test_images_of_a_stream_may_have_many_forms(tmp_path):
    (tmp_path / "f.png").write_bytes(png(4))
    array = np.full((6, 6, 3), 1, np.uint8)
    forms = [array, Image.fromarray(array + 1), png(3), tmp_path / "f.png", {"bytes": png(5)}]
    write_shards([{"image": form, "labels": ["a"]} for form in forms], tmp_path / "s")
    store = ImageStore(tmp_path / "s")
    assert [store.read(n).getpixel((0, 0))[0] for n in store.names()] == [1, 2, 3, 4, 5]
