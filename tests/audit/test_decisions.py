"""Decisions are on disk before they are confirmed, and survive crashes."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halftruth.data import DataError
from halftruth.data.review_log import VERDICTS, ReviewLog


def test_decisions_are_read_again(tmp_path: Path) -> None:
    log = ReviewLog(tmp_path / "d.jsonl", 10)
    log.decide([1, 2], "accept", "a")
    log.decide([2], "reject", "b")
    assert ReviewLog(tmp_path / "d.jsonl", 10, write=False).verdicts == {1: "accept", 2: "reject"}
    log.close()


def test_undo_restores_the_verdict_before_the_last_decision_of_a_tab(tmp_path: Path) -> None:
    log = ReviewLog(tmp_path / "d.jsonl", 10)
    log.decide([3], "accept", "a")
    log.decide([3, 4], "reject", "a")
    log.decide([5], "skip", "b")
    assert log.undo("a")["ids"] == [3, 4]
    assert log.verdicts == {3: "accept", 5: "skip"}
    log.undo("a")
    assert log.undo("a") is None
    assert log.verdicts == {5: "skip"}
    log.close()
    assert ReviewLog(tmp_path / "d.jsonl", 10, write=False).verdicts == {5: "skip"}


def test_an_incomplete_line_of_a_crash_is_dropped_and_the_next_one_kept(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    log = ReviewLog(path, 10)
    log.decide([1], "accept")
    log.close()
    whole = path.read_bytes()
    for size in range(1, 20):
        path.write_bytes(whole + whole[:size].replace(b'"n": 0', b'"n": 1'))
        log = ReviewLog(path, 10)
        log.decide([2], "reject")
        log.close()
        assert ReviewLog(path, 10, write=False).verdicts == {1: "accept", 2: "reject"}
        path.write_bytes(whole)


def test_a_second_server_on_the_same_audit_is_refused(tmp_path: Path) -> None:
    first = ReviewLog(tmp_path / "d.jsonl", 10)
    with pytest.raises(DataError, match="another `halftruth review`"):
        ReviewLog(tmp_path / "d.jsonl", 10)
    first.close()
    ReviewLog(tmp_path / "d.jsonl", 10).close()


def test_a_damaged_log_is_an_error_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text('{"n": 0, "ids": [1], "verdict": "accept", "tab": ""}\nrubbish\n')
    with pytest.raises(DataError, match="line 2"):
        ReviewLog(path, 10)


@pytest.mark.parametrize("time", ["yesterday", "2026-01-01T10:00:00", 5])
def test_a_time_that_cannot_be_compared_is_an_error_with_its_line(
    tmp_path: Path, time: object
) -> None:
    path = tmp_path / "d.jsonl"
    event = {"n": 0, "ids": [1], "verdict": "accept", "tab": "", "time": time}
    path.write_text(json.dumps(event) + "\n")
    with pytest.raises(DataError, match="line 1"):
        ReviewLog(path, 10)


@pytest.mark.parametrize("ids", [[], [10], [-1], ["1"], [True], [1.0], [[0]], [{}]])
def test_invalid_candidate_ids_are_refused(tmp_path: Path, ids: list) -> None:
    log = ReviewLog(tmp_path / "d.jsonl", 10)
    with pytest.raises(DataError, match="ids of candidates"):
        log.decide(ids, "accept")
    log.close()
    assert (tmp_path / "d.jsonl").read_bytes() == b""


@given(
    st.lists(
        st.tuples(
            st.sampled_from([*VERDICTS, "undo"]),
            st.sampled_from("ab"),
            st.sets(st.integers(0, 5), min_size=1),
        )
    )
)
def test_reading_the_log_gives_the_verdicts_in_memory(events: list) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        log = ReviewLog(Path(folder) / "d.jsonl", 6)
        for what, tab, ids in events:
            if what == "undo":
                log.undo(tab)
            else:
                log.decide(sorted(ids), what, tab)
        log.close()
        again = ReviewLog(log.path, 6, write=False)
        assert again.verdicts == log.verdicts
        assert [json.loads(line)["n"] for line in log.path.open()] == list(range(log.version))
