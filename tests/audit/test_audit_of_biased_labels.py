"""An audit uses what a run says about the choice of labels, also after a review."""

import json

import numpy as np
import pandas as pd
import pytest

import halftruth.audit.make_audit as module
from halftruth.bench.label_settings import hide
from halftruth.presence.solvers import sigmoid

FOUND = {"frequent_first": {"z": 6.0, "gain": 0.1, "rows": 900, "found": True}}
CANNOT_TELL = {"frequent_first": {"z": 0.0, "gain": 0.0, "rows": 900, "explained": 0.01}}


@pytest.fixture
def files(tmp_path):
    """Labels of which the most frequent class is shown, and probabilities of all classes."""
    random = np.random.default_rng(0)
    z = 3 * random.normal(size=(600, 5)) + np.linspace(1, -3, 5)
    truth = np.where(random.random(z.shape) < sigmoid(z), 1, -1).astype(np.int8)
    for name, values in (("labels", hide(truth, "most-frequent", 0)), ("scores", sigmoid(z))):
        frame = pd.DataFrame(values, columns=list("abcde"))
        frame.insert(0, "image", [f"i{row}" for row in range(len(z))])
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    return tmp_path


def audit(files, monkeypatch, facts, out="audit", log=lambda text: None):
    def read(source, inputs, given=module._read_given):
        scores, found = given(source, inputs)
        found.label_bias = facts
        return scores, found

    monkeypatch.setattr(module, "_read_given", read)
    found = module.make_audit(files / "scores.csv", files / "labels.csv", out=files / out, log=log)
    monkeypatch.undo()
    return found


def test_missing_labels_are_counted_by_the_propensities(files, monkeypatch):
    said = []
    even = audit(files, monkeypatch, {}, "even")
    biased = audit(files, monkeypatch, FOUND, log=said.append)
    assert biased.missing_total.value > 1.1 * even.missing_total.value
    assert any("labels look biased" in line for line in said)
    assert json.loads((files / "audit" / "audit.json").read_text())["label_bias"] == FOUND


def test_the_interval_covers_what_labels_cannot_tell(files, monkeypatch):
    even = audit(files, monkeypatch, {}, "even")
    unsure = audit(files, monkeypatch, CANNOT_TELL)
    assert unsure.missing_total.value == pytest.approx(even.missing_total.value)
    assert unsure.missing_total.high > 1.1 * even.missing_total.high


def test_an_audit_that_goes_on_after_a_review_keeps_the_propensities(files, monkeypatch):
    audit(files, monkeypatch, FOUND)
    # With several labels per row, the choice of labels cannot be tested any more.
    assert audit(files, monkeypatch, {}).info["label_bias"] == {}
    audit(files, monkeypatch, FOUND)
    (files / "audit" / "verdicts.csv").write_text("row,item,class,verdict,by\n3,i3,e,1,me\n")
    assert audit(files, monkeypatch, {}).info["label_bias"] == FOUND
