"""Every notebook of docs/tutorials runs, each in a fresh process and an empty folder."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("accelerate", reason="a part of the extra 'train'")

FOLDER = Path(__file__).parent.parent / "docs" / "tutorials"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
# Smaller data and fewer epochs than the notebooks have: what they show is stored in them.
SMALLER = {
    "empty_rows": {"epochs=15": "epochs=1"},
    "images_with_one_label": {"count=1600": "count=200", "epochs=8": "epochs=1"},
    "text_tags": {"1200": "300", "800": "200"},
    "your_own_method": {"epochs=15": "epochs=1"},
}
START = """
import shlex, sys

def _command(line):
    from halftruth.cli import main

    sys.argv = shlex.split(line)
    try:
        main()
    except SystemExit as end:
        assert not end.code, line
"""


def read_code(notebook: Path) -> list[str]:
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def _as_python(cell: str) -> str:
    """A cell as Python: `!halftruth ...` becomes a call, without the file for its messages."""
    return f"_command({cell[1:].split(' 2> ')[0]!r})" if cell.startswith("!") else cell


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    code = [_as_python(cell) for cell in read_code(notebook)]
    script = tmp_path / "script.py"
    # Trials and folds may start processes, which import this file again.
    body = "\n".join([START, *code])
    for full, small in SMALLER.get(notebook.stem, {}).items():
        assert full in body
        body = body.replace(full, small)
    script.write_text(f"if __name__ == '__main__':\n    exec({body!r})", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script.name],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_its_outputs(notebook: Path) -> None:
    """The site shows the stored outputs: `make notebooks` runs all and stores them."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    assert outputs
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert all(cell["execution_count"] for cell in cells if cell["cell_type"] == "code")


def test_all_tutorials_are_in_the_navigation() -> None:
    site = (FOLDER.parent.parent / "mkdocs.yml").read_text(encoding="utf-8")
    assert len(NOTEBOOKS) >= 6
    for notebook in NOTEBOOKS:
        assert f"tutorials/{notebook.stem}.md" in site
