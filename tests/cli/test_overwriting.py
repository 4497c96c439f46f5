"""No command writes over a file that it reads, or over another file without `--overwrite`."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.main import get_command

from halftruth.cli.app import app

Command = Callable[..., tuple[int, str]]
ROWS = [f"i{row},{row % 2},{row % 3 == 0:d}" for row in range(12)]
EXISTS, READ = "exists; give another name", "is a file that this command reads"
BY_RUN, WHOLE = "which a run would replace; choose another folder", "holds no run"
# The options of each command, a file that exists where it would write, and what it says.
REFUSED = {
    "train": ("labels.csv --features x.npy --out old", "old/config.yaml", BY_RUN),
    "train: a run": ("labels.csv --features x.npy --out run", "run/result.json", "already holds"),
    "train: a folder": ("labels.csv --features x.npy --out old", "old/members/me.txt", BY_RUN),
    "calibrate": ("scores.csv labels.csv --out old", "old/classes.csv", BY_RUN),
    "tune": ("labels.csv --features x.npy --method bce --out old", "old/best.yaml", EXISTS),
    "evaluate": ("run --out old.json", "old.json", EXISTS),
    "evaluate: read": ("run labels.csv --overwrite --out labels.csv", "labels.csv", READ),
    "predict": ("run x.npy --out old.csv", "old.csv", EXISTS),
    "predict: read": ("run labels.csv --overwrite --out labels.csv", "labels.csv", READ),
    "predict: a link": ("run link.csv --overwrite --out labels.csv", "labels.csv", READ),
    "decide": ("labels.csv --run run --out old.csv", "old.csv", EXISTS),
    "decide: read": ("labels.csv --run run --overwrite --out labels.csv", "labels.csv", READ),
    "export": ("run --out old.onnx", "old.onnx", EXISTS),
    "export: description": ("run --out new.onnx", "new.onnx.json", EXISTS),
    "audit": ("scores.csv labels.csv --out old", "old/missing.csv", EXISTS),
    "audit: damaged": ("scores.csv labels.csv --out old", "old/audit.json", "the file is broken"),
    "plan": ("labels.csv --features x.npy --budget 2 --out old", "old/me.txt", EXISTS),
    "repair": ("audit --out old.csv", "old.csv", EXISTS),
    "repair: changes": ("audit --out new.csv", "new.diff.csv", EXISTS),
    "repair: export": ("audit --export cleanlab", "audit/cleanlab", EXISTS),
    "demo": ("--no-browser --out old", "old/index.html", EXISTS),
    "hub folder": ("run --out old", "old/me.txt", WHOLE),
    "bench run": ("grid.yaml --data . --out labels.csv", "labels.csv", "expected a .jsonl file"),
    "bench labels": ("voc2012 . --out old", "old/single.csv", EXISTS),
    "plot losses": ("bce --out old", "old.svg", EXISTS),
    "plot losses: numbers": ("bce --out labels.svg", "labels.csv", EXISTS),
    "plot losses: in a folder": ("bce --out .", "losses.png", EXISTS),
    "plot surface": ("any-class:lam=0.05 --out old.png", "old-means.png", EXISTS),
    "plot data": ("labels.csv --zero absent --out old", "old/counts.svg", EXISTS),
    "plot data: read": ("counts.csv --overwrite --out .", "counts.csv", READ),
}
# Commands that continue what is in --out, or that write figures as the others do.
OTHERS = {"bench paper", "plot run", "plot bench"}


@pytest.fixture
def beside_files(command: Any, monkeypatch: Any, tmp_path: Path) -> Command:
    """Run a command line next to labels.csv, scores.csv and x.npy: (exit code, output)."""
    (tmp_path / "labels.csv").write_text("\n".join(["image,cat,dog", *ROWS]) + "\n")
    (tmp_path / "counts.csv").write_text((tmp_path / "labels.csv").read_text())
    (tmp_path / "link.csv").hardlink_to(tmp_path / "labels.csv")
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32))
    (tmp_path / "scores.csv").write_text("\n".join(["image,cat,dog", *ROWS]) + "\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words: str) -> tuple[int, str]:
        code, out, err = command(*words)
        return code, " ".join((out + err).replace("│", " ").split())

    return run


@pytest.mark.parametrize("name", REFUSED)
def test_what_exists_stays(beside_files: Command, name: str) -> None:
    words, file, message = REFUSED[name]
    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_text("mine")
    if name == "train: a run":
        (path.parent / "config.yaml").write_text("labels: labels.csv\n")
    before = path.read_bytes()
    code, shown = beside_files(*name.partition(":")[0].split(), *words.split())
    assert (code, message in shown) == (2, True), shown
    assert path.read_bytes() == before


def test_every_command_that_writes_is_tested() -> None:
    """A command with --out is in the table above."""

    def walk(found: Any, name: str = "") -> Iterator[str]:
        for key, one in getattr(found, "commands", {}).items():
            yield from walk(one, f"{name} {key}".strip())
        if any("--out" in option.opts for option in found.params):
            yield name

    assert {*walk(get_command(app))} == {name.partition(":")[0] for name in REFUSED} | OTHERS


def test_an_audit_replaces_only_the_audit_of_the_same_file(beside_files: Command) -> None:
    assert beside_files("audit", "scores.csv", "labels.csv", "--out", "a")[0] == 0
    before = Path("a/audit.json").read_bytes()
    Path("other.csv").write_bytes(Path("labels.csv").read_bytes())
    code, shown = beside_files("audit", "scores.csv", "other.csv", "--out", "a")
    assert (code, "audit.json exists; give another name" in shown) == (2, True), shown
    assert Path("a/audit.json").read_bytes() == before
    for words in (["labels.csv"], ["other.csv", "--overwrite"]):
        assert beside_files("audit", "scores.csv", *words, "--out", "a")[0] == 0
