"""Verdicts come back from other programs, continue in the next audit, and train at once."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from audit_example import CLASSES, Example
from typer.testing import CliRunner

from halftruth.audit.audit_folder import AuditFolder
from halftruth.audit.audit_state import read_audit_state
from halftruth.audit.formats import export_audit, import_verdicts
from halftruth.audit.make_audit import make_audit
from halftruth.audit.repair import repair
from halftruth.audit.review_queue import Queue
from halftruth.cli.app import app
from halftruth.data import DataError, read_labels
from halftruth.data.verdicts import apply_verdicts, read_verdicts
from halftruth.presence import decisions
from halftruth.train.config import Config
from halftruth.train.run import train
from halftruth.train.task import load_task

EXAMPLES = Path(__file__).parents[2] / "examples"


def decide(audit: AuditFolder, ids: list[int], verdict: str) -> None:
    queue = Queue(audit)
    queue.decisions.decide(ids, verdict)
    queue.decisions.close()


def as_matrix(folder: Path, rows: int = 90) -> np.ndarray:
    """(rows, classes) verdicts of an audit folder."""
    table, matrix = read_verdicts(folder), np.zeros((rows, len(CLASSES)), dtype=int)
    matrix[table["row"], table["class"].map(CLASSES.index)] = table["verdict"]
    return matrix


def submit(folder: Path, rows: list[int], truth: np.ndarray) -> Path:
    """What Label Studio exports after a person has corrected some of the tasks."""
    tasks = json.loads((folder / "tasks.json").read_text())
    for number, task in enumerate(tasks):
        task |= {"id": number, "annotations": []}
        row = task["data"]["halftruth_row"] - 1
        if row in rows:
            names = [CLASSES[k] for k in np.flatnonzero(truth[row])]
            result = {"from_name": "labels", "to_name": "item", "type": "choices"}
            result["value"] = {"choices": names}
            # As exported by Label Studio 1.23: predictions by number, and the one that was shown.
            shown = task["predictions"][0]
            task["annotations"] = [
                {"result": [result], "was_cancelled": False, "prediction": shown}
            ]
        task["predictions"] = [number]
    path = folder / "export.json"
    path.write_text(json.dumps(tasks))
    return path


@pytest.mark.parametrize("complete", [False, True])
def test_label_studio_gives_back_what_people_saw_and_chose(
    example: Example, complete: bool
) -> None:
    audit = example.audit()
    folder = export_audit(audit.path, "label-studio")
    shown = {
        task["data"]["halftruth_row"] - 1: task["predictions"][0]["result"][0]["value"]["choices"]
        for task in json.loads((folder / "tasks.json").read_text())
        if "predictions" in task
    }
    rows = sorted(shown)[:20]
    import_verdicts(audit.path, submit(folder, rows, example.truth), complete=complete)
    found = as_matrix(audit.path)
    expected = np.zeros_like(found)
    for row in rows:
        expected[row] = np.where(example.truth[row], 1, -1 if complete else 0)
        for name in shown[row]:
            if not example.truth[row, CLASSES.index(name)]:
                expected[row, CLASSES.index(name)] = -1
    assert np.array_equal(found, expected)


def test_tags_in_fiftyone_are_verdicts(example: Example, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program is not needed for this part of the example."""
    monkeypatch.syspath_prepend(EXAMPLES)
    tool = import_module("fiftyone_review")
    audit = example.audit()
    ids = [item["id"] for item in Queue(audit, write=False).page()["items"]]
    decide(audit, ids[:1], "accept")
    decide(audit, ids[1:2], "reject")
    table, samples = audit.candidates, {one["item"]: one for one in tool.list_samples(audit)}
    assert len(samples) == 90
    assert all(Path(one["filepath"]).is_file() for one in samples.values())
    accepted, refused = (table.loc[ids[k]] for k in (0, 1))
    assert accepted["class"] in samples[accepted["item"]]["labels"]
    assert refused["class"] not in dict(samples[refused["item"]]["suggestions"])
    tagged, reviewed = [one for one in samples.values() if one["suggestions"]][:2]
    name, others = tagged["suggestions"][0][0], [name for name, _ in reviewed["suggestions"]]
    found = tool.list_verdicts(
        [
            {**tagged, "tags": [], "suggestions": [(name, ["reject"])]},
            {**reviewed, "tags": ["reviewed"], "labels": ["bird"],
             "suggestions": [(one, []) for one in others]},
        ]
    )  # fmt: skip
    found.to_csv(example.folder / "v.csv", index=False)
    second = example.audit("second")
    import_verdicts(second.path, example.folder / "v.csv")
    matrix, expected = as_matrix(second.path), np.zeros((90, 3), dtype=int)
    expected[int(tagged["item"][1:-4]), CLASSES.index(name)] = -1
    row = int(reviewed["item"][1:-4])
    expected[row, [CLASSES.index(one) for one in others]] = -1
    expected[row, CLASSES.index("bird")] = 1
    assert np.array_equal(matrix, expected)


