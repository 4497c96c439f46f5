"""The repaired file has the accepted changes and no others."""

import csv
import errno
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from audit_example import CLASSES, Example, noisy_scores
from hypothesis import given
from hypothesis import strategies as st

from halftruth.audit.audit_folder import DECISIONS, AuditFolder
from halftruth.audit.audit_state import read_audit_state
from halftruth.audit.csv_cells import CellFile, same_cells
from halftruth.audit.formats import export_audit
from halftruth.audit.make_audit import make_audit
from halftruth.audit.repair import find_changes, repair
from halftruth.data import DataError, read_labels
from halftruth.data.review_log import ReviewLog
from halftruth.labels import ABSENT, PRESENT


def decide(audit: AuditFolder, ids: list[int], verdict: str) -> None:
    log = ReviewLog(audit.path / DECISIONS, len(audit.candidates))
    log.decide(ids, verdict)
    log.close()


def first(audit: AuditFolder, kind: str, count: int) -> list[int]:
    table = audit.candidates
    return [int(i) for i in table["id"][table["kind"] == kind][:count]]


def test_accepted_labels_are_added_and_every_other_line_stays(example: Example) -> None:
    audit = example.audit()
    ids = first(audit, "missing", 5)
    decide(audit, ids, "accept")
    decide(audit, first(audit, "missing", 7)[5:], "reject")
    out = example.folder / "fixed.csv"
    done = repair(audit.path, out, provenance=False)
    assert (done.added, done.removed) == (5, 0)
    rows = set(audit.candidates["row"][ids])
    old, new = example.labels.read_text().split("\n"), out.read_text().split("\n")
    changed = {
        number - 1 for number, pair in enumerate(zip(old, new, strict=True)) if len(set(pair)) > 1
    }
    assert changed == rows
    labels = read_labels(out)
    for _, one in audit.candidates.loc[ids].iterrows():
        assert labels.values[one["row"], CLASSES.index(one["class"])] == PRESENT


def test_provenance_columns_list_the_changes_and_are_not_labels(example: Example) -> None:
    audit = example.audit()
    decide(audit, first(audit, "missing", 3), "accept")
    decide(audit, first(audit, "wrong", 1), "accept")
    out = example.folder / "fixed.csv"
    done = repair(audit.path, out)
    assert (done.added, done.removed) == (3, 1)
    assert read_labels(out).classes == CLASSES
    table = pd.read_csv(out)
    marked = table[table["halftruth_by"].notna()]
    assert set(marked["halftruth_by"]) == {"review"}
    diff = pd.read_csv(done.diff)
    assert diff["after"].tolist().count("present") == 3
    assert not diff["class"].str.startswith("=").any()
    assert not table["halftruth_added"].dropna().str.startswith("=").any()


def test_rejected_candidates_can_be_marked_absent(example: Example) -> None:
    audit = example.audit()
    decide(audit, first(audit, "missing", 4), "reject")
    done = repair(audit.path, example.folder / "fixed.csv", rejected="absent")
    assert done.verified_absent == 4
    assert (read_labels(done.path).values == ABSENT).sum() == 4


def test_a_precision_accepts_undecided_candidates_down_to_it(example: Example) -> None:
    audit = example.audit()
    refused = first(audit, "missing", 6)
    decide(audit, refused[:5], "accept")
    decide(audit, refused[5:], "reject")
    done = repair(audit.path, example.folder / "fixed.csv", precision=0.6)
    taken = find_changes(audit, precision=0.6)
    assert done.added == len(taken) > 5
    likely = taken[taken["by"] != "review"]
    assert len(likely) > 3
    assert likely["probability"].mean() >= 0.6
    assert not set(taken["id"]) & set(refused[5:])
    labels = read_labels(done.path).values
    added = (labels == PRESENT) & (example.observed == 0)
    assert example.truth[added].mean() > 0.8


