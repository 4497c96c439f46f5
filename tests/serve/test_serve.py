"""The JSON endpoint of a run: predictions, limits, and answers to mistakes."""

import base64
import io
import json
import threading
import urllib.request

import numpy as np
import pandas as pd
import pytest

import halftruth

flask = pytest.importorskip("flask")
serve = pytest.importorskip("halftruth.serve")

CLASSES = ("cat", "dog|wolf")


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, halftruth.TrainedRun]:
    """One small run per kind of inputs."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("runs")
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 5)).astype(np.float32)
    labels = pd.DataFrame((X[:, :2] > 0).astype(int), columns=list(CLASSES))
    short = {"method": "em", "epochs": 1, "quiet": True, "report": False, "device": "cpu"}
    halftruth.fit(labels, features=X, out=folder / "features", **short)
    texts = labels.copy()
    texts.insert(0, "note", ["meow" if row else "woof" for row in labels["cat"]])
    texts.to_csv(folder / "texts.csv", index=False)
    halftruth.fit(str(folder / "texts.csv"), text="note", out=folder / "texts", **short)
    for number in range(12):
        pixels = random.integers(0, 255, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    table = labels[:12].copy()
    table.insert(0, "image", [f"{number}.png" for number in range(12)])
    table.to_csv(folder / "images.csv", index=False)
    halftruth.fit(
        str(folder / "images.csv"), str(folder), backbone="test_resnet", weights="none",
        image_size=32, tune="all", freeze_bn=False, workers=0, out=folder / "images", **short,
    )  # fmt: skip
    kinds = ("features", "texts", "images")
    return {kind: halftruth.load(folder / kind, device="cpu") for kind in kinds}


@pytest.fixture(scope="module")
def clients(runs):
    return {kind: serve.make_app(run, most_rows=4).test_client() for kind, run in runs.items()}


def png(size: int = 20) -> bytes:
    from PIL import Image

    data = io.BytesIO()
    Image.new("RGB", (size, size), "red").save(data, "PNG")
    return data.getvalue()


def check_same(answer, expected: pd.DataFrame) -> None:
    """The answer has the labels and probabilities of `TrainedRun.predict`."""
    assert answer.status_code == 200, answer.json
    records = answer.json["predictions"]
    assert len(records) == len(expected)
    for record, (_, row) in zip(records, expected.iterrows(), strict=True):
        for name in CLASSES:
            assert record["probabilities"][name] == pytest.approx(row[name], abs=1e-4)
        joined = [name for name in CLASSES if name in record["labels"]]
        assert joined == record["labels"]
        assert bool(joined) == bool(row["labels"])


def test_features(runs, clients):
    X = [[0.5, -1.0, 2.0, 0.0, 1.0], [1.0, 1.0, 1.0, 1.0, 1.0]]
    answer = clients["features"].post("/predict", json={"features": X, "items": ["a", "b"]})
    check_same(answer, runs["features"].predict(np.float32(X)))
    assert [record["item"] for record in answer.json["predictions"]] == ["a", "b"]


def test_texts(runs, clients):
    answer = clients["texts"].post("/predict", json={"texts": ["meow meow", "woof"]})
    check_same(answer, runs["texts"].predict(pd.DataFrame({"note": ["meow meow", "woof"]})))


def test_a_text_that_names_a_file_is_a_text(clients, runs):
    path = str(runs["texts"].folder / "config.yaml")
    answer = clients["texts"].post("/predict", json={"texts": [path]})
    assert len(answer.json["predictions"]) == 1


@pytest.mark.parametrize("prefix", ["", "data:image/png;base64,"])
def test_images_in_base64(runs, clients, prefix):
    from PIL import Image

    text = prefix + base64.b64encode(png()).decode()
    answer = clients["images"].post("/predict", json={"images": [text]})
    check_same(answer, runs["images"].predict(Image.new("RGB", (20, 20), "red")))


def test_images_as_files(clients):
    files = {"images": [(io.BytesIO(png()), "a.png"), (io.BytesIO(png(30)), "b.png")]}
    answer = clients["images"].post("/predict", data=files, content_type="multipart/form-data")
    assert [record["item"] for record in answer.json["predictions"]] == ["a.png", "b.png"]


def test_health_and_description(clients):
    assert clients["images"].get("/health").json == {"status": "ok"}
    about = clients["texts"].get("/").json
    assert about["inputs"] == "texts"
    assert about["classes"] == list(CLASSES)
    assert about["limits"]["rows"] == 4


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        ("features", {"features": [[1.0, 2.0]]}, "5 features"),
        ("features", {"features": [[1, 2, 3, 4, "x"]]}, "numbers"),
        ("features", {"features": [[1, 2, 3, 4, None]]}, "features"),
        ("features", {"features": [[0] * 5] * 5}, "at most 4"),
        ("features", {"features": []}, "at least one"),
        ("features", {"features": "labels.csv"}, "list"),
        ("features", {"features": ["labels.csv"]}, "list of rows"),
        ("features", {"images": []}, "expects 'features'"),
        ("features", {"features": [[0] * 5], "items": ["a", "b"]}, "one per row"),
        ("features", {"features": [[0] * 5] * 2, "items": ["a", "a"]}, "different"),
        ("features", [1, 2], "JSON object"),
        ("texts", {"texts": [1]}, "list of texts"),
        ("images", {"images": ["not base64!"]}, "base64"),
        ("images", {"images": [base64.b64encode(b"GIF").decode()]}, "image 0"),
    ],
)
def test_a_mistake_is_one_sentence(clients, kind, body, words):
    answer = clients[kind].post("/predict", json=body)
    assert answer.status_code == 400, answer.json
    assert words in answer.json["error"]


def test_a_body_that_is_not_json(clients):
    answer = clients["features"].post("/predict", data=b"{")
    assert (answer.status_code, "JSON" in answer.json["error"]) == (400, True)


def test_a_body_that_is_too_large_is_refused(clients):
    answer = clients["features"].post("/predict", data=b" " * (serve.MOST_BYTES + 1))
    assert (answer.status_code, "32 MB" in answer.json["error"]) == (413, True)


@pytest.mark.parametrize(("path", "code"), [("/other", 404), ("/predict", 405)])
def test_other_addresses_are_errors_in_json(clients, path, code):
    answer = clients["features"].get(path)
    assert answer.status_code == code
    assert answer.json["error"]


def test_the_server_answers_over_a_socket(runs):
    service = serve.Service(runs["features"], port=0)
    thread = threading.Thread(target=service.serve, daemon=True)
    thread.start()
    try:
        body = json.dumps({"features": [[0.0] * 5]}).encode()
        request = urllib.request.Request(f"{service.address}/predict", body)
        with urllib.request.urlopen(request, timeout=20) as answer:
            assert set(json.load(answer)["predictions"][0]["probabilities"]) == set(CLASSES)
    finally:
        service.server.shutdown()
        thread.join(10)


def test_a_port_in_use_is_an_error(runs):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(halftruth.data.DataError, match="--port"):
            serve.Service(runs["features"], port=port)
