"""Every script of benchmarks/ runs in its small form, `--tiny`, and prints results."""

import re
import runpy
import sys
import warnings
from pathlib import Path

import pytest

pytest.importorskip("accelerate", reason="a part of the extra 'train'")

FOLDER = Path(__file__).parents[1] / "benchmarks"
# What the scripts share; the others have to be started with --tiny.
SHARED = {"common", "made_sets", "published"}
SCRIPTS = [path for path in sorted(FOLDER.glob("*.py")) if path.stem not in SHARED]
# It measures the server of the review.
OF_FLASK = {"review_time"}


def read_documents():
    root = FOLDER.parent
    paths = [*root.glob("*.md"), *root.glob("docs/**/*.md"), FOLDER / "README.md"]
    return "\n".join(path.read_text(encoding="utf-8") for path in paths)


def run(script, arguments, monkeypatch):
    """Run a script as a command in this process."""
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr(sys, "argv", [str(script), *arguments])
    before = set(sys.modules)
    try:
        with warnings.catch_warnings():
            runpy.run_path(str(script), run_name="__main__")
    finally:
        # Other tests may have modules of these names.
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).parent == FOLDER:
                del sys.modules[name]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_benchmark_runs_in_its_tiny_form(script, tmp_path, monkeypatch, capfd):
    if script.stem in OF_FLASK:
        pytest.importorskip("flask")
    monkeypatch.chdir(tmp_path)
    try:
        run(script, ["--tiny"], monkeypatch)
    except SystemExit as end:
        if end.code:
            pytest.fail(f"{end.code}\n{capfd.readouterr()}")
    assert re.search(r"\d", capfd.readouterr().out)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_commands_in_documents_have_options_that_exist(script, monkeypatch, capfd):
    commands = re.findall(rf"benchmarks/{script.stem}\.py((?:\\\n|[^`\n])*)", read_documents())
    assert commands, f"no document names {script.name}"
    named = {word for words in commands for word in re.findall(r"(?<= )--[a-z][a-z-]*", words)}
    with pytest.raises(SystemExit):
        run(script, ["--help"], monkeypatch)
    known = set(re.findall(r"--[a-z][a-z-]*", capfd.readouterr().out))
    assert named <= known | {"--tiny"}


def test_the_readme_has_every_script_and_grid_and_no_document_others():
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    grids = sorted((FOLDER / "grids").glob("*.yaml"))
    assert not [path.name for path in [*SCRIPTS, *grids] if path.name not in readme]
    named = re.findall(r"benchmarks/(?!NAME)((?:grids/)?[\w-]+\.(?:py|yaml))", read_documents())
    assert not [name for name in named if not (FOLDER / name).exists()]
