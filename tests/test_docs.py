"""The method cards agree with the registry."""

import ast
import re
from pathlib import Path

import pytest

from halftruth.losses import Loss, create, registry

CARDS = Path(__file__).parent.parent / "docs" / "methods"
# Arguments of every method, explained once in the README of the cards.
SHARED = {"reduction", "eps"}
SECTIONS = [
    "What it does",
    "Arguments",
    "What it needs",
    "Differences from paper and code",
    "Published results",
    "Attribution",
]


def read(name: str) -> str:
    return (CARDS / f"{name}.md").read_text(encoding="utf-8")


def table() -> dict[str, list[str]]:
    """The rows of the README's table by method: alias, paper, unknown, needs, when to use."""
    text = read("README")
    rows = re.findall(r"^\| \[([\w-]+)\]\(\1\.md\) \| (.+) \|$", text, re.MULTILINE)
    return {name: cells.split(" | ") for name, cells in rows}


def test_there_is_a_card_for_every_method_and_no_other() -> None:
    cards = {card.stem for card in CARDS.glob("*.md")} - {"README"}
    assert cards == set(registry.names())


@pytest.mark.parametrize("name", registry.names())
def test_a_card_names_its_method_and_every_argument_it_takes(name: str) -> None:
    text = read(name)
    assert re.match(rf"# {name}\b", text)
    assert f'create("{name}"' in text
    assert f"--method {name}" in text
    missing = {
        key for key in registry.signature(name) if key not in SHARED and f"`{key}`" not in text
    }
    assert not missing


@pytest.mark.parametrize("name", registry.names())
def test_all_cards_have_the_same_sections(name: str) -> None:
    assert re.findall(r"^## (.+)$", read(name), re.MULTILINE) == SECTIONS


def as_default(words: str, default: object) -> object:
    """The value of a table cell, with the type of the default."""
    words = words.replace("`", "").replace("−", "-")
    if isinstance(default, tuple):
        return tuple(float(number) for number in re.findall(r"-?[\d.]+", words))
    if isinstance(default, bool | str):
        return type(default)(ast.literal_eval(words))
    return float(words)


@pytest.mark.parametrize("name", registry.names())
def test_the_default_a_card_states_is_the_default(name: str) -> None:
    text = read(name)
    stated = dict(re.findall(r"^\| `(\w+)` \| ([^|]+?) \|", text, re.MULTILINE))
    for key, parameter in registry.signature(name).items():
        # The card explains None in words.
        if key in stated and parameter.default not in (None, parameter.empty):
            assert as_default(stated[key], parameter.default) == parameter.default, key


@pytest.mark.parametrize("name", registry.names())
def test_the_commands_of_a_card_build_the_method(name: str) -> None:
    text = read(name)
    calls = re.findall(r"losses\.(create\(.*\)) *(?:#.*)?$", text, re.MULTILINE)
    assert calls
    for call in calls:
        assert isinstance(eval(call, {"create": create}), Loss), call
    yaml = pytest.importorskip("yaml")
    command = re.search(rf"^    halftruth train .* --method {name}( .*)?$", text, re.MULTILINE)
    assert command
    pairs = [pair.split("=") for pair in re.findall(r"--set (\S+)", command[1] or "")]
    create(name, **{key: yaml.safe_load(value) for key, value in pairs})


def test_the_table_of_methods_is_the_registry() -> None:
    rows = table()
    assert list(rows) == registry.names()
    for name, (alias, paper, unknown, needs, _) in rows.items():
        method = registry.get(name)
        assert alias == (", ".join(registry.aliases(name)) or "–")
        assert (paper, unknown) == (method.paper, method.unknown_is), name
        required = {key for key, p in registry.signature(name).items() if p.default is p.empty}
        assert required <= set(re.findall(r"\w+", needs)), name


def test_arguments_of_all_methods_are_explained_once() -> None:
    text = read("README")
    assert all(f"**`{key}`**" in text for key in SHARED)


@pytest.mark.parametrize("card", sorted(CARDS.glob("*.md")), ids=lambda card: card.stem)
def test_links_between_cards_lead_somewhere(card: Path) -> None:
    for target in re.findall(r"\]\(([\w-]+\.md)[)#]", card.read_text(encoding="utf-8")):
        assert (CARDS / target).exists(), target
