"""A loss of another package in a grid, its table and its figures, beside auto."""

import sys

import pytest
from tiny_grid import HereOnly, tiny_grid
from typer.testing import CliRunner

from halftruth.bench import paper_items, read_results, run_grid, runner
from halftruth.cli.app import app
from halftruth.losses import registry
from halftruth.train import ConfigError

NAME = "own_losses_for_grids:Softer"
MODULE = """
from halftruth.losses import Loss, curves


class Softer(Loss):
    def __init__(self, weight, **options):
        super().__init__(**options)
        self.weight = weight

    def unknown(self, s):
        return curves.scaled(self.absent(s), self.weight)
"""


@pytest.fixture
def on_path(tmp_path, monkeypatch):
    (tmp_path / "own_losses_for_grids.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("own_losses_for_grids", None)
    registry._imported.clear()


def test_own_losses_and_auto_are_compared_and_drawn(on_path, root, tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "Pool", HereOnly)
    softer = {"options": {"weight": 0.5}, "search": {"weight": [0.3, 0.6]}, "fixed": []}
    methods = {NAME: softer, "auto": {"training": {"budget": 0}}, "em": None}
    grid = tiny_grid(methods=methods, trials=2, seeds=[0])
    out = tmp_path / "r.jsonl"
    assert run_grid(grid, root, out, say=lambda _: None) == []
    tried = [r["options"]["weight"] for r in read_results(out) if r["loss"] == NAME]
    assert {0.5, 0.6} == set(tried), "the given one and a searched one"
    call = CliRunner().invoke
    shown = call(app, ["bench", "table", str(out)])
    assert NAME in shown.output
    # The results may come from somebody else, so that a figure imports nothing.
    sys.modules.pop("own_losses_for_grids")
    registry._imported.clear()
    drawn = call(app, ["plot", "bench", str(out), "--out", str(tmp_path / "figures")])
    assert drawn.exit_code == 0, drawn.output + str(drawn.exception)
    assert "own_losses_for_grids" not in sys.modules
    assert (tmp_path / "figures.svg").exists()


def test_a_method_stands_in_a_papers_table_by_one_command(on_path, root, tmp_path, monkeypatch):
    """docs/benchmarks.md, Your own method: one of another package, and one of the repository."""
    monkeypatch.setattr(runner, "Pool", HereOnly)
    form = {"data": {"reader": "tabular", "dataset": "toy", "root": "toy.npz"}, "about": "",
            "training": {"epochs": 2, "batch_size": 8}, "trials": 1, "seeds": [0, 1]}  # fmt: skip
    declared = {**paper_items.read_bench_yaml(paper_items.ITEMS)}
    declared["forms"] = {**declared["forms"], "voc-few": form}
    monkeypatch.setattr(paper_items, "read_bench_yaml", lambda name: declared)
    words = ["bench", "paper", "003", "--table", "IV", "--form", "voc-few", "--data", str(root)]
    words += ["--out", str(tmp_path), "--add", f"{NAME}:weight=0.5", "--add", "swan"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, (done.output, done.exception)
    rows = (tmp_path / "voc-few.md").read_text()
    lines = [line for line in rows.splitlines() if line.startswith("| `")]
    assert [line.split("`")[1] for line in lines[-2:]] == [f"{NAME}:weight=0.5", "swan"]
    assert lines[0].startswith("| `Full labels`")
    wrong = CliRunner().invoke(app, [*words, "--add", "gone"])
    assert wrong.exit_code != 0


def test_options_of_own_losses_are_checked(on_path):
    with pytest.raises(ConfigError, match="takes no argument 'wieght': did you mean 'weight'"):
        tiny_grid(methods={NAME: {"options": {"wieght": 0.5}}})


def test_tune_searches_arguments_of_own_losses(on_path, root, tmp_path):
    pytest.importorskip("optuna")
    from halftruth.bench.tune import tune

    data = root / "toy.npz"
    labels = tmp_path / "labels.npz"
    import numpy as np

    with np.load(data) as file:
        np.savez(labels, Y=file["Y_train"])
        np.save(tmp_path / "x.npy", file["X_train"])
    settings = {"labels": str(labels), "features": str(tmp_path / "x.npy"), "method": NAME}
    settings |= {"options": {"weight": 0.5}, "epochs": 1, "device": "cpu"}
    tune(
        settings, trials=2, search={"weight": [0.3, 0.6]}, out=tmp_path / "out",
        say=lambda text: None,
    )  # fmt: skip
    best = (tmp_path / "out" / "best.yaml").read_text()
    assert f"method: {NAME}" in best
