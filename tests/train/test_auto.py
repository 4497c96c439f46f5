"""`auto`: its choice, the settings that it keeps, and its messages."""

import dataclasses
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from halftruth import fit, losses
from halftruth.train.auto.resolve import (
    Budget,
    choose_settings,
    hold_out_rows,
    resolve_auto,
    search_settings,
)
from halftruth.train.config import Config, ConfigError, load_settings, override
from halftruth.train.devices import OneProcess
from halftruth.train.plans import choose, network, plan
from halftruth.train.results.trained_run import TrainedRun
from halftruth.train.settings import parse_budget
from halftruth.train.step import compute_ridge_decay

ONE = np.eye(6, dtype=np.int8)
SEVERAL = (np.arange(60).reshape(10, 6) % 3 == 0).astype(np.int8)
CHECKED = np.where(SEVERAL == 1, 1, -1).astype(np.int8)


@pytest.mark.parametrize(
    ("labels", "method"),
    [
        (ONE, "em"),
        (SEVERAL, "em"),
        (CHECKED, "bce"),
        (np.concatenate([CHECKED, -np.ones_like(CHECKED)]), "any-class"),
    ],
)
def test_the_labels_decide_the_method_of_a_network(labels, method):
    choice = choose_settings(labels, 50)
    assert choice.settings["method"] == method
    losses.create(method, **choice.settings["options"])
    assert all(choice.reasons)
    assert all("ridge" in one for one in choice.alternatives)


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ({"features": ["x"]}, True),
        ({"text": "t"}, True),
        ({"text": "t", "encoder": "e", "tune": "head"}, True),
        ({"text": "t", "encoder": "e"}, False),
        ({"images": ["x"], "tune": "head"}, True),
        ({"images": ["x"], "features": ["x"]}, True),
        ({"images": ["x"]}, False),
    ],
)
def test_the_inputs_decide_whether_an_ensemble_is_fitted(inputs, expected):
    """And no setting does: those of one model are then an error."""
    assert Config(**inputs).fits_ensemble is expected
    assert Config(**inputs, epochs=21, hidden=3, val=0.1).fits_ensemble is expected
    assert not Config(**inputs, method="em").fits_ensemble
    assert bool(Config(**inputs, method="ensemble")._check_method()) is not expected


@pytest.mark.parametrize("method", ["auto", "ensemble"])
def test_a_setting_without_effect_on_an_ensemble_is_an_error(tmp_path, method):
    (tmp_path / "l.csv").write_text("id,a\n1,1\n")
    np.save(tmp_path / "x.npy", np.zeros((1, 2)))
    files = {"labels": str(tmp_path / "l.csv"), "features": str(tmp_path / "x.npy")}
    for name, value in (("epochs", 21), ("ridge", 1.0), ("budget", 3), ("hidden", 4)):
        with pytest.raises(ConfigError, match=f"{name}: has no effect, .* the ensemble and given"):
            Config.of({**files, "method": method, name: value})
    with pytest.raises(ConfigError, match="last chooses an epoch, and an ensemble has none"):
        Config.of({**files, "method": method, "select": "last"})


def test_noisy_features_get_a_stronger_prior():
    draw = np.random.default_rng(0)
    common = draw.normal(size=(400, 10))
    x = np.concatenate([common, draw.normal(size=(400, 140))], axis=1)
    rule = common @ draw.normal(size=(10, 5)) + 3 * draw.normal(size=(400, 5))
    labels = torch.from_numpy(np.where(rule > 1, 1, -1).astype(np.int8))
    config, choice = resolve_auto(Config(method="auto", images=["x"]), labels.numpy(), x.shape[1])
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
    config, choice = resolve_auto(Config(method="auto", images=["x"]), labels, 8)
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


def test_settings_of_the_user_stay():
    given = Config(method="auto", images=["x"], ridge=8.0, head_epochs=7)
    config, choice = resolve_auto(given, SEVERAL, 64)
    assert (config.ridge, config.head_epochs) == (8.0, 7)
    assert (config.method, config.epochs, config.head_lr) == ("em", 6, 0.005)
    assert "head_epochs, ridge" in choice.reasons[-1]
    assert not any("ridge" in alternative for alternative in choice.alternatives)


