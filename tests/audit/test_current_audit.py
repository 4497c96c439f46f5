"""Verdicts change probabilities, order, counts and expected precision, the same everywhere."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
from audit_example import Example, hide
from typer.testing import CliRunner

from halftruth.audit import calibrate
from halftruth.audit.audit_folder import DECISIONS, AuditFolder, open_audit
from halftruth.audit.audit_state import AuditState, Candidates, read_audit_state
from halftruth.audit.repair import repair
from halftruth.audit.review_queue import Queue
from halftruth.audit.score_sources import trained_on
from halftruth.cli.app import app
from halftruth.data import DataError
from halftruth.labels import ABSENT, PRESENT, LabelMatrix
from halftruth.presence.review_update import Remaining, ReviewPosterior
from halftruth.presence.uncertainty import Estimate
from halftruth.report.audit_report import write_audit_report
from halftruth.train.config import Config
from halftruth.train.results.trained_run import TrainedRun


def decide_first(audit: AuditFolder, count: int, verdict: str) -> list[int]:
    queue = Queue(audit)
    ids = [item["id"] for item in queue.page(limit=count)["items"]]
    queue.decisions.decide(ids, verdict)
    queue.decisions.close()
    return ids


def test_every_place_shows_the_same_interval(example: Example) -> None:
    command = ["audit", str(example.probs), str(example.labels), "--out", str(example.folder / "a")]
    printed = CliRunner().invoke(app, command).output
    audit = AuditFolder(
        example.folder / "a", json.loads((example.folder / "a/audit.json").read_text())
    )
    for verdict in ("", "reject"):
        if verdict:
            decide_first(audit, 10, verdict)
            write_audit_report(audit)
        left = read_audit_state(audit).missing_left.total
        queue = Queue(audit, write=False)
        shown = {"estimate": left.value, "low": left.low, "high": left.high}
        assert queue.progress()["left"] == pytest.approx(shown)
        report = (audit.path / "report.html").read_text()
        assert f"{left.low:,.0f} – {left.high:,.0f}" in report
        if not verdict:
            assert f"estimated missing labels: {left}" in printed
            assert vars(left) == pytest.approx(vars(audit.missing_total))


def test_rejections_lower_the_rest_of_their_class_and_change_the_order() -> None:
    column = np.repeat([0, 1], 200)
    p = np.concatenate([np.linspace(0.9, 0.5, 200), np.linspace(0.85, 0.45, 200)])
    counts = [Estimate(float(p[column == k].sum()), 50, 400) for k in (0, 1)]
    model = ReviewPosterior(p, column, counts, Estimate(float(p.sum()), 150, 500))
    verdicts = np.zeros(400, dtype=np.int8)
    verdicts[:40], verdicts[200:240] = -1, 1
    after = model.update(verdicts)
    first, second = after.probability[40:200], after.probability[240:]
    assert first.max() < second.max()
    assert (first < p[40:200]).all()
    assert after.per_class[0].value < 0.5 * counts[0].value
    assert after.per_class[1].high / after.per_class[1].low < 8


@pytest.mark.parametrize("shift", [-1.0, 1.0])
def test_verdicts_correct_probabilities_that_are_too_high_or_too_low(shift: float) -> None:
    random = np.random.default_rng(0)
    z = np.sort(random.normal(-1.5, 1.5, 4000))[::-1]
    truth = random.random(4000) < 1 / (1 + np.exp(-z))
    p = 1 / (1 + np.exp(-z - shift))
    total = Estimate(float(p.sum()), p.sum() / 3, p.sum() * 3)
    model = ReviewPosterior(p, np.zeros(4000, dtype=int), [total], total)
    verdicts = np.zeros(4000, dtype=np.int8)
    verdicts[:500] = np.where(truth[:500], 1, -1)
    after = model.update(verdicts)
    rest = truth[500:].sum()
    assert abs(after.total.value - rest) < 0.4 * abs(p[500:].sum() - rest)
    assert after.total.low < rest < after.total.high


def test_undo_gives_back_the_numbers_of_the_audit(example: Example) -> None:
    queue = Queue(example.audit())
    before, order = queue.progress()["left"], queue.page()["items"]
    queue.decisions.decide([item["id"] for item in order[:20]], "reject")
    assert queue.progress()["left"]["estimate"] < before["estimate"]
    assert queue.page()["items"][0]["probability"] < order[20]["probability"]
    queue.decisions.undo()
    assert queue.progress()["left"] == pytest.approx(before, rel=1e-4)
    assert [item["id"] for item in queue.page()["items"]] == [item["id"] for item in order]
    queue.decisions.close()


def draw_wrong_labels(
    share: float, *, seed: int, rows: int, seen: float, slope: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return truth, scores and labels; a share of the shown labels is moved to an absent class.

    `seen`: the share of present classes that show in the scores, by `slope`.
    """
    random = np.random.default_rng(seed)
    truth = (random.random((rows, 6)) < 0.15).astype(np.int8)
    visible = (truth == 1) & (random.random(truth.shape) < seen)
    scores = 1 / (1 + np.exp(3 - random.normal(size=truth.shape) - slope * visible))
    labels = hide(truth, 0.5)
    shown = np.argwhere(labels == PRESENT)
    for row, column in shown[random.random(len(shown)) < share]:
        free = random.choice(np.flatnonzero(truth[row] == 0))
        labels[row, column], labels[row, free] = 0, PRESENT
    return truth, scores, labels


