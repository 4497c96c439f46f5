"""report.html of small real runs: complete, escaped, and with the numbers of the run's files."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import halftruth
from halftruth import fit
from halftruth.report import run_report as report_module
from halftruth.report.gallery import HeldOut, best_and_worst, pick_rows
from halftruth.report.run_report import _duration
from halftruth.train.config import Config, collect
from halftruth.train.run import Run

NASTY = '<script>alert("x")</script> & co'
CLASSES = ("red", NASTY, "blue")
VOID = ("meta", "img", "br", "use", "path")


class Reader(HTMLParser):
    """Tags with attributes, table cells and text; unclosed tags stay in `open`."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)


def make_data(folder: Path, rows: int = 40) -> Path:
    random = np.random.default_rng(0)
    (folder / "photos").mkdir(parents=True)
    truth = random.random((rows, 3)) < 0.5
    truth[np.arange(rows), random.integers(0, 3, rows)] = True
    shown = truth & (random.random(truth.shape) < 0.6)
    shown[np.arange(rows), truth.argmax(axis=1)] = True
    names = [f"p{row}.png" for row in range(rows)]
    for name, there in zip(names, truth, strict=True):
        pixels = random.integers(0, 90, (32, 32, 3)) + 120 * there
        Image.fromarray(pixels.astype(np.uint8)).save(folder / "photos" / name)
    for file, values in (("labels", shown), ("truth", truth)):
        table = pd.DataFrame(values.astype(int), columns=list(CLASSES))
        table.insert(0, "split", np.resize(["train", "train", "val", "test"], rows))
        table.insert(0, "image", names)
        table.to_csv(folder / f"{file}.csv", index=False)
    np.save(folder / "features.npy", (truth + random.normal(0, 0.4, truth.shape)).astype("f4"))
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return make_data(tmp_path_factory.mktemp("report") / "data")


@pytest.fixture(scope="module")
def image_run(data):
    """A run on images with complete labels."""
    out = data.parent / "images"
    fit(
        data / "labels.csv", data / "photos", truth=data / "truth.csv", out=out, quiet=True,
        backbone="test_efficientnet", weights="none", image_size=32, tune="head", head_epochs=2,
        method="wan",
        device="cpu", workers=0, batch_size=8,
    )  # fmt: skip
    return out


@pytest.fixture
def settings(data, tmp_path):
    """Settings of a run on features without complete labels."""
    return {
        "labels": data / "labels.csv",
        "features": data / "features.npy",
        "method": "wan",
        "epochs": 1,
        "device": "cpu",
        "batch_size": 8,
        "out": tmp_path / "run",
    }


def read(folder: Path) -> Reader:
    return Reader((folder / "report.html").read_text(encoding="utf-8"))


def test_the_page_is_complete_and_fetches_nothing(image_run):
    text = (image_run / "report.html").read_text(encoding="utf-8")
    page = Reader(text)
    assert page.open == []
    assert page.count("script") == page.count("link") == 0
    for _, attributes in page.tags:
        for key in ("src", "href", "xlink:href"):
            assert (attributes.get(key) or "#").startswith(("#", "data:image/"))
    assert "url(http" not in text
    assert len(text) < 3_000_000


def test_names_are_escaped(image_run):
    assert NASTY in read(image_run).text


def test_figures_take_the_colours_of_the_page(image_run):
    text = (image_run / "report.html").read_text(encoding="utf-8")
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text
    figures = re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)
    assert len(figures) == 7
    assert all("currentColor" in figure for figure in figures)
    assert not any("#1d1f24" in figure or "<metadata" in figure for figure in figures)
    assert all('aria-label="' in figure for figure in figures)


def test_the_table_of_classes_equals_classes_csv(image_run):
    table = pd.read_csv(image_run / "classes.csv").set_index("class")
    # The first such table; that of decisions follows.
    found = [row for row in read(image_run).rows if row[0] in CLASSES and len(row) > 4]
    rows = {row[0]: row for row in reversed(found)}
    assert set(rows) == set(CLASSES)
    for name, row in rows.items():
        assert int(row[1]) == table.loc[name, "train_present"]
        assert int(row[2]) == table.loc[name, "train_true"]
        assert float(row[3]) == pytest.approx(100 * table.loc[name, "val_AP"], abs=0.06)


