"""Who gets in, what is served, and how the queue answers."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from audit_example import CLASSES, Example, write_rows

from halftruth.audit.audit_folder import CANDIDATES, AuditFolder
from halftruth.audit.review_queue import Queue
from halftruth.audit.review_server import make_app
from halftruth.data import DataError
from halftruth.presence.remaining import still_missing

TOKEN = "s3cret"


@pytest.fixture
def queue(example: Example) -> Any:
    made = Queue(example.audit())
    yield made
    made.decisions.close()


def visit(queue: Queue, path: str, **options: Any) -> Any:
    client = make_app(queue, TOKEN).test_client()
    options.setdefault("base_url", "http://127.0.0.1:5000")
    method = client.post if "json" in options else client.get
    return method(path, **options)


@pytest.mark.parametrize(
    "path", ["/", "/about", "/wrong/", "/wrong/about", "/wrong/image/0", "//about", "/s3cre/about"]
)
def test_without_the_token_there_is_nothing(queue: Queue, path: str) -> None:
    answer = visit(queue, path)
    assert (answer.status_code, answer.data) == (404, b"")
    answer = visit(queue, path, json={"ids": [0], "verdict": "accept"})
    assert answer.status_code in (404, 405)
    assert not queue.decisions.verdicts


def test_a_foreign_host_name_is_refused(queue: Queue) -> None:
    good = visit(queue, f"/{TOKEN}/about")
    rebound = visit(queue, f"/{TOKEN}/about", base_url="http://evil.example:5000")
    assert (good.status_code, rebound.status_code) == (200, 404)


def test_every_answer_forbids_frames_scripts_and_referrers(queue: Queue) -> None:
    headers = visit(queue, f"/{TOKEN}/").headers
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["Cache-Control"] == "no-store"


def test_pictures_are_served_by_candidate_and_never_from_outside(example: Example) -> None:
    (example.folder / "secret.png").write_bytes((example.folder / "photos" / "p0.png").read_bytes())
    (example.folder / "photos" / "link.png").symlink_to(example.folder / "secret.png")
    found = example.audit("first").candidates["item"].unique()
    names = ["../secret.png", str(example.folder / "secret.png"), "link.png"]
    for old, new in zip(found[:3], names, strict=True):
        for path in (example.labels, example.probs):
            path.write_text(path.read_text().replace(f"\n{old},", f"\n{new},"))
    queue = Queue(example.audit())
    items = list(queue.item)
    outside = [k for k, item in enumerate(items) if "secret" in item or item == "link.png"]
    inside = [k for k in range(len(items)) if k not in outside]
    assert len({items[k] for k in outside}) == 3
    for k in outside:
        assert visit(queue, f"/{TOKEN}/image/{k}").status_code == 404
    answer = visit(queue, f"/{TOKEN}/image/{inside[0]}")
    assert (answer.status_code, answer.mimetype) == (200, "image/jpeg")
    for path in ("image/99999", "image/../../labels.csv", "image/..%2f..%2fsecret.png"):
        assert visit(queue, f"/{TOKEN}/{path}").status_code == 404
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


def test_pages_follow_each_other_and_filters_hold(queue: Queue) -> None:
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


def test_a_hundred_thousand_candidates(queue: Queue) -> None:
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


def test_the_estimate_follows_what_is_decided() -> None:
    probability, column = np.full(400, 0.5), np.zeros(400, dtype=int)
    verdicts = np.zeros(400, dtype=np.int8)
    start = still_missing(probability, column, verdicts, np.zeros(1))
    verdicts[:100] = -1
    gone = still_missing(probability, column, verdicts, np.zeros(1))
    verdicts[:100] = 1
    there = still_missing(probability, column, verdicts, np.zeros(1))
    assert start.estimate == pytest.approx(200)
    assert gone.estimate < 50 < 250 < there.estimate < 300
    assert there.high - there.low < start.high - start.low