@pytest.mark.parametrize("share", [0.0, 0.02, 0.1])
def test_the_expected_precision_of_wrong_labels_is_near_the_truth(share: float) -> None:
    truth, scores, labels = draw_wrong_labels(share, seed=5, rows=3000, seen=0.99, slope=3.5)
    wrong = calibrate(labels, scores).wrong_probability[labels == PRESENT]
    mistaken = truth[labels == PRESENT] == 0
    first = np.argsort(-wrong, kind="stable")[:100]
    assert wrong[first].mean() == pytest.approx(mistaken[first].mean(), abs=0.15)


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_a_new_audit_learns_from_verdicts_how_many_labels_are_wrong(share: float) -> None:
    # A weak model: one in seven present classes does not show in its scores.
    truth, scores, labels = draw_wrong_labels(share, seed=7, rows=1500, seen=0.86, slope=2.5)
    verdicts, errors = np.zeros_like(labels), []
    for count in (40, 50):
        known = calibrate(labels, scores, verified=verdicts)
        left = np.where((labels == PRESENT) & (verdicts == 0), known.wrong_probability, -1.0)
        at = np.unravel_index(np.argsort(-left, axis=None, kind="stable")[:count], left.shape)
        errors.append(abs(left[at].mean() - (truth[at] == 0).mean()))
        verdicts[at] = np.where(truth[at] == 1, PRESENT, ABSENT)
    assert errors[1] < 0.15
    assert known.wrong_total.value == pytest.approx(left[left >= 0].sum())


@pytest.mark.parametrize("seen", [0.99, 0.96])
@pytest.mark.parametrize("share", [0.0, 0.02, 0.1])
def test_the_range_of_wrong_labels_holds_the_truth_and_verdicts_narrow_it(
    share: float, seen: float
) -> None:
    """Also where one in 25 present classes does not show in the scores: hard examples."""
    truth, scores, labels = draw_wrong_labels(share, seed=11, rows=1500, seen=seen, slope=3.0)
    verdicts, widths = np.zeros_like(labels), []
    for count in (50, 50):
        known = calibrate(labels, scores, verified=verdicts)
        left = np.where((labels == PRESENT) & (verdicts == 0), known.wrong_probability, -1.0)
        at = np.unravel_index(np.argsort(-left, axis=None, kind="stable")[:count], left.shape)
        least, most = known.wrong_least[at].mean(), known.wrong_most[at].mean()
        chance = 1.645 * np.sqrt([p * (1 - p) / count for p in (least, most)])
        assert least <= known.wrong_probability[at].mean() <= most
        low, high = np.floor(count * (least - chance[0])), np.ceil(count * (most + chance[1]))
        # It is a 90 % range: 10 points of grace after the decisions.
        grace = 5 if verdicts.any() else 0
        assert low - grace <= (truth[at] == 0).sum() <= high + grace
        widths.append(most - least)
        verdicts[at] = np.where(truth[at] == 1, PRESENT, ABSENT)
    assert widths[1] < widths[0] < 0.9


