"""The JSON endpoint of a run: predictions, limits, and answers to mistakes."""

import base64
import io
import json
import socket
import threading
import urllib.request
import zlib

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import halftruth

flask = pytest.importorskip("flask")
serve = pytest.importorskip("halftruth.serve")

CLASSES = ("cat", "dog|wolf")
ROW = {"width": 0.5, "height": -1.0, "depth": 2.0, "colour": "red"}


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
    table = pd.DataFrame(X[:, :3], columns=["width", "height", "depth"])
    table["colour"] = ["red" if row else "blue" for row in labels["cat"]]
    table.to_csv(folder / "table.csv", index=False)
    halftruth.fit(labels, features=str(folder / "table.csv"), out=folder / "table", **short)
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
    kinds = ("features", "table", "texts", "images")
    return {kind: halftruth.load(folder / kind, device="cpu") for kind in kinds}


@pytest.fixture(scope="module")
def clients(runs):
    return {kind: serve.make_app(run, most_rows=4).test_client() for kind, run in runs.items()}


def png(size: int = 20) -> bytes:
    from PIL import Image

    data = io.BytesIO()
    Image.new("RGB", (size, size), "red").save(data, "PNG")
    return data.getvalue()


def announce(side: int) -> str:
    """The header of a PNG with so many pixels per side, which are not there, in base64."""
    data = bytearray(png())
    data[16:24] = side.to_bytes(4, "big") * 2
    data[29:33] = zlib.crc32(data[12:29]).to_bytes(4, "big")
    return base64.b64encode(data).decode()


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
        ("features", {"features": [[0, 0, 0, 0, 10**400]]}, "finite"),
        ("table", {"features": [ROW, {"width": 1}]}, "only in one of them"),
        ("table", {"features": [{"width": 1}]}, "height"),
        ("table", {"features": [{**ROW, "width": 10**400}]}, "finite"),
        ("table", {"features": [{**ROW, "width": [1, 2]}]}, "width"),
        ("table", {"features": [{**ROW, "width": {}}]}, "row 0"),
        ("table", {"features": [{**ROW, "width": [{}]}]}, "row 0"),
        ("texts", {"texts": ["\ud800"]}, "half of a pair"),
        ("images", {"texts": ["meow"]}, "expects 'images'"),
        ("images", {"images": ["not base64!"]}, "base64"),
        ("images", {"images": [base64.b64encode(b"GIF").decode()]}, "image 0"),
    ],
)
def test_a_mistake_is_one_sentence(clients, kind, body, words):
    answer = clients[kind].post("/predict", json=body)
    assert answer.status_code == 400, answer.json
    assert words in answer.json["error"]


def test_a_table_with_missing_values(clients, runs):
    rows = [dict.fromkeys(ROW, None), {**ROW, "colour": None}]
    answer = clients["table"].post("/predict", json={"features": rows})
    check_same(answer, runs["table"].predict(pd.DataFrame(rows)))


def test_blank_texts_are_texts(clients):
    answer = clients["texts"].post("/predict", json={"texts": [""]})
    assert len(answer.json["predictions"]) == 1


def test_the_kind_of_a_body_does_not_depend_on_its_content_type(clients):
    """curl -d sends JSON as a form."""
    form = "application/x-www-form-urlencoded"
    answer = clients["images"].post("/predict", data='{"texts": ["meow"]}', content_type=form)
    assert answer.status_code == 400
    assert "expects 'images'" in answer.json["error"]


