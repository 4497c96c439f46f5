"""Settings of a run: checks, recipes, settings without effect, resume."""

import dataclasses
from pathlib import Path

import pytest
import torch
import typer
import yaml
from tiny_data import arguments, command, outcome, records

import halftruth
from halftruth import fit
from halftruth.cli.app import app
from halftruth.train import CheckpointError, Config, ConfigError, load_settings
from halftruth.train.run_folder import load_checkpoint, save_checkpoint, write_manifest
from halftruth.train.settings import SETTINGS, make_settings_page


def mistakes(**settings):
    with pytest.raises(ConfigError) as caught:
        Config.of(settings)
    return str(caught.value)


def test_all_mistakes_are_reported_at_once(data):
    text = mistakes(
        labels=str(data / "labels.csv"),
        features="nowhere.npy",
        epochs=0,
        lr=-1,
        head_lr=float("nan"),
        dropout=1,
        ema="much",
        tune="hed",
        optimizer=3,
        images=str(data / "nowhere"),
        learning_rate=1,
        batchsize=3,
        reading={"zeros": "absent"},
        method="hil",
        seed=-1,
        patience=0,
        workers=True,
        track=3,
        precision="fp16",
        device="gpu",
        budget="soon",
    )
    assert "19 mistakes" in text
    for piece in (
        "features: there is no file or folder nowhere.npy",
        "images: there is no folder, zip file or shard",
        "epochs: expected at least 1, got 0",
        "lr: expected more than 0, got -1",
        "head_lr: expected a finite number, got nan",
        "dropout: expected at least 0 and less than 1, got 1",
        "ema: expected a number, got 'much'",
        "tune: expected one of all, head, head-first (did you mean head?), got 'hed'",
        "optimizer: expected text, got 3",
        "there is no setting 'learning_rate'",
        "there is no setting 'batchsize'; did you mean batch_size?",
        "reading: there is no argument 'zeros'",
        "method: no loss is called 'hil': did you mean 'hill'",
        "seed: expected a whole number from 0 to 2^32 - 1, got -1",
        "patience: expected at least 1, got 0",
        "workers: expected a whole number, got True",
        "track: expected text or nothing, got 3",
        "device: expected one of auto, cpu, cuda, mps, got 'gpu'",
        "budget: expected a number of trials or a time (12, 10 minutes), got 'soon'",
    ):
        assert piece in text


def test_mistakes_in_model_and_method(data):
    common = {"labels": str(data / "labels.csv"), "images": str(data / "photos")}
    text = mistakes(**common, backbone="resnet5O", head="lineal", hidden=8, weights="none.pt")
    assert "backbone: timm has no model called 'resnet5O'; did you mean resnet50" in text
    assert "head: expected one of" in text
    assert "hidden: has no effect, since it is for `features`" in text
    assert "weights: expected" in text
    text = mistakes(**common, weights="none", head="boostlu")
    assert "with the `head` boostlu use `tune` all" in text
    text = mistakes(**common, weights="none", method="hill", options={"lamb": 1})
    assert "takes no argument 'lamb': did you mean 'lam'" in text
    common = {"labels": common["labels"], "features": str(data / "features.npy")}
    assert "features have none" in mistakes(**common, method="consistency")
    assert "needs the complete labels" in mistakes(**common, select="truth")


def test_the_command_reports_all_mistakes_and_starts_nothing(data, tmp_path, capsys):
    code = command(
        *("train", data / "labels.csv", "--features", data / "features.npy", "--epochs", 0),
        *("--optimizer", "adan", "--out", tmp_path / "run"),
    )
    error = capsys.readouterr().err
    assert code == 2
    assert "2 mistakes" in error
    assert "--epochs: expected at least 1, got 0" in error
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- a\n- b\n", "expected `name: value` lines, got list"),
        ("", "got an empty file"),
        ("just words", "got str"),
        ("a: [1", "is not YAML"),
        ("epochs: 3\nseed: 1\nepochs: 4\n", "recipe.yaml, line 3: 'epochs' is given twice"),
        ("options: {tau: 1, tau: 2}\n", "line 1: 'tau' is given twice"),
        ("epoch: 3\nlabels: 5\nreading: all\n", "3 mistakes"),
    ],
)
def test_invalid_recipe_files_are_refused(tmp_path, text, message):
    (tmp_path / "recipe.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")):
        load_settings(tmp_path / "recipe.yaml", {"features": __file__, "out": "x"})


