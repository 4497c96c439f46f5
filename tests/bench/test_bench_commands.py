"""`halftruth bench` as it is typed."""

import json
import sys

import pytest
import yaml
from tiny_grid import HereOnly

from halftruth.bench import runner
from halftruth.cli import main
from halftruth.data import read_labels

GRID = {
    "data": {"toy": {"reader": "tabular", "dataset": "toy", "root": "."}},
    "methods": ["bce", "em"],
    "training": {"epochs": 1, "batch_size": 8},
}


@pytest.fixture
def typed(monkeypatch, capsys):
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


def test_run_then_table(typed, grid, root, tmp_path):
    out = tmp_path / "results" / "r.jsonl"
    code, text = typed("run", grid, "--data", root, "--out", out, "--seeds", "0,1")
    assert code == 0
    assert "[4/4] toy single em seed 1: test mAP" in text
    assert "| method | toy, single |" in text
    code, text = typed("table", out, "--style", "csv", "--metric", "CF1")
    assert code == 0
    assert [line.split(",")[:4] for line in text.splitlines()[1:3]] in (
        [["em", "toy", "single", "CF1"], ["bce", "toy", "single", "CF1"]],
        [["bce", "toy", "single", "CF1"], ["em", "toy", "single", "CF1"]],
    )


def test_options_overrule_the_grid(typed, grid, root, tmp_path):
    out = tmp_path / "r.jsonl"
    code, _ = typed(
        "run", grid, "--data", root, "--out", out, "--methods", "e*", "--labels", "left-40",
        "--seeds", "3", "--trials", "2", "--epochs", "2", "--limit", "6",
    )  # fmt: skip
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert code == 0
    assert [record["trial"] for record in records] == [True, True, False]
    assert {(r["method"], r["labels"], r["seed"], r["training"]["epochs"]) for r in records} == {
        ("em", "left-40", 3, 2)
    }


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--methods", "gone"], "none matches 'gone'"),
        (["--seeds", "a"], "expected whole numbers"),
        (["--labels", "half"], "is no label setting"),
        (["--data", "nowhere"], "there is no such folder"),
    ],
)
def test_a_wrong_option_is_one_message(typed, grid, root, tmp_path, words, told):
    given = {"--data": root, "--out": tmp_path / "r.jsonl", **{words[0]: words[1]}}
    code, text = typed("run", grid, *(part for pair in given.items() for part in pair))
    assert code == 2
    assert told in text
    assert "Traceback" not in text


def test_a_missing_file_of_results_is_one_message(typed, tmp_path):
    code, text = typed("table", tmp_path / "none.jsonl")
    assert code == 2
    assert "there is no such file of results" in text


def test_labels_are_written_for_training(typed, root, tmp_path):
    code, text = typed(
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


def test_an_unknown_data_set_names_close_ones(typed, tmp_path):
    code, text = typed("labels", "voc2021", tmp_path, "--out", tmp_path / "x")
    assert code == 2
    assert "voc2012" in text
