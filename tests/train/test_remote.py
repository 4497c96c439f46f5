"""Files behind an address: an S3 server, one of https, memory; secrets stay out of messages."""

import http.server
import io
import json
import os
import socket
import subprocess
import sys
import tarfile
import threading
import time
import urllib.request
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from tiny_data import command, train_two_runs

import halftruth
from halftruth.data import DataError, ImageStore, read_features, read_labels
from halftruth.data.errors import mask
from halftruth.data.remote import is_remote, read_bytes, to_url
from halftruth.data.shards import expand_shards
from halftruth.train.results.predictions import read_predictions
from halftruth.train.results.write_parts import MANIFEST

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
SECRET = "wJalrXUtnFEMI"


@pytest.fixture(scope="module")
def runs(data, tmp_path_factory):
    """A run on features, one on images, one on text."""
    folder = tmp_path_factory.mktemp("remote")
    train_two_runs(data, folder)
    return folder


@pytest.fixture(scope="module")
def s3():
    """An S3 server of moto with the bucket "bucket"; the usual variables name it."""
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    pytest.importorskip("moto.server", reason="moto is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{port}'])"
    server = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    variables = {
        "AWS_ENDPOINT_URL": address, "AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
    }  # fmt: skip
    before = dict(os.environ)
    os.environ.update(variables)
    for _ in range(300):
        try:
            urllib.request.urlopen(f"{address}/moto-api/")
            break
        except OSError:
            time.sleep(0.1)
    fsspec.filesystem("s3").mkdir("bucket")
    yield "s3://bucket"
    server.kill()
    server.wait()
    for name in variables:
        os.environ.pop(name)
    os.environ.update(before)


@pytest.fixture(params=["memory", "s3"])
def store(request, data):
    """An address with labels, features as .npy and Parquet, images, and tar shards."""
    where = "memory://bucket" if request.param == "memory" else request.getfixturevalue("s3")
    where += f"/{request.node.name.partition('[')[0]}"
    system, top = fsspec.core.url_to_fs(where)

    def put(name, content):
        system.makedirs(f"{top}/{name}".rpartition("/")[0], exist_ok=True)
        system.pipe_file(f"{top}/{name}", content)

    for name in ("labels.csv", "truth.csv", "features.npy"):
        put(name, (data / name).read_bytes())
    x = np.load(data / "features.npy")
    table = pd.DataFrame(x, columns=["a", "b", "c"])
    table.insert(0, "id", [f"p{row}.png" for row in range(len(x))])
    for part, rows in enumerate(np.array_split(np.arange(len(x)), 3)):
        put(f"table/x-{part}.parquet", table.iloc[rows].to_parquet())
    photos = sorted((data / "photos").iterdir())
    for file in photos:
        put(f"photos/some/{file.name}", file.read_bytes())
    for part, files in enumerate(np.array_split(np.array(photos), 3)):
        shard = io.BytesIO()
        with tarfile.open(fileobj=shard, mode="w") as archive:
            for file in files:
                archive.add(file, file.name)
        put(f"shards/s-{part}.tar", shard.getvalue())
    return where


def assert_same(one, other, names=lambda name: name):
    one, other = (table.sort_values("item", ignore_index=True) for table in (one, other))
    assert one["item"].tolist() == [names(name) for name in other["item"]]
    assert one["labels"].tolist() == other["labels"].tolist()
    for name in ("red", "green", "blue"):
        np.testing.assert_allclose(one[name], other[name], rtol=0, atol=1e-6)


def test_files_are_read_as_those_of_a_folder(store, data):
    here, there = read_labels(data / "labels.csv"), read_labels(f"{store}/labels.csv")
    assert np.array_equal(here.values, there.values)
    assert here.items.tolist() == there.items.tolist()
    x = np.load(data / "features.npy")
    for name in ("features.npy", "table/", "table/*.parquet", "table/x-{0..2}.parquet"):
        assert np.array_equal(read_features(f"{store}/{name}"), x), name
    local = ImageStore(data / "photos")
    for name in ("photos", "photos/**/*.png", "shards", "shards/*.tar", "shards/s-{0..2}.tar"):
        images = ImageStore(f"{store}/{name}")
        assert len(images) == 44
        assert images.read("p3.png").tobytes() == local.read("p3.png").tobytes()


@pytest.mark.parametrize("images", ["photos/**/*.png", "photos", "shards/*.tar"])
def test_images_are_predicted_from_and_to_an_address(runs, store, data, tmp_path, images):
    line = ["predict", runs / "images", "--device", "cpu", "--images"]
    assert command(*line, data / "photos", "--out", tmp_path / "p.parquet") == 0
    assert command(*line, f"{store}/{images}", "--out", f"{store}/out-{len(images)}/") == 0
    system, top = fsspec.core.url_to_fs(f"{store}/out-{len(images)}")
    names = sorted(name.rpartition("/")[2] for name in system.ls(top, detail=False))
    assert names[0] == MANIFEST
    assert len(names) == (4 if "shards" in images else 5)
    found = pd.concat(
        [pd.read_parquet(io.BytesIO(system.cat_file(f"{top}/{name}"))) for name in names[1:]]
    )
    assert_same(
        read_predictions(tmp_path / "p.parquet"), found, lambda name: name.rpartition("/")[2]
    )
    assert SECRET not in system.cat_file(f"{top}/{MANIFEST}").decode()


def test_features_are_predicted_and_trained_on_from_an_address(runs, store, data, tmp_path, capfd):
    line = ["predict", runs / "features", "--features"]
    assert command(*line, data / "features.npy", "--out", tmp_path / "p.csv") == 0
    assert command(*line, f"{store}/table/*.parquet", "--out", f"{store}/p.csv") == 0
    found = pd.read_csv(io.BytesIO(read_bytes(f"{store}/p.csv")))
    assert found["item"].tolist() == [f"p{row}.png" for row in range(44)]
    assert (found["labels"].fillna("") == read_predictions(tmp_path / "p.csv")["labels"]).all()
    train = ["train", f"{store}/labels.csv", "--method", "wan", "--epochs", 1, "--no-report"]
    train += ["--features", f"{store}/table/", "--out", tmp_path / "run"]
    assert command(*train) == 0
    one, two = (halftruth.load(folder) for folder in (runs / "features", tmp_path / "run"))
    for ours, theirs in zip(one.model.parameters(), two.model.parameters(), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs.cpu(), atol=1e-5, rtol=1e-5)
    shown = capfd.readouterr()
    files = [file.read_bytes() for file in (tmp_path / "run").iterdir() if file.is_file()]
    assert not [file for file in files if SECRET.encode() in file]
    assert SECRET not in shown.out + shown.err


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://me:word@host/a.csv", "https://host/a.csv"),
        ("https:/me:word@host/a.csv", "https:/host/a.csv"),
        ("see https://host/a.csv?X-Amz-Signature=1f&b=2 there", "see https://host/a.csv?... there"),
        ("s3://key:secret@bucket/a?.jpg", "s3://bucket/a?.jpg"),
        ("me@host.org: what?", "me@host.org: what?"),
        ("photos/a.jpg", "photos/a.jpg"),
    ],
)
def test_secrets_of_addresses_are_not_shown(text, shown):
    assert mask(text) == shown


