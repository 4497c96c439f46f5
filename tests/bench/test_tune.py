"""The search over a method's settings, with Optuna."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

from halftruth import fit
from halftruth.bench.search_space import RATES, search_space
from halftruth.bench.tune import TuneError, tune, with_values
from halftruth.cli import main
from halftruth.metrics import evaluate
from halftruth.train import Config, ConfigError, load_settings
from halftruth.train.run import Run

optuna = pytest.importorskip("optuna")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Labels that can be predicted from the features, one positive shown per row."""
    folder = tmp_path_factory.mktemp("tune")
    random = np.random.default_rng(0)
    truth = random.random((80, 3)) < 0.5
    truth[np.arange(80), random.integers(3, size=80)] = True
    lines = ["item,split,a,b,c"]
    for row, there in enumerate(truth):
        shown = np.zeros(3, int)
        shown[random.choice(np.flatnonzero(there))] = 1
        part = ("train", "train", "val", "test")[row % 4]
        lines.append(f"i{row},{part}," + ",".join(map(str, shown)))
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")
    np.save(folder / "x.npy", (truth + random.normal(0, 0.4, (80, 3))).astype(np.float32))
    return folder


@pytest.fixture
def settings(data):
    return {
        "labels": str(data / "labels.csv"), "features": str(data / "x.npy"), "method": "em",
        "device": "cpu", "epochs": 3, "batch_size": 16,
    }  # fmt: skip


def test_the_recipe_holds_the_settings_of_the_best_trial(settings, tmp_path):
    path = tune(settings, trials=6, out=tmp_path / "t", say=lambda text: None)
    study = optuna.load_study(study_name="halftruth", storage=f"sqlite:///{tmp_path}/t/study.db")
    assert len(study.trials) == 6
    best, recipe = study.best_trial, yaml.safe_load(path.read_text())
    assert recipe["head_lr"] == float(f"{best.params['head_lr']:.3g}")
    assert recipe["options"] == {"alpha": json.loads(best.params["alpha"])}
    assert list((tmp_path / "t" / "trials").iterdir()) == []
    config = load_settings(path, {"out": str(tmp_path / "run"), "device": "cpu"})
    result = fit(config, quiet=True, report=False)
    assert result.best_score == pytest.approx(study.best_value, abs=1e-9)


def test_the_first_trial_uses_the_given_settings(settings, tmp_path):
    given = {**settings, "head_lr": 0.002, "options": {"alpha": 0.4}}
    tune(given, trials=1, out=tmp_path, say=lambda text: None)
    (trial,) = optuna.load_study(
        study_name="halftruth", storage=f"sqlite:///{tmp_path}/study.db"
    ).trials
    assert trial.params == {"head_lr": 0.002, "alpha": "0.4"}


def test_workers_share_a_study_and_stop_together(settings, tmp_path):
    storage, said = f"sqlite:///{tmp_path / 'shared.db'}", []
    for worker in ("one", "two"):
        tune(
            settings, trials=4 if worker == "one" else 5, storage=storage, study="s",
            out=tmp_path / worker, say=said.append,
        )  # fmt: skip
    assert len(optuna.load_study(study_name="s", storage=storage).trials) == 5
    assert sum(line.startswith("trial ") for line in said) == 5
    recipes = [(tmp_path / worker / "best.yaml").read_text() for worker in ("one", "two")]
    assert all("labels: " in recipe for recipe in recipes)


def test_bad_trials_are_stopped_early(settings, tmp_path):
    """Five trials with a useful learning rate, then rates that are far too small."""
    search = {"head_lr": {"low": 1e-2, "high": 2e-2}, "alpha": [0.1]}
    slow = {"head_lr": {"low": 1e-9, "high": 2e-9}, "alpha": [0.1]}
    given = {**settings, "epochs": 6}
    storage = f"sqlite:///{tmp_path / 's.db'}"
    common = {"storage": storage, "out": tmp_path, "say": lambda text: None}
    tune(given, trials=5, search=search, **common)
    study = optuna.load_study(study_name="halftruth", storage=storage)
    assert {trial.state.name for trial in study.trials} == {"COMPLETE"}
    best = study.best_value
    tune(given, trials=7, search=slow, **common)
    states = [trial.state.name for trial in study.trials[5:]]
    assert states == ["PRUNED", "PRUNED"]
    assert all(len(trial.intermediate_values) < 6 for trial in study.trials[5:])
    assert study.best_value == best


def test_trials_are_not_stopped_before_the_given_epoch(settings, tmp_path):
    """As the first 22 of 90 epochs in the any-class paper; here 4 of 6, then every 2."""
    search = {"head_lr": {"low": 1e-2, "high": 2e-2}, "alpha": [0.1]}
    slow = {"head_lr": {"low": 1e-9, "high": 2e-9}, "alpha": [0.1]}
    given, storage = {**settings, "epochs": 6}, f"sqlite:///{tmp_path / 's.db'}"
    common = {"storage": storage, "out": tmp_path, "say": lambda text: None}
    common |= {"prune_after": 4, "prune_every": 2}
    tune(given, trials=5, search=search, **common)
    tune(given, trials=6, search=slow, **common)
    last = optuna.load_study(study_name="halftruth", storage=storage).trials[-1]
    assert last.state.name == "PRUNED"
    assert len(last.intermediate_values) == 5


