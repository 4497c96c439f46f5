"""The command itself: help, methods, check, exit codes, what it prints and where."""

import io
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest
import typer
from rich.console import Console

from halftruth import losses
from halftruth.cli.app import app
from halftruth.cli.options import READING_PANEL
from halftruth.cli.terminal import needs
from halftruth.reading import READING
from halftruth.train.run_logger import RunLogger
from halftruth.train.settings import SETTINGS

COMMANDS = [
    (),
    ("train",),
    ("evaluate",),
    ("predict",),
    ("methods",),
    ("data",),
    ("data", "check"),
    ("demo",),
]


@pytest.fixture
def table(tmp_path):
    rows = [f"i{row}.png,{row % 2},{row % 3 == 0:d},0" for row in range(12)]
    (tmp_path / "labels.csv").write_text("\n".join(["image,cat,dog,eel", *rows]) + "\n")
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32))
    return tmp_path / "labels.csv"


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(command, words):
    code, out, _ = command(*words, "--help")
    assert code == 0
    assert " ".join(("halftruth", *words)) in out
    assert max(map(len, out.splitlines())) <= 80


def list_commands(at=None, words=()):
    """The words of every command, without groups."""
    at = typer.main.get_command(app) if at is None else at
    if not hasattr(at, "commands"):
        return [words]
    return [one for word in at.commands for one in list_commands(at.commands[word], (*words, word))]


def find_options(out):
    """The options that a help text explains."""
    return re.findall(r"^│ [* ]{0,4}(--[a-z0-9-]+)", out, re.MULTILINE)


@pytest.mark.parametrize("words", list_commands(), ids=" ".join)
def test_the_help_of_every_command_is_short_and_has_an_example(command, words):
    code, out, _ = command(*words, "--help")
    assert code == 0
    assert len(find_options(out)) <= 25
    assert len(out.splitlines()) <= 60
    assert not re.search(r"<(list|str|int|float|bool)\b|\[(str|int|path)\]", out)
    assert f"halftruth {' '.join(words)}" in out.split("Usage:")[1].split("\n", 1)[1]
    code, whole, _ = command(*words, "--help-all")
    assert code == 0
    assert set(find_options(out)) <= set(find_options(whole))
    at = typer.main.get_command(app)
    for word in words:
        at = at.commands[word]
    count = sum(one.param_type_name == "option" and not one.hidden for one in at.params) + 1
    assert len(find_options(whole)) == count
    assert ("--help-all" in out) == (count > 20)


def test_the_most_used_settings_come_first(command):
    first = [one.option for one in SETTINGS.values() if one.first]
    assert len(first) == 12
    for option in ("--help", "--help-all"):
        assert find_options(command("train", option)[1])[:12] == first


def test_a_label_file_is_read_with_the_same_options_everywhere():
    found = {}
    for words in ["train", "evaluate", "audit", "data check", "plot data"]:
        at = typer.main.get_command(app)
        for word in words.split():
            at = at.commands[word]
        options = [p for p in at.params if getattr(p, "rich_help_panel", None) == READING_PANEL]
        found[words] = {p.name: p.help for p in options}
    extra = {"group_column", "bad_images"}
    train = {name: text for name, text in found["train"].items() if name not in extra}
    assert len(train) == 18
    assert all(options == train for name, options in found.items() if name != "train")
    assert train.keys() - {"read"} == {name for name, option in READING.items() if option.flag}


@pytest.mark.parametrize(
    "words", [("data", "check"), ("train",), ("audit",), ("plot", "data")], ids=" ".join
)
def test_an_option_that_read_labels_does_not_have(command, table, words):
    code, _, err = command(*words, table, "--read", "epochs=3")
    assert code == 2
    assert "there is no epochs" in " ".join(err.replace("│", " ").split())