@pytest.mark.parametrize(
    ("kind", "body", "words"),
    [
        ("images", {"images": [announce(9999)]}, "64 megapixels"),
        ("images", {"images": [announce(6000), announce(6000)]}, "64 megapixels"),
        ("images", {"images": [announce(30_000)]}, "64 megapixels"),
        ("texts", {"texts": ["long " * 150_000, "long " * 100_000]}, "1,000,000 letters"),
    ],
)
def test_a_request_that_needs_too_much_memory_is_refused(clients, kind, body, words):
    answer = clients[kind].post("/predict", json=body)
    assert answer.status_code == 413, answer.json
    assert words in answer.json["error"]


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
    | st.just(10**400),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from([*ROW, "items"]), inner, max_size=5),
    max_leaves=12,
)  # fmt: skip
_CELLS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | _VALUES
_BODIES = st.fixed_dictionaries(
    {},
    optional={
        "features": st.lists(
            st.lists(_CELLS, max_size=6)
            | st.fixed_dictionaries(dict.fromkeys(ROW, _CELLS))
            | _VALUES,
            max_size=5,
        )
        | _VALUES,
        "texts": st.lists(st.text(max_size=5) | _VALUES, max_size=3) | _VALUES,
        "images": st.lists(st.sampled_from([announce(9)]) | st.text(max_size=9), max_size=2)
        | _VALUES,
        "items": st.lists(_VALUES, max_size=3),
    },
)


@pytest.mark.parametrize("kind", ["features", "table", "texts", "images"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(body=_BODIES | _VALUES, one=st.booleans())
def test_no_json_is_an_error_of_the_server(clients, kind, body, one):
    name = "features" if kind == "table" else kind
    if one and isinstance(body, dict):
        body = {key: value for key, value in body.items() if key in (name, "items")}
    answer = clients[kind].post("/predict", data=json.dumps(body))
    assert answer.status_code in (200, 400, 413, 415), answer.json
    assert answer.json.get("error") or answer.json["predictions"]


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


def send(service, *lines: bytes) -> bytes:
    """The first line of the answer to a request of these lines."""
    host, port = service.server.server_address
    with socket.create_connection((host, port), timeout=20) as connection:
        connection.sendall(b"\r\n".join([*lines, b"", b""]))
        return connection.makefile("rb").readline()


@pytest.fixture(scope="module")
def service(runs):
    service = serve.Service(runs["features"], port=0)
    thread = threading.Thread(target=service.serve, daemon=True)
    thread.start()
    yield service
    service.server.shutdown()
    thread.join(10)


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ([b"Host: localhost"], b"200"),
        ([b"Host: 127.0.0.1:80"], b"200"),
        ([b"Host: [::1]:80"], b"200"),
        ([b"Host: evil.org"], b"400"),
        ([b"Host: localhost", b"Origin: http://localhost:3000"], b"200"),
        ([b"Host: localhost", b"Origin: http://evil.org"], b"400"),
        ([b"Host: localhost", b"Origin: null"], b"400"),
    ],
)
def test_another_host_is_refused(service, lines, code):
    """A page of a foreign site reaches a local server by a name of that site, or by its own."""
    assert send(service, b"GET / HTTP/1.1", *lines).split()[1] == code


def test_a_body_without_an_end_is_refused(service):
    host, port = service.server.server_address
    with socket.create_connection((host, port), timeout=60) as connection:
        connection.sendall(b"POST /predict HTTP/1.1\r\nHost: localhost\r\n")
        connection.sendall(b"Transfer-Encoding: chunked\r\n\r\n")
        chunk = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
        for _ in range(34):
            try:
                connection.sendall(chunk)
            except OSError:
                break
        assert connection.makefile("rb").readline().split()[1] == b"413"


def test_a_silent_connection_is_closed(runs, monkeypatch):
    monkeypatch.setattr(serve, "TIMEOUT_SECONDS", 0.2)
    service = serve.Service(runs["features"], port=0)
    thread = threading.Thread(target=service.serve, daemon=True)
    thread.start()
    try:
        with socket.create_connection(service.server.server_address, timeout=20) as connection:
            assert connection.recv(1) == b""
    finally:
        service.server.shutdown()
        thread.join(10)


def test_a_port_in_use_is_an_error(runs):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(halftruth.data.DataError, match="--port"):
            serve.Service(runs["features"], port=port)