def test_an_objective_can_be_a_metric_of_complete_labels(settings, data, tmp_path):
    truth = tmp_path / "truth.csv"
    lines = (data / "labels.csv").read_text().splitlines()
    x = np.load(data / "x.npy") > 0.5
    cells = [",".join(line.split(",")[:2]) for line in lines[1:]]
    rows = [
        f"{cell}," + ",".join(map(str, there.astype(int)))
        for cell, there in zip(cells, x, strict=True)
    ]
    truth.write_text("\n".join([lines[0], *rows]) + "\n")
    reading = {"reading_truth": {"zero": "absent"}}
    given = {**settings, **reading, "truth": str(truth), "epochs": 1}
    path = tune(given, trials=2, objective="macro_F2", out=tmp_path, say=lambda text: None)
    assert "validation macro_F2" in path.read_text()
    study = optuna.load_study(study_name="halftruth", storage=f"sqlite:///{tmp_path}/study.db")
    config = load_settings(path, {"out": str(tmp_path / "again"), "device": "cpu"})
    details = Run(config, quiet=True).go().details
    rows = details.task.splits.val
    raw = 1 / (1 + np.exp(-details.logits["val"]))
    found = evaluate(raw, details.task.truth[rows])["macro_F2"]
    assert study.best_value == pytest.approx(found, abs=1e-9)
    # The pruner compares epochs by the objective, too.
    one = tmp_path / "one"
    fixed = {"head_lr": None}
    tune(given, trials=1, search=fixed, objective="macro_F2", out=one, say=lambda text: None)
    (trial,) = optuna.load_study(study_name="halftruth", storage=f"sqlite:///{one}/study.db").trials
    assert "head_lr" not in trial.params
    assert trial.intermediate_values[0] == pytest.approx(trial.value, abs=1e-9)
    with pytest.raises(TuneError, match="belongs to another search: objective was 'macro_F2'"):
        tune(given, trials=3, out=tmp_path, say=lambda text: None)
    with pytest.raises(TuneError, match=r"objective F2_CIW: .*a"):
        tune(given, trials=1, objective="F2_CIW", out=tmp_path / "b", say=lambda text: None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "F3"}, "expected one of selection, macro_F2, F2_CIW"),
        ({"prune_every": 0}, "prune_every >= 1"),
        ({"objective": "macro_F2", "trials": 1}, "needs complete labels of the validation rows"),
    ],
)
def test_wrong_objectives_are_refused(settings, tmp_path, options, message):
    with pytest.raises(TuneError, match=message):
        tune({**settings, "epochs": 1}, out=tmp_path, say=lambda text: None, **options)


def test_a_required_argument_that_is_searched_need_not_be_given(settings, tmp_path):
    given = {**settings, "method": "pseudo-label", "epochs": 1}
    path = tune(given, trials=1, out=tmp_path, say=lambda text: None)
    assert 0 < yaml.safe_load(path.read_text())["options"]["tau"] < 1


def test_the_search_space_has_rates_arguments_and_given_axes(settings):
    config = load_settings(None, settings)
    assert search_space(config, {}).keys() == {"head_lr", "alpha"}
    assert search_space(config, {"dropout": [0.0, 0.5]}).keys() == {"head_lr", "alpha", "dropout"}
    changed = with_values(config, {"dropout": 0.5, "alpha": 0.7})
    assert (changed.dropout, changed.options) == (0.5, {"alpha": 0.7})
    with pytest.raises(ConfigError, match="neither em nor training takes 'alfa'"):
        search_space(config, {"alfa": [1]})
    with pytest.raises(ConfigError, match="search of alpha: expected"):
        search_space(config, {"alpha": {"low": 2}})


@pytest.mark.parametrize(
    ("given", "rates"),
    [
        ({"tune": "head"}, ["head_lr"]),
        ({"tune": "all"}, ["lr"]),
        ({"tune": "head-first"}, ["lr", "head_lr"]),
        ({"tune": "all", "features": "x.npy"}, ["head_lr"]),
    ],
)
def test_rates_without_effect_are_not_searched(given, rates):
    config = Config(**{"images": ["photos"], "method": "wan", **given})
    assert [name for name in search_space(config, {}) if name in RATES] == rates
    for idle in RATES.keys() - set(rates):
        with pytest.raises(ConfigError, match=f"{idle} has no effect here"):
            search_space(config, {idle: [1e-3]})


