"""The examples of the pages on data run."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from halftruth.cli import main

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(\w+) ?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("page", "count"), [("data", 4), ("labels", 3), ("large", 1)])
def test_every_example_of_a_page_runs(page, count, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    commands = 0
    for language, name, content in BLOCK.findall((DOCS / f"{page}.md").read_text()):
        if name == "skip":
            # It needs a download.
            continue
        if name:
            Path(name).write_text(content)
        elif language == "python":
            exec(content, {})
        else:
            for line in content.strip().splitlines():
                # A report takes longer than everything else.
                more = ["--no-report"] if " train " in line else []
                monkeypatch.setattr(sys, "argv", shlex.split(line) + more)
                try:
                    main()
                    code = 0
                except SystemExit as end:
                    code = int(end.code or 0)
                shown = capsys.readouterr()
                # 1: `data check` of a file of a few rows has its problems, but it was read.
                assert code in ((0, 1) if "data check" in line else (0,)), shown.err
                commands += 1
    assert commands == count
    if page == "data":
        assert (tmp_path / "runs" / "comments" / "predictions.csv").exists()
