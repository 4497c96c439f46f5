"""A loss of another package: named as package.module:Class, or given as an instance or a class."""

import copy
import functools
import importlib.util
import json
import shutil
import site
import sys

import numpy as np
import pandas as pd
import pytest
import yaml
from real_processes import Command
from sklearn.base import clone
from tiny_data import arguments, assert_same_run
from typer.testing import CliRunner

import halftruth
from halftruth import HalftruthClassifier, losses
from halftruth.cli.app import app
from halftruth.losses import Loss, curves, registry
from halftruth.train import ConfigError
from halftruth.train.run_folder import write_manifest

NAME = "strangers.softer.losses:Softer"
MODULE = '''
import os
from pathlib import Path
from halftruth.losses import Loss, curves

if "MARK" in os.environ:
    Path(os.environ["MARK"]).touch()


class Softer(Loss):
    """Unknown labels are negatives of a low weight."""

    paper = "none"
    unknown_is = "negative of a low weight"

    def __init__(self, weight: float, power: int = 1, **options):
        super().__init__(**options)
        if not 0 < weight < 1:
            raise ValueError(f"expected weight between 0 and 1, got {weight}")
        self.scale = weight**power

    def unknown(self, s):
        return curves.scaled(self.absent(s), self.scale)


class Table:
    pass
'''


class AtTop(Loss):
    """Cross-entropy, in a module that other processes may not find."""

    def unknown(self, s):
        return curves.scaled(self.absent(s), 0.5)


@pytest.fixture(scope="session")
def package(tmp_path_factory):
    """The folder of a package that is not installed."""
    folder = tmp_path_factory.mktemp("path")
    (folder / "strangers" / "softer").mkdir(parents=True)
    for place in ("strangers", "strangers/softer"):
        (folder / place / "__init__.py").touch()
    (folder / "strangers" / "softer" / "losses.py").write_text(MODULE)
    (folder / "strangers" / "broken.py").write_text("import none_such\n")
    (folder / "strangers" / "typo.py").write_text("class X(:\n")
    return folder


@pytest.fixture
def softer(package, monkeypatch):
    """The class, imported; it is forgotten afterwards."""
    monkeypatch.syspath_prepend(str(package))
    before = set(sys.modules)
    yield __import__(NAME.partition(":")[0], fromlist=["Softer"]).Softer
    for name in set(sys.modules) - before:
        if name.startswith("strangers"):
            del sys.modules[name]
    registry._imported.clear()


@pytest.fixture
def settings(on_features):
    return {**on_features, "method": NAME, "epochs": 4}


def test_a_run_that_was_killed_is_resumed_and_predicts_without_the_package(
    settings, package, data, tmp_path
):
    """Trained by the command, in other processes."""
    on_path = functools.partial(site.addsitedir, str(package))
    settings |= {"checkpoint_every": 1, "epochs": 12}
    options = {name: value for name, value in settings.items() if name != "labels"}
    given = ("train", settings["labels"], *arguments(options), "--set", "weight=0.3")

    def start(out, *more):
        log = tmp_path / f"{out}.log"
        return Command(*given, "--out", tmp_path / out, *more, log=log, before=on_path)

    assert (running := start("whole")).wait() == 0, running.output()
    running = start("killed")
    assert running.until((tmp_path / "killed" / "last.safetensors").exists)
    running.kill()
    assert not (tmp_path / "killed" / "result.json").exists(), "it ended before it was killed"
    stored = yaml.safe_load((tmp_path / "killed" / "config.yaml").read_text())
    assert (stored["method"], stored["options"]) == (NAME, {"weight": 0.3})
    resume = ("train", "--resume", "--out", tmp_path / "killed")
    without = Command(*resume, log=tmp_path / "without.log")
    assert without.wait() == 2
    assert "'strangers.softer.losses' cannot be imported" in without.output()
    resumed = Command(*resume, log=tmp_path / "resume.log", before=on_path)
    assert resumed.wait() == 0, resumed.output()
    assert_same_run(tmp_path / "whole", tmp_path / "killed")
    table = tmp_path / "p.csv"
    predict = ("predict", tmp_path / "killed", data / "features.npy", "--out", table)
    running = Command(*predict, log=tmp_path / "predict.log")
    assert running.wait() == 0, running.output()
    assert len(pd.read_csv(table)) == 44