def test_tags_of_cvat_are_present_and_nothing_else_is_known(example: Example) -> None:
    audit = example.audit()
    xml = (
        '<annotations><image id="0" name="folder/p3.png"><tag label="bird" source="manual"/>'
        '</image><image id="1" name="p4.png"></image></annotations>'
    )
    (example.folder / "annotations.xml").write_text(xml)
    import_verdicts(audit.path, example.folder / "annotations.xml")
    assert np.argwhere(as_matrix(audit.path)).tolist() == [[3, 2]]
    import_verdicts(audit.path, example.folder / "annotations.xml", complete=True)
    assert as_matrix(audit.path)[3].tolist() == [-1, -1, 1]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("e.json", "[{]", "cannot be read as JSON"),
        ("e.json", '{"a": 1}', "expected a list of tasks, got dict"),
        ("e.txt", "a", "expected an export of Label Studio"),
        ("e.json", '[{"data": {"image": "p1.png"}, "annotations": []}]', "contains no verdict"),
        ("e.json", '[{"data": {"image": "zz.png"}, "annotations": [{"result": []}]}]', "zz.png"),
        ("e.json", '[{"data": 5, "annotations": [{"result": []}]}]', "not as expected"),
        ("e.xml", "<a>", "cannot be read as XML"),
        ("e.csv", "item,class,verdict\np1.png,horse,present\n", "horse"),
        ("e.csv", "item,class,verdict\np1.png,bird,maybe\n", "maybe"),
        ("e.csv", "item,name\np1.png,bird\n", "expected the columns"),
    ],
)
def test_an_export_that_cannot_be_used_is_one_error(
    example: Example, name: str, text: str, message: str
) -> None:
    audit = example.audit()
    (example.folder / name).write_text(text)
    with pytest.raises(DataError, match=message):
        import_verdicts(audit.path, example.folder / name)
    assert not (audit.path / "verdicts.csv").exists()


def test_an_audit_made_again_continues_with_all_verdicts(example: Example) -> None:
    audit = example.audit()
    ids = [item["id"] for item in Queue(audit, write=False).page()["items"]]
    decide(audit, ids[:10], "accept")
    decide(audit, ids[10:15], "reject")
    before = as_matrix(audit.path)
    left = read_audit_state(audit).missing_left.total.value
    again = example.audit()
    assert np.array_equal(as_matrix(again.path), before)
    cells = {(row, CLASSES.index(name)) for row, name in zip(
        again.candidates["row"], again.candidates["class"], strict=True)}  # fmt: skip
    assert not cells & {tuple(cell) for cell in np.argwhere(before)}
    assert again.missing_total.value == pytest.approx(left, rel=0.6)
    decide(again, [0], "accept")
    fixed = read_labels(repair(again.path, example.folder / "fixed.csv").path).values
    added = (fixed == 1) & (example.observed != 1)
    assert added.sum() == 11
    assert added[before == 1].all()
    assert len(list(again.path.glob("decisions-*.jsonl"))) == 1


def test_training_uses_verdicts_as_present_and_absent_labels(example: Example) -> None:
    audit = example.audit()
    ids = [item["id"] for item in Queue(audit, write=False).page()["items"]]
    decide(audit, ids[:4], "accept")
    decide(audit, ids[4:8], "reject")
    np.save(example.folder / "x.npy", np.zeros((90, 2), dtype=np.float32))
    config = Config(
        labels=str(example.labels), features=[str(example.folder / "x.npy")],
        verdicts=str(audit.path),
    )  # fmt: skip
    labels = load_task(config).labels
    verdicts = as_matrix(audit.path)
    assert np.array_equal(labels.values[verdicts != 0], verdicts[verdicts != 0])
    assert np.array_equal(labels.values[verdicts == 0], example.observed[verdicts == 0])
    # Hard negatives do not outweigh the unknown labels.
    assert (labels.weights == np.where(labels.values == -1, 0.5, 1)).all()