def test_with_early_stopping_the_best_epoch_is_kept():
    config, _ = resolve_auto(Config(method="auto", images=["x"], patience=3), ONE, 10)
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
    config, choice = resolve_auto(Config(method="auto", images=["x"]), labels, 8)
    rows = np.arange(300)
    config = dataclasses.replace(config, head_epochs=4)
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


def write_files(folder, x, labels) -> dict[str, str]:
    names = "abcdef"[: labels.shape[1]]
    lines = [f"{i}," + ",".join(map(str, row)) for i, row in enumerate(labels)]
    (folder / "labels.csv").write_text("\n".join([f"id,{','.join(names)}", *lines]) + "\n")
    np.save(folder / "x.npy", x)
    return {"labels": str(folder / "labels.csv"), "features": str(folder / "x.npy")}


def test_what_auto_chose_is_stored_and_can_be_typed(tmp_path):
    x, labels = data(complete=False)
    files = write_files(tmp_path, x.numpy(), labels)
    settings = {**files, "report": False, "quiet": True}
    fit(**settings, out=str(tmp_path / "run"))
    written = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert written["method"] == "ensemble"
    assert not written.keys() & {"epochs", "ridge", "lr", "budget", "batch_size"}
    assert load_settings(tmp_path / "run", {}).method == "ensemble"
    assert fit(out=str(tmp_path / "run"), resume=True, method="auto").method == "ensemble"
    fit(**settings, method="ensemble", out=str(tmp_path / "typed"))
    found = [TrainedRun(tmp_path / name, device="cpu") for name in ("run", "typed")]
    with torch.no_grad():
        assert torch.equal(*(run.model(x) for run in found))
    with pytest.raises(
        ConfigError, match="budget: limits the settings that method auto tries; em tries none"
    ):
        fit(**settings, method="em", budget=2, out=str(tmp_path / "other"))


def test_a_budget_belongs_to_auto():
    """The budget of a recipe is dropped with its method, like the options."""
    recipe = {"method": "auto", "budget": 5}
    assert override(recipe, {"method": "em"}) == {"method": "em"}
    assert override({"budget": 5}, {"method": "em"}) == {"method": "em"}
    assert override(recipe, {"method": "auto"}) == recipe
    config, choice = resolve_auto(Config(method="auto", images=["x"], budget="10 min"), ONE, 10)
    assert (config.budget, choice.budget) == (None, "10 min")
    assert "budget" in Config(method="em", budget=0).problems()[-1]


def test_auto_finds_curved_boundaries(tmp_path):
    """By the forest and the neighbours of the ensemble."""
    x, labels = quadrants()
    settings = {**write_files(tmp_path, x, labels), "report": False, "quiet": True}
    fit(**settings, out=str(tmp_path / "run"))
    model = TrainedRun(tmp_path / "run", device="cpu").model
    with torch.no_grad():
        found = model(torch.from_numpy(x)).argmax(dim=1).numpy()
    # A linear rule is right for a quarter of the rows.
    assert (found == labels.argmax(axis=1)).mean() > 0.6


def test_a_trial_that_diverges_ranks_last():
    x, labels = data(complete=True)
    config, choice = resolve_auto(Config(method="auto", images=["x"]), labels, 8)
    config = dataclasses.replace(config, head_epochs=2)
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
    config, choice = resolve_auto(Config(method="auto", images=["x"]), labels, x.shape[1])
    rows = np.arange(20, len(x))
    given = (x, torch.from_numpy(labels), rows, OneProcess("cpu"))
    search_settings(config, choice, *given, groups=groups)
    assert seen


def test_too_few_groups_are_reported(monkeypatch):
    x, labels = data(complete=True)
    monkeypatch.setattr("halftruth.train.auto.resolve._score_trial", lambda *_: (0.5, 0.5))
    config, choice = resolve_auto(Config(method="auto", images=["x"]), labels, x.shape[1])
    messages: list[str] = []
    given = (x, torch.from_numpy(labels), np.arange(len(x)), OneProcess("cpu"), messages.append)
    _, words = search_settings(config, choice, *given, groups=np.arange(len(x)) % 3)
    assert "not whole groups: 3 are too few to hold some of them out" in messages[0]
    assert "3 are too few" in words[0]
    _, words = search_settings(config, choice, *given, groups=np.arange(len(x)) % 5)
    assert "too few" not in words[0]


