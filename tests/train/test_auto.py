"""`auto`: its choice, the settings that it keeps, and its messages."""

import dataclasses
import math

import numpy as np
import pytest
import torch
import yaml

from halftruth import fit, losses
from halftruth.train.auto.resolve import (
    Budget,
    choose,
    hold_out_rows,
    resolve_auto,
    search_settings,
)
from halftruth.train.config import Config, ConfigError, load_settings, override
from halftruth.train.devices import OneProcess
from halftruth.train.results.trained_run import TrainedRun
from halftruth.train.settings import parse_budget
from halftruth.train.step import compute_ridge_decay

ONE = np.eye(6, dtype=np.int8)
SEVERAL = (np.arange(60).reshape(10, 6) % 3 == 0).astype(np.int8)
CHECKED = np.where(SEVERAL == 1, 1, -1).astype(np.int8)


@pytest.mark.parametrize(
    ("labels", "features", "method"),
    [
        (ONE, True, "swan"),
        (ONE, False, "em"),
        (SEVERAL, True, "swan"),
        (SEVERAL, False, "em"),
        (CHECKED, True, "bce"),
        (np.concatenate([CHECKED, -np.ones_like(CHECKED)]), True, "any-class"),
    ],
)
def test_the_labels_decide_the_method(labels, features, method):
    choice = choose(labels, 50, features=features)
    assert choice.settings["method"] == method
    losses.create(method, **choice.settings["options"])
    assert all(choice.reasons)


def test_a_head_alone_on_images_gets_the_method_of_features():
    for tune, method in (("head", "swan"), ("head-first", "em"), ("all", "em")):
        config, _ = resolve_auto(Config(method="auto", images=["x"], tune=tune), SEVERAL, 50)
        assert (config.method, config.head, config.select) == (method, "linear", "last")


def test_alternatives_tried_by_default():
    """Priors are always tried, weights only with a larger budget."""
    for labels in (ONE, SEVERAL, CHECKED):
        for features in (True, False):
            choice = choose(labels, 50, features=features)
            usual = choice.alternatives[: choice.budget - 1]
            assert all("ridge" in alternative for alternative in usual[: len(usual) - features])
            assert ("hidden" in usual[-1]) == features
    assert "weight" in choose(ONE, 50, features=True).alternatives[-1]["options"]


def test_noisy_features_get_a_stronger_prior():
    draw = np.random.default_rng(0)
    common = draw.normal(size=(400, 10))
    x = np.concatenate([common, draw.normal(size=(400, 140))], axis=1)
    rule = common @ draw.normal(size=(10, 5)) + 3 * draw.normal(size=(400, 5))
    labels = torch.from_numpy(np.where(rule > 1, 1, -1).astype(np.int8))
    config, choice = resolve_auto(Config(method="auto", features="x"), labels.numpy(), x.shape[1])
    choice = dataclasses.replace(
        choice, alternatives=[r for r in choice.alternatives if "ridge" in r]
    )
    config = dataclasses.replace(config, head="linear")
    features = torch.from_numpy(x.astype(np.float32))
    config, _ = search_settings(config, choice, features, labels, np.arange(400), OneProcess("cpu"))
    assert config.ridge < 2


@pytest.mark.parametrize(
    ("alternatives", "taken"),
    [
        ({8.0: (0.51, 0.80)}, 8.0),
        ({8.0: (0.50, 0.90)}, 2.0),
        ({8.0: (0.60, 0.79)}, 2.0),
        # If two are better, the one with the higher AUC.
        ({8.0: (0.51, 0.82), 0.5: (0.60, 0.81)}, 8.0),
        ({8.0: (0.51, -math.inf), 0.5: (-math.inf, 0.9)}, 2.0),
    ],
)
def test_an_alternative_must_be_better_in_the_criterion_and_not_worse_in_auc(
    monkeypatch, alternatives, taken
):
    x, labels = data(complete=True)
    config, choice = resolve_auto(Config(method="auto", features="x"), labels, 8)
    choice = dataclasses.replace(
        choice, alternatives=[{"ridge": r} for r in alternatives], budget="3"
    )
    scores = {2.0: (0.5, 0.8), **alternatives}
    monkeypatch.setattr(
        "halftruth.train.auto.resolve._score_trial", lambda stage: scores[stage.config.ridge]
    )
    rows = np.arange(400)
    found, _ = search_settings(config, choice, x, torch.from_numpy(labels), rows, OneProcess("cpu"))
    assert found.ridge == taken