def test_auto_keeps_its_ensemble_and_tells_verdicts_from_shown_labels(
    example: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit = example.audit()
    ids = [item["id"] for item in Queue(audit, write=False).page()["items"]]
    decide(audit, ids[:4], "accept")
    decide(audit, ids[4:8], "reject")
    random = np.random.default_rng(0)
    x = example.truth + 0.3 * random.normal(size=example.truth.shape)
    np.save(example.folder / "x.npy", x.astype(np.float32))
    seen = {}

    def fit_probabilities(labels: np.ndarray, logits: np.ndarray, **options: Any) -> Any:
        seen.update(labels=labels, verified=options["verified"])
        return original(labels, logits, **options)

    original = decisions.fit_probabilities
    monkeypatch.setattr(decisions, "fit_probabilities", fit_probabilities)
    config = {
        "labels": str(example.labels), "features": [str(example.folder / "x.npy")],
        "verdicts": str(audit.path), "out": str(example.folder / "run"), "report": False,
    }  # fmt: skip
    result = train(config, quiet=True)
    assert {one["name"] for one in result.members} >= {"linear", "forest"}
    # All rows are scored out of sample, so that the verdicts are among them.
    assert np.count_nonzero(seen["verified"]) == 8
    assert (seen["labels"] >= 0).all()
    assert (seen["verified"] == -1).any()


@pytest.mark.parametrize("folder", ["audit", "other"])
def test_verdicts_that_cannot_be_read_are_an_error_of_train(example: Example, folder: str) -> None:
    example.audit()
    (example.folder / "other").mkdir()
    np.save(example.folder / "x.npy", np.zeros((90, 2), dtype=np.float32))
    done = CliRunner().invoke(
        app,
        ["train", str(example.labels), "--features", str(example.folder / "x.npy"),
         "--verdicts", str(example.folder / folder), "--out", str(example.folder / "run")],
    )  # fmt: skip
    assert done.exit_code != 0
    assert "contains no verdicts" in done.output + str(done.exception)


def test_verdicts_of_another_audit_are_imported(example: Example) -> None:
    first, second = example.audit("first"), example.audit("second")
    decide(first, [0, 1], "accept")
    command = ["import-verdicts", str(second.path), str(first.path)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.exception
    assert np.array_equal(as_matrix(second.path), as_matrix(first.path))
    with pytest.raises(DataError, match="no effect"):
        import_verdicts(second.path, first.path, complete=True)


def write_lines(path: Path, lines: list[tuple[str, str, str, str]]) -> Path:
    pd.DataFrame(lines, columns=["item", "class", "verdict", "by"]).to_csv(path, index=False)
    return path


def test_equally_divided_verdicts_of_a_file_change_no_label(example: Example) -> None:
    """The majority of the annotators counts, in whatever order their lines are."""
    lines = [
        ("p1.png", "bird", "present", "anna"), ("p1.png", "bird", "absent", "ben"),
        ("p2.png", "bird", "absent", "anna"), ("p2.png", "bird", "present", "ben"),
        ("p2.png", "bird", "present", "carl"),
        ("p3.png", "bird", "present", "anna"), ("p3.png", "bird", "present", "anna"),
        ("p3.png", "bird", "absent", "ben"),
        ("p4.png", "bird", "absent", "ben"), ("p4.png", "bird", "present", "ben"),
        ("p4.png", "bird", "absent", "anna"),
    ]  # fmt: skip
    expected = {2: 1, 4: -1}
    for order in (lines, lines[::-1]):
        file = write_lines(example.folder / "v.csv", order)
        audit = example.audit("a" if order is lines else "b")
        with pytest.warns(
            UserWarning, match="as many for as against 2 labels, such as 'bird' of p"
        ):
            found = import_verdicts(audit.path, file)
        assert dict(zip(found["row"], found["verdict"], strict=True)) == expected
        matrix = as_matrix(audit.path)
        assert {row: matrix[row, 2] for row in np.flatnonzero(matrix[:, 2])} == expected
        labels = read_labels(example.labels)
        trained, fixed = (
            apply_verdicts(labels, file).values,
            read_labels(repair(audit.path, example.folder / "fixed.csv").path).values,
        )
        for row in (1, 2, 3, 4):
            before, verdict = labels.values[row, 2], expected.get(row, 0)
            assert trained[row, 2] == (verdict or before)
            # The file has no code for absent labels.
            assert fixed[row, 2] == (max(verdict, 0) if verdict else before)


def test_a_second_file_can_contradict_or_correct_the_first_one(example: Example) -> None:
    audit = example.audit()
    for number, (verdict, by, expected) in enumerate(
        [("present", "anna", 1), ("absent", "ben", 0), ("present", "ben", 1)]
    ):
        lines = [("p1.png", "bird", verdict, by)]
        import_verdicts(audit.path, write_lines(example.folder / f"{number}.csv", lines))
        assert as_matrix(audit.path)[1, 2] == expected
    # Without names, each file is an annotator.
    for number, (verdict, expected) in enumerate([("present", 1), ("absent", 0)]):
        (example.folder / f"f{number}.csv").write_text(f"item,class,verdict\np5.png,bird,{verdict}")
        import_verdicts(audit.path, example.folder / f"f{number}.csv")
        assert as_matrix(audit.path)[5, 2] == expected


def test_an_open_review_stops_the_next_audit(example: Example) -> None:
    queue = Queue(example.audit())
    queue.decisions.decide([0], "accept")
    with pytest.raises(DataError, match="another `halftruth review`"):
        make_audit(example.probs, example.labels, out=queue.audit.path)
    queue.decisions.close()
