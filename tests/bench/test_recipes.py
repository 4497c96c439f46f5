"""Every recipe that comes with the library can be given to `halftruth train`."""

import importlib.util
from pathlib import Path

import pytest
import yaml

from halftruth.bench.published import published_all
from halftruth.train.config import Config, ConfigError
from halftruth.train.recipes import packaged_recipe, read_settings

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "src" / "halftruth" / "recipes"
RECIPES = sorted(path.relative_to(FOLDER) for path in FOLDER.rglob("*.yaml"))
FOLDERS = sorted({path.parent.name for path in RECIPES})
FILES = ("labels", "truth", "images")


@pytest.fixture(params=FOLDERS)
def recipes(request):
    """The recipes of a data set."""
    return [path for path in RECIPES if path.parent.name == request.param]


def test_recipes_are_valid_but_for_the_files_they_name(recipes):
    for recipe in recipes:
        values = read_settings(recipe)
        # Without images the backbone is not looked up, which takes a while; see below.
        config = Config(**{**values, "images": []})
        wrong = [text for text in config.problems() if not text.startswith(FILES)]
        assert wrong == [], recipe
        needed = {"labels", "truth", "images", "method", "options", "lr", "epochs"}
        assert values.keys() >= needed, recipe


def test_recipes_open_with_their_command_number_and_source(recipes):
    for recipe in recipes:
        lines = (FOLDER / recipe).read_text().split("\n")
        assert lines[0].startswith("# halftruth bench labels "), recipe
        assert lines[1].startswith(f"# halftruth train {recipe} "), recipe
        assert lines[2].startswith("# Published: "), recipe
        assert lines[3].startswith("# Source: "), recipe


def test_models_of_the_recipes_exist():
    names = {yaml.safe_load((FOLDER / path).read_text())["backbone"] for path in RECIPES}
    for name in names:
        config = Config(backbone=name, images=["somewhere"], tune="all")
        assert config._model_problems() == []


def test_every_row_of_the_papers_has_a_recipe():
    there = {(path.parent.name, path.stem) for path in RECIPES}
    folders = {
        ("coco2014", "left-75"): "coco2014-left-75",
        ("coco2014", "left-40"): "coco2014-left-40",
    }
    for (data, labels, method, _), number in published_all():
        if data.startswith("sewer-ml-"):
            continue  # Table 5: subsets whose rows are not published
        folder = folders.get((data, labels), data)
        if "Zhang" in number.source and data in ("voc2012", "coco2014") and labels == "single":
            folder = f"{data}-zhang"
        assert (folder, method) in there, (data, labels, method)


def test_the_recipes_are_what_the_script_writes():
    spec = importlib.util.spec_from_file_location("recipes", ROOT / "benchmarks" / "recipes.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    wanted = {
        Path(folder) / f"{name}.yaml": script.text(folder, name)
        for folder, (*_, known) in script.TABLES.items()
        for name in known
    }
    assert wanted == {path: (FOLDER / path).read_text() for path in RECIPES}


def test_the_published_number_stands_in_the_recipe():
    assert "# Published: 89.83 (mAP; Chen et al. 2024 (GR), Table 2)" in (
        (FOLDER / "voc2012" / "gr.yaml").read_text()
    )


@pytest.mark.parametrize("name", ["voc2012/nothing.yaml", "../search_spaces.yaml", "voc2012"])
def test_what_is_no_recipe_is_not_found(name):
    assert packaged_recipe(Path(name)) is None
    with pytest.raises(ConfigError, match="holds no run"):
        read_settings(Path(name))
