"""Runs on text and on tables: train, predict, evaluate, audit, resume."""

import sys

import numpy as np
import pandas as pd
import pytest
from tiny_data import SAME

import halftruth
from halftruth.audit.make_audit import make_audit
from halftruth.cli import main
from halftruth.data import DataError
from halftruth.train.results.evaluate import evaluate

WORDS = {"joy": "happy glad", "anger": "furious mad", "fear": "scared afraid"}
SHORT = {"method": "bce", "epochs": 6, "device": "cpu", "report": False, "head_lr": 0.03}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """comments.csv: a text with the words of its labels; people.parquet: columns that help."""
    folder = tmp_path_factory.mktemp("text")
    random = np.random.default_rng(0)
    rows, people = [], []
    for k in range(90):
        present = random.random(3) < 0.4
        words = [
            w for p, text in zip(present, WORDS.values(), strict=True) if p for w in text.split()
        ]
        words += random.choice(["the", "a", "so", "they", "well"], 3).tolist()
        random.shuffle(words)
        part = ("train", "train", "train", "val", "test")[k % 5]
        rows.append([f"c{k}", " ".join(words), part, *present.astype(int)])
        people.append([f"c{k}", random.choice(["north", "south"]), None if k % 7 == 0 else k])
    frame = pd.DataFrame(rows, columns=["id", "comment", "split", *WORDS])
    frame.to_csv(folder / "comments.csv", index=False)
    table = pd.DataFrame(people, columns=["id", "region", "age"]).sample(frac=1, random_state=0)
    table.to_parquet(folder / "people.parquet", index=False)
    return folder


@pytest.fixture(scope="module")
def run(data):
    out = data / "run"
    halftruth.fit(data / "comments.csv", text="comment", out=out, quiet=True, **SHORT)
    return out


def command(*words):
    """Run `halftruth words` in this process; return the exit code."""
    before = sys.argv
    sys.argv = ["halftruth", *map(str, words)]
    try:
        main()
    except SystemExit as end:
        return end.code or 0
    finally:
        sys.argv = before
    return 0


def test_a_run_learns_from_text(run):
    table = halftruth.predict(run, ["so happy and glad", "mad, furious they"])
    assert table["joy"][0] > table["joy"][1]
    assert table["anger"][1] > table["anger"][0]
    alone = halftruth.predict(run, "so happy and glad")
    assert alone["joy"][0] == pytest.approx(table["joy"][0], abs=SAME)


def test_text_is_predicted_from_files_and_frames(run, data, tmp_path):
    frame = pd.read_csv(data / "comments.csv")[["id", "comment"]][:5]
    frame.to_csv(tmp_path / "new.csv", index=False)
    by_file = halftruth.predict(run, tmp_path / "new.csv")
    assert by_file["item"].tolist() == frame["id"].tolist()
    by_frame = halftruth.predict(run, frame.set_index("id"))
    pd.testing.assert_frame_equal(by_file, by_frame)
    assert command("predict", run, tmp_path / "new.csv", "--out", tmp_path / "p.csv") == 0
    assert pd.read_csv(tmp_path / "p.csv")["item"].tolist() == frame["id"].tolist()


def test_text_is_evaluated_and_audited(run, data, tmp_path):
    metrics = evaluate(run, data / "comments.csv", split="test", unknown="absent").metrics
    assert metrics["mAP"] > 0.8
    assert command("evaluate", run, data / "comments.csv", "--split", "val") == 0
    found = make_audit(run, data / "comments.csv", out=tmp_path / "audit")
    assert "run" in found.info["origin"]


def test_an_audit_trains_on_text_by_folds(data, tmp_path):
    found = make_audit(
        data / "comments.csv", text="comment", out=tmp_path / "audit", folds=2,
        method="bce", epochs=2,
    )  # fmt: skip
    assert "out-of-sample" in found.info["origin"]


def test_text_and_tables_are_matched_by_id(data, tmp_path):
    out = tmp_path / "run"
    code = command(
        "train", data / "comments.csv", "--text", "comment", "--features",
        data / "people.parquet", "--method", "bce", "--epochs", 2, "--device", "cpu",
        "--no-report", "--quiet", "--out", out,
    )  # fmt: skip
    assert code == 0
    trained = halftruth.load(out)
    assert {"region=north", "age", "age is missing"} <= set(trained.encoder.outputs)
    frame = pd.read_csv(data / "comments.csv")[["id", "comment"]][:4]
    frame.to_csv(tmp_path / "new.csv", index=False)
    both = trained.predict(text=tmp_path / "new.csv", features=data / "people.parquet")
    assert both["item"].tolist() == frame["id"].tolist()
    with pytest.raises(DataError, match="was trained on text and features"):
        trained.predict(tmp_path / "new.csv")


