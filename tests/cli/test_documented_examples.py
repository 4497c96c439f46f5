"""The examples of docs/formats.md and docs/training.md run, and their options exist."""

import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from halftruth.cli import main
from halftruth.data import read_labels

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(\w+) ?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run(line, monkeypatch):
    monkeypatch.setattr(sys, "argv", shlex.split(line))
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_every_format_is_read_as_shown(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    commands = 0
    for language, name, content in BLOCK.findall((DOCS / "formats.md").read_text()):
        if name:
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text(content)
        elif language == "python":
            exec(content, {})
        else:
            code = run(content.strip(), monkeypatch)
            shown = capsys.readouterr()
            # 1: a file of three rows has its problems, but it was read.
            assert code in (0, 1), shown.err
            assert "labels are known" in shown.out
            commands += 1
    assert commands == 8


def test_the_files_hold_what_the_text_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for language, name, content in BLOCK.findall((DOCS / "formats.md").read_text()):
        if name:
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text(content)
        elif language == "python":
            exec(content, {})
    table = read_labels("labels.csv")
    assert (table.classes, list(table.split)) == (("cat", "dog"), ["train", "train", "val"])
    findings = read_labels(
        "findings.csv", label_column="labels", nothing="No Finding", drop_columns=["patient"]
    )
    assert findings.values.tolist() == [[1, 1], [0, 0], [0, 1]]
    assert read_labels("instances.json").values.tolist() == [[1, 1], [0, 0]]
    assert read_labels("VOC").classes == ("cat",)
    folder = read_labels("folder")
    assert list(folder.items) == ["train/a.jpg", "train/b.jpg"]
    assert list(folder.split) == ["train", "train"]
    assert read_labels("labels.npz").values.tolist() == [[1, 0], [0, 1], [1, -1]]
    assert read_labels("yeast.arff", arff_labels=-2).values.tolist() == [[1, 0], [0, 1]]
    assert np.load("features.npy").shape == (3, 8)


def test_the_toy_run_of_the_training_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall((DOCS / "training.md").read_text())
    at = next(k for k, (language, _, _) in enumerate(blocks) if language == "python")
    exec(blocks[at][2], {})
    for line in blocks[at + 1][2].strip().splitlines():
        assert run(line, monkeypatch) == 0, capsys.readouterr().err
    assert (tmp_path / "runs" / "toy" / "predictions.csv").exists()
    assert (tmp_path / "runs" / "toy2" / "result.json").exists()


@pytest.mark.parametrize("name", ["formats.md", "training.md"])
def test_options_in_the_text_exist(name, monkeypatch, capsys):
    known = set()
    for command in ("train", "evaluate", "predict", "data check"):
        monkeypatch.setenv("COLUMNS", "200")
        assert run(f"halftruth {command} --help-all", monkeypatch) == 0
        known |= set(re.findall(r"--[a-z0-9-]+", capsys.readouterr().out))
    elsewhere = {"--cpu", "--num_processes", "--num_machines", "--machine_rank"}
    elsewhere |= {"--main_process_ip", "--nproc_per_node"}
    used = set(re.findall(r"(?<!-)--[a-z0-9][a-z0-9_-]*", (DOCS / name).read_text()))
    assert used <= known | elsewhere