def test_settings_override_a_recipe(data, tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        f"labels: {data / 'labels.csv'}\nfeatures: {data / 'features.npy'}\n"
        "method: hill\noptions: {lam: 1.4}\nhead_lr: 1e-4\nweight_decay: 1e-5\nzero: absent\n"
    )
    config = load_settings(recipe, {"reading": {"blank": "absent"}, "options": {"gamma": 1.0}})
    assert (config.head_lr, config.weight_decay) == (1e-4, 1e-5)
    assert config.reading == {"zero": "absent", "blank": "absent"}
    assert config.options == {"lam": 1.4, "gamma": 1.0}
    # Options belong to a method: another method drops them.
    assert load_settings(recipe, {"method": "em"}).options == {}


WITHOUT_EFFECT = [
    (
        {"features": "features.npy", "method": "em", "lr": 0.5},
        "lr: has no effect, since it is for a network that is trained: `images` alone",
    ),
    ({"features": "features.npy", "method": "em", "lr": 1e-4}, "; set `head_lr`"),
    ({"features": "features.npy", "backbone": "resnet9999"}, "backbone: has no effect"),
    ({"features": "features.npy", "tune": "head"}, "tune: has no effect"),
    ({"features": "features.npy", "method": "em", "head_epochs": 3}, "; set `epochs`"),
    ({"features": "features.npy", "workers": 2}, "workers: has no effect"),
    ({"features": "features.npy", "reading_truth": {"zero": "absent"}}, "no complete labels"),
    (
        {"features": "features.npy", "method": "em", "schedule": "constant", "warmup": 0.1},
        "has no warm-up",
    ),
    (
        {"features": "features.npy", "method": "em", "ridge": 2.0, "weight_decay": 0.1},
        "ridge: has no effect",
    ),
    (
        {"features": "features.npy", "method": "em", "ridge": 2.0, "optimizer": "adamw"},
        "ridge: has no effect",
    ),
    ({"images": "photos", "hidden": 4}, "hidden: has no effect, since it is for `features`"),
    (
        {"images": "photos", "tune": "head", "method": "em", "lr": 0.1},
        "only the head is trained; set `head_lr`",
    ),
    ({"images": "photos", "tune": "head", "method": "em", "epochs": 3}, "; set `head_epochs`"),
    ({"images": "photos", "tune": "head", "augment": "strong"}, "augment: has no effect"),
    ({"images": "photos", "tune": "all", "head_lr": 0.1}, "not trained alone; set `lr`"),
]


@pytest.mark.parametrize(("settings", "message"), WITHOUT_EFFECT, ids=str)
def test_a_setting_without_effect_is_refused(data, settings, message):
    paths = {
        name: str(data / settings[name]) for name in ("images", "features") if name in settings
    }
    given = {"labels": str(data / "labels.csv"), **settings, **paths}
    text = mistakes(**given)
    assert message in text
    assert "a mistake:" in text


def test_empty_settings_count_as_not_given(data):
    paths = {"labels": str(data / "labels.csv"), "features": str(data / "features.npy")}
    Config.of({**paths, "image_size": None, "reading_truth": {}, "images": []})


def test_settings_of_a_recipe_that_lose_their_effect_are_left_out(data, tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "backbone: resnet18\nweights: none\nlr: 1e-3\nhead_lr: 0.01\nseed: 3\nmethod: em\n"
    )
    paths = {"labels": str(data / "labels.csv"), "features": str(data / "features.npy")}
    with pytest.warns(UserWarning, match="are left out: backbone, lr, weights"):
        config = load_settings(recipe, paths)
    assert (config.head_lr, config.seed, config.backbone) == (0.01, 3, "resnet50")
    recipe.write_text(f"features: {data / 'features.npy'}\nlr: 0.1\nmethod: em\n")
    with pytest.raises(ConfigError, match="lr: has no effect"):
        load_settings(recipe, {"labels": paths["labels"]})
    # The same with a mapping, like recipes by name.
    with pytest.warns(UserWarning, match="are left out: lr"):
        load_settings({"lr": 1e-3, "seed": 3}, paths)