@pytest.mark.parametrize("method", ["auto", "ensemble"])
def test_auto_cannot_be_searched(method):
    with pytest.raises(ConfigError, match="name one"):
        search_space(Config(method=method, features=["x"]), {})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "hill"}, "method was 'em', now 'hill'"),
        ({"select": "last"}, "select was 'auto', now 'last'"),
        ({"val": 0.3}, "val was None, now 0.3"),
        ({"epochs": 2}, "epochs was 1, now 2"),
        ({"labels": "other.csv"}, "content of labels differs"),
        ({"features": "other.npy"}, "content of features differs"),
    ],
)
def test_a_study_refuses_other_data_methods_and_objectives(
    settings, tmp_path, change, message, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.csv").write_bytes(Path(settings["labels"]).read_bytes() + b"\n")
    np.save(tmp_path / "other.npy", np.load(settings["features"]) + 1)
    given, quiet = {**settings, "epochs": 1}, {"out": tmp_path, "say": lambda text: None}
    tune(given, trials=1, **quiet)
    with pytest.raises(TuneError, match=re.escape(message)):
        tune({**given, **change}, trials=2, **quiet)


def test_a_study_accepts_the_same_data_at_another_path(settings, tmp_path):
    copy = tmp_path / "copy.csv"
    copy.write_bytes(Path(settings["labels"]).read_bytes())
    given, quiet = {**settings, "epochs": 1}, {"out": tmp_path, "say": lambda text: None}
    tune(given, trials=1, **quiet)
    tune({**given, "labels": str(copy)}, trials=2, **quiet)


def test_a_study_of_another_program_is_refused(settings, tmp_path):
    storage = f"sqlite:///{tmp_path / 's.db'}"
    other = optuna.create_study(study_name="halftruth", storage=storage)
    other.add_trial(optuna.trial.create_trial(value=1.0))
    with pytest.raises(TuneError, match="does not record its data"):
        tune(settings, storage=storage, out=tmp_path, trials=1)


@pytest.mark.parametrize(
    "storage", ["sqlite:///{folder}/broken.db", "nothing", "sqlite:////no/such/folder/x.db"]
)
def test_a_broken_storage_is_a_clear_error(settings, tmp_path, storage):
    (tmp_path / "broken.db").write_text("this is not a database " * 99)
    with pytest.raises(TuneError, match="cannot be opened as a storage of Optuna"):
        tune(settings, storage=storage.format(folder=tmp_path), out=tmp_path, trials=1)


def test_an_interrupted_search_continues_with_the_same_trial(
    settings, tmp_path, monkeypatch, capsys
):
    call = [
        "halftruth", "tune", settings["labels"], "--features", settings["features"], "--method",
        "em", "--trials", "3", "--setting", "epochs=1", "--setting", "device=cpu",
        "--out", str(tmp_path),
    ]  # fmt: skip
    monkeypatch.setattr(sys, "argv", call)
    calls, go = [], Run.go

    def interrupt_the_second(run, *args, **named):
        calls.append(run)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return go(run, *args, **named)

    monkeypatch.setattr(Run, "go", interrupt_the_second)
    codes, texts = [], []
    for _ in range(2):
        with pytest.raises(SystemExit) as done:
            main()
        codes.append(done.value.code)
        texts.append("".join(capsys.readouterr()))
    assert codes == [130, 0]
    assert "the same command continues the study" in texts[0]
    assert "Traceback" not in texts[0]
    started = [
        line.split(":")[0] for line in (texts[0] + texts[1]).split("\n") if line[:6] == "trial "
    ]
    assert started == ["trial 1/3", "trial 2/3", "trial 3/3"]
    trials = optuna.load_study(
        study_name="halftruth", storage=f"sqlite:///{tmp_path}/study.db"
    ).trials
    assert [trial.state.name for trial in trials] == ["COMPLETE", "FAIL", "COMPLETE", "COMPLETE"]
    assert trials[1].params == trials[2].params


def test_cuda_without_a_gpu_is_refused(settings, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ConfigError, match="no CUDA device"):
        tune({**settings, "device": "cuda"}, out=tmp_path, trials=1)


def test_without_optuna_the_error_says_what_to_do(settings, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(TuneError, match=r"pip install .*bench run --trials N.* without it"):
        tune(settings, out=tmp_path)


def test_the_command_writes_a_recipe(settings, tmp_path, monkeypatch, capsys):
    call = [
        "halftruth", "tune", settings["labels"], "--features", settings["features"], "--method",
        "em", "--trials", "1", "--setting", "epochs=1", "--setting", "device=cpu", "--search",
        "alpha=[0.1, 0.2]", "--out", str(tmp_path / "t"),
    ]  # fmt: skip
    monkeypatch.setattr(sys, "argv", call)
    with pytest.raises(SystemExit) as done:
        main()
    assert done.value.code == 0
    assert "the recipe is" in capsys.readouterr().out
    assert yaml.safe_load((tmp_path / "t" / "best.yaml").read_text())["method"] == "em"
