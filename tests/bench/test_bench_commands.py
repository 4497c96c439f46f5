"""`halftruth bench` on the command line."""

import json
import sys

import pytest
import yaml
from tiny_grid import HereOnly

from halftruth.bench import runner
from halftruth.bench.training import Bench
from halftruth.cli import main
from halftruth.data import read_labels

GRID = {
    "data": {"toy": {"reader": "tabular", "dataset": "toy", "root": "."}},
    "methods": ["bce", "em"],
    "training": {"epochs": 1, "batch_size": 8},
}


@pytest.fixture
def command(monkeypatch, capsys):
    """The exit code and output of a command."""
    monkeypatch.setattr(runner, "Pool", HereOnly)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["halftruth", "bench", *map(str, words)])
        with pytest.raises(SystemExit) as done:
            main()
        shown = capsys.readouterr()
        return done.value.code, shown.out + shown.err

    return call


@pytest.fixture
def grid(tmp_path):
    path = tmp_path / "grid.yaml"
    path.write_text(yaml.safe_dump(GRID))
    return path


def test_run_then_table(command, grid, root, tmp_path):
    out = tmp_path / "results" / "r.jsonl"
    code, text = command("run", grid, "--data", root, "--out", out, "--seeds", "0,1")
    assert code == 0
    assert "[4/4] toy single em seed 1: test mAP" in text
    assert "| method | toy, single |" in text
    code, text = command("table", out, "--style", "latex", "--metric", "CF1")
    assert code == 0
    assert [line.split(" &")[0] for line in text.splitlines() if line[:2] in ("em", "bc")] in (
        ["em", "bce"],
        ["bce", "em"],
    )


def test_options_replace_keys_of_the_grid(command, grid, root, tmp_path):
    out = tmp_path / "r.jsonl"
    code, _ = command(
        "run", grid, "--data", root, "--out", out, "--methods", "e*", "--labels", "left-40",
        "--seeds", "3", "--trials", "2", "--setting", "epochs=2", "--label-seeds", "7",
        "--limit", "6",
    )  # fmt: skip
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert code == 0
    assert [record["trial"] for record in records] == [True, True, False]
    assert {(r["method"], r["labels"], r["seed"], r["label_seed"]) for r in records} == {
        ("em", "left-40", 3, 7)
    }
    assert {record["training"]["epochs"] for record in records} == {2}
    assert {record["setup"]["epochs"] for record in records} == {2}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--methods", "gone"], "none matches 'gone'"),
        (["--seeds", "a"], "each a whole number from 0 to 2^32 - 1"),
        (["--labels", "half"], "is not a label setting"),
        (["--label-seeds", "a"], "label_seed: expected"),
        (["--setting", "epoch=3"], "training: there is no setting 'epoch'"),
        (["--data", "nowhere"], "there is no such folder"),
        (["--device", "cuda:99"], "device: cuda:99 is not available"),
    ],
)
def test_a_wrong_option_is_one_message(command, grid, root, tmp_path, words, message):
    given = {"--data": root, "--out": tmp_path / "r.jsonl", **{words[0]: words[1]}}
    code, text = command("run", grid, *(part for pair in given.items() for part in pair))
    assert code == 2
    assert message in text
    assert "Traceback" not in text


def test_the_table_of_a_command_has_only_runs_of_its_own_setup(command, grid, root, tmp_path):
    """An earlier command with other rows or epochs wrote into the same file, with more seeds."""
    out, common = tmp_path / "r.jsonl", ("run", grid, "--data", root, "--methods", "bce")
    command(*common, "--out", out, "--limit", "6", "--seeds", "0,1,2")
    command(*common, "--out", out, "--setting", "epochs=3", "--seeds", "0,1,2")
    _, text = command(*common, "--out", out, "--seeds", "0,1")
    _, alone = command(*common, "--out", tmp_path / "alone.jsonl", "--seeds", "0,1")
    assert len(out.read_text().splitlines()) == 8
    assert table_of(text) == table_of(alone)
    # Other methods of the grid, with the same set-up, stay in the table.
    command("run", grid, "--data", root, "--methods", "em", "--out", out, "--seeds", "0,1")
    _, both = command(*common, "--out", out, "--seeds", "0,1")
    assert {line.split()[1] for line in table_of(both)[2:4]} == {"`bce`", "`em`"}


def table_of(text):
    """The table that a command prints, and the lines below it."""
    lines = text.splitlines()
    return lines[lines.index("| method | toy, single |") :]


def test_a_missing_results_file_is_one_message(command, tmp_path):
    code, text = command("table", tmp_path / "none.jsonl")
    assert code == 2
    assert "there is no such results file" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--style", "html"], "style: expected one of markdown"),
        (["--part", "train"], "part: expected val or test"),
        (["--metric", "map"], "metric: expected one of"),
        (["--only", "voc*"], "data: none matches 'voc*'; there are: toy"),
    ],
)
def test_a_wrong_option_of_a_table_is_one_message(command, grid, root, tmp_path, words, message):
    out = tmp_path / "r.jsonl"
    command("run", grid, "--data", root, "--out", out, "--methods", "bce", "--seeds", "0")
    code, text = command("table", out, *words)
    assert code == 2
    # A terminal wraps the message in a frame.
    assert message in " ".join(text.replace("│", " ").split())


def test_an_interrupted_grid_keeps_finished_runs(command, grid, root, tmp_path, monkeypatch):
    out, original, done = tmp_path / "r.jsonl", Bench.do, []

    def interrupt_the_third(bench, what, job):
        done.append(job)
        if len(done) == 3:
            raise KeyboardInterrupt
        return original(bench, what, job)

    monkeypatch.setattr(Bench, "do", interrupt_the_third)
    code, text = command("run", grid, "--data", root, "--out", out, "--seeds", "0,1")
    assert code == 130
    assert "the same command continues" in text
    assert len(out.read_text().splitlines()) == 1
    code, text = command("run", grid, "--data", root, "--out", out, "--seeds", "0,1")
    assert code == 0
    assert len(out.read_text().splitlines()) == 4


def test_labels_are_written_for_training(command, root, tmp_path):
    code, text = command(
        "labels", "tabular", root, "--option", "dataset=toy", "--labels", "single",
        "--out", tmp_path / "toy",
    )  # fmt: skip
    assert code == 0
    assert "written" in text
    shown = read_labels(tmp_path / "toy" / "single.csv")
    truth = read_labels(tmp_path / "toy" / "truth.csv")
    train = shown.split == "train"
    assert ((shown.values[train] == 1).sum(axis=1) == 1).all()
    assert (truth.values[train] != 0).all()
    assert ((truth.values == 1) | (shown.values != 1)).all()


def test_an_unknown_data_set_gets_a_suggestion(command, tmp_path):
    code, text = command("labels", "voc2021", tmp_path, "--out", tmp_path / "x")
    assert code == 2
    assert "voc2012" in text
