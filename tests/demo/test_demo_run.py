"""The demo as a whole, on a handful of pictures."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from halftruth.data import DataError
from halftruth.demo import run_demo
from halftruth.demo import run_demo as run
from halftruth.demo.run_demo import TRAINING, WAYS
from halftruth.train import Config


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Two threads a process and several processes at a time would mostly wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_everything_runs_and_says_what_it_did(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "demo"
    result = run_demo(out, seed=1, quick=True)
    printed = capsys.readouterr().out

    assert [row["name"] for row in result["rows"]] == [way.name for way in WAYS]
    assert all(0 < row["mAP"] < 1 for row in result["rows"])
    assert json.loads((out / "demo.json").read_text())["seed"] == 1
    page = (out / "index.html").read_text(encoding="utf-8")
    for way, row in zip(WAYS, result["rows"], strict=True):
        assert (out / way.folder / "best.safetensors").is_file()
        assert way.name in page
        assert f"{100 * row['mAP']:.1f}" in printed
        assert f"{100 * row['mAP']:.1f}" in page
    assert "\x1b" not in printed


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(DataError, match="not a demo's"):
        run_demo(tmp_path, quick=True)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_the_call_on_the_page_is_one_that_fit_takes(tmp_path: Path) -> None:
    for name in ("observed.csv", "images"):
        (tmp_path / "data" / name).mkdir(parents=True)
    row = run.Row("EM", "em", "", 0.5, 0.5)
    text = run._settings(tmp_path, {**TRAINING, "seed": 3}, row)
    asked: dict[str, object] = {}

    def fit(labels: str, images: str, **settings: object) -> None:
        asked.update(settings, labels=labels, images=[images])

    exec(text.removeprefix("import halftruth"), {"halftruth": SimpleNamespace(fit=fit)})
    config = Config.of(asked)
    assert config.method == "em"
    assert config.lr == TRAINING["lr"]


def test_an_earlier_demo_is_made_anew(tmp_path: Path) -> None:
    run._take_over(tmp_path / "demo")
    (tmp_path / "demo" / "data").mkdir()
    (tmp_path / "demo" / "data" / "old.png").write_text("old")
    (tmp_path / "demo" / "notes.txt").write_text("mine")
    run._take_over(tmp_path / "demo")
    assert sorted(path.name for path in (tmp_path / "demo").iterdir()) == ["demo.json", "notes.txt"]