def test_the_page_shows_what_was_estimated_and_decided(image_run):
    result = json.loads((image_run / "result.json").read_text())
    page, found = read(image_run), result["probabilities"]
    rows = {row[0]: row for row in page.rows if row[0] in CLASSES and "to" in row[3]}
    for k, name in enumerate(CLASSES):
        assert int(rows[name][1]) == result["shown"][k]
        assert float(rows[name][2]) == pytest.approx(100 * found["prevalence"][k][0], abs=0.06)
        assert float(rows[name][6]) == pytest.approx(result["thresholds"][k], abs=6e-4)
    value, low, high = found["labels_per_row"]
    assert f"{value:.2f} (90 % interval {low:.2f} to {high:.2f})" in page.text
    assert "Rule: f1" in page.text
    assert "Scores on validation and test rows are verified" in page.text


def test_an_ensemble_has_a_table_of_members_and_no_curves(data, settings):
    """The last class has no label: it is named as not predicted."""
    table = pd.read_csv(data / "labels.csv").assign(blue=0)
    table.to_csv(settings["out"].parent / "labels.csv", index=False)
    given = {key: settings[key] for key in ("features", "device", "out")}
    result = fit(settings["out"].parent / "labels.csv", **given, quiet=True)
    page = read(settings["out"])
    shown = {row[0]: row for row in reversed(page.rows)}
    for one in json.loads((settings["out"] / "result.json").read_text())["members"]:
        assert float(shown[one["name"]][2]) == pytest.approx(100 * one["weight"], abs=0.6)
    assert "Learning curves" not in page.text
    assert result.not_predicted == ["blue"]
    assert "Not predicted, for lack of labels" in page.text
    assert shown["blue"][-1] == "–"  # the table of classes, without an AP
    assert ["blue", "not predicted"] in [[row[0], row[-1]] for row in page.rows]
    summary = result.describe()
    assert "labels are incomplete, and too few to estimate scores" in summary
    assert "mAP" not in summary
    assert "not predicted: 'blue'" in summary


def test_the_page_has_the_results_and_all_sections(image_run):
    result = json.loads((image_run / "result.json").read_text())
    page = read(image_run)
    assert f"{100 * result['test']['mAP']:.1f}" in page.text
    for title in ("Training", "Classes", "Best and worst", "Probably missing", "Time", "Settings"):
        assert title in page.text
    assert "method: wan" in page.text


def test_images_are_inside_the_page(image_run):
    page = read(image_run)
    assert page.count("img") > 10
    kinds = [attributes.get("class") for tag, attributes in page.tags if tag == "figure"]
    assert {"right", "wrong"} <= set(kinds)


def test_a_run_on_features_has_no_images(settings):
    fit(**settings, quiet=True)
    page = read(settings["out"])
    assert page.count("img") == 0
    assert "Probably missing labels" in page.text
    assert "The labels of validation and test rows are incomplete" in page.text
    assert "counting unknown as absent" not in page.text
    assert "p2.png" in page.text
    assert "present" not in page.rows[0]


def test_without_unknown_labels_nothing_is_missing(settings):
    fit(**settings, zero="absent", quiet=True)
    assert "The validation rows have no unknown labels" in read(settings["out"]).text


def test_validation_rows_without_positives_are_explained(data, tmp_path, settings):
    table = pd.read_csv(data / "labels.csv")
    table.loc[table["split"] == "val", list(CLASSES)] = 0
    table.to_csv(tmp_path / "labels.csv", index=False)
    fit(**{**settings, "labels": tmp_path / "labels.csv"}, truth=data / "truth.csv", quiet=True)
    assert "no positive labels to estimate them from" in read(settings["out"]).text


def test_the_report_can_be_left_out(settings):
    fit(**settings, report=False, quiet=True)
    assert not (settings["out"] / "report.html").exists()
    assert (settings["out"] / "classes.csv").exists()


def test_a_failing_report_is_only_a_warning(settings, monkeypatch, capsys):
    def fail(*_):
        raise RuntimeError("no ink")

    monkeypatch.setattr(report_module, "write_report", fail)
    result = fit(**settings)
    assert 0 <= result.get_observed("val")["mAP"] <= 1
    assert (settings["out"] / "result.json").exists()
    assert (
        "warning: report.html cannot be written (RuntimeError: no ink)" in capsys.readouterr().err
    )