def quadrants() -> tuple[np.ndarray, np.ndarray]:
    """Classes that no linear rule separates."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(700, 4)).astype(np.float32)
    ring = (x[:, 0] * x[:, 1] > 0).astype(int) + 2 * (x[:, 2] * x[:, 3] > 0)
    return x, np.eye(4, dtype=np.int8)[ring]


def test_a_hidden_layer_set_by_the_user_replaces_the_ensemble():
    _, labels = quadrants()
    given, choice = resolve_auto(Config(method="auto", features="x", hidden=8), labels, 4)
    assert (given.hidden, given.head) == (8, "linear")
    assert not any("hidden" in alternative for alternative in choice.alternatives)


def test_settings_of_the_user_stay():
    given = Config(method="auto", features="x", ridge=8.0, batch_size=7, epochs=30, head_lr=1e-3)
    config, choice = resolve_auto(given, SEVERAL, 64)
    assert (config.ridge, config.batch_size) == (8.0, 7)
    assert (config.method, config.epochs, config.head_lr) == ("swan", 20, 0.005)
    assert "batch_size, ridge" in choice.reasons[-1]
    assert not any("ridge" in alternative for alternative in choice.alternatives)


def test_with_early_stopping_the_best_epoch_is_kept():
    config, _ = resolve_auto(Config(method="auto", features="x", patience=3), ONE, 10)
    assert config.select == "auto"


@pytest.mark.parametrize(
    ("text", "done", "more"),
    [(2, 1, True), (2, 2, False), ("5", 4, True), ("5 trials", 5, False), ("0", 0, False)],
)
def test_budget_in_trials(text, done, more):
    assert Budget(text).allows(done) is more


def test_budget_in_minutes(monkeypatch):
    budget = Budget("10 minutes")
    assert budget.allows(1000)
    budget.started -= 601
    assert not budget.allows(0)


def test_an_invalid_budget_is_refused():
    with pytest.raises(ConfigError, match="expected trials or a time"):
        Budget("an hour")


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (3, (3, math.inf)), ("0", (0, math.inf)), (" 1 trial ", (1, math.inf)),
        ("2m", (math.inf, 120)), ("1.5 hours", (math.inf, 5400)), ("30 sec", (math.inf, 30)),
        ("1.5 trials", None), ("-1", None), ("", None), ("minutes", None), ("5 days", None),
    ],
)  # fmt: skip
def test_parse_budget(budget, expected):
    assert parse_budget(budget) == expected


def test_ridge_decay_is_the_gradient_of_the_prior():
    """Weight decay of Adam = gradient of ‖W‖² D/(2v), in units of the loss."""
    loss = losses.create("swan")
    assert compute_ridge_decay(loss, Config(), 1000, 64, 10) == pytest.approx(
        64 / (2.0 * 1000 * 10)
    )
    assert compute_ridge_decay(loss, Config(ridge=8.0), 1000, 64, 10) == pytest.approx(
        64 / (8 * 1e4)
    )
    assert compute_ridge_decay(loss, Config(ridge=0.0), 1000, 64, 10) == 0
    assert compute_ridge_decay(loss, Config(optimizer="adamw"), 1000, 64, 10) == 0
    assert compute_ridge_decay(losses.create("bce"), Config(), 1000, 64, 10) == 0
    total = losses.create("swan", reduction="sum")
    assert compute_ridge_decay(total, Config(batch_size=32), 1000, 64, 10) == pytest.approx(
        64 / 2e3 * 32
    )
    wrapped = losses.create("any-class", base="swan")
    assert wrapped.ridge == loss.ridge


def data(complete: bool) -> tuple[torch.Tensor, np.ndarray]:
    """Rows of a linear rule with several positives; most are hidden unless `complete`."""
    draw = np.random.default_rng(0)
    x = draw.normal(size=(400, 8)).astype(np.float32)
    present = x @ draw.normal(size=(8, 6)) > 0.5
    shown = present if complete else present & (draw.random(present.shape) < 0.3)
    return torch.from_numpy(x), shown.astype(np.int8)


def test_the_search_uses_training_rows_only():
    x, labels = data(complete=True)
    config, choice = resolve_auto(Config(method="auto", features="x"), labels, 8)
    rows = np.arange(300)
    config = dataclasses.replace(config, epochs=4)
    choice = dataclasses.replace(choice, budget="3")
    found, words = search_settings(
        config, choice, x, torch.from_numpy(labels), rows, OneProcess("cpu")
    )
    poisoned = labels.copy()
    poisoned[300:] = 1 - poisoned[300:]
    same, again = search_settings(
        config, choice, x, torch.from_numpy(poisoned), rows, OneProcess("cpu")
    )
    assert (found, words) == (same, again)
    assert words[0].startswith("tried 3 settings on 300 held-out training rows")


def test_a_run_logs_and_stores_what_auto_chose(tmp_path, capsys):
    x, labels = data(complete=False)
    lines = [f"{i}," + ",".join(map(str, row)) for i, row in enumerate(labels)]
    (tmp_path / "labels.csv").write_text("\n".join(["id,a,b,c,d,e,f", *lines]) + "\n")
    np.save(tmp_path / "x.npy", x.numpy())
    settings = {"features": str(tmp_path / "x.npy"), "budget": "2", "epochs": 3, "report": False}
    fit(str(tmp_path / "labels.csv"), out=str(tmp_path / "run"), **settings)
    shown = "".join(capsys.readouterr())
    assert "auto: " in shown
    assert "tried 2 settings" in shown
    written = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert written["method"] == "swan"
    assert written["epochs"] == 3
    # A named method tries nothing: a resumed run uses the stored method.
    assert written["budget"] is None
    assert load_settings(tmp_path / "run", {}).method == "swan"
    for more in ({}, {"budget": "2"}, {"method": "auto", "budget": "2"}):
        result = fit(out=str(tmp_path / "run"), resume=True, **more)
        assert result.method == "swan"
        noted = "nothing more is tried" in "".join(capsys.readouterr())
        assert noted == ("budget" in more)
    with pytest.raises(
        ConfigError, match="budget: limits the settings that method auto tries; em tries none"
    ):
        fit(str(tmp_path / "labels.csv"), method="em", **settings)


def test_a_budget_belongs_to_auto():
    """The budget of a recipe is dropped with its method, like the options."""
    recipe = {"method": "auto", "budget": 5}
    assert override(recipe, {"method": "em"}) == {"method": "em"}
    assert override({"budget": 5}, {"method": "em"}) == {"method": "em"}
    assert override(recipe, {"method": "auto"}) == recipe
    config, choice = resolve_auto(Config(method="auto", features="x", budget="10 min"), ONE, 10)
    assert (config.budget, choice.budget) == (None, "10 min")
    assert "budget" in Config(method="em", budget=0).problems()[-1]


def test_auto_finds_curved_boundaries(tmp_path):
    """By the forest and the neighbours of the ensemble."""
    x, labels = quadrants()
    lines = [f"{i}," + ",".join(map(str, row)) for i, row in enumerate(labels)]
    (tmp_path / "labels.csv").write_text("\n".join(["id,a,b,c,d", *lines]) + "\n")
    np.save(tmp_path / "x.npy", x)
    settings = {"features": str(tmp_path / "x.npy"), "report": False, "quiet": True}
    fit(str(tmp_path / "labels.csv"), out=str(tmp_path / "run"), **settings)
    model = TrainedRun(tmp_path / "run", device="cpu").model
    with torch.no_grad():
        found = model(torch.from_numpy(x)).argmax(dim=1).numpy()
    # A linear rule is right for a quarter of the rows.
    assert (found == labels.argmax(axis=1)).mean() > 0.6


def test_the_search_finds_a_hidden_layer_for_curved_boundaries():
    x, labels = quadrants()
    config, choice = resolve_auto(Config(method="auto", features="x", budget=2), labels, 4)
    with_layer = [one for one in choice.alternatives if "hidden" in one]
    assert with_layer
    choice = dataclasses.replace(choice, alternatives=with_layer)
    rows, values = np.arange(len(x)), torch.from_numpy(labels)
    found, _ = search_settings(config, choice, torch.from_numpy(x), values, rows, OneProcess("cpu"))
    assert (config.hidden, found.hidden) == (0, with_layer[0]["hidden"])


def test_a_trial_that_diverges_ranks_last():
    x, labels = data(complete=True)
    config, choice = resolve_auto(Config(method="auto", features="x"), labels, 8)
    config = dataclasses.replace(config, epochs=2)
    choice = dataclasses.replace(choice, alternatives=[{"head_lr": 1e30}], budget="2")
    found, _ = search_settings(
        config, choice, x, torch.from_numpy(labels), np.arange(400), OneProcess("cpu")
    )
    assert found.head_lr == config.head_lr


def test_with_few_rows_several_parts_are_held_out():
    for count, times in ((100, 5), (1000, 3), (2500, 1), (10_000, 1)):
        rows = np.arange(count) * 2
        held = hold_out_rows(rows, 0, None)
        assert len(held) == times
        assert len(np.unique(np.concatenate(held))) == sum(map(len, held)) == times * count // 5
        assert np.isin(held[0], rows).all()


def test_rows_of_one_group_are_held_out_together(monkeypatch):
    """No training row has the patient of a held-out row."""
    x, labels = data(complete=True)
    groups, seen = np.arange(len(x)) // 4, []

    def score(stage):
        held, rest = stage.val_rows, stage.train_rows
        assert not np.isin(groups[held], groups[rest]).any()
        seen.append(len(held))
        return 0.5, 0.5

    monkeypatch.setattr("halftruth.train.auto.resolve._score_trial", score)
    config, choice = resolve_auto(Config(method="auto", features="x"), labels, x.shape[1])
    rows = np.arange(20, len(x))
    given = (x, torch.from_numpy(labels), rows, OneProcess("cpu"))
    search_settings(config, choice, *given, groups=groups)
    assert seen


def test_too_few_groups_are_reported(monkeypatch):
    x, labels = data(complete=True)
    monkeypatch.setattr("halftruth.train.auto.resolve._score_trial", lambda *_: (0.5, 0.5))
    config, choice = resolve_auto(Config(method="auto", features="x"), labels, x.shape[1])
    messages: list[str] = []
    given = (x, torch.from_numpy(labels), np.arange(len(x)), OneProcess("cpu"), messages.append)
    _, words = search_settings(config, choice, *given, groups=np.arange(len(x)) % 3)
    assert "not whole groups: 3 are too few to hold some of them out" in messages[0]
    assert "3 are too few" in words[0]
    _, words = search_settings(config, choice, *given, groups=np.arange(len(x)) % 5)
    assert "too few" not in words[0]