def test_no_command_but_training_imports_the_class(settings, package, data, tmp_path):
    """The folder may come from somebody else."""
    run = tmp_path / "run"
    halftruth.fit(**{**settings, "method": "em"}, out=run, truth=data / "truth.csv", quiet=True)
    stored = yaml.safe_load((run / "config.yaml").read_text())
    options = {"weight": 0.3}
    for name, method, own in (
        ("direct", NAME, options),
        ("inside", "any-class", {"base": {"name": NAME, **options}}),
    ):
        shutil.copytree(run, tmp_path / name)
        text = yaml.safe_dump({**stored, "method": method, "options": own})
        (tmp_path / name / "config.yaml").write_text(text)
        write_manifest(tmp_path / name)
        labels, features = data / "labels.csv", data / "features.npy"
        with_features = ("--features", features)
        lines = [
            ("predict", tmp_path / name, features, "--out", tmp_path / f"{name}.csv"),
            ("evaluate", tmp_path / name),
            ("evaluate", tmp_path / name, labels, *with_features),
            ("audit", tmp_path / name, labels, *with_features, "--out", tmp_path / f"{name}-audit"),
            ("plot", "run", tmp_path / name, "--out", tmp_path / f"{name}-figures"),
        ]
        script = functools.partial(call_all, lines, str(package), str(tmp_path / "mark"))
        running = Command("--version", log=tmp_path / f"{name}.log", before=script)
        assert running.wait() == 0, running.output()
    assert not (tmp_path / "mark").exists()


def call_all(lines, package, mark):
    """Call several commands, with a module on the path that leaves a mark when imported."""
    import os

    site.addsitedir(package)
    os.environ["MARK"] = mark
    for words in lines:
        result = CliRunner().invoke(app, [str(word) for word in words])
        assert result.exit_code == 0, (words, result.output, result.exception)
    if importlib.util.find_spec("flask") is None:
        return  # the commands were called, and there is no server to ask
    from halftruth import serve

    answer = serve.make_app(halftruth.load(lines[0][1], device="cpu")).test_client()
    row = np.zeros((1, 3)).tolist()
    assert answer.post("/predict", json={"features": row}).status_code == 200


# ---------------------------------------------------------------------- instances and classes


def test_an_instance_is_stored_with_its_arguments(softer, settings, tmp_path):
    """fit with the name, the class and the instance is the same run."""
    common = {**settings, "quiet": True, "report": True}
    given = {
        "name": {"options": {"weight": 0.3, "power": 2}},
        "class": {"method": softer, "options": {"weight": 0.3, "power": 2}},
        "instance": {"method": softer(np.float64(0.3), power=2)},
    }
    for out, one in given.items():
        halftruth.fit(**{**common, **one}, out=tmp_path / out)
        stored = yaml.safe_load((tmp_path / out / "config.yaml").read_text())
        assert (stored["method"], stored["options"]) == (NAME, {"weight": 0.3, "power": 2})
        assert_same_run(tmp_path / "name", tmp_path / out)
        assert NAME in (tmp_path / out / "report.html").read_text()
    halftruth.fit(**{**common, **given["instance"]}, out=tmp_path / "instance", resume=True)
    other = {**common, "method": softer(0.4)}
    with pytest.raises(halftruth.train.CheckpointError, match="options was"):
        halftruth.fit(**other, out=tmp_path / "instance", resume=True)


def test_a_recipe_names_the_class(softer, settings, tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump({**settings, "options": {"weight": 0.3}, "epochs": 1}))
    line = ["train", recipe, "--out", tmp_path / "run", "--quiet"]
    result = CliRunner().invoke(app, [str(word) for word in line])
    assert result.exit_code == 0, result.output + str(result.exception)


def test_built_in_methods_may_be_given_as_instances(settings, tmp_path):
    common = {**settings, "quiet": True, "epochs": 1}
    method = losses.AnyClass(base=losses.Hill(lam=1.2), lam=0.5)
    halftruth.fit(**{**common, "method": method}, out=tmp_path / "run")
    stored = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert stored["method"] == "any-class"
    assert stored["options"] == {"base": {"name": "hill", "lam": 1.2}, "lam": 0.5}