def test_a_long_training_on_a_cpu_says_so_at_once_and_names_the_fast_quality(
    on_images, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(network, "_WORTH_SAYING", 0.0)

    def stop(*_):
        raise RuntimeError("the images are read now")

    monkeypatch.setattr(plan, "read_images", stop)
    with pytest.raises(RuntimeError, match="are read now"):
        fit(**{**on_images, "method": "auto"}, out=tmp_path / "run")
    said = " ".join(capsys.readouterr().err.split())
    assert "on this CPU, training the network takes about" in said
    assert "--quality fast" in said


def test_quality_fast_keeps_the_backbone_and_fits_the_fast_members(on_images, tmp_path):
    settings = {k: on_images[k] for k in ("labels", "images", "backbone", "weights", "image_size")}
    settings |= {"device": "cpu", "report": False, "quiet": True}
    result = fit(**settings, quality="fast", out=tmp_path / "run")
    assert {one["name"] for one in result.members} <= {"linear", "forest", "neighbours"}
    assert load_settings(tmp_path / "run", {}).tune == "head"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"quality": "fast", "method": "em"}, "quality: has no effect, since only an ensemble"),
        ({"quality": "best", "features": "x.npy"}, "quality: has no effect, since more than the"),
        ({"quality": "best", "images": "photos", "tune": "all"}, "`tune` head-first"),
        ({"quality": "quick"}, "expected one of fast, default, best"),
    ],
)
def test_a_quality_without_effect_is_an_error(settings, words):
    with pytest.raises(ConfigError, match=words):
        Config.of({"labels": "l.csv", "images": "photos", **settings})


@pytest.mark.parametrize(
    ("count", "groups", "sizes"),
    [
        (2499, None, [500, 500]),
        (2500, None, [500]),
        (1000, 3, [333, 334, 333]),
        (1000, 2, [500, 500]),
        (1000, 50, [200, 200, 200]),
        (2500, 50, [500]),
    ],
)
def test_the_rows_that_are_held_out(count, groups, sizes):
    """2,500 rows to compare settings by, in fifths; fewer groups make larger parts."""
    inside = None if groups is None else np.arange(count) % groups
    held = hold_out_rows(np.arange(count), 0, inside)
    assert sorted(map(len, held)) == sorted(sizes)
    if inside is not None:
        for part in held:
            assert not np.isin(inside[part], np.delete(inside, part)).any()


@pytest.mark.parametrize(
    ("tune", "shown", "soft", "bias", "expected"),
    [
        ("head-first", 1, False, True, True),
        ("head-first", 1, False, False, False),
        ("head-first", 1, False, None, False),
        ("head-first", 2, False, True, False),
        ("head-first", 1, True, True, False),
        ("head", 1, False, True, False),
        ("all", 1, False, True, False),
    ],
)
def test_images_with_one_biased_label_each_get_an_ensemble(
    monkeypatch, tune, shown, soft, bias, expected
):
    labels = np.zeros((30, 3), np.int8)
    labels[:, :shown] = 1
    given = SimpleNamespace(values=labels, soft=labels * 1.0 if soft else None)
    rows, said = np.arange(20), []
    work: Any = SimpleNamespace(
        config=Config(labels="l.csv", images=["photos"], tune=tune),
        task=SimpleNamespace(labels=given, splits=SimpleNamespace(train=rows)),
        model=None, inputs=None, logger=SimpleNamespace(log=said.append),
        extract_features=lambda model, inputs: torch.randn(30, 2),
    )  # fmt: skip
    found = None if bias is None else SimpleNamespace(found=bias)
    monkeypatch.setattr(choose, "find_frequency_bias", lambda x, y, seed: found)
    assert choose._names_frequent_first(work) is expected
    assert len(said) == expected
