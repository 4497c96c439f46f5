"""The path of a newcomer: every command and block of docs/get-started.md runs, in its order."""

import re
import shlex
import sys
from pathlib import Path

import pandas as pd
import pytest

from halftruth.cli import main

PAGE = Path(__file__).parents[2] / "docs" / "get-started.md"
BLOCK = re.compile(r"^```(\w+) ?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run_command(line: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", shlex.split(line, comments=True))
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def test_the_first_page_works_as_it_is_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    commands = []
    for language, _, content in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if language == "python":
            exec(content, {})
        elif language == "sh" and not content.startswith("pip install"):
            assert run_command(content.strip(), monkeypatch) == 0, capsys.readouterr().err
            commands.append(content.split()[1])
    assert commands == ["data", "train", "predict", "evaluate", "audit", "repair"]
    # What the text says about the results.
    assert len(pd.read_csv("predictions.csv")) == 400
    assert (tmp_path / "runs" / "first" / "report.html").exists()
    assert (tmp_path / "audit" / "missing.csv").exists()
    before, after = (pd.read_csv(name) for name in ("labels.csv", "labels.fixed.csv"))
    complete = pd.read_csv("complete.csv")
    classes = ["beach", "city", "forest", "people"]
    added = (after[classes] == 1) & (before[classes] == 0)
    # 66 labels are added, all of them correct.
    assert 45 < added.to_numpy().sum() < 90
    assert (complete[classes].to_numpy()[added.to_numpy()] == 1).mean() > 0.9
