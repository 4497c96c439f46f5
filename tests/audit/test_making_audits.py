"""Audits by folds, of runs and of given probabilities, as the command line makes them."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from audited_pictures import CLASSES, Pictures, hide, knowing_scores, write_rows
from typer.testing import CliRunner

from halftruth import fit
from halftruth.audit.cross_scores import cross_scores
from halftruth.audit.folder import open_audit
from halftruth.audit.make_audit import make_audit
from halftruth.cli.app import app
from halftruth.data import DataError, read_labels
from halftruth.labels import LabelMatrix

QUICK = {"epochs": 8, "device": "cpu", "method": "em"}


@pytest.fixture
def matrix(tmp_path: Path) -> tuple[Path, Path, np.ndarray]:
    """labels.csv with a patient each and features.npy that tell the truth, and the truth."""
    truth = (np.random.default_rng(0).random((120, 3)) < 0.4).astype(np.int8)
    seen = truth @ np.eye(3, 6) * 3 + np.random.default_rng(1).normal(size=(120, 6)) * 0.5
    np.save(tmp_path / "features.npy", seen.astype(np.float32))
    rows = [[f"r{k}", f"patient{k // 4}", *labels] for k, labels in enumerate(hide(truth, 0.4))]
    labels = write_rows(tmp_path / "labels.csv", ("id", "patient", "cat", "dog", "bird"), rows)
    return labels, tmp_path / "features.npy", truth


def test_scores_are_out_of_sample(tmp_path: Path) -> None:
    """Labels drawn by lot cannot be foretold, but a model that has seen them repeats them."""
    random = np.random.default_rng(0)
    lots = LabelMatrix((random.random((80, 2)) < 0.5).astype(np.int8), ("a", "b"))
    features = random.normal(size=(80, 60)).astype(np.float32)
    scores, bad = cross_scores(
        lots, tmp_path, features=features, folds=4, epochs=10, device="cpu", method="bce"
    )
    assert bad == []
    assert abs(np.corrcoef(scores[:, 0], lots.values[:, 0])[0, 1]) < 0.4
    parts = [read_labels(tmp_path / f"fold{k}.parquet").split for k in range(4)]
    assert np.array_equal(np.stack([part == "test" for part in parts]).sum(axis=0), np.ones(80))
    before = (tmp_path / "fold0" / "result.json").stat().st_mtime_ns
    again, _ = cross_scores(
        lots, tmp_path, features=features, folds=4, epochs=10, device="cpu", method="bce"
    )
    assert np.array_equal(scores, again)
    assert (tmp_path / "fold0" / "result.json").stat().st_mtime_ns == before
    with pytest.raises(DataError, match="other labels or other settings"):
        cross_scores(lots, tmp_path, features=features, folds=4, epochs=10, method="em")


def test_rows_of_one_item_stay_in_one_fold(tmp_path: Path) -> None:
    """Few rows, few labels, and every item twice: each fold has something to choose by."""
    random = np.random.default_rng(0)
    values = np.zeros((40, 2), np.int8)
    values[::5, 0] = 1
    items = np.array([f"i{row // 2}" for row in range(40)])
    features = random.normal(size=(40, 4)).astype(np.float32)
    labels = LabelMatrix(values, ("a", "b"), items)
    scores, _ = cross_scores(
        labels, tmp_path, features=features, folds=3, epochs=1, device="cpu", method="bce"
    )
    assert not np.isnan(scores).any()
    for number in range(3):
        part = read_labels(tmp_path / f"fold{number}.parquet", duplicates="keep").split
        assert np.array_equal(part[::2], part[1::2])
        assert (values[part == "val"] == 1).any()


def test_the_command_goes_from_labels_to_a_repaired_file(
    matrix: tuple[Path, Path, np.ndarray], tmp_path: Path
) -> None:
    labels, features, truth = matrix
    out = tmp_path / "audit"
    done = CliRunner().invoke(
        app,
        ["audit", str(labels), "--features", str(features), "--group-column", "patient",
         "--folds", "3", "--method", "wan", "--epochs", "15", "--device", "cpu",
         "--train", "head_lr=0.05", "--train", "ema=0",
         "--out", str(out)],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "labels are missing" in done.output
    assert "WARNING" not in done.output
    audit = open_audit(out)
    assert audit.info["origin"] == "3-fold training, out-of-sample"
    patients = pd.read_csv(labels)["patient"]
    folds = [read_labels(out / "folds" / f"fold{k}.parquet").split == "test" for k in range(3)]
    assert all(patients[a].isin(patients[~a]).sum() == 0 for a in folds)
    first = audit.candidates.head(20)
    right = truth[first["row"], first["class"].map(["cat", "dog", "bird"].index)].mean()
    unknown = audit.scored["labels"] == 0
    assert right > 2 * truth[unknown].mean()
    hidden = int(truth.sum() - (read_labels(labels, drop_columns=["patient"]).values > 0).sum())
    assert audit.info["missing"]["low"] < hidden < audit.info["missing"]["high"]
    done = CliRunner().invoke(
        app, ["repair", str(out), "--out", str(tmp_path / "fixed.csv"), "--precision", "0.9",
              "--export", "cleanlab"],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    fixed = read_labels(tmp_path / "fixed.csv", drop_columns=["patient"])
    assert (fixed.values > 0).sum() > (
        read_labels(labels, drop_columns=["patient"]).values > 0
    ).sum()


def test_a_run_that_was_trained_on_these_rows_says_so_loudly(
    matrix: tuple[Path, Path, np.ndarray], tmp_path: Path
) -> None:
    labels, features, _ = matrix
    run = tmp_path / "run"
    fit(
        labels,
        features=features,
        drop_columns=["patient"],
        out=run,
        quiet=True,
        report=False,
        **QUICK,
    )
    told: list[str] = []
    audit = make_audit(run, labels, out=tmp_path / "audit", draws=2, device="cpu", tell=told.append)
    assert any("96 of the 120 rows audited were TRAINED ON" in text for text in told)
    assert any("--folds 5" in text for text in told)
    assert "IN-SAMPLE" in (audit.path / "report.html").read_text()
    fresh = tmp_path / "new.csv"
    fresh.write_text(labels.read_text().replace("\nr", "\nnew"))
    told.clear()
    make_audit(
        run, fresh, features=features, out=tmp_path / "other", draws=2, device="cpu",
        reading={"drop_columns": ["patient"]}, tell=told.append,
    )  # fmt: skip
    assert not any("TRAINED ON" in text for text in told)


def test_given_probabilities_are_matched_by_name(pictures: Pictures) -> None:
    audit = pictures.audit()
    direct = knowing_scores(pictures.truth)
    assert np.allclose(audit.scored["scores"], direct, atol=1e-5)
    table = pd.read_csv(audit.path / "missing.csv")
    assert set(table["class"]) <= {"<b>cat</b>", "'=dog", "bird"}
    assert table["item"][0] == f"p{table['row'][0] - 1}.png"
    info = json.loads((audit.path / "audit.json").read_text())
    assert info["classes"] == list(CLASSES)


def test_only_a_part_can_be_audited(pictures: Pictures) -> None:
    text = pictures.labels.read_text().split("\n")
    lines = [f"{line},{'train' if k % 3 else 'test'}" for k, line in enumerate(text[1:]) if line]
    pictures.labels.write_text("\n".join([text[0] + ",split", *lines]) + "\n")
    audit = pictures.audit(split="train")
    assert set(audit.candidates["row"] % 3) == {1, 2}
    assert audit.info["rows"] == 60


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{labels}"], "expected --images or --features"),
        (["{folder}/none.csv", "{labels}"], "there is no such"),
        (["{probs}", "{folder}/none.csv"], "there is no such"),
        (["{labels}", "{labels}", "--selection", "some"], "expected selection"),
        (["{probs}", "{labels}", "--split", "train"], "no split column"),
    ],
)
def test_mistakes_are_one_message(pictures: Pictures, arguments: list, message: str) -> None:
    filled = [text.format(labels=pictures.labels, probs=pictures.probs, folder=pictures.folder)
              for text in arguments]  # fmt: skip
    out = ["--out", str(pictures.folder / "a")]
    done = CliRunner().invoke(app, ["audit", *filled, *out])
    assert isinstance(done.exception, ValueError)
    assert message in str(done.exception)


def test_probabilities_that_do_not_fit_are_named(pictures: Pictures) -> None:
    whole = pictures.probs.read_text()
    for text, message in (
        (whole.replace("bird", "brid"), "did you mean 'brid'"),
        (whole.replace("\np5.png", "\nother.png"), "'p5.png'"),
        (whole.replace("\np5.png", "\np6.png"), "more than one row"),
        (whole.replace("\np", "\nq"), "no probabilities for.*; its rows are named 'q"),
        (whole.replace("0.", "x.", 1), "expected a probability"),
        (whole.replace(",0.", ",7.", 1), "expected probabilities in 0..1"),
    ):
        pictures.probs.write_text(text)
        with pytest.raises(DataError, match=message):
            pictures.audit()


def test_an_audit_with_decisions_is_not_overwritten(pictures: Pictures) -> None:
    audit = pictures.audit()
    (audit.path / "decisions.jsonl").write_text("")
    with pytest.raises(DataError, match="decisions of a review"):
        pictures.audit()
