"""The registry: creating, listing, aliases, and helpful errors."""

import pytest

from halftruth import losses
from halftruth.registry import Registry

# Names and arguments that users rely on, with their defaults.
CONTRACT = {
    "bce": {"unknown": "negative"},
    "an-ls": {"smoothing": 0.1, "sides": "both"},
    "wan": {"weight": None},
    "entmin": {"weight": 0.01},
    "pr": {},
    "epr": {"weight": 1.0},
    "focal": {"gamma": 2.0, "alpha": None},
    "asl": {"gamma_pos": 0.0, "gamma_neg": 4.0, "margin": 0.05, "detach_weight": False},
    "hill": {"lam": 1.5, "margin": 1.0, "gamma": 2.0},
    "focal-margin": {"margin": 1.0, "gamma": 2.0},
    "splc": {"base": "focal-margin", "tau": 0.6, "start": 1, "margin_on_corrected": False},
    "em": {"alpha": 0.1},
    "ll-r": {"delta": 0.002},
    "ll-ct": {"delta": 0.002},
    "gr": {
        "w": (0, 2),
        "b": (-2, -2),
        "mu": (0.5, 0.8),
        "sigma": (2.0, 0.5),
        "q1": None,
        "q2": 0.01,
        "q3": 1.0,
    },
    "las": {"lam": None, "gamma_pos": 0.0, "gamma_neg": 4.0},
    "lasd": {
        "expected_positives": None,
        "lam_pos": 0.1,
        "lam_neg": None,
        "tau": 0.9,
        "gamma_pos": 0.0,
        "gamma_neg": 4.0,
    },
    "any-class": {"base": "bce", "alpha": 1.0, "lam": 0.1},
    "class-balanced": {"base": "bce", "beta": 0.9999, "counts": None, "negatives": None},
    "consistency": {"base": "lasd", "weight": None},
}


@pytest.mark.parametrize("name", CONTRACT)
def test_arguments_and_defaults(name):
    found = losses.registry.signature(name)
    for key, default in CONTRACT[name].items():
        assert found[key].default == default, key
    assert found["reduction"].default == "mean"


def test_names_are_sorted_and_can_be_searched():
    names = losses.names()
    assert names == sorted(names)
    assert set(CONTRACT) <= set(names)
    assert losses.names("any*") == ["any-class"]
    assert losses.names("nothing*") == []
    assert {"ll-ct", "ll-r"} <= set(losses.names("ll-*"))


@pytest.mark.parametrize(("alias", "name"), [("an", "bce"), ("dw", "wan")])
def test_aliases(alias, name):
    assert losses.registry.resolve(alias) == name
    assert losses.registry.get(alias) is losses.registry.get(name)
    assert losses.registry.aliases(name) == [alias]
    assert type(losses.create(alias)) is losses.registry.get(name)
    assert alias not in losses.names()


def test_classes_are_public():
    for name in losses.names():
        cls = losses.registry.get(name)
        assert getattr(losses, cls.__name__) is cls
        assert cls.__name__ in losses.__all__
    assert losses.Hill(lam=2.0).lam == 2.0
    with pytest.raises(AttributeError, match="Hil"):
        _ = losses.Hil


def test_create_from_a_name_a_mapping_or_a_loss():
    assert losses.create("asl", gamma_neg=2).gamma_neg == 2
    assert losses.create({"name": "asl", "gamma_neg": 2}).gamma_neg == 2
    assert losses.create({"name": "asl", "gamma_neg": 2}, gamma_neg=3).gamma_neg == 3
    built = losses.create("asl")
    assert losses.create(built) is built
    for base in ("hill", {"name": "hill", "lam": 1.5}, losses.Hill()):
        assert type(losses.create("splc", base=base).base) is losses.Hill


def test_a_mapping_is_not_changed():
    what = {"name": "splc", "base": {"name": "asl", "margin": 0.1}}
    losses.create(what)
    assert what == {"name": "splc", "base": {"name": "asl", "margin": 0.1}}


def test_presets_give_one_class_two_names():
    assert type(losses.create("ll-r")) is type(losses.create("ll-ct"))
    assert losses.create("ll-r").mode == "reject"
    assert losses.create("ll-ct").mode == "correct"
    with pytest.raises(TypeError, match="takes no argument 'mode'"):
        losses.create("ll-r", mode="correct")


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("hil", "hill"), ("focal_margin", "focal-margin"), ("ASL", "asl"), ("anyclass", "any-class")],
)
def test_unknown_name_lists_the_close_ones(wrong, meant):
    with pytest.raises(ValueError, match=f"no loss is called '{wrong}'") as caught:
        losses.create(wrong)
    assert f"did you mean '{meant}'" in str(caught.value)
    assert ", ".join(losses.names()) in str(caught.value)


@pytest.mark.parametrize("name", ["auto", "ensemble", "many-classes"])
def test_names_of_plans_are_explained(name):
    with pytest.raises(
        ValueError, match=f"'{name}' is no loss: it is a choice of `halftruth train`"
    ):
        losses.create(name)


def test_unknown_name_without_close_matches():
    with pytest.raises(ValueError, match="no loss is called 'zzz'") as caught:
        losses.create("zzz")
    assert "did you mean" not in str(caught.value)
    assert "hill" in str(caught.value)


def test_unknown_base_name():
    with pytest.raises(ValueError, match="did you mean 'hill'"):
        losses.create("splc", base="hil")


def test_wrong_argument_names_the_close_one():
    with pytest.raises(TypeError, match="takes no argument 'gama_neg': did you mean 'gamma_neg'"):
        losses.create("asl", gama_neg=2)
    with pytest.raises(TypeError, match=r"It takes: .*tau.*reduction"):
        losses.create("splc", zzz=1)


def test_missing_argument():
    with pytest.raises(TypeError, match=r"'epr' needs expected_positives.*create\('epr'"):
        losses.create("epr")


def test_mapping_without_a_name():
    with pytest.raises(ValueError, match='expected a "name"'):
        losses.create({"gamma": 2})


@pytest.mark.parametrize("what", [None, 3, losses.Hill, ["hill"], True], ids=repr)
def test_anything_but_a_loss_is_refused(what):
    with pytest.raises(TypeError, match=r"expected a loss: a name.* got .*The names are: an-ls"):
        losses.create(what)
    with pytest.raises(TypeError, match="expected a loss: a name"):
        losses.create("splc", base=what)


def test_an_unregistered_loss_is_accepted():
    class Mine(losses.Loss):
        pass

    mine = Mine()
    assert losses.create(mine) is mine
    assert losses.create("any-class", base=mine).base is mine


def test_arguments_for_a_loss_that_is_built():
    with pytest.raises(TypeError, match=r"already built \(Hill\): set lam"):
        losses.create(losses.Hill(), lam=2.0)


def test_a_name_can_be_registered_once():
    things: Registry[object] = Registry("thing")
    things.register("one", "uno")(int)
    for again in ("one", "uno"):
        with pytest.raises(ValueError, match=f"thing name '{again}' is already taken"):
            things.register(again)(float)
    assert things.names() == ["one"]