@pytest.mark.parametrize("name", losses.names())
def test_every_loss_is_described_by_a_name_that_builds_it_again(name):
    required = {"tau": 0.7, "epsilon": 0.1, "expected_positives": 1.5}
    signature = registry.signature(name)
    needed = [key for key, p in signature.items() if p.default is p.empty]
    loss = losses.create(name, **{key: required.get(key, 1.5) for key in needed})
    for one in (loss, copy.deepcopy(loss)):
        found, options = registry.describe(one, stored=True)
        again = losses.create(found, **json.loads(json.dumps(options)))
        assert type(again) is type(loss)
        assert again.arguments == loss.arguments
    assert registry.get(found) is registry.get(name)


def test_the_estimator_takes_an_instance_or_a_class(softer, data):
    """Nothing is stored, so that the class may also be local."""
    X, y = np.load(data / "features.npy"), pd.read_csv(data / "labels.csv").iloc[:, 2:]

    class Local(Loss):
        def __init__(self, weight=0.3, **options):
            super().__init__(**options)
            self.weight = weight

        def unknown(self, s):
            return curves.scaled(self.absent(s), self.weight)

    given = [
        {"method": NAME, "options": {"weight": 0.3}},
        {"method": softer, "options": {"weight": 0.3}},
        {"method": softer(0.3)},
        {"method": Local},
        {"method": Local(0.3)},
    ]
    scores = [
        clone(HalftruthClassifier(epochs=2, **one)).fit(X, y).decision_function(X) for one in given
    ]
    for other in scores[1:]:
        assert np.array_equal(scores[0], other)
    other = HalftruthClassifier(softer(0.9), epochs=2).fit(X, y).decision_function(X)
    assert not np.array_equal(scores[0], other)


# ---------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.such:Softer", "'none.such' cannot be imported .* folder that holds none on PYTHONP"),
        ("strangers.broken:X", "No module named 'none_such'.*; .*install what it imports"),
        ("strangers.typo:X", r"SyntaxError: .*typo\.py, line 1\)\); mend the module"),
        ("strangers.softer.losses:Sofetr", "has no 'Sofetr'; the loss classes in .* are: Softer"),
        ("strangers.softer.losses:Table", r"expected a subclass of .*Loss, got .*Table'>"),
        ("strangers.softer.losses:", "has no ''"),
        (":Softer", "cannot be imported"),
        ("softer", "one of your own is package.module:Class"),
    ],
)
def test_a_wrong_path_says_what_is_wrong(softer, settings, name, message):
    with pytest.raises(ConfigError, match=f"method: .*{message}"):
        halftruth.fit(**{**settings, "method": name}, quiet=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, 'needs weight, for instance options={"weight": 0.5}'),
        ({"wieght": 0.3}, "takes no argument 'wieght': did you mean 'weight'"),
        ({"weight": 3}, "expected weight between 0 and 1, got 3"),
    ],
)
def test_options_are_checked_against_the_class(softer, settings, options, message):
    with pytest.raises(ConfigError, match=f"options: .*{message}"):
        halftruth.fit(**settings, options=options, quiet=True)


def test_what_cannot_be_stored_is_refused(softer, settings):
    class Local(Loss):
        pass

    main = type("Main", (Loss,), {"__module__": "__main__"})
    cases = [
        (Local, "method: loss .*Local: a run must find its class again.*top level of a module"),
        (main(), "'__main__:Main' cannot be imported"),
        (softer(0.3, power=1j), "cannot hold its argument power, 1j"),
        (int, "expected a name, package.module:Class, a loss or its class, got <class 'int'>"),
        (3, "expected a name, .* got 3"),
    ]
    for method, message in cases:
        with pytest.raises(ConfigError, match=message):
            halftruth.fit(**{**settings, "method": method}, quiet=True)
    wrong = {**settings, "method": softer(0.3), "options": {"weight": 0.2}}
    with pytest.raises(ConfigError, match=r"options: have no effect, .* a built Softer"):
        halftruth.fit(**wrong, quiet=True)


def test_a_registered_name_still_works_in_its_process(settings, tmp_path):
    losses.registry.register("at-top")(AtTop)
    try:
        halftruth.fit(**{**settings, "method": "at-top", "epochs": 1}, out=tmp_path, quiet=True)
    finally:
        for table in (registry._classes, registry._presets):
            del table["at-top"]
    assert yaml.safe_load((tmp_path / "config.yaml").read_text())["method"] == "at-top"


def test_methods_describes_a_class_of_another_package(softer):
    result = CliRunner().invoke(app, ["methods", NAME])
    assert result.exit_code == 0
    assert "a low weight" in " ".join(result.output.split())
    assert "power=1" in result.output
