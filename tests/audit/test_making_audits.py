"""Audits by folds, of runs and of given probabilities, as the command line makes them."""

import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from audit_example import CLASSES, Example, hide, noisy_scores, write_rows
from rich.console import Console
from typer.testing import CliRunner

from halftruth import fit
from halftruth.audit.audit_folder import open_audit
from halftruth.audit.cross_scores import cross_scores
from halftruth.audit.make_audit import make_audit
from halftruth.cli.app import app
from halftruth.data import DataError, read_labels
from halftruth.labels import LabelMatrix
from halftruth.presence.ranking import question_order
from halftruth.report.audit_report import write_audit_report
from halftruth.train import ConfigError

QUICK = {"epochs": 8, "device": "cpu", "method": "em"}
Matrix = tuple[Path, Path, np.ndarray]


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Matrix:
    """labels.csv with a patient per row, features.npy that show the classes, complete labels."""
    folder = tmp_path_factory.mktemp("matrix")
    truth = (np.random.default_rng(0).random((120, 3)) < 0.4).astype(np.int8)
    values = truth @ np.eye(3, 6) * 3 + np.random.default_rng(1).normal(size=(120, 6)) * 0.5
    np.save(folder / "features.npy", values.astype(np.float32))
    rows = [[f"r{k}", f"patient{k // 4}", *labels] for k, labels in enumerate(hide(truth, 0.4))]
    labels = write_rows(folder / "labels.csv", ("id", "patient", "cat", "dog", "bird"), rows)
    return labels, folder / "features.npy", truth


@pytest.fixture(scope="module")
def trained(matrix: Matrix, tmp_path_factory: pytest.TempPathFactory) -> Path:
    labels, features, _ = matrix
    run = tmp_path_factory.mktemp("runs") / "run"
    options: dict[str, Any] = {"drop_columns": ["patient"], "quiet": True, "report": False}
    fit(labels, features=features, out=run, **options, **QUICK)
    return run


