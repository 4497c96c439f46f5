"""`halftruth plot ...` on the command line: files written, mistakes answered in one line."""

import sys

import numpy as np
import pandas as pd
import pytest
from legible import assert_legible

from halftruth.cli import main
from halftruth.plots.style import (
    Drawing,
    name_points,
    panels,
    save,
    save_all,
    shorten,
    styled,
)


@pytest.fixture
def command(monkeypatch, tmp_path, capsys):
    """Run `halftruth plot ...` in an empty folder: (exit code, printed text)."""
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


def test_losses_with_arguments_and_a_schedule(command, tmp_path):
    code, said = command("losses", "hill", "asl:margin=0.2", "--at", "0,1", "-o", "a.svg")
    assert (code, said) == (0, "a.svg a.csv")
    assert set(pd.read_csv(tmp_path / "a.csv")["method"]) == {"hill", "asl:margin=0.2"}


def test_without_out_svg_and_png_are_written(command, tmp_path):
    assert command("losses", "hill")[0] == 0
    found = sorted(path.name for path in (tmp_path / "plots").iterdir())
    assert found == ["losses.csv", "losses.png", "losses.svg"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["losses", "hil"], "did you mean 'hill'"),
        (["losses", "hill", "--at", "x"], "expected numbers separated by commas"),
        (["losses", "hill", "--at", "3"], "from 0 to 1"),
        (["losses", "epr"], "needs expected_positives"),
        (["losses", "hill", "-o", "a.gif"], "expected a file that ends in .svg, .pdf, .png"),
        (["losses", "las:lam=1e-2,"], "expected name:key=value"),
        (["losses", "hill", "-o", "file/losses"], "is a file; expected a folder"),
        (["surface", "any-class", "-o", "file"], "is a file; expected a folder"),
        (["data", "labels.csv", "--read-truth", "zero=absent"], "has no effect without --truth"),
        (["surface", "any-clas"], "did you mean 'any-class'"),
        (["run", "nowhere"], "holds no run"),
        (["data", "nowhere.csv"], "nowhere.csv"),
        (["bench", "nowhere.jsonl"], "there is no such results file"),
    ],
)
def test_a_mistake_is_one_message_and_exit_code_2(command, tmp_path, words, said):
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "labels.csv").write_text("image,cat\na,1\nb,0\n")
    code, text = command(*words)
    assert code == 2
    assert said in text.replace(" │ │ ", " ")
    assert "Traceback" not in text


def test_run_figures_go_to_the_run_folder_and_left_out_ones_are_listed(command, make_run):
    folder = make_run("blind", known=False)
    code, said = command("run", folder, "-f", "curves", "-f", "labelled-loss")
    assert code == 0
    assert {path.stem for path in (folder / "plots").iterdir()} == {"curves", "labelled-loss"}
    (folder / "classes.csv").unlink()
    code, said = command("run", folder, "-o", "all.svg")
    assert code == 0
    assert "left out: separation" in said
    assert "all-curves.svg" in said


def test_data_with_hidden_labels(command, tmp_path):
    table = {"image": ["a", "b", "c", "d"], "cat": [1, 0, 1, 1], "dog": [1, 1, 0, 1]}
    pd.DataFrame(table).to_csv(tmp_path / "labels.csv", index=False)
    pd.DataFrame({"image": ["a", "b", "c", "d"], "cat": [1, 0, 1, 0], "dog": [0, 1, 0, 1]}).to_csv(
        tmp_path / "shown.csv", index=False
    )
    code, _ = command("data", "shown.csv", "--truth", "labels.csv", "-o", "figures")
    assert code == 0
    counts = pd.read_csv(tmp_path / "figures" / "counts.csv").set_index("class")
    assert (counts["labelled"] + counts["hidden"]).to_dict() == {"cat": 3, "dog": 3}
    assert counts["hidden"].sum() == 2


def test_one_label_per_row_is_said_to_have_no_co_occurrence(command, tmp_path):
    (tmp_path / "labels.csv").write_text("image,cat,dog\na,1,0\nb,0,1\n")
    code, said = command("data", "labels.csv", "-o", "figures")
    assert code == 0
    assert said.endswith("left out: co-occurrence: no row has two present labels")


def small(name: str) -> Drawing:
    figure, _ = styled(panels)(1, 1)
    return Drawing(name, figure, pd.DataFrame({"x": [1, 2]}))


def test_several_figures_go_to_a_folder_or_share_a_prefix(tmp_path):
    both = [small("one"), small("two")]
    named = save_all(both, tmp_path / "x.svg")
    assert [path.name for path in named] == ["x-one.svg", "x-one.csv", "x-two.svg", "x-two.csv"]
    assert [path.name for path in save_all(both[:1], tmp_path / "y.png")] == ["y.png", "y.csv"]
    inside = save_all(both[:1], tmp_path)
    assert inside == [tmp_path / f"one{suffix}" for suffix in (".svg", ".png", ".csv")]
    # A dot in a name, as of a swept value, is no file ending.
    dotted = save_all([small("sweep-0.01"), small("two")], tmp_path)
    assert {path.stem for path in dotted} == {"sweep-0-01", "two"}


def test_equal_figures_are_equal_files(tmp_path):
    one, two = (save(small("a"), tmp_path / f"{n}.svg")[0].read_bytes() for n in range(2))
    assert one == two


def test_names_next_to_points_do_not_overlap():
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
    assert shorten("short") == "short"
    long = shorten("has_bill_shape::curved_(up_or_down)", 16)
    assert len(long) == 16
    assert long.startswith("has_bil")
    assert long.endswith("or_down)")
    assert shorten("5 $") == r"5 \$"
