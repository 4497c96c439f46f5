"""docs/plots.md names every command and figure; its images exist and are small."""

import re
from pathlib import Path

from halftruth.cli.plot_commands import app
from halftruth.plots.run_figures import FIGURES

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "plots.md").read_text(encoding="utf-8")


def test_every_command_is_shown():
    for command in app.registered_commands:
        assert f"halftruth plot {command.name} " in TEXT


def test_every_figure_of_a_run_is_explained():
    rows = re.findall(r"^`([\w-]+)` \|", TEXT, flags=re.MULTILINE)
    assert rows == list(FIGURES)


def test_images_exist_and_are_small():
    shown = re.findall(r"\]\((images/[\w.-]+)\)", TEXT)
    assert {f"images/{path.name}" for path in (DOCS / "images").iterdir()} >= set(shown)
    assert all((DOCS / name).stat().st_size < 150_000 for name in shown)


def test_the_python_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for block in re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL):
        exec(block, {})
    assert (tmp_path / "losses.pdf").is_file()
    assert (tmp_path / "losses.csv").is_file()


def test_only_plots_imports_matplotlib():
    source = DOCS.parent / "src" / "halftruth"
    users = {
        path.relative_to(source).parts[0]
        for path in source.rglob("*.py")
        if re.search(
            r"^\s*(import|from) matplotlib", path.read_text(encoding="utf-8"), re.MULTILINE
        )
    }
    assert users == {"plots"}