def test_best_worst_and_unlabelled_rows_are_picked():
    score = np.array([0.9, 0.1, 0.8, 0.7, 0.3, 0.6])
    there = np.array([True, True, True, False, True, False])
    assert pick_rows(score, there) == [0, 2, 1, 4, 3, 5]


def test_badges_go_by_the_decisions_of_the_run():
    """A positive with the lowest score may be found, and one with the highest missed."""
    p = np.array([[0.91, 0.40], [0.95, 0.30], [0.93, 0.35], [0.10, 0.20]])
    labels = np.array([[1, 1], [1, 1], [1, 1], [0, 0]], np.int8)
    decided = p > np.array([0.41, 0.43])
    held_out = HeldOut(
        [f"r{n}" for n in range(4)], ["bird", "plant"], p, decided, labels, labels, None,
        texts=["text"] * 4,
    )  # fmt: skip
    bird, plant = best_and_worst(held_out, np.array([0.1, 0.9])).split("</section>")[:2]
    assert (bird.count("found</b>"), bird.count("missed</b>")) == (3, 0)
    assert (plant.count("found</b>"), plant.count("missed</b>")) == (0, 3)
    assert bird.count("absent</b>") == plant.count("absent</b>") == 1
    assert 'class="wrong"' not in bird


def test_decisions_of_the_page_are_those_of_predict(image_run, data):
    run = halftruth.load(image_run, device="cpu")
    result = SimpleNamespace(**json.loads((image_run / "result.json").read_text()))
    p = np.random.default_rng(0).random((50, 3))
    assert np.array_equal(report_module.read_decisions(result)(p), run.decisions(p))


def test_the_kept_epoch_is_named_with_its_reason(image_run, settings):
    assert "of stage head, the best one." in read(image_run).text
    fit(**settings, select="last", quiet=True)
    text = read(settings["out"]).text
    assert "the last one, select: last" in text
    assert "best epoch" not in text


def test_the_total_time_of_a_resumed_run_counts_earlier_epochs(settings):
    """An epoch of the first start that took an hour is in the total of the second."""
    from halftruth.train.trainer import Interrupted

    def stop(record):
        if record["epoch"] == 2:
            raise Interrupted("stop")

    run = Run(Config.of({**collect(settings), "epochs": 3}), quiet=True, on_epoch=stop)
    with pytest.raises(Interrupted):
        run.go()
    metrics = settings["out"] / "metrics.jsonl"
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    lines[0]["seconds"] = 3600.0
    metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    fit(resume=True, out=settings["out"], quiet=True)
    assert "1 h 0 min" in read(settings["out"]).text


def test_images_of_at_most_24_classes_are_shown():
    shape = (60, 312)
    labels = np.where(np.random.default_rng(0).random(shape) < 0.2, 1, 0).astype(np.int8)
    names = [f"c{k}" for k in range(312)]
    held_out = HeldOut(
        [f"r{n}" for n in range(60)], names, np.full(shape, 0.5), labels > 0, labels, None, None
    )
    page = best_and_worst(held_out, np.linspace(1, 0, 312))
    assert page.count("<section") == 24
    assert "c311 <small>" in page
    assert "c0 <small>" not in page


def test_at_most_takes_evenly_spaced_rows():
    shape = (1000, 4)
    labels = np.arange(4000).reshape(shape)
    names = [f"r{n}" for n in range(1000)]
    held_out = HeldOut(names, list("abcd"), labels / 4000, labels > 9, labels, labels, None)
    some = held_out.at_most(40)
    assert len(some.names) == len(some.probabilities) == len(some.labels) == 10
    assert (some.names[0], some.names[-1]) == ("r0", "r999")
    assert some.labels[-1].tolist() == some.complete[-1].tolist() == labels[-1].tolist()
    assert held_out.at_most(4000) is held_out


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.26, "1.3 s"), (125, "2 min 5 s"), (12000, "3 h 20 min")]
)
def test_durations_are_readable(seconds, text):
    assert _duration(seconds) == text