def test_a_precision_follows_the_verdicts(example: Example) -> None:
    audit = example.audit()
    before = find_changes(audit, precision=0.7)
    assert len(before) > 10
    decide(audit, before["id"].tolist(), "reject")
    assert len(find_changes(audit, precision=0.7)) == 0
    current = read_audit_state(audit)
    assert current.missing_left.total.value < 0.3 * audit.missing_total.value
    assert current.missing_left.total.high < audit.missing_total.value


def audited(folder: Path, text: str, name: str = "labels.csv", **reading: Any) -> AuditFolder:
    path = folder / name
    path.write_bytes(text.encode("utf-8"))
    labels = read_labels(path, **reading)
    scores = noisy_scores((labels.values == PRESENT).astype(int))
    # One very likely missing label, in the first row without the class.
    row, column = np.argwhere(labels.values == 0)[0]
    scores[row, column] = 0.999
    np.save(folder / "probs.npy", scores)
    return make_audit(folder / "probs.npy", path, out=folder / "audit", reading=reading)


def table(cell: str, *, end: str = "\n", count: int = 12) -> str:
    rows = [
        f'r{k},"a, ""b"" {k}",{cell if k % 3 else "1"},{"1" if k % 2 else cell}'
        for k in range(count)
    ]
    return end.join(["id,text,cat,dog", *rows]) + end


@pytest.mark.parametrize(
    ("text", "reading", "written"),
    [
        (table("0"), {"drop_columns": ["text"]}, ",1,1"),
        (table("0", end="\r\n"), {"drop_columns": ["text"]}, ",1,1\r\n"),
        ("\ufeff" + table(""), {"drop_columns": ["text"]}, ",1,1"),
        (table("0").replace(",1", ",1.0"), {"drop_columns": ["text"]}, ",1.0,1.0"),
        (table("0").replace(",", ";").replace("a;", "a,"), {"drop_columns": ["text"]}, ";1;1"),
        (table("false").replace(",1", ",true"), {"drop_columns": ["text"]}, ",true,true"),
    ],
)  # fmt: skip
def test_a_file_keeps_its_codes_quotes_and_line_ends(
    tmp_path: Path, text: str, reading: dict, written: str
) -> None:
    audit = audited(tmp_path, text, **reading)
    decide(audit, first(audit, "missing", 1), "accept")
    repair(audit.path, tmp_path / "fixed.csv", provenance=False)
    old, new = text.encode(), (tmp_path / "fixed.csv").read_bytes()
    differing = [
        pair
        for pair in zip(old.splitlines(True), new.splitlines(True), strict=True)
        if pair[0] != pair[1]
    ]
    assert len(differing) == 1
    assert written in differing[0][1].decode()


LISTED = "image,labels,note\n" + "".join(
    f"p{k}.png,{'cat' if k % 3 else 'cat|dog'},n{k}\n" for k in range(24)
)


def test_a_name_is_added_to_the_list_of_a_row(tmp_path: Path) -> None:
    audit = audited(tmp_path, LISTED, label_column="labels")
    decide(audit, first(audit, "missing", 1), "accept")
    repair(audit.path, tmp_path / "fixed.csv", provenance=False)
    assert (tmp_path / "fixed.csv").read_text() == LISTED.replace("p1.png,cat,", "p1.png,cat|dog,")


def test_a_name_that_a_spreadsheet_would_run_is_escaped(tmp_path: Path) -> None:
    text = LISTED.replace("dog", "=dog").replace("p1.png,cat", "p1.png,")
    audit = audited(tmp_path, text, label_column="labels")
    table = audit.candidates
    wanted = table[(table["row"] == 1) & (table["class"] == "=dog")]["id"]
    decide(audit, [int(wanted.iloc[0])], "accept")
    repair(audit.path, tmp_path / "fixed.csv")
    cells = list(csv.reader((tmp_path / "fixed.csv").open()))[2]
    assert cells[1] == " =dog"
    assert not any(cell.startswith("=") for cell in cells)
    labels = read_labels(tmp_path / "fixed.csv", label_column="labels")
    assert labels.values[1, labels.classes.index("=dog")] == PRESENT