def run_command(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_scores_are_out_of_sample(tmp_path: Path) -> None:
    """Random labels cannot be predicted, but a model repeats those it was trained on."""
    random = np.random.default_rng(0)
    labels = LabelMatrix((random.random((80, 2)) < 0.5).astype(np.int8), ("a", "b"))
    options: dict[str, Any] = {
        "features": random.normal(size=(80, 60)).astype(np.float32), "folds": 4, "epochs": 10,
        "device": "cpu",
    }  # fmt: skip
    scores, bad = cross_scores(labels, tmp_path, method="bce", **options)
    assert bad == []
    assert abs(np.corrcoef(scores[:, 0], labels.values[:, 0])[0, 1]) < 0.4
    parts = [read_labels(tmp_path / f"fold{k}.parquet").split for k in range(4)]
    assert np.array_equal(np.stack([part == "test" for part in parts]).sum(axis=0), np.ones(80))
    before = (tmp_path / "fold0" / "result.json").stat().st_mtime_ns
    again, _ = cross_scores(labels, tmp_path, method="bce", **options)
    assert np.array_equal(scores, again)
    assert (tmp_path / "fold0" / "result.json").stat().st_mtime_ns == before
    with pytest.raises(DataError, match="other labels or other settings"):
        cross_scores(labels, tmp_path, method="em", **options)


def test_rows_of_one_item_stay_in_one_fold(tmp_path: Path) -> None:
    """Few rows, few labels, and every item twice: each fold has validation rows with a label."""
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


def test_commands_lead_from_labels_to_a_repaired_file(matrix: Matrix, tmp_path: Path) -> None:
    labels, features, truth = matrix
    out = tmp_path / "audit"
    done = run_command(
        "audit", labels, "--features", features, "--group-column", "patient", "--folds", 3,
        "--method", "wan", "--epochs", 15, "--device", "cpu", "--train", "head_lr=0.05",
        "--train", "ema=0", "--out", out,
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "estimated missing labels" in done.output
    assert "WARNING" not in done.output
    assert (out / "report.html").is_file()
    audit = open_audit(out)
    assert audit.info["origin"] == "3-fold training, out-of-sample"
    patients = pd.read_csv(labels)["patient"]
    folds = [read_labels(out / "folds" / f"fold{k}.parquet").split == "test" for k in range(3)]
    assert all(patients[a].isin(patients[~a]).sum() == 0 for a in folds)
    first = audit.candidates.head(20)
    right = truth[first["row"], first["class"].map(["cat", "dog", "bird"].index)].mean()
    unknown = audit.scored.labels == 0
    assert right > 2 * truth[unknown].mean()
    observed = read_labels(labels, drop_columns=["patient"]).values > 0
    hidden = int(truth.sum() - observed.sum())
    assert audit.info["missing"]["low"] < hidden < audit.info["missing"]["high"]
    fixed = tmp_path / "fixed.csv"
    done = run_command("repair", out, "--out", fixed, "--precision", 0.7, "--export", "cleanlab")
    assert done.exit_code == 0, done.output
    assert (read_labels(fixed, drop_columns=["patient"]).values > 0).sum() > observed.sum()


def test_training_rows_of_a_run_cause_a_warning(
    matrix: Matrix, trained: Path, tmp_path: Path
) -> None:
    labels, features, _ = matrix
    messages: list[str] = []
    options: dict[str, Any] = {"device": "cpu", "log": messages.append}
    audit = make_audit(trained, labels, out=tmp_path / "audit", **options)
    assert any("96 of the 120 audited rows were TRAINING ROWS" in text for text in messages)
    assert any("--folds 5" in text for text in messages)
    assert "IN-SAMPLE" in write_audit_report(audit).read_text()
    fresh = tmp_path / "new.csv"
    fresh.write_text(labels.read_text().replace("\nr", "\nnew"))
    messages.clear()
    make_audit(
        trained, fresh, features=features, out=tmp_path / "other",
        reading={"drop_columns": ["patient"]}, **options,
    )  # fmt: skip
    assert not any("TRAINING ROWS" in text for text in messages)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"thresholds": [0.5', "result.json"),
        ('{"thresholds": [0.5, 0.5]}', "result.json"),
        ("{}", "result.json"),
        ('{"thresholds": [0.5, 0.5, NaN]}', "result.json"),
    ],
)
def test_a_broken_result_of_a_run_is_one_error(
    matrix: Matrix, trained: Path, tmp_path: Path, content: str, message: str
) -> None:
    labels, _, _ = matrix
    run = shutil.copytree(trained, tmp_path / "run")
    (run / "result.json").write_text(content)
    with pytest.raises(Exception, match=message) as caught:
        make_audit(run, labels, out=tmp_path / "audit", device="cpu")
    assert type(caught.value).__name__ in ("DataError", "CheckpointError")


def test_bars_show_folds_reading_training_and_scoring(
    example: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(
        "halftruth.train.run_logger.Console",
        lambda quiet, **_: Console(file=shown, force_terminal=True, width=120, quiet=quiet),
    )
    # One epoch of an untrained network ranks nothing.
    with pytest.raises(DataError, match="missing labels are not known"):
        make_audit(
            example.labels, images=[example.folder / "photos"], out=example.folder / "audit",
            folds=2, device="cpu", quiet=False, method="bce", backbone="test_efficientnet",
            weights="none", image_size=32, tune="all", epochs=1, workers=1,
        )  # fmt: skip
    text = shown.getvalue()
    assert re.search("folds.*1/2", text)
    assert re.search("reading images.*/90", text)
    assert re.search("epoch 1", text)
    assert re.search("images.*/45", text)


def test_given_probabilities_are_matched_by_name(example: Example) -> None:
    audit = example.audit()
    direct = noisy_scores(example.truth)
    assert np.allclose(audit.scored.scores, direct, atol=1e-5)
    table = pd.read_csv(audit.path / "missing.csv")
    assert set(table["class"]) <= {"<b>cat</b>", "'=dog", "bird"}
    assert table["item"][0] == f"p{table['row'][0] - 1}.png"
    info = json.loads((audit.path / "audit.json").read_text())
    assert info["classes"] == list(CLASSES)


@pytest.mark.parametrize("suffix", ["csv", "npz"])
def test_named_columns_may_have_any_order(example: Example, suffix: str) -> None:
    table = pd.read_csv(example.probs)[["image", *CLASSES[::-1]]]
    example.probs = example.folder / f"other.{suffix}"
    if suffix == "csv":
        table.to_csv(example.probs, index=False)
    else:
        values = table.iloc[::-1, 1:].to_numpy()
        np.savez(example.probs, scores=values, classes=np.array(CLASSES[::-1]))
    audit = example.audit()
    assert np.allclose(audit.scored.scores, noisy_scores(example.truth), atol=1e-5)
    assert len(audit.info["warnings"]) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda scores: scores, None),
        (lambda scores: scores[:, [1, 0, 2]], "another class order"),
    ],
)
def test_permuted_scores_are_reported(example: Example, change: Any, message: str | None) -> None:
    example.probs = example.folder / "probs.npy"
    np.save(example.probs, change(noisy_scores(example.truth)))
    audit = example.audit()
    found = audit.info["warnings"][1:]
    assert len(found) == (message is not None)
    if message:
        assert pd.Series(found).str.contains(message).all()
        assert found[0][:40] in (audit.path / "report.html").read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda scores: 1 - scores, "inverted scores"),
        (lambda scores: scores[:, [1, 2, 0]], "another class order:.*that of '=dog' fits"),
        (lambda scores: np.roll(scores, 7, axis=0), "rows are in another order"),
        (lambda scores: scores * 0 + 0.5, "nothing to learn"),
    ],
)
def test_scores_that_do_not_rank_are_refused(example: Example, change: Any, message: str) -> None:
    """They gave long lists of candidates that were right by chance only."""
    example.probs = example.folder / "probs.npy"
    np.save(example.probs, change(noisy_scores(example.truth)))
    with pytest.raises(DataError, match=f"missing labels are not known.*{message}"):
        example.audit()