def test_a_recipe_of_a_paper_can_be_used_with_other_data(data):
    recipe = {
        "labels": "data/voc/single.csv", "truth": "data/voc/truth.csv", "images": ["data/voc"],
        "reading_truth": {"zero": "unknown"}, "select": "truth", "tune": "all", "lr": 1e-5,
    }  # fmt: skip
    own = {"labels": str(data / "labels.csv"), "images": str(data / "photos"), "weights": "none"}
    config = load_settings(recipe, own)
    assert (config.truth, config.reading_truth, config.select) == (None, {}, "auto")
    assert (config.tune, config.lr) == ("all", 1e-5)
    with pytest.raises(ConfigError, match="truth: there is no file or folder data/voc"):
        load_settings(recipe, {"images": own["images"], "weights": "none"})


@pytest.mark.parametrize("tune", ["head", "all", "head-first"])
def test_a_written_configuration_is_read_again(data, tmp_path, tune):
    paths = {"labels": str(data / "labels.csv"), "images": str(data / "photos"), "tune": tune}
    config = Config.of({**paths, "weights": "none"})
    (tmp_path / "config.yaml").write_text(config.to_yaml())
    assert load_settings(tmp_path, {}) == config
    assert config.with_changes({"seed": 4}) == dataclasses.replace(config, seed=4)
    with pytest.raises(ConfigError, match="hidden: has no effect"):
        config.with_changes({"hidden": 3})


def test_every_setting_is_an_option_with_help_default_and_choices():
    params = {p.name: p for p in typer.main.get_command(app).commands["train"].params}
    elsewhere = {"labels", "reading", "reading_truth", "reading_features", "options"}
    assert {name for name, setting in SETTINGS.items() if setting.nested} == elsewhere
    for name, setting in SETTINGS.items():
        if not setting.nested:
            assert setting.option in params[name].opts
            for text in (setting.help, setting.default_text, *setting.choices):
                assert text in params[name].help


def test_the_page_of_settings_is_up_to_date():
    page = Path(__file__).parents[2] / "docs" / "settings.md"
    assert page.read_text() == make_settings_page()


def test_a_run_from_a_written_config_is_the_same_run(on_features, tmp_path):
    chosen = {"method": "wan", "options": {"weight": 0.3}}
    first = {**on_features, **chosen, "patience": 3, "zero": "absent"}
    fit(**first, out=tmp_path / "one", quiet=True)
    config = tmp_path / "one" / "config.yaml"
    assert command("train", config, "--out", tmp_path / "two", "--quiet") == 0
    assert records(tmp_path / "one") == records(tmp_path / "two")
    assert outcome(tmp_path / "one") == outcome(tmp_path / "two")
    one, two = (yaml.safe_load((tmp_path / r / "config.yaml").read_text()) for r in ("one", "two"))
    assert {**one, "out": 0} == {**two, "out": 0}


def test_the_command_and_fit_do_the_same(on_features, tmp_path):
    fit(**on_features, out=tmp_path / "one", quiet=True)
    labels = on_features.pop("labels")
    assert command("train", labels, *arguments(on_features), "-q", "--out", tmp_path / "two") == 0
    assert records(tmp_path / "one") == records(tmp_path / "two")


def test_a_folder_with_a_run_is_not_overwritten(on_features, tmp_path, capsys):
    fit(**on_features, out=tmp_path / "run", quiet=True)
    before = (tmp_path / "run" / "last.safetensors").read_bytes()
    labels = on_features.pop("labels")
    assert command("train", labels, *arguments(on_features), "--out", tmp_path / "run") == 2
    assert "already holds a run: continue it (--resume)" in capsys.readouterr().err
    assert (tmp_path / "run" / "last.safetensors").read_bytes() == before


