"""What is said about the choice of labels: in a run, its report, and `data check`."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from tiny_data import command

import halftruth
from halftruth.bench.label_settings import hide
from halftruth.presence.propensity import LabelBias
from halftruth.report.labelling import show_label_bias
from halftruth.train.auto.label_bias import (
    ROWS_TO_LABEL,
    choose_propensities,
    collect_bias_facts,
    describe_bias,
    find_rows_to_label,
    looks_biased,
    read_test,
)
from halftruth.train.ensemble import fit_ensemble

CLASSES = ("person", "chair", "dog")
FOUND, NOT_FOUND = LabelBias(z=5.0, gain=0.1, rows=900), LabelBias(z=0.3, gain=0.0, rows=900)


def draw(rows=300, seed=0):
    """Complete labels of three classes, person first in frequency, and features of them."""
    random = np.random.default_rng(seed)
    present = random.random((rows, 3)) < (0.8, 0.5, 0.3)
    present[~present.any(axis=1), 0] = True
    truth = np.where(present, 1, -1).astype(np.int8)
    return truth, (present + random.normal(0, 0.4, present.shape)).astype(np.float32)


def test_extreme_classes_and_advice_are_told_where_labels_look_biased():
    truth, _ = draw()
    shown = hide(truth, "most-frequent", 0)
    facts = collect_bias_facts(CLASSES, shown, None, shown, truth == 1, FOUND)
    facts["rows_to_label"] = 120
    text = " ".join(describe_bias(facts))
    assert looks_biased(facts)
    assert "labels look biased" in text
    assert "z = 5.0" in text
    assert "'person' is shown in 100 % of the rows where it is predicted, 'dog' in" in text
    assert f"label the 120 rows of {ROWS_TO_LABEL} completely" in text
    assert "--complete-rows" in text


def test_labels_that_do_not_look_biased_get_no_advice():
    truth, _ = draw()
    shown = hide(truth, "single", 0)
    facts = collect_bias_facts(CLASSES, shown, None, shown, truth == 1, NOT_FOUND)
    assert not looks_biased(facts)
    assert len(describe_bias(facts)) == 1
    assert "labels do not look biased towards frequent classes" in describe_bias(facts)[0]
    assert not len(find_rows_to_label(facts, shown, (truth > 0) * 1.0))


def test_labels_that_cannot_tell_are_neither_biased_nor_unbiased():
    truth, _ = draw()
    shown = hide(truth, "most-frequent", 0)
    test = LabelBias(z=6.0, gain=0.1, rows=900, even=7.0, explained=0.02)
    facts = collect_bias_facts(CLASSES, shown, None, shown, truth == 1, test)
    assert not looks_biased(facts)
    assert read_test(facts) == test
    (text,) = describe_bias(facts)
    assert "cannot be told from these labels" in text
    page = show_label_bias(SimpleNamespace(label_bias=facts))
    assert "Whether labels are biased <b>cannot be told</b>" in page
    chosen = choose_propensities(facts, shown)
    assert chosen["propensity"] is None
    assert chosen["possible"] is not None


def test_nothing_is_said_where_nothing_was_tested():
    truth, _ = draw()
    assert collect_bias_facts(CLASSES, truth, None, truth, truth == 1) == {}
    assert describe_bias({}) == []
    # Every complete row shows all of its labels: they tell nothing.
    assert collect_bias_facts(CLASSES, truth, truth.clip(0), truth, truth == 1) == {}


@pytest.mark.parametrize(("setting", "biased"), [("rarest", True), ("single", False)])
def test_complete_rows_decide_whatever_the_test_of_labels_alone_says(setting, biased):
    truth, _ = draw()
    first = hide(truth, setting, 0)
    labels = first.copy()
    labels[:100] = truth[:100]
    test = NOT_FOUND if biased else FOUND
    facts = collect_bias_facts(CLASSES, labels, first, first, truth == 1, test)
    (text,) = describe_bias(facts)
    assert looks_biased(facts) == biased
    assert text.startswith("labels are biased" if biased else "labels do not look biased")
    assert ("'dog' is shown in 100 % of the rows where it is present" in text) == biased
    assert not len(find_rows_to_label(facts, labels, (truth > 0) * 1.0))


def test_too_few_complete_rows_are_named():
    truth, _ = draw()
    first = hide(truth, "single", 0)
    labels = first.copy()
    labels[:8] = truth[:8]
    (text,) = describe_bias(collect_bias_facts(CLASSES, labels, first, first, truth == 1))
    assert "too few to tell" in text


def test_rows_to_label_show_a_class_and_have_others():
    truth, _ = draw(2000)
    shown = hide(truth, "most-frequent", 0)
    shown[:500], shown[500:1000] = truth[:500], 0
    facts = collect_bias_facts(CLASSES, shown, None, shown, truth == 1, FOUND)
    rows = find_rows_to_label(facts, shown, np.where(truth > 0, 0.95, 0.02))
    assert rows.min() >= 1000
    assert np.mean((truth[rows] > 0).sum(axis=1) >= 2) > 0.9
    assert 100 < len(rows) < 200


@pytest.fixture
def files(tmp_path):
    """Labels of which the rarest present class is shown, features, and 100 complete rows."""
    truth, features = draw(240)
    items = [f"i{row}" for row in range(len(truth))]
    for name, values, rows in (
        ("labels.csv", hide(truth, "rarest", 0), slice(None)),
        ("complete.csv", truth.clip(0), slice(100)),
    ):
        frame = pd.DataFrame(values, columns=list(CLASSES))
        frame.insert(0, "image", items)
        frame[rows].to_csv(tmp_path / name, index=False)
    np.save(tmp_path / "x.npy", features)
    (tmp_path / "rows.txt").write_text("".join(f"{item}\n" for item in items[:9]))
    return tmp_path


def test_a_run_tells_what_complete_rows_say_in_its_result_and_report(files):
    out = files / "run"
    result = halftruth.fit(
        files / "labels.csv", features=files / "x.npy", complete_rows=files / "complete.csv",
        method="em", epochs=2, device="cpu", out=out, quiet=True, report=False,
    )  # fmt: skip
    saved = json.loads((out / "result.json").read_text())["label_bias"]
    assert saved == result.label_bias
    assert saved["preference"]["p_value"] < 0.01
    assert "'dog' is shown in 100 % of the rows where it is present" in result.describe()
    page = show_label_bias(result)
    assert page.startswith("<p>Labels <b>look biased</b>")
    assert "&#x27;dog&#x27; is shown in 100 %" in page
    assert "two models of the same rows" not in page
    result.label_bias = {}
    assert show_label_bias(result) == ""


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ([], "tested with --features, or better with the complete labels of about 100 random rows"),
        (["--features", "x.npy"], "labels do not look biased towards frequent classes (240 rows"),
        (["--complete-rows", "complete.csv"], "labels are biased, as the"),
    ],
)
def test_data_check_tells_whether_labels_look_biased(files, capsys, monkeypatch, options, text):
    monkeypatch.chdir(files)
    assert command("data", "check", "labels.csv", *options) == 0
    assert text in " ".join(capsys.readouterr().out.split())


def test_data_check_needs_the_complete_labels_themselves(files, capsys, monkeypatch):
    monkeypatch.chdir(files)
    assert command("data", "check", "labels.csv", "--complete-rows", "rows.txt") == 2
    assert "rows.txt only names rows" in " ".join(capsys.readouterr().err.split())


def test_a_run_names_the_rows_to_label_completely(files, monkeypatch):
    monkeypatch.setattr(fit_ensemble, "find_frequency_bias", lambda *_: FOUND)
    settings = {"features": files / "x.npy", "device": "cpu", "report": False, "quiet": True}
    first = halftruth.fit(files / "labels.csv", out=files / "one", **settings)
    names = (files / "one" / ROWS_TO_LABEL).read_text().split()
    assert len(names) == first.label_bias["rows_to_label"] >= 20
    assert {*names} <= {*pd.read_csv(files / "labels.csv")["image"]}
    assert f"label the {len(names)} rows of {ROWS_TO_LABEL} completely" in first.describe()
    # With the complete labels of these rows there is nothing more to label.
    truth = pd.DataFrame(draw(240)[0].clip(0), columns=list(CLASSES))
    truth.insert(0, "image", [f"i{row}" for row in range(240)])
    truth[truth["image"].isin(names)].to_csv(files / "whole.csv", index=False)
    settings["complete_rows"] = files / "whole.csv"
    second = halftruth.fit(files / "labels.csv", out=files / "two", **settings)
    assert second.label_bias["preference"]["p_value"] < 0.01
    assert not (files / "two" / ROWS_TO_LABEL).exists()
