"""Weights, soft labels and verdicts in an audit by folds, and options that would do nothing."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from halftruth.audit.cross_scores import cross_scores
from halftruth.audit.make_audit import make_audit
from halftruth.audit.repair import repair
from halftruth.audit.rows import ShownRows
from halftruth.cli.app import app
from halftruth.data import DataError, read_labels

QUICK: dict[str, Any] = {
    "folds": 2, "epochs": 6, "method": "wan", "head_lr": 0.05, "device": "cpu",
}  # fmt: skip
SPARE = np.arange(12)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """labels.csv of 60 rows x 2 classes, features that show the classes, and tables of weights."""
    folder = tmp_path_factory.mktemp("weighted")
    random = np.random.default_rng(0)
    truth = random.random((60, 2)) < 0.5
    features = 2.0 * truth @ random.normal(size=(2, 4)) + random.normal(size=(60, 4))
    np.save(folder / "x.npy", features.astype(np.float32))
    shown = (truth & (random.random((60, 2)) < 0.7)).astype(int)
    table = pd.DataFrame({"image": [f"i{k}" for k in range(60)], "cat": shown[:, 0]})
    table = table.assign(dog=shown[:, 1])
    table.to_csv(folder / "labels.csv", index=False)
    trust = np.where(np.isin(np.arange(60), SPARE), 0, 1 + np.arange(60) % 3)
    table.assign(trust=trust).to_csv(folder / "trust.csv", index=False)
    weights = table.assign(cat=1.0, dog=1.0)
    weights.to_csv(folder / "ones.csv", index=False)
    weights.loc[SPARE, "cat"] = 0.0
    weights.to_csv(folder / "weights.csv", index=False)
    soft = table.assign(cat=np.where(shown[:, 0], 0.8, 0.1), dog=np.where(shown[:, 1], 0.9, np.nan))
    soft.to_csv(folder / "soft.csv", index=False)
    twice = pd.concat([table.head(3).assign(note="first"), table.assign(note="later")])
    twice.to_csv(folder / "twice.csv", index=False)
    table.head(5).rename(columns={"dog": "bird"}).to_csv(folder / "more.csv", index=False)
    return folder


def test_folds_are_trained_with_weights_soft_labels_and_verdicts(
    folder: Path, tmp_path: Path
) -> None:
    labels, x = read_labels(folder / "labels.csv"), np.load(folder / "x.npy")
    verified = np.zeros(labels.values.shape, np.int8)
    verified[:10] = np.where(labels.values[:10] == 1, -1, 1)
    weights = np.random.default_rng(1).uniform(0.1, 5.0, labels.values.shape)
    soft = np.where(labels.values == 1, 0.7, 0.2)
    cases: dict[str, Any] = {
        "plain": {},
        "weights": {"weights": weights},
        "soft": {"soft": soft, "stored": np.where(labels.values == 1, 1, -1)},
    }
    found = {}
    for name, fields in cases.items():
        one = replace(labels, **fields)
        found[name], _ = cross_scores(one, tmp_path / name, features=x, **QUICK)
    found["verdicts"], _ = cross_scores(
        labels, tmp_path / "verdicts", features=x, verified=verified, **QUICK
    )
    for name in ("weights", "soft", "verdicts"):
        assert np.abs(found[name] - found["plain"]).max() > 1e-3, name
    fold = read_labels(tmp_path / "soft" / "fold0.parquet", soft=True)
    assert np.allclose(fold.soft, soft)


def test_a_label_of_weight_0_is_unknown_in_an_audit(folder: Path, tmp_path: Path) -> None:
    features = folder / "x.npy"
    reading = {"label_weights": str(folder / "weights.csv")}
    audit = make_audit(
        folder / "labels.csv", out=tmp_path / "a", features=features, reading=reading, **QUICK
    )
    labels = read_labels(folder / "labels.csv").values
    assert (labels[SPARE, 0] == 1).any()
    assert (audit.scored.labels[SPARE, 0] == 0).all()
    assert np.array_equal(audit.scored.labels[:, 1], labels[:, 1])
    # A verdict makes such a label count again; the file already says it.
    assert repair(audit.path, tmp_path / "fixed.csv").added == 0


def test_a_row_of_weight_0_is_left_out(folder: Path, tmp_path: Path) -> None:
    messages: list[str] = []
    audit = make_audit(
        folder / "trust.csv", out=tmp_path / "a", features=folder / "x.npy", log=messages.append,
        reading={"weight_column": "trust"}, **QUICK,
    )  # fmt: skip
    assert not np.isin(SPARE, audit.scored.rows).any()
    assert len(audit.scored.rows) == 60 - len(SPARE)
    assert "12 rows have the weight 0 and are left out" in messages[0].splitlines()
    again = repair(audit.path, tmp_path / "fixed.csv", precision=0.01)
    assert again.added > 0
    assert pd.read_csv(again.path)["trust"].equals(pd.read_csv(folder / "trust.csv")["trust"])


def test_weights_without_effect_are_refused(folder: Path, tmp_path: Path) -> None:
    """Nothing is trained on given probabilities, so only weights of 0 change anything."""
    shown = read_labels(folder / "labels.csv").values > 0
    np.save(tmp_path / "p.npy", 0.2 + 0.6 * shown)
    options: dict[str, Any] = {"labels": folder / "labels.csv", "out": tmp_path / "a"}
    with pytest.raises(DataError, match=r"label_weights \(--label-weights\): no effect"):
        make_audit(
            tmp_path / "p.npy", reading={"label_weights": str(folder / "ones.csv")}, **options
        )
    audit = make_audit(
        tmp_path / "p.npy", reading={"label_weights": str(folder / "weights.csv")}, **options
    )
    assert (audit.scored.labels[SPARE, 0] == 0).all()


def test_soft_labels_are_repaired_as_probabilities(folder: Path, tmp_path: Path) -> None:
    scores = np.where(np.arange(120).reshape(60, 2) % 3 == 0, 0.9, 0.2)
    scores[read_labels(folder / "labels.csv").values > 0] = 0.8
    np.save(tmp_path / "p.npy", scores)
    audit = make_audit(
        tmp_path / "p.npy", folder / "soft.csv", out=tmp_path / "a", reading={"soft": True}
    )
    done = repair(audit.path, tmp_path / "fixed.csv", precision=0.01)
    fixed, before = (read_labels(path, soft=True).soft for path in (done.path, folder / "soft.csv"))
    changed = np.isnan(before) & ~np.isnan(fixed)
    assert done.added == changed.sum() > 0
    assert (fixed[changed] == 1).all()


@pytest.mark.parametrize(
    ("file", "reading", "message"),
    [
        ("labels.csv", {"also": ["more.csv"]}, "several files"),
        ("twice.csv", {"duplicates": "merge", "drop_columns": ["note"]}, "were combined"),
        ("twice.csv", {"duplicates": "vote", "drop_columns": ["note"]}, "were combined"),
    ],
)
def test_labels_that_cannot_be_written_back_are_named_by_the_audit(
    folder: Path, tmp_path: Path, file: str, reading: dict[str, Any], message: str
) -> None:
    reading = {**reading, "also": [str(folder / name) for name in reading.get("also", ())]}
    labels = read_labels(folder / file, **reading)
    np.save(tmp_path / "p.npy", 0.2 + 0.6 * (labels.values > 0))
    audit = make_audit(tmp_path / "p.npy", folder / file, out=tmp_path / "a", reading=reading)
    assert message in audit.info["repair_problem"]
    with pytest.raises(DataError, match=message):
        repair(audit.path, tmp_path / "fixed.csv")
    # The page shows the cells of the item, not those of the row of that number.
    row = int(np.flatnonzero(audit.scored.items == "i20")[0])
    found = dict(ShownRows(audit).columns(audit.scored.rows[row]))
    assert found == ({"note": "later"} if file == "twice.csv" else {"image": "i20"})
    if file == "twice.csv":
        assert dict(ShownRows(audit).columns(0)) == {"note": "first"}


@pytest.mark.parametrize(
    ("pair", "message"),
    [
        ("val=0.2", "val: no effect"),
        ("decide=f2", "decide: no effect"),
        ("verdicts=a", "verdicts: no effect"),
        ("complete_rows=c.txt", "has an option or argument of its own"),
        ("out=b", "has an option or argument of its own"),
        ("method=em", "has an option or argument of its own"),
    ],
)
def test_settings_that_an_audit_does_not_use_are_refused(
    folder: Path, tmp_path: Path, pair: str, message: str
) -> None:
    arguments = ["audit", folder / "labels.csv", "--features", folder / "x.npy", "--out"]
    arguments += [tmp_path / "a", "--method", "wan", "--train", pair]
    done = CliRunner().invoke(app, [str(one) for one in arguments])
    text = " ".join(done.output.replace("│", " ").split()) + str(done.exception)
    assert done.exit_code != 0
    assert message in text


def test_groups_of_combined_rows_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"expected one entry per row, 60, got shape"):
        make_audit(
            folder / "twice.csv", out=tmp_path / "a", features=folder / "x.npy",
            group_column="note", reading={"duplicates": "merge"}, **QUICK,
        )  # fmt: skip