def test_parquet_keeps_its_types(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "image": [f"p{k}" for k in range(60)],
            "cat": [1, 0, 1] * 20,
            "dog": [True, False, False] * 20,
        }
    ).astype({"cat": "int8"})
    frame["dog"] = frame["dog"].astype("int64")
    frame.to_parquet(tmp_path / "labels.parquet")
    np.save(tmp_path / "p.npy", np.tile([[0.9, 0.8], [0.1, 0.1], [0.9, 0.9]], (20, 1)))
    audit = make_audit(tmp_path / "p.npy", tmp_path / "labels.parquet", out=tmp_path / "a")
    decide(audit, first(audit, "missing", 1), "accept")
    repair(audit.path, tmp_path / "fixed.parquet", provenance=False)
    again = pd.read_parquet(tmp_path / "fixed.parquet")
    assert again.dtypes.equals(frame.dtypes)
    assert (again != frame).to_numpy().sum() == 1


def test_files_that_cannot_be_repaired_are_refused(example: Example, tmp_path: Path) -> None:
    audit = example.audit()
    with pytest.raises(DataError, match="would overwrite the audited file"):
        repair(audit.path, example.labels)
    with pytest.raises(DataError, match=r"ends in \.csv, the format of labels\.csv"):
        repair(audit.path, tmp_path / "fixed.parquet")
    example.labels.write_text(example.labels.read_text() + "x.png,0,0,0\n")
    with pytest.raises(DataError, match="has changed since the audit"):
        repair(audit.path, tmp_path / "fixed.csv")
    with pytest.raises(DataError, match="has changed since the audit"):
        export_audit(audit.path, "cleanlab")
    coco = {
        "images": [{"id": k, "file_name": f"{k}.jpg"} for k in range(20)],
        "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}],
        "annotations": [{"image_id": k, "category_id": 1 + k % 2} for k in range(20)],
    }
    (tmp_path / "coco.json").write_text(json.dumps(coco))
    np.save(tmp_path / "p.npy", np.tile(np.eye(2) * 0.8 + 0.1, (10, 1)))
    other = make_audit(tmp_path / "p.npy", tmp_path / "coco.json", out=tmp_path / "c")
    with pytest.raises(DataError, match=r"repair writes CSV, TSV and Parquet.*write_labels"):
        repair(other.path, tmp_path / "fixed.json")
    lists = pd.DataFrame(
        {"image": list("abcdefghijklmnopqrst"), "labels": [[1.0, 0.0], [0.0, 1.0]] * 10}
    )
    lists.to_parquet(tmp_path / "lists.parquet")
    names = {"classes": ["cat", "dog"]}
    audit = make_audit(
        tmp_path / "p.npy", tmp_path / "lists.parquet", out=tmp_path / "l", reading=names
    )
    with pytest.raises(DataError, match=r"one number per class, which repair cannot.*write_labels"):
        repair(audit.path, tmp_path / "fixed.parquet")


@pytest.mark.parametrize("name", ["labels", "hard.csv", "soft.csv", "labels.csv"])
def test_the_audited_file_is_never_overwritten(example: Example, name: str) -> None:
    """Not by its own name, by a link to it, or by the list of changes."""
    if name == "labels":
        # The list of changes of labels.csv would be labels.diff.csv, the audited file.
        example.labels = example.labels.rename(example.folder / "labels.diff.csv")
        name = "labels.csv"
    audit = example.audit()
    before = example.labels.read_bytes()
    if name == "hard.csv":
        (example.folder / name).hardlink_to(example.labels)
    if name == "soft.csv":
        (example.folder / name).symlink_to(example.labels)
    with pytest.raises(DataError, match="would overwrite the audited file"):
        repair(audit.path, example.folder / name, precision=0.9)
    assert example.labels.read_bytes() == before


def test_each_repaired_file_has_its_own_list_of_changes(example: Example) -> None:
    audit = example.audit()
    names = ["lab.v1.csv", "lab.v2.csv", "x.csv", "x.diff.csv"]
    done = [repair(audit.path, example.folder / name, precision=0.9) for name in names]
    lists = [one.diff.name for one in done]
    assert lists == ["lab.v1.diff.csv", "lab.v2.diff.csv", "x.diff.csv", "x.diff.diff.csv"]
    assert read_labels(example.folder / "x.diff.csv").classes == CLASSES