def test_help_does_not_wait_for_torch():
    code = "import sys; import halftruth.cli; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_package_is_the_command():
    line = [sys.executable, "-m", "halftruth", "methods", "--help"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "halftruth methods" in done.stdout


def test_methods_lists_every_method_in_80_columns(command):
    code, out, _ = command("methods")
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    words = set(out.split())
    for name in losses.names():
        assert name in words
        for key in losses.registry.signature(name):
            assert key in ("reduction", "eps") or re.search(rf"\b{key}\b", out), (name, key)
    for alias in ("(an)", "(dw)"):
        assert alias in words


def test_methods_by_pattern_and_by_a_wrong_name(command):
    code, out, _ = command("methods", "ll-*")
    assert code == 0
    assert "ll-r" in out
    assert "hill" not in out
    code, out, err = command("methods", "hil")
    assert code == 2
    assert "did you mean 'hill'" in " ".join(err.split())


def test_needs_come_from_the_class():
    assert needs("bce") == []
    assert needs("epr") == ["expected_positives"]
    assert "sample index (memory)" in needs("em-apl")
    assert needs("consistency") == ["3 views per image"]
    assert needs("ll-cp") == ["sample index (memory)"]
    assert needs("scl") == ["sample index (memory)", "class maps (--head cam)"]
    assert needs("pseudo-label") == ["tau", "sample index (memory)", "two trainings"]


def test_data_check_reports_and_suggests(command, table):
    code, out, _ = command("data", "check", table, "--features", table.parent / "x.npy")
    assert "12 rows x 3 classes" in out
    assert "auto, the default" in out
    # eel never occurs.
    assert "eel" in out
    assert code in (0, 1)


@pytest.mark.parametrize(
    ("text", "wrong", "hint"),
    [
        ("image,cat,Patient age\na,1,57\nb,1,\n", 2, "--drop-column 'Patient age'"),
        ("image,cat,dog\na,1,\nb,,\n", 0, "--blank absent"),
        ("image,cat\na,1\na,-1\nb,1\n", 1, "--duplicates merge"),
        ("image,labels\na,cat|dog;cow\nb,cat\n", 2, "(--sep)"),
        ("image,cat,dog\na,1,0\nb,0,0\n", 0, "--zero absent"),
    ],
)
def test_hints_about_reading_can_be_typed(command, tmp_path, text, wrong, hint):
    path = tmp_path / "labels.csv"
    path.write_text(text)
    code, out, err = command("data", "check", path)
    assert (code, hint in " ".join((out + err).split())) == (wrong, True)
    if not hint.startswith("("):
        code, out, err = command("data", "check", path, *shlex.split(hint))
        # The suggested training reads the file in the same way.
        assert hint not in " ".join((out + err).partition("to train: ")[0].split())


def test_data_check_reads_formats_without_duplicates(command, tmp_path):
    (tmp_path / "y.arff").write_text(
        "@relation r\n@attribute f numeric\n@attribute a {0,1}\n@attribute b {0,1}\n@data\n"
        "0.5,1,0\n0.1,0,1\n0.2,1,1\n"
    )
    code, out, err = command("data", "check", tmp_path / "y.arff", "--read", "arff_labels=-2")
    assert "3 rows x 2 classes" in out, err
    assert code in (0, 1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("train", "nowhere.csv", "--features", "x.npy"), "there is no file or folder nowhere"),
        (("evaluate", "nowhere", "labels.csv"), "nowhere holds no run"),
        (("predict", "nowhere"), "nowhere holds no run"),
        (("data", "check", "nowhere.csv"), "there is no such file"),
        (("train", "labels.csv", "--features", "x.npy", "--set", "weight"), "expected key=value"),
        (("train", "labels.csv", "--features", "x.npy", "--epochs", "x"), "epochs"),
        (("train", "labels.csv", "--features", "x.npy", "--zero", "no"), "(--zero): expected"),
        (("train", "labels.csv", "--features", "x.npy", "--split-column", "no"), "no such column"),
    ],
)
def test_mistakes_end_with_2_and_one_message(command, table, monkeypatch, words, message):
    monkeypatch.chdir(table.parent)
    code, _, err = command(*words)
    assert code == 2
    assert message in err
    assert "Traceback" not in err


def test_a_run_prints_plain_lines_where_there_is_no_terminal(command, table):
    folder = table.parent
    line = ("train", table, "--features", folder / "x.npy", "--out", folder / "run")
    code, out, err = command(*line, "-m", "em", "--epochs", 2, "--device", "cpu", "--val", 0.4)
    assert code == 0
    assert out == ""
    assert "all epoch 2/2: loss" in err
    assert "12 rows x 3 classes" in err
    assert "never present in the training rows: 'eel'" in err
    assert "\x1b" not in err
    assert "\r" not in err
    code, out, err = command(*line[:-1], folder / "quiet", "-q", "--device", "cpu", "--val", 0.4)
    assert (code, out, err) == (0, "", "")


@pytest.mark.parametrize(
    ("where", "options", "words"),
    [
        ("run.choose_plan", ("--method", "em"), "with --budget 0 auto tries no settings"),
        (
            "plans.ensemble.fit_ensemble_to_run",
            (),
            "the same command starts again, from what is saved",
        ),
        ("run.load_task", (), "stopped at once"),
    ],
)
def test_ctrl_c_before_training(command, table, monkeypatch, where, options, words):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"halftruth.train.{where}", interrupt)
    run = table.parent / "run"
    line = ("train", table, "--features", table.parent / "x.npy", "--out", run, "--val", 0.3)
    code, _, err = command(*line, *options)
    assert code == 130
    assert words in " ".join(err.split())
    # The same command may begin again.
    assert not (run / "last.safetensors").exists()


def test_ctrl_c_after_the_training_continues(command, table, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    run = table.parent / "stopped"
    line = ("train", table, "--features", table.parent / "x.npy", "--out", run, "--val", 0.3)
    with monkeypatch.context() as patch:
        patch.setattr("halftruth.train.plans.plan.evaluate_run", interrupt)
        code, _, err = command(*line, "--method", "em", "--epochs", 1)
    assert code == 130
    assert "everything is saved. Continue with" in " ".join(err.split())
    assert "before the training" not in err
    assert command("train", "--resume", "--out", run)[0] == 0
    assert (run / "result.json").exists()


@pytest.mark.parametrize("terminal", [True, False])
def test_the_bar_is_for_terminals(terminal):
    logger, screen = RunLogger(None), io.StringIO()
    logger.console = Console(file=screen, force_terminal=terminal, width=80)
    with logger.progress("reading", 3) as advance:
        for _ in range(3):
            advance()
    assert ("reading" in screen.getvalue()) is terminal