@pytest.mark.parametrize(
    ("path", "remote"),
    [
        ("s3://bucket/a", True), (Path("gs://bucket/a"), True), ("C:/photos", False),
        ("a.csv", False), ("/a:/b", False), (3, False),
    ],
)  # fmt: skip
def test_an_address_is_recognised_also_as_a_path(path, remote):
    assert is_remote(path) is remote
    if remote:
        assert to_url(Path(path)) == str(path).replace("gs:/b", "gs://b")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("memory://nowhere/a.csv", "memory://nowhere/a.csv: there is no such file or folder"),
        ("memory://nowhere/*.parquet", "there is no such file, and none fits such a pattern"),
        ("nosuch://a/b.csv", "expected s3://, gs://, hf://, https:// or a path"),
    ],
)
def test_errors_of_addresses(address, message):
    with pytest.raises(DataError, match=message.replace("*", r"\*")):
        read_labels(address)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(DataError, match="gs:// needs gcsfs: pip install gcsfs"):
        expand_shards("gs://bucket/*.tar")


def test_refused_access_says_which_variables(monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(f"Forbidden for https://me:{SECRET}@host")

    monkeypatch.setattr(type(fsspec.filesystem("memory")), "get_file", refuse)
    with pytest.raises(DataError, match="AWS_ACCESS_KEY_ID") as found:
        read_labels("memory://bucket/labels.csv")
    assert SECRET not in str(found.value)


@pytest.fixture
def https(data):
    """A web server of the data, which wants a signature. Its scheme is http."""
    pytest.importorskip("aiohttp", reason="aiohttp is not installed")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            return super().do_GET() if "sign=" in self.path else self.send_error(403)

        def do_HEAD(self):
            return super().do_HEAD() if "sign=" in self.path else self.send_error(403)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(Handler, directory=str(data))
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_a_signed_address_is_read_and_not_written_down(runs, https, data, tmp_path, capfd):
    labels = read_labels(f"{https}/labels.csv?sign={SECRET}")
    assert np.array_equal(labels.values, read_labels(data / "labels.csv").values)
    line = ["predict", runs / "features", "--features", f"{https}/features.npy?sign={SECRET}"]
    assert command(*line, "--out", f"{tmp_path}/out/") == 0
    assert SECRET not in (tmp_path / "out" / MANIFEST).read_text()
    assert len(read_predictions(tmp_path / "out")) == 44
    # A run folder would keep the address: its configuration must not hold a secret.
    line = ["train", f"{https}/labels.csv?sign={SECRET}", "--features", data / "features.npy"]
    assert command(*line, "--out", tmp_path / "run") == 2
    assert not (tmp_path / "run" / "config.yaml").exists()
    with pytest.raises(DataError, match="access failed"):
        read_labels(f"{https}/labels.csv")
    shown = capfd.readouterr()
    assert SECRET not in shown.out + shown.err
    assert json.loads((tmp_path / "out" / MANIFEST).read_text())["parts"] == 1