def test_a_checkpoint_of_another_run_is_refused(on_features, data, tmp_path):
    on_features = {**on_features, "method": "wan"}
    fit(**on_features, out=tmp_path / "run", quiet=True)
    before = (tmp_path / "run" / "config.yaml").read_text()

    def refusal(**settings):
        with pytest.raises(CheckpointError) as caught:
            fit(**{**on_features, **settings}, out=tmp_path / "run", resume=True, quiet=True)
        return str(caught.value)

    text = refusal(method="em", optimizer="sgd", batch_size=7, hidden=4)
    for piece in ("method was 'wan', here it is 'em'", "optimizer was", "batch_size", "hidden"):
        assert piece in text
    lines = (data / "labels.csv").read_text().splitlines()
    other = tmp_path / "other.csv"
    # The same classes and rows, but other labels in one row.
    other.write_text("\n".join([*lines[:-1], lines[-1][:-5] + "1,1,1"]) + "\n")
    assert "label file (its rows, labels or split)" in refusal(labels=str(other))
    other.write_text("\n".join([lines[0].replace("blue", "azure"), *lines[1:]]) + "\n")
    assert "its class list is ['red', 'green', 'blue'], here it is" in refusal(labels=str(other))
    assert (tmp_path / "run" / "config.yaml").read_text() == before


def test_files_that_are_not_checkpoints_are_refused(on_features, tmp_path, capsys):
    fit(**on_features, out=tmp_path / "run", quiet=True)
    last = tmp_path / "run" / "last.safetensors"
    last.write_bytes(last.read_bytes()[:1000])
    assert command("train", "--resume", "--out", tmp_path / "run") == 2
    assert f"cannot read the checkpoint {last}" in capsys.readouterr().err
    from safetensors.torch import save_file

    save_file({}, last)
    with pytest.raises(CheckpointError, match="was not written by halftruth"):
        load_checkpoint(last)


def test_every_flipped_bit_of_a_checkpoint_is_noticed(tmp_path):
    path = tmp_path / "best.safetensors"
    tensors = [torch.arange(6, dtype=torch.bfloat16), torch.tensor(3), torch.zeros(0, 2)]
    save_checkpoint(path, {"stage": "all", "epoch": 7, "model": tensors})
    whole = path.read_bytes()
    assert [t.dtype for t in load_checkpoint(path)["model"]] == [t.dtype for t in tensors]
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(CheckpointError, match=r"best\.safetensors"):
            load_checkpoint(path)


def test_flipped_bytes_in_the_weights_of_an_ensemble_are_reported(on_features, data, tmp_path):
    run = tmp_path / "run"
    keep = ("labels", "features", "device", "report")
    fit(**{name: on_features[name] for name in keep}, out=run, quiet=True)
    path = run / "best.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=r"best\.safetensors damaged or of another run"):
        halftruth.load(run)
    write_manifest(run)
    with pytest.raises(CheckpointError, match=r"the checksum differs.* start again in another"):
        halftruth.load(run).predict(features=str(data / "features.npy"))


@pytest.mark.parametrize("words", [("--resume",), (), ("--resume", "--out", "nowhere")])
def test_train_without_labels_or_run_is_refused(words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command("train", *words) == 2
    error = capsys.readouterr().err
    assert "--out" in error or "nowhere holds no run" in error


def test_resuming_before_the_first_checkpoint_starts_from_the_beginning(
    on_features, tmp_path, capsys
):
    labels = on_features.pop("labels")
    line = ("train", labels, *arguments(on_features), "--out", tmp_path / "run", "--resume")
    assert command(*line) == 0
    assert "training starts from the beginning" in capsys.readouterr().err


def test_a_resumed_run_keeps_its_other_settings(on_features, tmp_path):
    fit(**{**on_features, "method": "hill"}, out=tmp_path / "run", quiet=True)
    line = ("train", on_features["labels"], "--out", tmp_path / "run", "--resume", "-q")
    assert command(*line, "--epochs", 5) == 0
    assert len(records(tmp_path / "run")) == 5
    assert outcome(tmp_path / "run")["method"] == "hill"


@pytest.mark.parametrize("name", [n for n, s in SETTINGS.items() if s.more_than is not None])
def test_a_number_must_be_more_than_its_limit(name):
    setting = SETTINGS[name]
    assert setting.expected(setting.more_than) == setting.limits_text
