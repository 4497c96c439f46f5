"""Every recipe of the papers is valid for `halftruth train` and unchanged."""

import hashlib
import json

import pytest
from typer.testing import CliRunner

from halftruth.bench.papers import find_recipe, get_recipe, published_all, recipes
from halftruth.cli.bench_commands import app
from halftruth.train.config import Config, ConfigError

RECIPES = recipes()
FILES = ("labels", "truth", "images")


@pytest.mark.parametrize("data", sorted({name.split("/")[0] for name in RECIPES}))
def test_recipes_are_valid_except_for_their_missing_files(data):
    for name in (name for name in RECIPES if name.startswith(f"{data}/")):
        values = find_recipe(name)
        # Without images the backbone is not looked up, which takes a while; see below.
        config = Config(**{**values, "images": []})
        assert [text for text in config.problems() if not text.startswith(FILES)] == [], name
        needed = {"labels", "truth", "images", "method", "options", "lr", "epochs"}
        assert values.keys() >= needed, name


def test_models_of_the_recipes_exist():
    for name in {recipe.settings["backbone"] for recipe in RECIPES.values()}:
        config = Config(backbone=name, images=["somewhere"], tune="all")
        assert [text for text in config.problems() if text.startswith("backbone")] == []


def test_the_expanded_recipes_have_not_changed():
    # A change of recipes.yaml that is meant to change settings changes this digest too.
    settings = {name: recipe.settings for name, recipe in sorted(RECIPES.items())}
    text = json.dumps(settings, sort_keys=True)
    assert len(RECIPES) == 397
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "e2bbe15c849d8306"


COLE = {
    "backbone": "resnet50", "image_size": 448, "tune": "all", "freeze_bn": False, "epochs": 10,
    "optimizer": "adam", "schedule": "constant", "ema": 0.0, "augment": "flip", "select": "truth",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "voc2012/em",
            {
                **COLE,
                "method": "em",
                "options": {"alpha": 0.2},
                "batch_size": 8,
                "lr": 1e-5,
                "patience": 1,
            },
        ),
        (
            "cub/ll-ct",
            {
                **COLE,
                "method": "ll-ct",
                "options": {"delta": 0.004},
                "batch_size": 16,
                "lr": 7.5e-5,
                "head_lr_mult": 10.0,
            },
        ),
    ],
)
def test_a_recipe_expands_to_these_settings(name, expected):
    data = name.split("/")[0]
    files = {
        "labels": f"data/{data}/single.csv",
        "truth": f"data/{data}/truth.csv",
        "images": [f"data/{data}/images"],
        "reading": {"split_column": "split"},
        "reading_truth": {"split_column": "split", "zero": "unknown"},
    }
    assert find_recipe(name) == {**files, **expected}


def test_changing_found_settings_leaves_the_recipe_unchanged():
    find_recipe("voc2012/em")["options"]["alpha"] = 0.5
    assert find_recipe("voc2012/em")["options"] == {"alpha": 0.2}


def test_every_published_row_has_a_recipe():
    tables = {
        ("coco2014", "left-75"): "coco2014-left-75",
        ("coco2014", "left-40"): "coco2014-left-40",
    }
    for (data, labels, method, _), number in published_all():
        table = tables.get((data, labels), data)
        if "Zhang" in number.source and data in ("voc2012", "coco2014") and labels == "single":
            table = f"{data}-zhang"
        assert f"{table}/{method}" in RECIPES, (data, labels, method)


def test_a_recipe_as_text_starts_with_commands_numbers_and_source():
    lines = get_recipe("nuswide-asl/hill").to_yaml().split("\n")
    assert lines[0] == (
        "# halftruth bench labels nuswide ROOT --labels single --option split=asl "
        "--out data/nuswide-asl"
    )
    assert lines[1].startswith("# halftruth train --recipe nuswide-asl/hill ")
    assert lines[2].startswith("# Published: ")
    assert lines[3].startswith("# Source: Zhang et al. 2021")


@pytest.mark.parametrize(
    ("name", "options", "numbers"),
    [
        ("voc2012/asl", {"margin": 0.05}, ["87.32 ± 0.06"]),
        ("voc2012/asl-no-shift", {"margin": 0.0}, ["86.99 ± 0.05"]),
        ("voc2012/asl-em", {"margin": 0.2}, []),
        ("voc2012/focal", {"gamma": 2.0}, ["87.03 ± 0.43"]),
        ("voc2012/focal-em", {"alpha": 0.75}, ["87.59 ± 0.58"]),
    ],
)
def test_a_recipe_quotes_the_number_of_its_own_setting(name, options, numbers):
    recipe = get_recipe(name)
    assert recipe.settings["options"].items() >= options.items()
    assert [str(number) for _, number in recipe.numbers] == numbers


def test_recipes_of_zhang_sum_over_the_batch():
    """Their weight decay of 1e-4 was chosen for the gradient of a sum."""
    mine = [r for r in RECIPES.values() if r.settings.get("weight_decay") == 1e-4]
    assert len(mine) > 80
    assert all(r.settings["options"]["reduction"] == "sum" for r in mine)


def test_numbers_of_zhang_belong_to_their_own_recipes():
    assert all("Zhang" in n.source for _, n in get_recipe("voc2012-zhang/hill").numbers)
    assert not any("Zhang" in n.source for _, n in get_recipe("voc2012/hill").numbers)


@pytest.mark.parametrize("name", ["voc2012/nothing", "../search_spaces", "voc2012", ""])
def test_an_unknown_recipe_is_an_error_that_names_the_list(name):
    with pytest.raises(ConfigError, match="halftruth bench recipes"):
        find_recipe(name)


def test_a_typing_mistake_in_a_recipe_gets_a_suggestion():
    with pytest.raises(ConfigError, match=r"did you mean .*voc2012/em-apl"):
        find_recipe("voc2012/em-alp")


def test_bench_recipes_lists_names_labels_and_published_numbers():
    shown = CliRunner().invoke(app, ["recipes", "voc2012/*"]).output
    line = next(line for line in shown.split("\n") if line.startswith("voc2012/gr "))
    assert "single" in line
    assert "mAP 89.83" in line
    assert "coco2014" not in shown


def test_bench_recipes_prints_one_recipe_as_a_file():
    shown = CliRunner().invoke(app, ["recipes", "voc2012/gr"]).output
    assert shown == get_recipe("voc2012/gr").to_yaml()


def test_bench_recipes_refuses_a_pattern_without_a_match():
    found = CliRunner().invoke(app, ["recipes", "nowhere*"]).exception
    assert isinstance(found, ConfigError)
    assert "recipes: none matches 'nowhere*'" in str(found)