@pytest.mark.parametrize("before", [None, b"older file"])
def test_a_full_disk_leaves_no_part_of_a_file(
    example: Example, monkeypatch: pytest.MonkeyPatch, before: bytes | None
) -> None:
    audit = example.audit()
    out = example.folder / "fixed.csv"
    if before:
        out.write_bytes(before)

    def write_half(file: CellFile, path: Path) -> None:
        path.write_bytes(b"image,")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(CellFile, "write", write_half)
    files = sorted(example.folder.iterdir())
    with pytest.raises(OSError, match=r"fixed\.csv cannot be written: the disk is full"):
        repair(audit.path, out, precision=0.9)
    assert sorted(example.folder.iterdir()) == files
    assert (out.read_bytes() if before else None) == before


def test_a_folder_cannot_be_the_repaired_file(example: Example) -> None:
    audit = example.audit()
    (example.folder / "fixed.csv").mkdir()
    with pytest.raises(DataError, match="is a folder"):
        repair(audit.path, example.folder / "fixed.csv")


def test_other_tools_get_labels_and_suggestions(example: Example) -> None:
    audit = example.audit()
    ids = first(audit, "missing", 2)
    decide(audit, ids, "accept")
    rejected = first(audit, "missing", 3)[2:]
    decide(audit, rejected, "reject")
    tasks = json.loads((export_audit(audit.path, "label-studio") / "tasks.json").read_text())
    assert len(tasks) == 90
    one = audit.candidates.loc[ids[0]]
    task = tasks[one["row"]]
    assert task["data"]["image"].endswith(one["item"])
    assert one["class"] in task["predictions"][0]["result"][0]["value"]["choices"]
    assert "annotations" not in task
    config = (audit.path / "label-studio" / "config.xml").read_text()
    assert "&lt;b&gt;cat&lt;/b&gt;" in config
    folder = export_audit(audit.path, "cleanlab")
    lists = json.loads((folder / "labels.json").read_text())["labels"]
    assert CLASSES.index(one["class"]) in lists[one["row"]]
    assert np.load(folder / "pred_probs.npy").shape == (90, 3)
    with pytest.raises(DataError, match="label-studio, cleanlab"):
        export_audit(audit.path, "excel")


CELL = st.text(st.sampled_from('ab ,;"\n\t=é'), max_size=5)


@given(st.lists(st.lists(CELL, min_size=2, max_size=2), min_size=1, max_size=4), st.data())
def test_any_csv_is_written_back_byte_for_byte(rows: list, data: st.DataObject) -> None:
    import tempfile

    text = io.StringIO()
    style = {"quoting": data.draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))}
    writer = csv.writer(text, lineterminator=data.draw(st.sampled_from(["\n", "\r\n"])), **style)
    writer.writerows([["x", "y"], *rows])
    with tempfile.TemporaryDirectory() as folder:
        path, copy = Path(folder) / "a.csv", Path(folder) / "b.csv"
        path.write_bytes(text.getvalue().encode())
        file = CellFile(path, ",")
        assert same_cells(path, file)
        file.write(copy)
        assert copy.read_bytes() == path.read_bytes()
        row, new = data.draw(st.integers(0, file.rows - 1)), data.draw(CELL)
        file.set(row, 1, new)
        file.write(copy)
        assert CellFile(copy, ",").get(row, 1) == new
        assert CellFile(copy, ",").get(row, 0) == file.get(row, 0)


@pytest.mark.parametrize(
    ("text", "record"),
    [
        ('a,b\n1,2\n3,"x"y\n', "record 3: a quoted cell goes on after its closing quote"),
        ('a,b\n"1\n1",2\n3,"x\n', "record 3: a quoted cell goes on"),
        ('"a"a,b\n', "record 1: a quoted cell goes on"),
    ],
)
def test_a_cell_that_cannot_be_kept_is_named_by_its_record(
    tmp_path: Path, text: str, record: str
) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(DataError, match=record):
        CellFile(tmp_path / "a.csv", ",")
