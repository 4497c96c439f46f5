"""`halftruth plot ...` as typed: files written, mistakes answered in a line."""

import sys

import numpy as np
import pandas as pd
import pytest
from legible import assert_legible

from halftruth.cli import main
from halftruth.plots.style import name_points, panels, save_all, shortened, styled


@pytest.fixture
def command(monkeypatch, tmp_path, capsys):
    """`halftruth plot ...` in an empty folder: (exit code, what it said)."""
    monkeypatch.chdir(tmp_path)

    def run(*words) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["halftruth", "plot", *map(str, words)])
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        said = capsys.readouterr()
        return code, " ".join((said.out + said.err).split())

    return run


def test_losses(command, tmp_path):
    code, said = command("losses", "hill", "asl:margin=0.2", "--at", "0,1", "-o", "a.svg")
    assert (code, said) == (0, "a.svg a.csv")
    assert set(pd.read_csv(tmp_path / "a.csv")["method"]) == {"hill", "asl:margin=0.2"}


def test_without_a_name_vector_and_pixels(command, tmp_path):
    assert command("losses", "hill")[0] == 0
    found = sorted(path.name for path in (tmp_path / "plots").iterdir())
    assert found == ["losses.csv", "losses.png", "losses.svg"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["losses", "hil"], "did you mean 'hill'"),
        (["losses", "hill", "--at", "x"], "expected numbers with commas"),
        (["losses", "hill", "--at", "3"], "from 0 to 1"),
        (["losses", "epr"], "needs expected_positives"),
        (["losses", "hill", "-o", "a.gif"], "expected a file that ends in .svg, .pdf, .png"),
        (["surface", "any-clas"], "did you mean 'any-class'"),
        (["run", "nowhere"], "holds no run"),
        (["data", "nowhere.csv"], "nowhere.csv"),
        (["tune", "nowhere"], "there is no study here"),
        (["bench", "nowhere.jsonl"], "there is no such file of results"),
    ],
)
def test_a_mistake_is_a_line_and_exit_code_2(command, words, said):
    code, text = command(*words)
    assert code == 2
    assert said in text.replace(" │ │ ", " ")
    assert "Traceback" not in text


def test_run_writes_into_the_runs_folder_and_says_what_it_left_out(command, make_run):
    folder = make_run("blind", known=False)
    code, said = command("run", folder, "-f", "curves", "-f", "labelled-loss")
    assert code == 0
    assert {path.stem for path in (folder / "plots").iterdir()} == {"curves", "labelled-loss"}
    (folder / "classes.csv").unlink()
    code, said = command("run", folder, "-o", "all.pdf")
    assert code == 0
    assert "left out: separation" in said
    assert "all-curves.pdf" in said


def test_data_with_hidden_labels(command, tmp_path):
    table = {"image": ["a", "b", "c", "d"], "cat": [1, 0, 1, 1], "dog": [1, 1, 0, 1]}
    pd.DataFrame(table).to_csv(tmp_path / "labels.csv", index=False)
    code, _ = command("data", "labels.csv", "--hide", "single", "-o", "figures")
    assert code == 0
    counts = pd.read_csv(tmp_path / "figures" / "counts.csv").set_index("class")
    assert (counts["labelled"] + counts["hidden"]).to_dict() == {"cat": 3, "dog": 3}
    assert counts["hidden"].sum() == 2


def test_several_figures_in_a_file_name_or_a_folder(tmp_path):
    from halftruth.plots.losses import draw_losses
    from halftruth.plots.surface import draw_means

    both = [draw_losses(["em"], points=5), draw_means(points=5)]
    named = save_all(both, tmp_path / "x.svg")
    assert [path.name for path in named[::2]] == ["x-losses.svg", "x-means.svg"]
    assert (tmp_path / "x-means.csv").is_file()
    inside = save_all(both[:1], tmp_path)
    assert inside[0] == tmp_path / "losses.svg"


def test_names_beside_points_never_meet():
    figure, grid = styled(panels)(1, 1)
    random = np.random.default_rng(0)
    points = [(x, y, f"name {n}") for n, (x, y) in enumerate(random.random((40, 2)))]
    grid[0, 0].plot([p[0] for p in points], [p[1] for p in points], ".")
    grid[0, 0].set_xlabel("x")
    grid[0, 0].set_ylabel("y")
    written = name_points(grid[0, 0], points)
    assert 5 < len(written) < len(points)
    assert_legible(figure)


def test_names_are_shortened_in_the_middle():
    assert shortened("short") == "short"
    long = shortened("has_bill_shape::curved_(up_or_down)", 16)
    assert len(long) == 16
    assert long.startswith("has_bil")
    assert long.endswith("or_down)")
    assert shortened("5 $") == r"5 \$"
