"""Labels of a run are verified on the review page, blindly, and its scores follow the answers."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from audit_example import make_example
from typer.testing import CliRunner

from halftruth import evaluate, fit, load
from halftruth.audit.review_server import Review, make_review_app
from halftruth.audit.verify import VerificationQueue, open_verification
from halftruth.cli.app import app
from halftruth.data import DataError
from halftruth.data.verdicts import read_verdicts
from halftruth.metrics import evaluate as score_labels
from halftruth.presence.verification import METRICS
from halftruth.train.results.verified_cells import RunScores

NAMES = ("cat", "dog", "frog")


class Trained:
    """A run on features or on text, with 40 % of the labels shown, and the complete labels."""

    def __init__(self, folder: Path, kind: str) -> None:
        random = np.random.default_rng(0)
        self.truth = random.random((400, 3)) < (0.5, 0.4, 0.3)
        shown = self.truth & (random.random(self.truth.shape) < 0.4)
        table = pd.DataFrame(shown.astype(int), columns=NAMES)
        table.insert(0, "split", np.resize(["train", "val"], len(table)))
        table.insert(0, "item", [f"row{k}" for k in range(len(table))])
        settings: dict[str, Any] = {"method": "wan", "epochs": 8, "head_lr": 0.05}
        if kind == "text":
            words = np.array([f"a {name} " for name in NAMES])
            noise = random.random(self.truth.shape) < 0.2
            table["words"] = ["".join(words[row]) + "here" for row in self.truth ^ noise]
            settings["text"] = "words"
        else:
            features = self.truth + random.normal(0, 0.7, self.truth.shape)
            np.save(folder / "x.npy", features.astype(np.float32))
            settings["features"] = folder / "x.npy"
        table.to_csv(folder / "labels.csv", index=False)
        self.run = folder / "run"
        fit(folder / "labels.csv", out=self.run, quiet=True, device="cpu", **settings)

    def answer(self, queue: VerificationQueue, i: int) -> str:
        row, column = queue.known.row[i], queue.known.column[i]
        return "accept" if self.truth[row, column] else "reject"

    def get_exact(self) -> dict[str, float]:
        """The scores on the complete labels of the rows that the run was not fitted on."""
        scores = RunScores(load(self.run))
        rows = load(self.run).held_out.rows
        chosen = scores.decisions(scores.probabilities).astype(float)
        found = score_labels(chosen, self.truth[rows], 0.5)
        return found | {"mAP": score_labels(scores.probabilities, self.truth[rows])["mAP"]}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return Trained(tmp_path_factory.mktemp("verify"), "features")


@pytest.fixture
def queue(trained: Trained) -> Iterator[VerificationQueue]:
    made = open_verification(load(trained.run), cells=60)
    yield made
    made.decisions.close()
    folder = made.audit.path
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


def ask(queue: VerificationQueue, path: str, **options: Any) -> Any:
    pytest.importorskip("flask")
    client = make_review_app(queue, "t").test_client()
    method = client.post if "json" in options else client.get
    answer = method(f"/t/{path}", base_url="http://127.0.0.1:5000", **options)
    assert answer.status_code == 200, answer.data
    return answer.json


def settle(queue: VerificationQueue) -> dict[str, Any]:
    """The progress once the estimate has followed all answers."""
    for _ in range(100):
        now = ask(queue, "progress")
        if not now["pending"]:
            return now
        time.sleep(0.05)
    raise AssertionError("the estimate does not follow")


def test_the_page_shows_the_cells_in_their_order_without_the_opinion_of_the_model(queue):
    assert ask(queue, "about")["purpose"] == "evaluate"
    found = ask(queue, "candidates?limit=200")
    assert [item["id"] for item in found["items"]] == list(range(60))
    assert {(item["score"], item["probability"]) for item in found["items"]} == {(None, None)}
    asked = queue.scores.probabilities[queue.scores.plan.rows, queue.scores.plan.columns]
    assert abs(np.corrcoef(asked, np.arange(60))[0, 1]) < 0.4
    assert ask(queue, "similar/0") == {"by": "", "labelled": [], "similar": []}
    assert queue.known.probability.std() == 0


def test_answers_narrow_the_intervals_around_the_truth(trained, queue):
    before = settle(queue)["estimates"]
    for i in range(60):
        now = ask(queue, "decide", json={"ids": [i], "verdict": trained.answer(queue, i)})
        assert now["accepted"] + now["rejected"] == i + 1
    after, exact = settle(queue)["estimates"], trained.get_exact()
    assert set(after) == {"mAP", "CF1", "OF1", "OP", "OR"}
    for name, (value, low, high) in after.items():
        assert low <= value <= high
        assert low - 0.02 <= exact[name] <= high + 0.02
        if name in METRICS:
            # The plan is made for these, not for precision and recall alone.
            assert high - low < 0.9 * (before[name][2] - before[name][1])
    undone = ask(queue, "undo", json={})
    assert undone["undone"] == 1
    assert ask(queue, "candidates")["items"][0]["id"] == 59


def test_evaluate_and_the_report_use_the_verified_cells(trained, queue):
    run, page = trained.run, trained.run / "report.html"
    alone = evaluate(run)
    assert (alone.metrics, alone.basis, alone.verified_cells) == ({}, "estimated", 0)
    assert alone.estimated == queue.scores.before
    for i in range(60):
        queue.decisions.decide([i], trained.answer(queue, i))
    found = evaluate(run)
    assert found.verified_cells == 60
    assert found.estimated == queue.estimate()[0]
    wider = evaluate(run, decide="recall=0.95")
    assert wider.estimated["OR"][0] > found.estimated["OR"][0]
    from halftruth.report.labelling import update_report

    assert "Scores after verification" not in page.read_text()
    for _ in range(2):
        assert update_report(run, *queue.estimate())
        assert page.read_text().count("Scores after verification") == 1
    assert len(read_verdicts(queue.audit.path)) == 60


def test_the_review_goes_on_where_it_stopped(trained, queue):
    first = queue.known.row.tolist()
    queue.decisions.decide([0, 1], "accept")
    queue.decisions.close()
    again = open_verification(load(trained.run))
    assert again.known.row.tolist() == first
    assert [item["id"] for item in ask(again, "candidates")["items"]] == list(range(2, 50))
    again.decisions.close()
    with pytest.raises(DataError, match=r"has a plan of 60 cells for all; leave out --cells"):
        open_verification(load(trained.run), cells=100)


def test_a_plan_of_another_training_is_refused(trained, queue):
    path = queue.audit.path / "plan.json"
    saved = json.loads(path.read_text())
    path.write_text(json.dumps(saved | {"digest": "0"}))
    with pytest.raises(DataError, match="other rows, labels or scores"):
        open_verification(load(trained.run))


def test_confirmed_answers_survive_a_killed_server(trained, queue):
    queue.decisions.close()
    code = "from halftruth.cli import main; main()"
    pytest.importorskip("flask")
    command = [sys.executable, "-c", code, "review", trained.run, "--purpose", "evaluate"]
    server = subprocess.Popen(
        [*map(str, command), "--no-browser"], stdout=subprocess.PIPE, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    try:
        assert server.stdout is not None
        address = next(line.split()[-1] for line in server.stdout if "http://" in line)
        from urllib.request import Request, urlopen

        body = json.dumps({"ids": [5, 7], "verdict": "reject"}).encode()
        with urlopen(Request(f"{address}decide", data=body)) as answer:
            assert json.loads(answer.read())["rejected"] == 2
    finally:
        server.send_signal(signal.SIGKILL)
        server.wait()
    assert sorted(np.flatnonzero(queue.scores.read_answers() == -1)) == [5, 7]


def test_text_is_shown_to_the_reviewer(tmp_path):
    trained = Trained(tmp_path, "text")
    queue = open_verification(load(trained.run), cells=30)
    item = ask(queue, "candidates")["items"][0]
    assert dict(item["columns"])["words"].endswith("here")
    queue.decisions.decide(list(range(30)), "reject")
    assert settle(queue)["estimates"] != queue.scores.before
    queue.decisions.close()


def test_images_are_shown_to_the_reviewer(tmp_path):
    example = make_example(tmp_path)
    fit(
        example.labels, [tmp_path / "photos"], out=tmp_path / "run", method="wan",
        head_epochs=1, tune="head", backbone="resnet10t", weights="none", image_size=32, val=0.5,
        device="cpu", quiet=True,
    )  # fmt: skip
    queue = open_verification(load(tmp_path / "run"), cells=20)
    pytest.importorskip("flask")
    client = make_review_app(queue, "t").test_client()
    answer = client.get("/t/image/0", base_url="http://127.0.0.1:5000")
    assert (answer.status_code, answer.mimetype) == (200, "image/jpeg")
    assert "columns" not in ask(queue, "candidates")["items"][0]
    queue.decisions.close()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--cells", "5", "--purpose", "evaluate"), "cells: expected at least 20, got 5"),
        (("--cells", "50"), "has no effect without --purpose evaluate"),
        (("--metric", "OF1"), "has no effect without --purpose evaluate"),
    ],
)
def test_bad_options_are_refused(trained, words, message):
    result = CliRunner().invoke(app, ["review", str(trained.run), "--no-browser", *words])
    text = " ".join((result.output + str(result.exception)).replace("│", " ").split())
    assert result.exit_code != 0
    assert message in text


def test_the_page_in_a_browser(request, trained, queue):
    pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
    from review_page import CHROMIUM, open_page, playwright, wait_for

    if CHROMIUM is None:
        pytest.skip("needs Chromium or Chrome on the PATH")
    browser = request.getfixturevalue("browser")
    running = Review(queue)
    threading.Thread(target=running.serve, daemon=True).start()
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = open_page(context, running.address)
    assert "%" not in page.inner_text("#grid")
    for name in ("kind", "class", "low", "every", "left"):
        assert not page.is_visible(f"#{name}")
    playwright.expect(page.locator("#accept")).to_contain_text("Present")
    for i in range(12):
        page.keyboard.press("a" if trained.answer(queue, i) == "accept" else "r")
    page.keyboard.press("o")
    playwright.expect(page.locator("#side h2")).to_have_text(NAMES[queue.known.column[12]])
    right = sum(trained.answer(queue, i) == "accept" for i in range(12))
    wait_for(page, accepted=right, rejected=12 - right)
    playwright.expect(page.locator("#advice")).to_contain_text("precision")
    playwright.expect(page.locator("#advice")).to_contain_text("narrower")
    assert page.complaints == []
    context.close()
    running.server.shutdown()
