"""A grid runs once: finished runs are never repeated, failed runs are."""

import os
import signal
import time

import pytest
from tiny_grid import HereOnly, tiny_grid

from halftruth.bench import processes, read_results, run_grid, runner
from halftruth.bench.training import Bench
from halftruth.data import DataError
from halftruth.train import TrainingStopped


@pytest.fixture
def here(monkeypatch, root, tmp_path):
    """run_grid in this process, with the list of its messages."""
    monkeypatch.setattr(runner, "Pool", HereOnly)
    said = []

    def go(grid, **options):
        said.clear()
        failed = run_grid(grid, root, tmp_path / "r.jsonl", say=said.append, **options)
        return failed, read_results(tmp_path / "r.jsonl")

    go.said, go.file = said, tmp_path / "r.jsonl"
    return go


def runs(said):
    return [line for line in said if line.startswith("[")]


def test_every_method_and_seed_is_run_once(here):
    failed, records = here(tiny_grid())
    assert failed == []
    assert len(records) == 6 == len({record["id"] for record in records})
    assert {(r["method"], r["seed"]) for r in records} == {
        (method, seed) for method in ("complete", "bce", "em") for seed in (0, 1)
    }
    assert all(0 < record["test"]["mAP"] <= 1 for record in records)
    _, again = here(tiny_grid())
    assert again == records
    assert runs(here.said) == []


def test_a_new_seed_or_method_runs_alone(here):
    here(tiny_grid())
    here(tiny_grid(seeds=[0, 1, 2]))
    assert len(runs(here.said)) == 3
    here(tiny_grid(seeds=[0], methods=["bce", "wan"]))
    assert len(runs(here.said)) == 1


def test_other_settings_are_other_runs(here):
    here(tiny_grid(seeds=[0], methods=["bce"]))
    _, records = here(
        tiny_grid(seeds=[0], methods=["bce"], training={"epochs": 1, "batch_size": 8})
    )
    assert len(records) == 2


def test_a_crash_loses_the_run_in_flight_only(here, monkeypatch):
    original, count = Bench.do, [0]

    def dies(bench, what, job):
        count[0] += 1
        if count[0] == 4:
            raise KeyboardInterrupt
        return original(bench, what, job)

    monkeypatch.setattr(Bench, "do", dies)
    with pytest.raises(KeyboardInterrupt):
        here(tiny_grid())
    before = here.file.read_text()
    assert len(before.splitlines()) == 2
    monkeypatch.setattr(Bench, "do", original)
    _, records = here(tiny_grid())
    assert len(runs(here.said)) == 4
    assert len(records) == 6
    assert here.file.read_text().startswith(before)


def test_an_incomplete_line_is_ignored_and_run_again(here):
    here(tiny_grid(methods=["bce"]))
    whole = here.file.read_text()
    here.file.write_text(whole[:-40])
    with pytest.warns(UserWarning, match="line 2"):
        _, records = here(tiny_grid(methods=["bce"]))
    assert len(runs(here.said)) == 1
    assert [record["seed"] for record in records] == [0, 1]


def test_trials_are_equal_in_number_and_never_see_the_test_rows(here):
    _, records = here(tiny_grid(trials=4))
    trials = [record for record in records if record["trial"]]
    assert {m: sum(t["method"] == m for t in trials) for m in ("complete", "bce", "em")} == {
        "complete": 4, "bce": 4, "em": 4,
    }  # fmt: skip
    assert all("test" not in trial and trial["seed"] == 0 for trial in trials)
    for method in ("bce", "em"):
        best = max(
            (t for t in trials if t["method"] == method), key=lambda trial: trial["val"]["mAP"]
        )
        final = [r for r in records if r["method"] == method and not r["trial"]]
        assert len(final) == 2
        assert all(run["training"] == best["training"] for run in final)
        assert all(run["options"] == best["options"] for run in final)


def test_a_failed_run_is_reported_and_tried_again(here, monkeypatch):
    original = Bench.do

    def fails(bench, what, job):
        if job.method == "em" and what == "run":
            raise MemoryError("no memory left")
        return original(bench, what, job)

    monkeypatch.setattr(Bench, "do", fails)
    failed, records = here(tiny_grid(seeds=[0]))
    assert failed == ["toy single em seed 0: no memory left"]
    assert len(records) == 2
    monkeypatch.setattr(Bench, "do", original)
    failed, records = here(tiny_grid(seeds=[0]))
    assert failed == []
    assert len(records) == 3