def test_every_place_gives_the_same_range_of_wrong_labels(example: Example) -> None:
    out = example.folder / "a"
    command = ["audit", str(example.probs), str(example.labels), "--out", str(out)]
    printed = " ".join(CliRunner().invoke(app, command).output.split())
    audit = open_audit(out)
    words = read_audit_state(audit).describe_wrong()
    assert re.match(r"Of the first \d+ labels that may be wrong, \d+ to \d+ % are: ", words)
    assert "decisions narrow this (so far: 0)" in words
    for decided in (0, 4):
        ids = read_audit_state(audit).undecided(missing=False)[:decided]
        queue = Queue(audit)
        if decided:
            queue.decisions.decide(ids.tolist(), "reject")
            write_audit_report(audit)
        words = read_audit_state(audit).describe_wrong()
        assert queue.progress()["wrong_words"] == words
        assert words in (out / "report.html").read_text()
        assert words in printed or decided
        ends = queue.page(kind="wrong")["items"][0]["range"]
        queue.decisions.close()
        assert 0 <= ends[0] <= ends[1] <= 1
    assert "next" in words
    assert "so far: 4" in words


def test_after_enough_decisions_there_is_a_number_with_its_range() -> None:
    model = ReviewPosterior(
        np.full(60, 0.3), np.zeros(60, dtype=int), [Estimate(18, 0, 50)], Estimate(18, 0, 50),
        ends=(np.zeros(60), np.full(60, 0.8)),
    )  # fmt: skip
    before, verdicts = model.update(np.zeros(60, dtype=np.int8)), np.zeros(60, dtype=np.int8)
    assert (before.least == 0).all()
    assert before.most == pytest.approx(0.8)
    verdicts[:20] = np.where(np.arange(20) < 12, 1, -1)
    after = model.update(verdicts)
    assert 0.05 < after.least[30] < after.probability[30] < after.most[30] < 0.9
    assert after.most[30] - after.least[30] < 0.8
    assert before.total.high - before.total.low > after.total.high - after.total.low
    assert (after.least[:20] == after.most[:20]).all()
    # The candidates left, and the 2 labels beyond them of which the audit knows.
    assert after.total.low == pytest.approx(after.least[20:].sum())
    assert after.total.high == pytest.approx(after.most[20:].sum() + max(50 - 60 * 0.8, 0))


def test_unknown_candidates_in_the_log_are_an_error(example: Example) -> None:
    audit = example.audit()
    event = {"n": 0, "ids": [10**6], "verdict": "accept", "tab": ""}
    (audit.path / DECISIONS).write_text(json.dumps(event) + "\n")
    with pytest.raises(DataError, match=r"decisions.jsonl line 1: .*whole numbers below"):
        read_audit_state(audit)


def test_a_limited_list_says_so(example: Example) -> None:
    command = ["audit", str(example.probs), str(example.labels), "--most", "5"]
    printed = CliRunner().invoke(app, [*command, "--out", str(example.folder / "a")]).output
    assert "are not listed" in " ".join(printed.split())
    assert "are not listed" in (example.folder / "a" / "report.html").read_text()


def test_repair_says_that_a_limited_list_ended_before_the_precision(example: Example) -> None:
    found, fixed = example.folder / "a", example.folder / "fixed.csv"
    command = ["audit", str(example.probs), str(example.labels), "--most", "5"]
    assert CliRunner().invoke(app, [*command, "--out", str(found)]).exit_code == 0
    done = CliRunner().invoke(app, ["repair", str(found), "--precision", "0.5", "-o", str(fixed)])
    assert "5 labels added" in done.output
    assert "audit again with a larger --most" in " ".join(done.output.split())
    whole = repair(example.audit().path, fixed, precision=0.5)
    assert whole.added > 5
    assert "--most" not in whole.describe()