def test_weak_scores_of_rare_classes_are_not_reported_as_permuted() -> None:
    random = np.random.default_rng(0)
    values = (random.random((400, 60)) < 0.02).astype(np.int8)
    labels = LabelMatrix(values, tuple(f"c{k}" for k in range(60)))
    scores = 0.3 * random.random(values.shape) + 0.1 * values
    assert question_order(labels.values, scores, labels.classes, named=False) == []


def test_only_a_part_can_be_audited(example: Example) -> None:
    text = example.labels.read_text().split("\n")
    lines = [f"{line},{'train' if k % 3 else 'test'}" for k, line in enumerate(text[1:]) if line]
    example.labels.write_text("\n".join([text[0] + ",split", *lines]) + "\n")
    audit = example.audit(split="train")
    assert set(audit.candidates["row"] % 3) == {1, 2}
    assert audit.info["rows"] == 60


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{labels}"], "expected --images, --features or --text"),
        (["{folder}/none.csv", "{labels}"], "there is no such"),
        (["{probs}", "{folder}/none.csv"], "there is no such"),
        (["{probs}", "{labels}", "--split", "train"], "no split column"),
        (["{folder}", "{labels}"], "is not a run folder"),
        (["{probs}", "{folder}/zeros.csv"], r"zeros.csv: none of the labels .* is present"),
        (["{folder}/zeros.csv", "--images", "{folder}/photos"], "zeros.csv: none of the labels"),
        (["{labels}", "--images", "{folder}/photos", "--folds", "1"], "folds: expected at least 2"),
        (["{probs}", "{labels}", "--folds", "3"], r"folds \(--folds\): no effect"),
        (["{probs}", "{labels}", "--method", "em"], r"method \(--method\): no effect"),
        (["{probs}", "{labels}", "--device", "cpu"], r"device \(--device\): no effect"),
    ],
)
def test_mistakes_are_one_message(example: Example, arguments: list, message: str) -> None:
    text = example.labels.read_text()
    (example.folder / "zeros.csv").write_text(text.replace(",1", ",0"))
    places = {"labels": example.labels, "probs": example.probs, "folder": example.folder}
    filled = [argument.format(**places) for argument in arguments]
    done = run_command("audit", *filled, "--out", example.folder / "a")
    assert isinstance(done.exception, DataError)
    with pytest.raises(DataError, match=message):
        raise done.exception


