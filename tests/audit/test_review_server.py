"""Access to the review server, its answers, and the queue of candidates."""

import errno
import json
import socket
import subprocess
import sys
import threading
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import pandas as pd
import pytest
from audit_example import CLASSES, Example, make_example, write_rows

from halftruth.audit.audit_folder import CANDIDATES, AuditFolder
from halftruth.audit.review_queue import Queue
from halftruth.audit.review_server import HOST, Review, make_review_app
from halftruth.data import DataError
from halftruth.presence.review_update import ReviewPosterior
from halftruth.presence.uncertainty import Estimate

pytest.importorskip("flask")

TOKEN = "s3cret"
# Nested so deeply that the JSON can be read, but not always be shown in a message.
DEPTHS = (600, 900)


@pytest.fixture
def queue(example: Example) -> Any:
    made = Queue(example.audit())
    yield made
    made.decisions.close()


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One queue for all requests that must not change it."""
    made = Queue(make_example(tmp_path_factory.mktemp("unchanged")).audit())
    yield made
    assert not made.decisions.verdicts
    made.decisions.close()


def visit(queue: Queue, path: str, **options: Any) -> Any:
    client = make_review_app(queue, TOKEN).test_client()
    options.setdefault("base_url", "http://127.0.0.1:5000")
    method = client.post if "json" in options else client.get
    return method(path, **options)


@pytest.mark.parametrize(
    "path", ["/", "/about", "/wrong/", "/wrong/about", "/wrong/image/0", "//about", "/s3cre/about"]
)
def test_without_the_token_there_is_no_answer(unchanged: Queue, path: str) -> None:
    answer = visit(unchanged, path)
    assert (answer.status_code, answer.data) == (404, b"")
    answer = visit(unchanged, path, json={"ids": [0], "verdict": "accept"})
    assert answer.status_code in (404, 405)
    assert not unchanged.decisions.verdicts


def test_a_foreign_host_name_is_refused(unchanged: Queue) -> None:
    good = visit(unchanged, f"/{TOKEN}/about")
    rebound = visit(unchanged, f"/{TOKEN}/about", base_url="http://evil.example:5000")
    assert (good.status_code, rebound.status_code) == (200, 404)


def test_every_answer_forbids_frames_scripts_and_referrers(unchanged: Queue) -> None:
    headers = visit(unchanged, f"/{TOKEN}/").headers
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "no-store"


def test_images_are_served_by_candidate_and_never_from_outside(example: Example) -> None:
    secret = example.folder / "secret.png"
    secret.write_bytes((example.folder / "photos" / "p0.png").read_bytes())
    found = example.audit("first").candidates["item"].unique()
    for old, new in zip(found[:2], ["../secret.png", str(secret)], strict=True):
        for path in (example.labels, example.probs):
            path.write_text(path.read_text().replace(f"\n{old},", f"\n{new},"))
    queue = Queue(example.audit())
    outside = [k for k, item in enumerate(queue.known.item) if "secret" in item]
    inside = [k for k, item in enumerate(queue.known.item) if "secret" not in item]
    assert len(set(queue.known.item[outside])) == 2
    for k in outside:
        assert visit(queue, f"/{TOKEN}/image/{k}").status_code == 404
    answer = visit(queue, f"/{TOKEN}/image/{inside[0]}")
    assert (answer.status_code, answer.mimetype) == (200, "image/jpeg")
    for name in ("image/99999", "image/../../labels.csv", "image/..%2f..%2fsecret.png"):
        assert visit(queue, f"/{TOKEN}/{name}").status_code == 404
    queue.decisions.close()


def test_decisions_undo_and_progress(queue: Queue) -> None:
    answer = visit(queue, f"/{TOKEN}/decide", json={"ids": [0, 1], "verdict": "accept", "tab": "a"})
    assert answer.json["states"] == {"0": "accept", "1": "accept"}
    assert answer.json["accepted"] == 2
    assert queue.decisions.path.read_text().count("\n") == 1
    back = visit(queue, f"/{TOKEN}/undo", json={"tab": "a"})
    assert (back.json["ids"], back.json["accepted"]) == ([0, 1], 0)
    for bad in (
        {"ids": [0]},
        {"ids": "0", "verdict": "accept"},
        {"ids": [10**9], "verdict": "accept"},
        [],
    ):
        answer = visit(queue, f"/{TOKEN}/decide", json=bad)
        assert answer.status_code == 400
        assert "expected" in answer.json["error"]


def test_counts_are_those_of_each_list(queue: Queue) -> None:
    first = {kind: queue.matching(kind=kind).tolist()[0] for kind in ("missing", "wrong")}
    queue.decisions.decide([first["missing"]], "accept")
    queue.decisions.decide([first["wrong"]], "reject")
    lists = queue.progress()["lists"]
    assert [lists[kind]["accepted"] for kind in ("missing", "wrong")] == [1, 0]
    assert [lists[kind]["rejected"] for kind in ("missing", "wrong")] == [0, 1]
    both = sum(lists[kind]["candidates"] for kind in lists)
    assert both == queue.progress()["candidates"] == len(queue.audit.candidates)


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1"])
def test_a_foreign_origin_is_refused(queue: Queue, origin: str) -> None:
    body = {"ids": [0], "verdict": "accept"}
    answer = visit(queue, f"/{TOKEN}/decide", json=body, headers={"Origin": origin})
    assert answer.status_code == 403
    assert not queue.decisions.verdicts
    own = {"Origin": "http://127.0.0.1:5000"}
    assert visit(queue, f"/{TOKEN}/decide", json=body, headers=own).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "progress?ids=²",
        "progress?ids=٣",
        "progress?ids=1e3",
        f"progress?ids={'9' * 5000}",
        f"progress?ids={'9' * 30}",
        "candidates?after=²",
        f"candidates?after={'9' * 5000}",
        f"candidates?before={'9' * 30}",
        "candidates?limit=x",
        "candidates?kind=other",
        "candidates?state=other",
        "candidates?class=horse",
        f"image/{'9' * 5000}",
        "image/²",
    ],
)
def test_bad_numbers_and_names_are_bad_requests(unchanged: Queue, path: str) -> None:
    answer = visit(unchanged, f"/{TOKEN}/{path}")
    assert answer.status_code == 400
    assert "error" in answer.json


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"[" * 100_000 + b"]" * 100_000, 400),
        (b'{"ids": ' + b"[" * 100_000 + b"]" * 100_000 + b', "verdict": "accept"}', 400),
        (b'{"ids": [' + b"9" * 5000 + b'], "verdict": "accept"}', 400),
        (b'{"ids": [0], "verdict": ["accept"]}', 400),
        (b'{"ids": [[0]], "verdict": "accept"}', 400),
        (b'{"ids": [{}], "verdict": "accept"}', 400),
        *((b'{"ids": [' + b"[" * n + b"]" * n + b'], "verdict": "accept"}', 400) for n in DEPTHS),
        *((b'{"matching": {}, "count": ' + b"[" * n + b"]" * n + b"}", 400) for n in DEPTHS),
        (b'{"matching": {"low": 1' + b"0" * 400 + b'}, "verdict": "accept"}', 400),
        (b'{"matching": {"high": 1' + b"0" * 400 + b'}, "verdict": "accept"}', 400),
        (b'{"ids": [0], "verdict": "accept", "tab": [1]}', 400),
        (b'{"ids": [0], "verdict": "accept"', 400),
        (b"\xff\xfe", 400),
        (b"", 400),
        (b" " * (1 << 20) + b'{"ids": [0], "verdict": "accept"}', 413),
    ],
)  # fmt: skip
def test_bad_bodies_are_bad_requests(unchanged: Queue, body: bytes, status: int) -> None:
    answer = make_review_app(unchanged, TOKEN).test_client().post(
        f"/{TOKEN}/decide", data=body, base_url="http://127.0.0.1:5000",
        content_type="application/json",
    )  # fmt: skip
    assert answer.status_code == status
    assert not unchanged.decisions.verdicts


@pytest.fixture
def running(example: Example) -> Any:
    review = Review(example.audit().path)
    thread = threading.Thread(target=review.serve, daemon=True)
    thread.start()
    yield review
    review.server.shutdown()
    thread.join()


def send(review: Review, text: bytes) -> bytes:
    with socket.create_connection((HOST, review.server.port), timeout=10) as link:
        link.sendall(text)
        link.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: link.recv(4096), b""))


def test_bad_requests_on_the_wire_are_400_and_the_token_is_not_logged(
    running: Review, capfd: pytest.CaptureFixture
) -> None:
    path = f"/{running.token}/decide"
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    chunked = head + "Transfer-Encoding: chunked\r\n\r\n"
    for text in (
        chunked + "zz\r\n{}\r\n",
        chunked + "-5\r\n{}\r\n",
        chunked + "2\r\n{}X",
        head + "Content-Length: 7\r\n\r\nrubbish",
        f"GET http://[{path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        f"GET {path} with spaces HTTP/1.1\r\n\r\n",
    ):
        assert b" 400 " in send(running, text.encode()).split(b"\r\n")[0], text
    good = send(running, f"GET /{running.token}/about HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    assert good.startswith(b"HTTP/1.1 200")
    written = capfd.readouterr()
    assert running.token not in written.out + written.err


def test_a_bug_is_reported_without_the_token(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(queue, "progress", lambda who: 1 / 0)
    answer = visit(queue, f"/{TOKEN}/progress")
    assert (answer.status_code, answer.json["error"][:17]) == (500, "ZeroDivisionError")
    written = capfd.readouterr()
    assert "ZeroDivisionError" in written.err
    assert TOKEN not in written.out + written.err


def test_a_decision_that_cannot_be_written_is_an_error_of_the_server(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    answer = visit(queue, f"/{TOKEN}/decide", json={"ids": [0], "verdict": "accept"})
    assert answer.status_code == 503
    assert "No space left" in answer.json["error"]
    assert queue.decisions.path.read_bytes() == b""


@pytest.mark.parametrize("port", ["used", 70_000, -1])
def test_a_port_that_cannot_be_opened_is_an_error(example: Example, port: Any) -> None:
    folder = example.audit().path
    with socket.create_server((HOST, 0)) as taken:
        number = taken.getsockname()[1] if port == "used" else port
        with pytest.raises(DataError, match=rf"port {number} .* cannot be opened.*--port"):
            Review(folder, number)
    # Nothing stays locked.
    Review(folder).close()


def test_the_report_follows_a_review_that_is_terminated(example: Example) -> None:
    folder = example.audit().path
    command = [sys.executable, "-m", "halftruth", "review", str(folder), "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        address = next(line.split()[-1] for line in server.stdout if "http://" in line)
        body = json.dumps({"ids": [0, 1], "verdict": "accept"}).encode()
        with urlopen(Request(f"{address}decide", data=body)) as answer:
            assert answer.status == 200
        assert "accepted in the review" not in (folder / "report.html").read_text()
        server.terminate()
        assert server.wait(30) == 0
    finally:
        server.kill()
    assert "<b>2</b><span>accepted in the review" in (folder / "report.html").read_text()


def test_pages_are_consecutive_and_filters_apply(queue: Queue) -> None:
    whole = queue.page(state="all", limit=200)
    first = queue.page(limit=7)
    second = queue.page(limit=7, after=first["items"][-1]["id"])
    ids = [item["id"] for item in first["items"] + second["items"]]
    assert ids == [item["id"] for item in whole["items"]][:14]
    again = queue.page(limit=7, before=second["items"][0]["id"])
    assert [item["id"] for item in again["items"]] == ids[:7]
    assert (again["before"], second["before"]) == (0, 7)
    probabilities = [item["probability"] for item in whole["items"]]
    assert probabilities == sorted(probabilities, reverse=True)
    some = queue.page(name=CLASSES[0], low=0.2, high=0.9, limit=200)["items"]
    assert all(item["class"] == CLASSES[0] and 0.2 <= item["probability"] <= 0.9 for item in some)
    queue.decisions.decide([ids[0]], "reject")
    assert queue.page(limit=1)["items"][0]["id"] == ids[1]
    assert [item["id"] for item in queue.page(state="reject")["items"]] == [ids[0]]
    assert queue.page(kind="wrong")["items"][0]["class"] == CLASSES[0]
    with pytest.raises(DataError, match="no class"):
        queue.page(name="horse")


def test_text_rows_show_their_columns(example: Example) -> None:
    rows = [[name, f"text <i>{name}</i>", *labels] for name, labels in zip(
        [f"p{k}.png" for k in range(90)], example.observed, strict=True)]  # fmt: skip
    write_rows(example.labels, ("image", "words", *CLASSES), rows)
    audit = example.audit(images=None, reading={"drop_columns": ["words"]})
    queue = Queue(audit)
    item = queue.page()["items"][0]
    assert ["words", f"text <i>{item['item']}</i>"] in [list(pair) for pair in item["columns"]]
    assert "columns" in item
    report = (audit.path / "report.html").read_text()
    assert "<i>p" not in report
    assert "text &lt;i&gt;p" in report
    queue.decisions.close()


def test_a_hundred_thousand_candidates_can_be_reviewed(queue: Queue) -> None:
    audit = queue.audit
    many = pd.concat([audit.candidates] * (100_000 // len(audit.candidates) + 1))[:100_000]
    many = many.sort_values(["kind", "probability"], ascending=[True, False])
    many.assign(id=np.arange(len(many))).to_parquet(audit.path / CANDIDATES)
    queue.decisions.close()
    large = Queue(AuditFolder(audit.path, audit.info))
    large.decisions.decide(list(range(5000)), "accept")
    page = large.page()
    assert len(page["items"]) == 48
    assert page["items"][0]["id"] == 5000
    assert large.progress()["accepted"] == 5000
    large.decisions.close()


def test_the_estimate_follows_the_decisions() -> None:
    before = Estimate(200, 100, 400)
    model = ReviewPosterior(np.full(400, 0.5), np.zeros(400, dtype=int), [before], before)
    verdicts = np.zeros(400, dtype=np.int8)
    assert vars(model.update(verdicts).total) == pytest.approx(vars(before))
    verdicts[:100] = -1
    gone = model.update(verdicts).total
    verdicts[:100] = 1
    there = model.update(verdicts)
    assert gone.value < 50 < 250 < there.total.value < 300
    assert there.total.high - there.total.low < 300
    assert (there.probability[:100] == 1).all()
    assert there.probability[100:].min() > 0.8


def test_candidates_on_the_page_of_an_annotator_are_held_back_from_others(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ids(who: str) -> list[int]:
        return [item["id"] for item in queue.page(limit=10, who=who)["items"]]

    first, second = ids("anna"), ids("ben")
    assert not set(first) & set(second)
    # One name in two tabs is one annotator; after a long silence everything is free again.
    assert ids("anna") == first
    monkeypatch.setattr("halftruth.audit.review_queue._HELD_SECONDS", -1.0)
    assert ids("ben") == first


def test_annotators_agree_disagree_and_settle_by_majority(queue: Queue) -> None:
    decide = queue.decisions.decide
    decide([0, 1], "accept", who="anna")
    decide([0], "accept", who="ben")
    decide([1], "reject", who="ben")
    now = queue.progress("anna")
    assert (now["accepted"], now["conflicts"]) == (1, 1)
    assert (now["judged_twice"], now["agreed"]) == (2, 1)
    assert now["annotators"] == ["anna", "ben"]
    assert [item["id"] for item in queue.page(state="conflict")["items"]] == [1]
    seen = queue.page(state="second", who="cleo")["items"]
    assert sorted(item["id"] for item in seen) == [0, 1]
    decide([1], "reject", who="cleo")
    assert queue.decisions.verdicts[1] == "reject"
    # Everybody undoes only their own decisions.
    queue.decisions.undo(who="anna")
    assert queue.decisions.verdicts == {0: "accept", 1: "reject"}


@pytest.mark.parametrize(
    "body",
    [
        {"matching": {"low": 0.5}, "count": 10**6, "verdict": "accept"},
        {"matching": {"low": "x"}, "count": 1, "verdict": "accept"},
        {"matching": {"kind": 1}, "count": 1, "verdict": "accept"},
        {"ids": [0], "verdict": "accept", "who": 5},
    ],
)
def test_a_batch_that_is_not_what_was_shown_is_refused(unchanged: Queue, body: dict) -> None:
    assert visit(unchanged, f"/{TOKEN}/decide", json=body).status_code == 400
    assert not unchanged.decisions.verdicts


def test_similar_rows_and_labelled_rows_are_shown_with_their_images(unchanged: Queue) -> None:
    found = visit(unchanged, f"/{TOKEN}/similar/0").json
    name = unchanged.entry(0)["class"]
    assert found["by"] == "scores"
    assert all(name in one["labels"] for one in found["labelled"])
    assert not any(name in one["labels"] for one in found["similar"])
    place = found["similar"][0]["place"]
    assert visit(unchanged, f"/{TOKEN}/row/{place}").mimetype == "image/jpeg"
    for path in ("similar/99999", "row/99999", "row/-1"):
        assert visit(unchanged, f"/{TOKEN}/{path}").status_code == 400