def test_two_sources_of_features_train_one_model(data, tmp_path):
    labels = pd.read_csv(data / "comments.csv").drop(columns="comment")
    labels.to_csv(tmp_path / "labels.csv", index=False)
    matrix = labels[[*WORDS]].to_numpy() + np.random.default_rng(1).normal(0, 0.2, (len(labels), 3))
    np.savez(tmp_path / "x.npz", X=matrix, ids=labels["id"].to_numpy(dtype=str))
    files = [tmp_path / "x.npz", data / "people.parquet"]
    out = tmp_path / "run"
    halftruth.fit(tmp_path / "labels.csv", features=files, out=out, quiet=True, **SHORT)
    assert (
        evaluate(out, tmp_path / "labels.csv", features=files, split="test", unknown="absent")[0][
            "mAP"
        ]
        > 0.8
    )
    with pytest.raises(DataError, match="expected 2 sources, as in training, got 1"):
        halftruth.predict(out, files[0])


def test_a_resumed_run_keeps_its_encoder(data, tmp_path):
    out = tmp_path / "run"
    settings = {**SHORT, "text": "comment", "out": out, "quiet": True}
    halftruth.fit(data / "comments.csv", **settings)
    before = (out / "encoder.json").read_bytes()
    halftruth.fit(data / "comments.csv", resume=True, **{**settings, "epochs": 8})
    assert (out / "encoder.json").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--text", "coment"], "did you mean 'comment'"),
        (
            ["--text", "comment", "--images", "no"],
            "--images: there is no folder, zip file or shard",
        ),
        (["--features", "people.parquet", "--encoder", "x"], "--encoder: has no effect"),
        (["--text", "comment", "--encoder", "."], "expected a folder with config.json"),
        (["--text", "comment", "--read-features", "key=X"], "--read-features: has no effect"),
        (["--text", "comment", "--backbone", "resnet18"], "--backbone: has no effect"),
    ],
)
def test_mistakes_are_one_message_about_options(data, monkeypatch, capsys, words, message):
    monkeypatch.chdir(data)
    assert command("train", "comments.csv", *words, "--out", "never") == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert message in shown
    assert "Traceback" not in shown


def test_a_file_without_the_text_is_refused(run, tmp_path):
    (tmp_path / "new.csv").write_text("id,remark\na,so happy\n")
    with pytest.raises(DataError, match=r"--text comment\): there is no such column"):
        halftruth.predict(run, tmp_path / "new.csv")
    with pytest.raises(DataError, match="expected the column of text 'comment'"):
        halftruth.predict(run, pd.DataFrame({"remark": ["so happy"]}))


def test_predictions_show_the_text(run, data, tmp_path):
    table = halftruth.predict(run, ["so happy and glad"])
    assert [*table.columns[:3]] == ["item", "comment", "labels"]
    assert table["comment"][0] == "so happy and glad"
    assert command("predict", run, data / "comments.csv", "--out", tmp_path / "p.csv") == 0
    given = pd.read_csv(data / "comments.csv")["comment"].tolist()
    assert pd.read_csv(tmp_path / "p.csv")["comment"].tolist() == given
    # The table is one of probabilities for an audit, too.
    found = make_audit(tmp_path / "p.csv", data / "comments.csv", out=tmp_path / "audit",
                       reading={"drop_columns": ["comment"]})  # fmt: skip
    assert len(found.info["classes"]) == 3


def test_the_report_shows_texts(data, tmp_path):
    settings = {**SHORT, "report": True}
    halftruth.fit(data / "comments.csv", text="comment", out=tmp_path, quiet=True, **settings)
    page = (tmp_path / "report.html").read_text()
    assert "Best and worst rows" in page
    shown = pd.read_csv(data / "comments.csv").query("split == 'val'")["comment"]
    assert sum(f"<blockquote>{text}</blockquote>" in page for text in shown) > 3


def test_an_exported_file_names_its_columns(run, tmp_path):
    import json

    from halftruth.models.export import export_torch

    done = export_torch(halftruth.load(run), tmp_path / "m.pt2")
    notes = json.loads(done.notes.read_text())["input"]
    assert "words: happy" in notes["columns"]
    assert len(notes["columns"]) == notes["shape"][1]