@pytest.mark.parametrize("command", ["audit --selection two", "repair --rejected maybe"])
def test_unknown_choices_are_refused_by_the_command_line(example: Example, command: str) -> None:
    name, option, value = command.split()
    done = run_command(name, example.probs, option, value)
    assert done.exit_code == 2
    assert option in done.output
    assert "Traceback" not in done.output
    with pytest.raises(
        DataError,
        match="expected auto or missing_at_random or single_positive, got",
    ):
        example.audit(selection="two")


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_cuda_without_a_gpu_is_refused(matrix: Matrix, trained: Path, tmp_path: Path) -> None:
    labels, features, _ = matrix
    for source in ([labels], [trained, labels]):
        with pytest.raises(ConfigError, match="device"):
            make_audit(*source, features=features, device="cuda", out=tmp_path / "audit")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("bird", "brid", "did you mean 'brid'"),
        (
            "\np5.png",
            "\nother.png",
            "1 of 90 items .* have no row: 'p5.png'; ids without .* 'other",
        ),
        ("\np5.png", "\np6.png", "1 ids occur more than once: 'p6.png'"),
        ("\np", "\nq", "90 of 90 items of the label file have no row: .*; ids without labels: 'q"),
        ("0.", "x.", "expected a probability"),
        (",0.", ",7.", r"row 90 \(p89.png\), class '<b>cat</b>': expected a probability .*sigmoid"),
        (",0.", ",nan\b", "expected a probability"),
    ],
)
def test_probabilities_that_do_not_fit_are_named(
    example: Example, old: str, new: str, message: str
) -> None:
    once = -1 if old.startswith(("\n", "b")) else 1
    example.probs.write_text(example.probs.read_text().replace(old, new, once))
    with pytest.raises(DataError, match=message):
        example.audit()


def test_nan_scores_are_errors_with_row_and_class(example: Example) -> None:
    scores = noisy_scores(example.truth)
    scores[4, 2] = np.nan
    example.probs = example.folder / "probs.npy"
    np.save(example.probs, scores)
    with pytest.raises(DataError, match=r"probs.npy: row 5 \(p4.png\), class 'bird'.*got nan"):
        example.audit()


def test_a_run_with_nan_scores_is_an_error(matrix: Matrix, trained: Path, tmp_path: Path) -> None:
    from halftruth.train.results.trained_run import TrainedRun

    labels, features, _ = matrix
    run = TrainedRun(trained, device="cpu")
    with torch.no_grad():
        next(iter(run.model.parameters())).fill_(torch.nan)
    from halftruth.audit.score_sources import run_scores

    given = read_labels(labels, drop_columns=["patient"])
    with pytest.raises(Exception, match=r"row 1 \(r0\), class 'cat'|NaN|not finite"):
        run_scores(run, given, features=np.load(features))


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("audit.json", b'{"labels": "x', "audit.json: the file is broken"),
        ("audit.json", b"[]", "expected an object, got list"),
        ("audit.json", b"{}", "the field 'labels' is missing"),
        ("audit.json", b"\xff\xfe", "audit.json: the file is broken"),
        ("audit.json", b"[" * 100_000, "audit.json: the file is broken"),
        ("candidates.parquet", b"PAR1", "candidates.parquet: the file is broken"),
        ("candidates.parquet", b"", "candidates.parquet: the file is broken"),
        ("candidates.parquet", None, "candidates.parquet: the file is broken"),
        ("scores.npz", b"PK\x03\x04", "scores.npz: the file is broken"),
        ("scores.npz", None, "scores.npz: the file is broken"),
    ],
)
def test_broken_files_of_an_audit_are_one_error(
    example: Example, file: str, content: bytes | None, message: str
) -> None:
    audit = example.audit()
    if content is None:
        (audit.path / file).unlink()
    else:
        (audit.path / file).write_bytes(content)
    done = run_command("repair", audit.path, "--export", "cleanlab")
    assert isinstance(done.exception, DataError)
    assert message in str(done.exception)
    assert "halftruth audit" in str(done.exception)


def test_folds_give_the_same_in_one_process_and_in_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heads so small are computed by one thread, wherever they are trained."""
    random = np.random.default_rng(0)
    features = random.normal(size=(60, 4)).astype(np.float32)
    labels = LabelMatrix((features[:, :2] > 0.5).astype(np.int8), ("a", "b"))
    found = []
    for jobs in (1, 2):
        monkeypatch.setattr("halftruth.audit.cross_scores.count_processes", lambda *_, n=jobs: n)
        settings = {"epochs": 2, "device": "cpu", "method": "em"}
        folder = tmp_path / str(jobs)
        found.append(cross_scores(labels, folder, features=features, folds=3, **settings)[0])
    assert np.array_equal(*found)
    assert not np.isnan(found[0]).any()