def test_a_loss_that_becomes_nan_is_recorded_as_a_result(here, monkeypatch):
    original = Bench.do

    def diverges(bench, what, job):
        if job.trial and job.training["head_lr"] != 0.01:
            raise TrainingStopped("the loss became NaN")
        return original(bench, what, job)

    monkeypatch.setattr(Bench, "do", diverges)
    failed, records = here(tiny_grid(methods=["bce"], trials=3))
    assert failed == []
    assert [r.get("error") for r in records] == [
        None, "the loss became NaN", "the loss became NaN", None, None,
    ]  # fmt: skip
    here(tiny_grid(methods=["bce"], trials=3))
    assert runs(here.said) == []


def test_a_grid_can_start_from_the_best_trials_of_another(here, tmp_path):
    _, first = here(tiny_grid(methods=["em"], trials=4))
    other = tmp_path / "first.jsonl"
    here.file.rename(other)
    best = max((r for r in first if r["trial"]), key=lambda record: record["val"]["mAP"])
    _, records = here(
        tiny_grid(methods=["em"], seeds=[5], training={"epochs": 3, "batch_size": 8}), start=other
    )
    assert [record["options"] for record in records] == [best["options"]]
    assert records[0]["training"]["head_lr"] == best["training"]["head_lr"]
    assert records[0]["training"]["epochs"] == 3


def test_missing_data_stops_the_grid_before_the_first_run(here, root):
    grid = tiny_grid(data={"yeast": {"root": "."}})
    with pytest.raises(DataError, match=r"yeast: .*yeast.xml .*is missing") as error:
        here(grid)
    assert "MULAN" in str(error.value)
    assert not here.file.exists()


def test_a_process_that_dies_is_replaced(here, root, monkeypatch):
    """A real worker is killed in its first run; a new one does the other runs."""
    killed = []

    class Watched(processes.Pool):
        def give(self, what, job):
            super().give(what, job)
            if what == "run" and not killed:
                ((_, process),) = self.started
                killed.append(process.pid)
                os.kill(process.pid, signal.SIGKILL)

    monkeypatch.setattr(runner, "Pool", Watched)
    failed, records = here(tiny_grid(seeds=[0]))
    assert len(failed) == 1
    assert failed[0].startswith("toy single complete seed 0: its process died (exit code -9)")
    assert [record["method"] for record in records] == ["bce", "em"]
    monkeypatch.setattr(runner, "Pool", HereOnly)
    failed, again = here(tiny_grid(seeds=[0]))
    assert failed == []
    assert len(runs(here.said)) == 1
    assert again[:2] == records


@pytest.mark.parametrize(
    ("given", "found"),
    [("cpu", ["cpu"]), ("auto", ["cuda:0", "cuda:1"]), ("cuda:1,cpu", ["cuda:1", "cpu"])],
)
def test_devices_are_used_in_turn(given, found, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert runner.devices(given) == found


@pytest.mark.parametrize("given", ["cuda", "cuda:0", "cpu,cuda", "gpu", "cuda:x", ""])
def test_an_unavailable_device_is_refused(here, given, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(DataError, match="device: "):
        here(tiny_grid(), device=given)
    assert not here.file.exists()


def test_a_process_that_dies_between_two_jobs_is_replaced(root, tmp_path):
    pool = processes.Pool(1, ["cpu"], root, tmp_path)
    try:
        (cell,) = tiny_grid(methods=["bce"]).cells()
        pool.give("prepare", cell.job(0))
        pool.answers()
        ((_, process),) = pool.started
        process.kill()
        process.join()
        time.sleep(0.5)
        pool.give("run", cell.job(0))
        (answer,) = pool.answers()
        # The pool may only notice when it reads the answer.
        assert answer.error == "" or "its process died" in answer.error
        pool.give("run", cell.job(0))
        assert pool.answers()[0].error == ""
    finally:
        pool.stop()


def test_processes_ignore_the_interrupt_of_the_terminal(root, tmp_path):
    """Ctrl-C reaches every process; only the main one stops, and it keeps finished results."""
    pool = processes.Pool(1, ["cpu"], root, tmp_path)
    try:
        ((_, process),) = pool.started
        os.kill(process.pid, signal.SIGINT)
        (cell,) = tiny_grid(methods=["bce"]).cells()
        pool.give("run", cell.job(0))
        (answer,) = pool.answers()
        assert answer.error == ""
        assert 0 < answer.value["test"]["mAP"] <= 1
    finally:
        pool.stop()
    assert not process.is_alive()