def test_precision_without_verdicts_is_doubted_where_every_row_shows_one_label(
    example: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("halftruth.audit.repair._ENOUGH", 10)
    audit, fixed = example.audit(selection="single_positive"), example.folder / "fixed.csv"
    assert "No row shows more than one label" in repair(audit.path, fixed, precision=0.9).describe()
    assert "No row shows more than one label" in (audit.path / "report.html").read_text()
    assert repair(audit.path, fixed).notes == ()
    decide_first(audit, 10, "accept")
    assert "WARNING" not in repair(audit.path, fixed, precision=0.9).describe()


@pytest.mark.parametrize("command", [["repair"], ["plan", "--budget", "5"]])
def test_an_export_for_an_unknown_program_writes_nothing(
    example: Example, command: list[str]
) -> None:
    out = example.folder / "out.csv"
    options = [str(example.audit().path), "--out", str(out), "--export", "excel"]
    done = CliRunner().invoke(app, [command[0], *options, *command[1:]])
    assert done.exit_code == 2
    assert "'excel'" in done.output
    assert not out.exists()


@pytest.mark.parametrize(
    ("cell", "reading"),
    [('5" pipe', []), ('a "b" c', []), ('"a" b', ["--read", "quotes=false"])],
)
def test_quotes_inside_cells_are_kept(example: Example, cell: str, reading: list[str]) -> None:
    lines = example.labels.read_text().splitlines()
    noted = [f"{lines[0]},note", *(f"{line},{cell}" for line in lines[1:])]
    example.labels.write_text("\n".join(noted) + "\n")
    command = ["audit", str(example.probs), str(example.labels), "--drop-column", "note", *reading]
    folder, fixed = example.folder / "a", example.folder / "fixed.csv"
    audited = CliRunner().invoke(app, [*command, "--out", str(folder)])
    assert audited.exit_code == 0, audited.exception
    assert "cannot write" not in audited.output
    done = CliRunner().invoke(app, ["repair", str(folder), "--precision", "0.5", "-o", str(fixed)])
    assert done.exit_code == 0, done.exception
    assert fixed.read_text().count(f",{cell}") == len(lines) - 1


def test_scores_with_python_objects_are_not_read(tmp_path: Path) -> None:
    """An audit folder may be that of somebody else: reading it runs no code."""
    items = np.array([print], dtype=object)
    np.savez(tmp_path / "scores.npz", labels=items, scores=items, items=items, rows=items)
    with pytest.raises(DataError, match=r"scores\.npz"):
        _ = AuditFolder(tmp_path, {"classes": ["a"]}).scored


def test_rows_of_an_unnamed_file_are_those_of_training_by_position(tmp_path: Path) -> None:
    lines = [f"i{row},{row % 2},{'train' if row % 3 else 'test'}" for row in range(9)]
    (tmp_path / "l.csv").write_text("\n".join(["image,cat,split", *lines]))
    config = Config(labels=str(tmp_path / "l.csv"), features=["x.npy"])
    run = cast(TrainedRun, SimpleNamespace(config=config))
    trained = trained_on(run, LabelMatrix(np.ones((9, 1), np.int8), ("cat",)))
    assert trained is not None
    assert not trained[[0, 3, 6]].any()
    assert trained[[1, 2, 4, 5, 7, 8]].sum() >= 4
    assert trained_on(run, LabelMatrix(np.ones((8, 1), np.int8), ("cat",))) is None
    named = LabelMatrix(np.ones((2, 1), np.int8), ("cat",), np.array(["i0", "zz"]))
    assert not np.asarray(trained_on(run, named)).any()


@pytest.mark.parametrize(
    ("decided", "words"),
    [
        (0, "Of the first 25 labels that may be wrong, 0 to 76 % are: correct labels that the mod"),
        (3, "Of the next 22 labels that may be wrong, 0 to 77 % are: correct labels that the mode"),
        (20, "Of the next 5 labels that may be wrong, about 60 % are (0 to 100 %)."),
        (25, ""),
    ],
)
def test_the_share_of_wrong_labels_in_words(decided: int, words: str) -> None:
    """Ends by hand: n · 0.56 and 90 % of chance, 1.645 √(n · 0.56 · 0.44), rounded up."""
    codes = np.zeros(30, dtype=np.int8)
    codes[:5] = 1
    codes[5 : 5 + decided] = np.where(np.arange(decided) % 2, 1, -1)
    missing = np.arange(30) < 5
    found = cast(Candidates, SimpleNamespace(missing=missing, probability=np.full(30, 0.4)))
    left = cast(Remaining, None)
    ends = np.zeros(30), np.full(30, 14 / 25)
    state = AuditState(found, codes, np.full(30, 0.6), *ends, left, left)
    assert state.describe_wrong().startswith(words)
    if 0 < decided < 20:
        assert state.describe_wrong().endswith(f"20 decisions narrow this (so far: {decided}).")
    found.missing[13:] = True
    assert decided or "8 decisions narrow this" in state.describe_wrong()
