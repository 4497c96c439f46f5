"""The demo as a whole, on a few images."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from halftruth.cli.app import app
from halftruth.data import DataError
from halftruth.demo.demo_run import NEXT, TRAINING, VARIANTS, _fit_call, _prepare_folder, run_demo
from halftruth.train import Config


def test_the_demo_runs_and_shows_its_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "demo"
    result = run_demo(out, seed=1, quick=True, processes=1)
    printed = capsys.readouterr().out

    assert [row["name"] for row in result["rows"]] == [
        "assume negative",
        "auto",
        "complete labels",
    ]
    assert all(0 < row["mAP"] < 1 for row in result["rows"])
    assert result["rows"][1]["method"] != "auto"
    assert json.loads((out / "demo.json").read_text())["seed"] == 1
    page = (out / "index.html").read_text(encoding="utf-8")
    for variant, row in zip(VARIANTS, result["rows"], strict=True):
        assert (out / variant.folder / "best.safetensors").is_file()
        assert variant.name in page
        assert f"{100 * row['mAP']:.1f}" in printed
        assert f"{100 * row['mAP']:.1f}" in page
    assert (out / "index.html").as_uri() in printed
    for one in result["rows"][1]["estimates"]:
        assert one["low"] <= one["value"] <= one["high"]
        assert one["name"] in printed
        assert one["name"] in page
    assert result["rows"][1]["estimates"][-1]["name"] == "labels per image"
    assert NEXT in page
    assert printed.rstrip().endswith(NEXT.splitlines()[-1])
    assert "\x1b" not in printed


def test_the_next_commands_exist() -> None:
    runner = CliRunner()
    for line in NEXT.splitlines():
        program, *words = line.split()
        assert program == "halftruth"
        names = words[: next(n for n, word in enumerate(words) if word.startswith("labels"))]
        shown = runner.invoke(app, [*names, "--help"], env={"COLUMNS": "200"})
        assert shown.exit_code == 0
        for word in words:
            assert not word.startswith("--") or word in shown.output


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(DataError, match="did not write"):
        run_demo(tmp_path, quick=True)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_file_instead_of_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "demo").write_text("mine")
    with pytest.raises(DataError, match="is a file"):
        run_demo(tmp_path / "demo", quick=True)


def test_the_call_on_the_page_has_settings_that_fit_accepts(tmp_path: Path) -> None:
    for name in ("observed.csv", "images"):
        (tmp_path / "data" / name).mkdir(parents=True)
    text = _fit_call(tmp_path, {**TRAINING, "seed": 3})
    asked: dict[str, object] = {}

    def fit(labels: str, images: str, **settings: object) -> None:
        asked.update(settings, labels=labels, images=[images])

    exec(text.removeprefix("import halftruth"), {"halftruth": SimpleNamespace(fit=fit)})
    config = Config.of(asked)
    assert config.method == "auto"
    assert config.lr == TRAINING["lr"]


def test_an_earlier_demo_is_replaced(tmp_path: Path) -> None:
    _prepare_folder(tmp_path / "demo")
    (tmp_path / "demo" / "data").mkdir()
    (tmp_path / "demo" / "data" / "old.png").write_text("old")
    (tmp_path / "demo" / "notes.txt").write_text("mine")
    _prepare_folder(tmp_path / "demo")
    assert sorted(path.name for path in (tmp_path / "demo").iterdir()) == ["demo.json", "notes.txt"]
