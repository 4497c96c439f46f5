"""The first part of a report: marked examples, reasons of weak classes, commands that run."""

import re
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from halftruth import fit
from halftruth.cli import main
from halftruth.report.answers import find_look_alike, show_examples, show_weak_classes
from halftruth.report.gallery import HeldOut
from halftruth.train.config import load_settings
from halftruth.train.results.next_steps import list_next_steps


def held_out(labels, complete=None):
    """One row of four classes, of which the first, third and fourth are predicted."""
    return HeldOut(
        names=["row 1"], classes=["cat", "dog", "bird", "<b>"],
        probabilities=np.array([[0.9, 0.2, 0.7, 0.6]]),
        predicted=np.array([[True, False, True, True]]), labels=np.array([labels]),
        complete=None if complete is None else np.array([complete]), store=None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("labels", "complete", "expected"),
    [
        ([1, 1, 0, -1], None, ["✓ cat", "+ bird 70 %", "✗ <b>", "missed: dog 20 %"]),
        (
            [1, 0, 0, 0], [1, 1, 1, -1],
            ["✓ cat", "✓ bird not labelled", "✗ <b>", "missed: dog 20 %"],
        ),
        ([0, 0, 0, 1], None, ["+ cat 90 %", "+ bird 70 %", "✓ <b>"]),
    ],
)  # fmt: skip
def test_labels_of_an_example_are_marked_by_the_decisions(labels, complete, expected):
    found = re.findall("<li.*?</li>", show_examples(held_out(labels, complete)))
    text = [re.sub("<[^>]*>", "", one).replace("&lt;b&gt;", "<b>") for one in found]
    assert sorted(text) == sorted(expected)


def test_rows_without_labels_and_decisions_are_no_examples():
    nothing = held_out([0, 0, 0, 0])
    assert show_examples(nothing) != ""
    assert show_examples(HeldOut(**{**vars(nothing), "predicted": np.zeros((1, 4), bool)})) == ""


@pytest.mark.parametrize(
    ("ap", "expected"),
    [([0.9, 0.4, 0.8, np.nan], ["dog"]), ([0.7] * 4, []), ([np.nan] * 4, [])],
)
def test_classes_below_the_mean_are_weak(ap, expected):
    table = pd.DataFrame({"val_AP": ap, "train_present": [9, 3, 9, 9]})
    decisions = SimpleNamespace(predicted=[True] * 4)
    page = show_weak_classes(held_out([1, 1, 0, 0]), decisions, table, "val")
    assert re.findall("cat|dog|bird", page) == expected
    assert ("only 3 labelled rows" in page) == bool(expected)


def test_classes_with_the_same_high_scores_look_alike():
    """Sofas score as high as chairs; persons are everywhere and explain nothing."""
    random = np.random.default_rng(0)
    present = np.zeros((200, 3), bool)
    present[:20, 0] = present[20:60, 1] = True
    present[:, 2] = random.random(200) < 0.7
    scores = random.random(200)
    scores[:60] += 1
    assert find_look_alike(scores, present, 0) == 1
    assert find_look_alike(random.random(200), present, 0) is None
    assert find_look_alike(scores, np.ones((200, 3), bool), 0) is None


@pytest.mark.parametrize("settings", [{"quality": "fast"}, {"method": "wan", "epochs": 1}], ids=str)
def test_the_next_commands_run(settings, tmp_path, monkeypatch, capsys):
    """Also with options of reading, and a folder whose name has a space."""
    random = np.random.default_rng(0)
    truth = random.random((160, 3)) < 0.4
    shown = truth & (random.random(truth.shape) < 0.6)
    monkeypatch.chdir(tmp_path)
    table = pd.DataFrame(shown.astype(int), columns=["a", "b", "c"]).assign(note="words")
    table.to_csv("labels.csv", index=False)
    features = pd.DataFrame(truth + random.normal(0, 0.5, truth.shape), columns=["x", "y", "z"])
    for name in ("rows.csv", "new_rows.csv"):
        features.to_csv(name, index=False)
    result = fit(
        "labels.csv", features="rows.csv", out="my run", device="cpu", zero="unknown",
        drop_columns=["note"], **settings,
    )  # fmt: skip
    printed = capsys.readouterr().err
    steps = list_next_steps(result, load_settings(Path("my run"), {}))
    assert [one.command.split()[1] for one in steps] == [
        "predict", "audit", "review", "plan", "review",
    ]  # fmt: skip
    page = (tmp_path / "my run" / "report.html").read_text(encoding="utf-8")
    for one in steps:
        assert one.command.replace("'", "&#x27;") in page
    assert f"to {steps[0].what}: {steps[0].command}" in printed
    for one in (steps[0], steps[1], steps[3]):
        monkeypatch.setattr(sys, "argv", shlex.split(one.command))
        with pytest.raises(SystemExit) as stop:
            main()
        assert not stop.value.code, (one.command, capsys.readouterr().err)
    assert (tmp_path / "my run" / "audit" / "missing.csv").exists()
