"""Names of the papers for a loss together with training settings."""

import pytest

from halftruth.bench.papers import find_recipe
from halftruth.cli.terminal import show_methods
from halftruth.train import Config, load_settings
from halftruth.train.auto.named_methods import NAMED, expand_named_method


@pytest.mark.parametrize("name", NAMED)
def test_a_named_method_is_a_valid_configuration_on_images(name):
    given = {"method": name, "images": ["somewhere"], "options": {"expected_positives": 2.0}}
    if name != "role-li":
        del given["options"]
    values = expand_named_method(given)
    assert values["method"] != name
    files = ("labels", "images", "backbone")
    assert [text for text in Config(**values).problems() if not text.startswith(files)] == []


@pytest.mark.parametrize(
    ("name", "recipe"), [("l1r", "l1r"), ("l2r", "l2r"), ("role-li", "role-li")]
)
def test_its_settings_are_those_of_the_recipe(name, recipe):
    found = find_recipe(f"voc2012/{recipe}")
    assert found.items() >= NAMED[name][1].items()


def test_given_settings_and_options_replace_its_own():
    assert expand_named_method({"method": "l1r", "l1": 1e-9})["l1"] == 1e-9
    found = expand_named_method({"method": "n-ls", "options": {"smoothing": 0.3}})
    assert found["options"] == {"sides": "negative", "smoothing": 0.3}
    assert expand_named_method({"method": "em"}) == {"method": "em"}


def test_training_takes_the_name(tmp_path):
    (tmp_path / "y.csv").write_text("item,a,b\n" + "".join(f"r{k},{k % 2},1\n" for k in range(20)))
    (tmp_path / "x.csv").write_text("".join(f"{k % 2},{k}\n" for k in range(20)))
    files = {"labels": str(tmp_path / "y.csv"), "features": str(tmp_path / "x.csv")}
    config = load_settings(None, {**files, "method": "l1r"})
    assert (config.method, config.l1) == ("bce", 1e-6)


def test_the_list_of_methods_has_them(capsys):
    show_methods("role*")
    shown = capsys.readouterr().out
    assert "role-li" in shown
    assert "head_epochs=25" in shown
    show_methods("boostlu")
    assert "head='boostlu'" in capsys.readouterr().out
